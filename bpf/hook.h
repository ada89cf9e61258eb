/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Where a program stands: XDP, or with TCX behind the kernel's receive offloads, at tc ingress. */
#ifndef XDPRMA_HOOK_H
#define XDPRMA_HOOK_H

#include "kernel.h"

#ifdef TCX

#define FRAME struct __sk_buff /* no typedef: Linux 6.1 does not know it for the context */
#define FRAME_LOAD bpf_skb_load_bytes
#define FRAME_STORE(frame, at, from, len) bpf_skb_store_bytes((frame), (at), (from), (len), 0)
#define FRAME_LEN(frame) ((frame)->len)
#define FRAME_INTERFACE(frame) ((frame)->ifindex)
#define FRAME_CUT(frame, len) bpf_skb_change_tail((frame), (len), 0)

enum {
	VERDICT_PASS = -1, /* TCX_NEXT: programs behind this one see the frame, too */
	VERDICT_DROP = 2,
	VERDICT_ABORT = 2,
};

/*
 * Whether the frame is one of this host, as it was sent: it is not to another MAC address, the kernel keeps no VLAN
 * tag beside it, and it is not several in one.
 */
static __always_inline int frame_is_plain(const FRAME *frame)
{
	return frame->pkt_type == 0 && !frame->vlan_present && frame->gso_size == 0;
}

/* Makes at least len bytes of the frame reachable, if it has so many. Pointers into it are void afterwards. */
#define FRAME_PULL(frame, n) bpf_skb_pull_data((frame), (n))

/* Sends the frame back where it came from. */
static __always_inline int frame_answer(const FRAME *frame)
{
	return bpf_redirect(frame->ifindex, 0);
}

#else

#define FRAME struct xdp_md
#define FRAME_LOAD bpf_xdp_load_bytes
#define FRAME_STORE bpf_xdp_store_bytes
#define FRAME_LEN(frame) bpf_xdp_get_buff_len(frame)
#define FRAME_INTERFACE(frame) ((frame)->ingress_ifindex)
#define FRAME_CUT(frame, len) bpf_xdp_adjust_tail((frame), (int)(len) - (int)bpf_xdp_get_buff_len(frame))
#define FRAME_PULL(frame, n) 0

enum {
	VERDICT_PASS = XDP_PASS,
	VERDICT_DROP = XDP_DROP,
	VERDICT_ABORT = XDP_ABORTED,
};

static __always_inline int frame_is_plain(const FRAME *frame)
{
	const struct ethhdr *eth = (void *)(long)frame->data;
	return (void *)(eth + 1) <= (void *)(long)frame->data_end && !(eth->dest[0] & 1);
}

static __always_inline int frame_answer(const FRAME *frame)
{
	return XDP_TX;
}

#endif
#endif
