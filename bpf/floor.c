//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * For measurements: the least that XDP does to fetch a word, add to it and answer, and
 * to take the answer. There is no protocol: no session, no window, no check, no repeat.
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

/* Of a process that asks, which maps it. */
struct answer {
	__u64 awaited; /* number of the only frame that may write here; 0 once it has */
	__u64 ready;   /* number of the frame that has written, once that is through */
	__u64 word;    /* what it says */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct answer);
} answer SEC(".maps");

static __always_inline struct request *request_of(struct xdp_md *ctx)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);
	struct request *request = (void *)(udp + 1);
	if ((void *)(request + 1) > (void *)(long)ctx->data_end ||
	    eth->proto != bpf_htons(ETH_P_EXPERIMENT))
		return NULL;
	return request;
}

/* The ends of a frame that carries a request. */
static __always_inline void swap_ends(struct request *request)
{
	struct udphdr *udp = (void *)request - sizeof(*udp);
	struct iphdr *ip = (void *)udp - sizeof(*ip);
	struct ethhdr *eth = (void *)ip - sizeof(*eth);
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
	struct request *request = request_of(ctx);
	if (!request)
		return XDP_PASS;

	__u32 zero = 0;
	__u64 *at = bpf_map_lookup_elem(&word, &zero);
	if (!at)
		return XDP_ABORTED;
	swap_ends(request);
	request->word = __sync_fetch_and_add(at, request->word);
	return XDP_TX;
}

SEC("xdp.frags")
int xdprma_keep_answer(struct xdp_md *ctx)
{
	struct request *request = request_of(ctx);
	if (!request)
		return XDP_PASS;

	__u32 zero = 0;
	struct answer *at = bpf_map_lookup_elem(&answer, &zero);
	if (!at)
		return XDP_ABORTED;
	__u64 number = request->number;
	if (__sync_val_compare_and_swap(&at->awaited, number, 0) == number) {
		at->word = request->word;
		__sync_lock_test_and_set(&at->ready, number);
	}
	return XDP_DROP;
}
