/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The codes of handshakes, and the limits on their rate. */
#ifndef XDPRMA_HELLO_H
#define XDPRMA_HELLO_H

#include "kernel.h"
#include "siphash.h"
#include "wire.h"

enum {
	HELLO_VALUES = 4096, /* a power of two */
	HELLO_SIGNED = __builtin_offsetof(struct wire_keyed_hello, code),
};

/* A handshake with a code that a CPU is at. */
struct hello_work {
	union {
		struct wire_keyed_hello hello;
		__u64 words[HELLO_SIGNED / 8];
		__u8 payload[WIRE_KEYED_HELLO_LEN];
	};
	__u64 key[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hello_work);
} hello_work_map SEC(".maps");

/* Until when each CPU's allowance of handshakes is used up, in bpf_ktime_get_ns. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} hello_used SEC(".maps");

/*
 * The same for handshakes whose codes have the same low bits. One that somebody has captured,
 * and sends again and again, uses up what is its own, and hardly what others need.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HELLO_VALUES);
	__type(key, __u32);
	__type(value, __u64);
} value_used SEC(".maps");

static __always_inline struct hello_work *hello_work(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&hello_work_map, &zero);
}

/*
 * The code that the handshake of the work should have. It has global linkage, so that the
 * verifier looks at it once, and not for each place of a payload in a frame. It has no loop:
 * without CAP_PERFMON the verifier of Linux 6.1 comes to no end with one.
 */
__noinline __u64 hello_code(void)
{
	struct hello_work *w = hello_work();
	if (!w)
		return 0;
	struct siphash s = siphash_begin(w->key);
#pragma unroll
	for (int i = 0; i < HELLO_SIGNED / 8; i++)
		siphash_word(&s, w->words[i]);
	return siphash_end(&s, HELLO_SIGNED);
}

/*
 * A token bucket kept as one time stamp: each handshake advances it by the interval, and it
 * may run ahead of the clock by the burst.
 */
static __always_inline int hello_takes(__u64 *stored, __u64 interval, __u64 burst)
{
	__u64 now = bpf_ktime_get_ns();
	if (!stored)
		return 0;
	__u64 used = *stored > now ? *stored : now;
	if (used + interval > now + burst)
		return 0;
	*stored = used + interval;
	return 1;
}

#endif
