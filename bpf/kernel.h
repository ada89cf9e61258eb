/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The few kernel types that the programs need, so that they compile with
 * nothing installed but clang and libbpf's headers. The kernel promises these
 * layouts to user space; protocol headers are those of their RFCs.
 */
#ifndef XDPRMA_KERNEL_H
#define XDPRMA_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u16 __sum16;
typedef __u32 __wsum;

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define NULL ((void *)0)

/*
 * Before a loop that ends after a number of passes known here. Without CAP_PERFMON the verifier also
 * goes on where a loop ends, as a processor may do by mistake, and finds no end of it. So programs for
 * processes without it have none. They are slower with long requests, whose code is in no cache.
 */
#ifdef UNROLL
#define UNROLLED _Pragma("unroll")
#else
#define UNROLLED
#endif

/*
 * Before a function with such loops. It is part of its callers, since a call costs as much as a short request's
 * checksum. Unrolled it is too long for that.
 */
#ifdef UNROLL
#define ROLLED __noinline
#else
#define ROLLED static __always_inline
#endif

enum xdp_action {
	XDP_ABORTED,
	XDP_DROP,
	XDP_PASS,
	XDP_TX,
	XDP_REDIRECT,
};

struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

/* As far as the programs read it. */
struct __sk_buff {
	__u32 len;
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping;
	__u32 protocol;
	__u32 vlan_present;
	__u32 vlan_tci;
	__u32 vlan_proto;
	__u32 priority;
	__u32 ingress_ifindex;
	__u32 ifindex;
	__u32 tc_index;
	__u32 cb[5];
	__u32 hash;
	__u32 tc_classid;
	__u32 data;
	__u32 data_end;
	__u32 napi_id;
	__u32 socket[13]; /* of other programs */
	__u32 data_meta;
	__u64 flow_keys;
	__u64 tstamp;
	__u32 wire_len;
	__u32 gso_segs;
	__u64 sk;
	__u32 gso_size;
};

/* Likewise. */
struct bpf_sock {
	__u32 bound_dev_if;
	__u32 family;
	__u32 type;
	__u32 protocol;
	__u32 mark;
	__u32 priority;
	__u32 src_ip4;
	__u32 src_ip6[4];
	__u32 src_port; /* in the order of this processor */
};

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_DEVMAP = 14,
	BPF_MAP_TYPE_SOCKMAP = 15,
	BPF_MAP_TYPE_XSKMAP = 17,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_F_NO_PREALLOC = 1,      /* map flag, as are the next two */
	BPF_F_MMAPABLE = 1 << 10,
	BPF_F_INNER_MAP = 1 << 12,
	BPF_F_BROADCAST = 8,        /* flag of bpf_redirect_map */
	BPF_RB_NO_WAKEUP = 1,       /* flag of bpf_ringbuf_submit, as is the next */
	BPF_RB_FORCE_WAKEUP = 2,
};

enum {
	ETH_P_IP = 0x0800,
	ETH_P_IPV6 = 0x86dd,
	ETH_P_8021Q = 0x8100,
	ETH_P_8021AD = 0x88a8,
	IPPROTO_UDP = 17,
};

struct ethhdr {
	__u8 dest[6];
	__u8 source[6];
	__be16 proto;
};

enum { VLAN_ID = 0xfff }; /* in a tag's tci; the rest is a priority */

struct vlanhdr {
	__be16 tci;
	__be16 proto;
};

struct iphdr {
	__u8 version_ihl;
	__u8 tos;
	__be16 tot_len;
	__be16 id;
	__be16 frag_off;
	__u8 ttl;
	__u8 protocol;
	__sum16 check;
	__be32 saddr;
	__be32 daddr;
};

struct ipv6hdr {
	__be32 version_class_flow;
	__be16 payload_len;
	__u8 nexthdr;
	__u8 hop_limit;
	__u64 saddr[2];
	__u64 daddr[2];
};

struct udphdr {
	__be16 source;
	__be16 dest;
	__be16 len;
	__sum16 check;
};

#endif
