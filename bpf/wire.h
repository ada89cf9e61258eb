/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The header that every frame's UDP payload starts with. Little-endian, each
 * field aligned to its size, no padding. A test compares it with the Go layout.
 */
#ifndef XDPRMA_WIRE_H
#define XDPRMA_WIRE_H

#include "kernel.h"

enum {
	WIRE_MAGIC = 0x414d5258, /* the bytes "XRMA" */
	WIRE_VERSION = 5,
	WIRE_HEADER_LEN = 80,
	WIRE_HELLO_LEN = 64,
	WIRE_KEYED_HELLO_LEN = 312, /* with the header */
};

enum wire_kind {
	WIRE_HELLO = 1,
	WIRE_HELLO_ACK = 2,
	WIRE_DATA = 3,
	WIRE_ACK = 4,
	WIRE_RESET = 5,
	WIRE_EXPRESS = 6,
	WIRE_TICKET = 7, /* with keys alone */
};

enum {
	WIRE_FLAG_RESPONSE = 1 << 2,
	WIRE_FLAG_USER = 1 << 4,   /* of WIRE_EXPRESS: not for this program */
	WIRE_FLAG_JOINED = 1 << 5, /* of WIRE_DATA: for the UDP socket, however many there are in one */
};

struct wire_header {
	__u32 magic;
	__u8 version;
	__u8 kind;
	__u8 flags;
	__u8 reserved;
	__u64 session; /* chosen by the receiver of the frame; 0 only in a hello */
	__u32 checksum;
	__u32 credits;
	__u64 packet_number;
	__u64 sequence;
	__u64 ack_largest;
	__u64 ack_bits;
	__u64 ack_requests;
	__u64 ack_responses;
	__u32 order;
	__u32 refusals;
};

_Static_assert(sizeof(struct wire_header) == WIRE_HEADER_LEN, "header length");

/* What the body of a hello begins with. */
struct wire_hello {
	__u64 job;
};

/* A whole handshake of a job with a key. */
struct wire_keyed_hello {
	struct wire_header header;
	struct wire_hello hello;
	__u8 rest[216];
	__u64 code;
};

_Static_assert(sizeof(struct wire_keyed_hello) == WIRE_KEYED_HELLO_LEN, "handshake length");

#endif
