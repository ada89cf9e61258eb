//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Steers frames of known sessions into AF_XDP sockets, past the kernel's stack.
 * What is not addressed to our ports at our address passes to the kernel untouched.
 * What is addressed to them and not acceptable is dropped and counted by reason.
 *
 * With EXECUTES, small requests are executed and answered here. That is a program of its
 * own, because not every kernel and process that can load the one can load the other.
 */
#include "counter.h"
#include "hello.h"
#include "kernel.h"
#include "parse.h"
#include "rank.h"
#include "wire.h"
#ifdef EXECUTES
#include "exchange.h"
#endif

char __license[] SEC("license") = "Dual BSD/GPL";

struct config {
	struct address address;
	struct ports ports;
	__u32 longest;        /* bytes of the longest payload of one frame; 0: any */
	__u64 generic;        /* 1: the program runs in generic mode */
};

/* Which hellos are let through. A process that is lent the program says so itself. */
struct hello_config {
	__u64 job;            /* whose; 0: of any */
	__u64 hello_interval; /* ns between handshakes at the allowed rate, a CPU */
	__u64 hello_burst;    /* ns of unused rate that may be saved up */
	__u64 keyed;          /* 1: handshakes have codes */
	__u64 hello_key[2];   /* by this key */
	__u64 value_interval; /* like hello_interval, for those whose codes have the same low bits */
	__u64 value_burst;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct config);
} config_map SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hello_config);
} hello_map SEC(".maps");

/* Indexed by receive queue; user space sets the size before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} xsks SEC(".maps");

/* Whether a hello is of our job. Hellos of others take nothing of its allowance. */
static __always_inline int hello_is_ours(struct xdp_md *ctx, const struct wire_header *h,
					 __u32 len, const struct hello_config *cfg)
{
	const struct wire_hello *hello = (void *)(h + 1);
	if (cfg->job == 0)
		return 1;
	return len == WIRE_HEADER_LEN + WIRE_HELLO_LEN &&
	       (void *)(hello + 1) <= (void *)(long)ctx->data_end && hello->job == cfg->job;
}

/* Whether a hello is within the limit on all. */
static __always_inline int hello_allowed(const struct hello_config *cfg)
{
	__u32 zero = 0;
	return hello_takes(bpf_map_lookup_elem(&hello_used, &zero), cfg->hello_interval, cfg->hello_burst);
}

/* Whether handshakes with such a code are within the limit on their own. */
static __always_inline int value_allowed(const struct hello_config *cfg, __u64 code)
{
	__u32 index = code & (HELLO_VALUES - 1);
	return hello_takes(bpf_map_lookup_elem(&value_used, &index), cfg->value_interval, cfg->value_burst);
}

/*
 * Hands a frame over to user space, and counts why. A frame for a queue without a socket
 * goes on to the kernel: the UDP socket that holds the port receives it.
 */
static __always_inline int to_user(struct xdp_md *ctx, enum counter why)
{
	if (bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS) != XDP_REDIRECT)
		return to_stack(COUNTER_NO_SOCKET);
	return count(why, XDP_REDIRECT);
}

/*
 * Decides about a handshake of a job with a key, looking at a copy: its end need not be in the
 * frame's first buffer. Only who knows the key can make one, but everybody can send a captured
 * one again. So one without a session is limited by its value, before the limit on all.
 */
static __always_inline int keyed_hello(struct xdp_md *ctx, const struct datagram *d, __u64 session,
				       const struct hello_config *cfg)
{
	struct hello_work *w = hello_work();
	if (!w || d->len != WIRE_KEYED_HELLO_LEN || bpf_xdp_load_bytes(ctx, d->offset, w->payload, WIRE_KEYED_HELLO_LEN))
		return count(COUNTER_OTHER_JOB, XDP_DROP);
	if (cfg->job && w->hello.hello.job != cfg->job)
		return count(COUNTER_OTHER_JOB, XDP_DROP);
	w->key[0] = cfg->hello_key[0];
	w->key[1] = cfg->hello_key[1];
	__u64 code = w->hello.code;
	if (hello_code() != code)
		return count(COUNTER_BAD_CODE, XDP_DROP);
	if (session == 0 && (!value_allowed(cfg, code) || !hello_allowed(cfg)))
		return count(COUNTER_HELLO_LIMITED, XDP_DROP);
	return to_user(ctx, COUNTER_REDIRECTED);
}

/* Decides about a handshake. */
static __always_inline int handshake(struct xdp_md *ctx, const struct wire_header *h, const struct datagram *d,
				     const struct config *cfg)
{
	__u32 zero = 0;
	const struct hello_config *greeting = bpf_map_lookup_elem(&hello_map, &zero);
	if (!greeting)
		return XDP_ABORTED;
	if (h->kind < WIRE_HELLO || (h->kind == WIRE_TICKET && !greeting->keyed))
		return count(COUNTER_UNKNOWN_KIND, XDP_DROP);
	__u64 session = h->session;
	int first = session == 0 && h->kind != WIRE_HELLO_ACK;
	if (!first && !bpf_map_lookup_elem(&sessions, &session))
		return count(COUNTER_UNKNOWN_SESSION, XDP_DROP);
	if (!first && cfg->longest && d->len > cfg->longest)
		return to_stack(COUNTER_JOINED);
	if (greeting->keyed)
		return keyed_hello(ctx, d, session, greeting);
	if (first && !hello_is_ours(ctx, h, d->len, greeting))
		return count(COUNTER_OTHER_JOB, XDP_DROP);
	if (first && !hello_allowed(greeting))
		return count(COUNTER_HELLO_LIMITED, XDP_DROP);
	return to_user(ctx, COUNTER_REDIRECTED);
}

#ifdef EXECUTES
/* Decides about an express frame, whose session has the slot with that index. */
static __always_inline int express(struct xdp_md *ctx, int answers_us, const struct datagram *d, __u32 slot_index,
				   const struct config *cfg)
{
	int reason = exchange(ctx, answers_us, d, slot_index, cfg->generic);
	int verdict = exchange_verdict(ctx, reason);
	return verdict == EXCHANGE_TO_USER ? to_user(ctx, reason) : verdict;
}
#endif

/*
 * Decides about a frame to our address and ports whose header is in reach. Not inlined, so that BTF
 * describes the header.
 *
 * A sender's kernel may leave frames joined that a virtual link carries at once, and in
 * generic mode they come so; or this kernel has joined what came one by one. The UDP socket
 * that holds the port gets them one by one.
 */
static __noinline int admit(struct xdp_md *ctx, const struct wire_header *h, const struct datagram *d,
			    const struct config *cfg)
{
	if (h->magic != WIRE_MAGIC)
		return count(COUNTER_BAD_MAGIC, XDP_DROP);
	if (h->version != WIRE_VERSION)
		return count(COUNTER_BAD_VERSION, XDP_DROP);
	if (h->kind <= WIRE_HELLO_ACK || h->kind == WIRE_TICKET)
		return handshake(ctx, h, d, cfg);
	if (h->kind > WIRE_EXPRESS)
		return count(COUNTER_UNKNOWN_KIND, XDP_DROP);

	__u64 session = h->session, slot_index = EXPRESS_NO_SLOT;
#ifdef EXECUTES
	if (h->kind == WIRE_EXPRESS)
		slot_index = express_recent(session);
#endif
	if (slot_index == EXPRESS_NO_SLOT) {
		const __u32 *slot = bpf_map_lookup_elem(&sessions, &session);
		if (!slot)
			return count(COUNTER_UNKNOWN_SESSION, XDP_DROP);
		slot_index = *slot - 1;
#ifdef EXECUTES
		if (h->kind == WIRE_EXPRESS)
			express_remember(session, slot_index);
#endif
	}
	if ((h->kind == WIRE_DATA && h->flags & WIRE_FLAG_JOINED) || (cfg->longest && d->len > cfg->longest))
		return to_stack(COUNTER_JOINED);
#ifdef EXECUTES
	if (h->kind == WIRE_EXPRESS)
		return express(ctx, h->flags & WIRE_FLAG_RESPONSE, d, slot_index, cfg);
#endif
	return to_user(ctx, COUNTER_REDIRECTED);
}

SEC("xdp.frags")
int xdprma_classify(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct datagram d = {};
	const struct config *cfg = bpf_map_lookup_elem(&config_map, &zero);
	if (!cfg)
		return XDP_PASS;

	switch (parse(ctx, &cfg->address, &cfg->ports, NULL, &d)) {
	case PARSED_OURS:
		break;
	case PARSED_FRAGMENT:
		return count(COUNTER_FRAGMENT, XDP_PASS);
	case PARSED_BAD_LENGTH:
		return count(COUNTER_BAD_LENGTH, XDP_DROP);
	default:
		return count(COUNTER_PASSED, XDP_PASS);
	}

	if (d.len < WIRE_HEADER_LEN)
		return count(COUNTER_TOO_SHORT, XDP_DROP);
	struct wire_header *h = d.payload;
	if ((void *)(h + 1) > (void *)(long)ctx->data_end)
		return count(COUNTER_SPLIT_HEADER, XDP_DROP);
	return admit(ctx, h, &d, cfg);
}
