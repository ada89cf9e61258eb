//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * For tests: a wire that loses, damages and duplicates frames by a schedule.
 *
 * The program runs on one port of a relay that stands between two hosts, and
 * sends every frame out of the relay's other port. XDP cannot copy a frame, but
 * a device map can: broadcasting to a map whose two entries name the same port
 * sends the frame twice. That works for frames in one buffer; others cross the
 * relay once. Faults are thus independent of the receiver's own
 * program. Frames that are not ours cross the relay untouched, and do not
 * advance the schedule.
 */
#include "kernel.h"
#include "parse.h"

char __license[] SEC("license") = "Dual BSD/GPL";

enum action {
	ACTION_PASS,
	ACTION_DROP,
	ACTION_CORRUPT,
	ACTION_DUPLICATE,
	ACTIONS,
};

struct fault {
	__u8 action;
	__u8 mask;    /* corrupt: the bits to flip */
	__u16 offset; /* corrupt: of the byte in the UDP payload */
};

struct relay_state {
	struct ports ports;
	__u32 length;   /* of the schedule; 0 passes every frame */
	__u32 position; /* in the schedule, of the next frame, before the modulus */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct relay_state);
} relay SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct fault);
} schedule SEC(".maps");

/* How often each action was taken. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ACTIONS);
	__type(key, __u32);
	__type(value, __u64);
} taken SEC(".maps");

/* Both entries name the port to send through. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} out SEC(".maps");

static __always_inline void count(enum action action)
{
	__u32 key = action;
	__u64 *n = bpf_map_lookup_elem(&taken, &key);
	if (n)
		(*n)++;
}

/*
 * Damages one byte of the payload. A byte beyond its end leaves the frame as it is.
 * The UDP checksum is left alone, as a wire would.
 */
static __always_inline void corrupt(struct xdp_md *ctx, const struct datagram *d,
				    const struct fault *f)
{
	__u8 byte;
	__u32 at = d->offset + f->offset;
	if (f->offset >= d->len || bpf_xdp_load_bytes(ctx, at, &byte, 1))
		return;
	byte ^= f->mask;
	bpf_xdp_store_bytes(ctx, at, &byte, 1);
}

/* A broadcast copies single-buffer frames only, and loses others altogether. */
static __always_inline int in_one_buffer(struct xdp_md *ctx)
{
	__u64 first = ctx->data_end - ctx->data;
	return bpf_xdp_get_buff_len(ctx) == first;
}

SEC("xdp.frags")
int xdprma_faults(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct datagram d = {};
	struct relay_state *r = bpf_map_lookup_elem(&relay, &zero);
	if (!r)
		return XDP_ABORTED;
	__u32 length = r->length;
	if (parse(ctx, NULL, &r->ports, NULL, &d) != PARSED_OURS || length == 0)
		return bpf_redirect_map(&out, 0, XDP_ABORTED);

	__u32 next = __sync_fetch_and_add(&r->position, 1) % length;
	struct fault *f = bpf_map_lookup_elem(&schedule, &next);
	if (!f)
		return XDP_ABORTED;
	switch (f->action) {
	case ACTION_DROP:
		count(ACTION_DROP);
		return XDP_DROP;
	case ACTION_DUPLICATE:
		if (!in_one_buffer(ctx))
			break;
		count(ACTION_DUPLICATE);
		return bpf_redirect_map(&out, 0, BPF_F_BROADCAST);
	case ACTION_CORRUPT:
		count(ACTION_CORRUPT);
		corrupt(ctx, &d, f);
		return bpf_redirect_map(&out, 0, XDP_ABORTED);
	}
	count(ACTION_PASS);
	return bpf_redirect_map(&out, 0, XDP_ABORTED);
}
