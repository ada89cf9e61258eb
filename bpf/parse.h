/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Finds the UDP payload of a frame that is addressed to our address and one of our ports. */
#ifndef XDPRMA_PARSE_H
#define XDPRMA_PARSE_H

#include "hook.h"

enum parsed {
	PARSED_OTHER,      /* another protocol, address or port, or headers we do not read */
	PARSED_FRAGMENT,   /* to our address: a fragment of an IPv4 UDP datagram; its port is not known */
	PARSED_BAD_LENGTH, /* to our address and port, but the lengths contradict each other */
	PARSED_OURS,
};

struct ports {
	__u16 base;
	__u16 count;
};

/* An IP address. No address of a group or of all hosts of a network is one of ours. */
struct address {
	__u64 words[2]; /* as in the header; of IPv4 the first four bytes, the rest is 0 */
	__u16 protocol; /* ETH_P_IP or ETH_P_IPV6 */
};

/* To which rank a datagram is. */
struct place {
	struct address address;
	__be16 port;
};

/*
 * Words on the stack: without CAP_PERFMON the verifier of Linux 6.1 takes a known number in
 * one half of a word for a pointer, which nothing may be written beside.
 */
struct datagram {
	void *payload; /* of UDP; its first byte need not be in the first buffer */
	__u64 offset;  /* of the payload from the frame's start */
	__u64 len;     /* of the payload */
	__u64 ip;      /* where its IP header begins, if that has no options; else 0 */
};

/* A place in the frame, as a pointer and as a number. */
struct cursor {
	void *p;
	__u32 at;
};

/*
 * Moves by a constant, and the compiler must leave it one: without CAP_PERFMON
 * the verifier takes neither packet pointer plus register nor the difference of
 * two packet pointers.
 */
#define ADVANCE(c, n)                                                \
	do {                                                         \
		asm volatile("%0 += %1" : "+r"((c)->p) : "i"(n)); \
		(c)->at += (n);                                      \
	} while (0)

/*
 * Reads Ethernet with up to two priority tags. Returns the next protocol, or 0. Like the kernel it
 * does not take frames of VLANs on this interface for its own: on a VLAN interface frames of that VLAN
 * have its tag no more. A tag that the device or the sender's kernel keeps beside the frame is not to be
 * seen here.
 */
static __always_inline __be16 parse_link(struct cursor *c, void *end)
{
	struct ethhdr *eth = c->p;
	if ((void *)(eth + 1) > end)
		return 0;
	__be16 proto = eth->proto;
	ADVANCE(c, sizeof(*eth));

#pragma unroll
	for (int i = 0; i < 2; i++) {
		if (proto != bpf_htons(ETH_P_8021Q) && proto != bpf_htons(ETH_P_8021AD))
			break;
		struct vlanhdr *vlan = c->p;
		if ((void *)(vlan + 1) > end)
			return 0;
		if (vlan->tci & bpf_htons(VLAN_ID))
			return 0;
		proto = vlan->proto;
		ADVANCE(c, sizeof(*vlan));
	}
	return proto;
}

/* Reads IPv4 with options. PARSED_OURS means that a UDP header follows. */
static __always_inline enum parsed parse_ipv4(struct cursor *c, void *end, const struct address *own,
					      struct place *to, __u32 *payload_len)
{
	struct iphdr *ip = c->p;
	if ((void *)(ip + 1) > end)
		return PARSED_OTHER;
	__u32 words = ip->version_ihl & 0xf;
	__u32 header = words * 4, len = bpf_ntohs(ip->tot_len);
	if (ip->version_ihl >> 4 != 4 || header < sizeof(*ip) || ip->protocol != IPPROTO_UDP)
		return PARSED_OTHER;
	if (own && ip->daddr != (__be32)own->words[0])
		return PARSED_OTHER;
	if (ip->frag_off & bpf_htons(0x3fff)) /* more to come, or an offset */
		return PARSED_FRAGMENT;
	if (to)
		to->address.words[0] = ip->daddr;
	*payload_len = len < header ? 0 : len - header;
	ADVANCE(c, sizeof(*ip));
	__u32 options = words - sizeof(*ip) / 4;
	if (options & 1)
		ADVANCE(c, 4);
	if (options & 2)
		ADVANCE(c, 8);
	if (options & 4)
		ADVANCE(c, 16);
	if (options & 8)
		ADVANCE(c, 32);
	return PARSED_OURS;
}

/* Reads IPv6 without extension headers, likewise. */
static __always_inline enum parsed parse_ipv6(struct cursor *c, void *end, const struct address *own,
					      struct place *to, __u32 *payload_len)
{
	struct ipv6hdr *ip = c->p;
	if ((void *)(ip + 1) > end)
		return PARSED_OTHER;
	if (bpf_ntohl(ip->version_class_flow) >> 28 != 6 || ip->nexthdr != IPPROTO_UDP)
		return PARSED_OTHER;
	if (own && (ip->daddr[0] != own->words[0] || ip->daddr[1] != own->words[1]))
		return PARSED_OTHER;
	if (to) {
		to->address.words[0] = ip->daddr[0];
		to->address.words[1] = ip->daddr[1];
	}
	*payload_len = bpf_ntohs(ip->payload_len);
	ADVANCE(c, sizeof(*ip));
	return PARSED_OURS;
}

/*
 * Headers that are not in the frame's first buffer are not read. Without own, every
 * address is ours, and without ports every port. With to, that is filled in. The address is judged before anything else that is wrong with a frame:
 * other sockets of this host, and hosts behind it, may use the same port.
 */
static __always_inline enum parsed parse(FRAME *ctx, const struct address *own,
					 const struct ports *ports, struct place *to, struct datagram *out)
{
	void *end = (void *)(long)ctx->data_end;
	struct cursor c = {.p = (void *)(long)ctx->data};
	enum parsed result = PARSED_OTHER;
	__u32 ip_payload = 0;

	__be16 proto = parse_link(&c, end);
	__u32 ip = c.at;
	if (own && proto != bpf_htons(own->protocol))
		return PARSED_OTHER;
	if (proto == bpf_htons(ETH_P_IP))
		result = parse_ipv4(&c, end, own, to, &ip_payload);
	else if (proto == bpf_htons(ETH_P_IPV6))
		result = parse_ipv6(&c, end, own, to, &ip_payload);
	if (result != PARSED_OURS)
		return result;

	struct udphdr *udp = c.p;
	if ((void *)(udp + 1) > end)
		return PARSED_OTHER;
	if (ports && (__u16)(bpf_ntohs(udp->dest) - ports->base) >= ports->count)
		return PARSED_OTHER;
	/* A frame may be longer than its datagram: short ones are padded. */
	__u32 len = bpf_ntohs(udp->len);
	if (len < sizeof(*udp) || len != ip_payload || c.at + len > FRAME_LEN(ctx))
		return PARSED_BAD_LENGTH;

	if (to) {
		to->address.protocol = bpf_ntohs(proto);
		to->port = udp->dest;
	}
	ADVANCE(&c, sizeof(*udp));
	out->payload = c.p;
	out->offset = c.at;
	out->len = len - sizeof(*udp);
	out->ip = proto == bpf_htons(ETH_P_IP) && c.at != ip + sizeof(struct iphdr) + sizeof(*udp) ? 0 : ip;
	return PARSED_OURS;
}

#endif
