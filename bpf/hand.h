/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Hands answers to requests of this rank to its process, past the sockets. */
#ifndef XDPRMA_HAND_H
#define XDPRMA_HAND_H

#include "serve.h"

/*
 * Ends the record a, of which the process learns that it is there, and wakes the process if that
 * sleeps. The process says that it sleeps before it looks a last time whether there is a
 * record, and this program makes the record before it asks: so one of the two sees the other.
 */
#define HAND_SUBMIT(a, w)                                                                            \
	do {                                                                                         \
		__u64 zero_ = 0;                                                                     \
		struct express_bell *bell_ = RANK_LOOKUP(bell, (w), &zero_);                         \
		int wakes_ = bell_ && LOAD_ORDERED(&bell_->asleep);                                  \
		bpf_ringbuf_submit((a), wakes_ ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);            \
	} while (0)

/*
 * Puts n bytes of the frame, at least so many, into a record of a type, and returns what becomes of
 * the answer. It compares n with each limit by itself, for express_results' reason.
 */
#define HAND(type, ctx, w, at, n, least)                                                             \
	({                                                                                           \
		int fate_ = COUNTER_EXPRESS_BAD_FORM;                                                \
		__u64 n_ = (n);                                                                      \
		if (n_ >= (least)) {                                                                 \
			n_ = opaque(n_);                                                             \
			if (n_ <= sizeof(((struct type *)0)->payload)) {                             \
				void *ring_ = OF_RANK(answers, (w));                                 \
				struct type *a_ = ring_ ? bpf_ringbuf_reserve(ring_, sizeof(*a_), 0) : NULL; \
				fate_ = COUNTER_EXPRESS_NO_ROOM;                                     \
				if (a_) {                                                            \
					a_->len = n_;                                                \
					if (n_ > express_near((ctx), (w), (__u64 *)a_->payload) &&   \
					    FRAME_LOAD((ctx), (at), a_->payload, n_))        \
						a_->len = 0;                                         \
					HAND_SUBMIT(a_, w);                                          \
					fate_ = COUNTER_EXPRESS_HANDED;                              \
				}                                                                    \
			}                                                                            \
		}                                                                                    \
		fate_;                                                                               \
	})

/*
 * Hands the answer of len bytes that the frame holds to the process, and returns what becomes of it. The
 * arguments are as express_serve has them. Number, try, fate and length are for the process to judge: it
 * knows what it has asked.
 */
__noinline int express_hand(FRAME *ctx, __u64 slot_index, __u64 len, __u64 ip, __u64 payload)
{
	struct express_work *w = express_work();
	const struct express_slot *slot = express_slot(w, slot_index);
	if (!w)
		return COUNTER_EXPRESS_BAD_FORM;
	len = opaque(len);
	int reason = express_read(ctx, w, slot, slot_index, len, ip, payload, 1);
	if (reason != COUNTER_EXPRESS_EXECUTED)
		return reason;
	/*
	 * Without CAP_PERFMON the verifier follows a branch that it knows not to be taken, as a
	 * processor may by mistake, and forgets there what it knew of the length. Of what comes from
	 * memory it knows nothing before the comparisons.
	 */
	STORE(&w->end, len);
	return len <= EXPRESS_SHORT ? HAND(express_short, ctx, w, payload, LOAD(&w->end), WIRE_HEADER_LEN)
				    : HAND(express_long, ctx, w, payload, LOAD(&w->end), EXPRESS_SHORT + 1);
}

#endif
