//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Serves several ranks on an interface. The switch finds out whose a frame is, and leaves those of others untouched.
 * The executor is one program for the ranks of all switches: it executes small requests, takes answers, and leaves
 * the rest to the rank's UDP socket.
 */
#define SHARED
#include "exchange.h"

char __license[] SEC("license") = "Dual BSD/GPL";

#ifdef TCX
#define HOOK "tcx/ingress"
#else
#define HOOK "xdp"
#endif

/* 1: the kernel has made a packet of the frame before it comes here. */
const volatile __u64 generic = 1;

/* The ranks of the switch's interface, by where datagrams to them go. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct place);
	__type(value, __u32);
} places SEC(".maps");

/* Their UDP sockets. The kernel takes one out when it is closed, so that no dead rank is served. */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} executor SEC(".maps");

/* What the switch tells the executor, on the same CPU. */
struct errand {
	__u64 rank;
	__u64 offset, len, ip; /* as in struct datagram */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct errand);
} errands SEC(".maps");

static __always_inline struct errand *errand(void)
{
	__u64 zero = 0;
	return bpf_map_lookup_elem(&errands, &zero);
}

/*
 * Whether a socket still has the port of a place at an interface. Who disconnects a socket may give its port up, and
 * who binds it to another interface leaves the place to others here.
 */
static __always_inline int has_place(const struct bpf_sock *socket, const struct place *at, __u32 interface)
{
	__u32 bound = socket->bound_dev_if;
	return socket->src_port == bpf_ntohs(at->port) && (bound == 0 || bound == interface);
}

SEC(HOOK)
int xdprma_switch(FRAME *ctx)
{
	struct datagram d = {};
	struct place to = {};

	if (!frame_is_plain(ctx) || parse(ctx, NULL, NULL, &to, &d) != PARSED_OURS)
		return VERDICT_PASS;
	const __u32 *rank = bpf_map_lookup_elem(&places, &to);
	if (!rank)
		return VERDICT_PASS;
	__u32 index = *rank;
	struct bpf_sock *socket = bpf_map_lookup_elem(&sockets, &index);
	if (!socket)
		return VERDICT_PASS;
	int has = has_place(socket, &to, FRAME_INTERFACE(ctx));
	bpf_sk_release(socket);
	if (!has)
		return VERDICT_PASS;
	struct errand *e = errand();
	if (!e)
		return VERDICT_PASS;
	e->rank = index;
	e->offset = d.offset;
	e->len = d.len;
	e->ip = d.ip;
	bpf_tail_call(ctx, &executor, 0);
	return VERDICT_PASS;
}

/* The index of the slot that a session of the rank has, EXPRESS_NO_SLOT if it has none. */
static __always_inline __u64 slot_of(struct express_work *w, __u64 session)
{
	__u64 index = express_recent(session);
	if (index != EXPRESS_NO_SLOT)
		return index;
	const __u32 *slot = RANK_LOOKUP(sessions, w, &session);
	if (!slot)
		return EXPRESS_NO_SLOT;
	index = *slot - 1;
	express_remember(session, index);
	return index;
}

SEC(HOOK)
int xdprma_execute(FRAME *ctx)
{
	const struct errand *e = errand();
	struct express_work *w = express_work();
	if (!e || !w)
		return VERDICT_PASS;
	struct datagram d = {.offset = e->offset, .len = e->len, .ip = e->ip};
	w->rank = e->rank;
	if (d.len < WIRE_HEADER_LEN || !d.ip)
		return to_stack(COUNTER_SOCKET);
	w->ip = d.ip;
	w->payload_at = d.offset;
	const struct wire_header *h = express_payload(ctx, w);
	if ((void *)(h + 1) > (void *)(long)ctx->data_end) {
		if (FRAME_PULL(ctx, d.offset + WIRE_HEADER_LEN))
			return to_stack(COUNTER_SOCKET);
		h = express_payload(ctx, w);
		if ((void *)(h + 1) > (void *)(long)ctx->data_end)
			return to_stack(COUNTER_SOCKET);
	}
	if (h->magic != WIRE_MAGIC || h->version != WIRE_VERSION || h->kind != WIRE_EXPRESS)
		return to_stack(COUNTER_SOCKET);
	int answers_us = h->flags & WIRE_FLAG_RESPONSE;
	int reason = exchange(ctx, answers_us, &d, slot_of(w, h->session), generic);
	int verdict = exchange_verdict(ctx, reason);
	return verdict == EXCHANGE_TO_USER ? to_stack(reason) : verdict;
}
