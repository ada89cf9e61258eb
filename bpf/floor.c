//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * For measurements: the least that XDP does to fetch a word, add to it and answer.
 * There is no protocol: no session, no window, no check, no repeat.
 *
 * A frame has the shape of UDP over IPv4, but an EtherType for experiments. Others
 * pass to the kernel.
 */
#include "kernel.h"

char __license[] SEC("license") = "Dual BSD/GPL";

enum {
	ETH_P_EXPERIMENT = 0x88b5,
};

struct request {
	__u64 magic; /* of a floor's frame; the program does not look */
	__u64 number;
	__u64 word; /* what to add; in the answer, what was there */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} word SEC(".maps");

static __always_inline void swap_ends(struct ethhdr *eth, struct iphdr *ip, struct udphdr *udp)
{
	__u16 *dest = (void *)eth->dest, *source = (void *)eth->source;
#pragma unroll
	for (int i = 0; i < 3; i++) {
		__u16 part = dest[i];
		dest[i] = source[i];
		source[i] = part;
	}

	__be32 addr = ip->saddr;
	ip->saddr = ip->daddr;
	ip->daddr = addr;

	__be16 port = udp->source;
	udp->source = udp->dest;
	udp->dest = port;
}

SEC("xdp.frags")
int xdprma_fetch_add(struct xdp_md *ctx)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);
	struct request *request = (void *)(udp + 1);
	if ((void *)(request + 1) > (void *)(long)ctx->data_end ||
	    eth->proto != bpf_htons(ETH_P_EXPERIMENT))
		return XDP_PASS;

	__u32 zero = 0;
	__u64 *at = bpf_map_lookup_elem(&word, &zero);
	if (!at)
		return XDP_ABORTED;
	swap_ends(eth, ip, udp);
	request->word = __sync_fetch_and_add(at, request->word);
	return XDP_TX;
}
