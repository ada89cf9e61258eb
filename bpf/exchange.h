/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Decides about an express frame. */
#ifndef XDPRMA_EXCHANGE_H
#define XDPRMA_EXCHANGE_H

#include "hand.h"
#include "serve.h"

/* Not a verdict: the frame is for user space. */
#define EXCHANGE_TO_USER 1000

/*
 * Serves the request that the frame holds, or hands the answer over, and returns what becomes of it. Its session has
 * the slot with that index.
 */
static __always_inline int exchange(FRAME *ctx, int answers_us, const struct datagram *d, __u32 slot_index, int generic)
{
	if (answers_us)
		return express_hand(ctx, slot_index, d->len, d->ip, d->offset);
	int reason = express_serve(ctx, slot_index, d->len, d->ip, d->offset);
	if (reason != COUNTER_EXPRESS_EXECUTED && reason != COUNTER_EXPRESS_REPEATED)
		return reason;
	int failed = express_answer(ctx, slot_index, d->len, generic);
	return failed == COUNTER_EXPRESS_EXECUTED ? reason : failed;
}

/* The verdict on a frame of which that became, which is counted unless the frame is for user space. */
static __always_inline int exchange_verdict(FRAME *ctx, int reason)
{
	if (reason == COUNTER_EXPRESS_EXECUTED || reason == COUNTER_EXPRESS_REPEATED)
		return count(reason, frame_answer(ctx));
	if (reason < COUNTER_EXPRESS_BAD_FORM || reason > COUNTER_EXPRESS_HANDED)
		return VERDICT_ABORT;
	if (reason < COUNTER_EXPRESS_USER || reason == COUNTER_EXPRESS_HANDED)
		return count(reason, VERDICT_DROP);
	return EXCHANGE_TO_USER;
}

#endif
