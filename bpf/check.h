/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Whether this program executes a record. */
#ifndef XDPRMA_CHECK_H
#define XDPRMA_CHECK_H

#include "rank.h"

/* Beside the rights at a window: any of them. */
#define MAY_SOMETHING (MAY_ALL + 1)

/* The size of an integer, 0 if basic is none. */
static __always_inline __u32 integer_size(__u32 basic)
{
	if (basic < BASIC_INT8 || basic > BASIC_UINT64)
		return 0;
	return 1U << ((basic - 1) & 3);
}

/* Whether n bytes at disp are moved without tearing an element. */
static __always_inline int is_whole(__u64 disp, __u64 n)
{
	if (n == 0)
		return 0;
	if (n == 1 || n == 2 || n == 4)
		return (disp & (n - 1)) == 0;
	return (disp & 7) == 0;
}

/* Whether a single instruction is for op, so that several elements are combined. */
static __always_inline int is_single(__u32 op)
{
	return OP_IS_SINGLE(op);
}

/* Whether the accumulate s on n bytes at disp is executed here. */
static __always_inline int combines(const struct express_step *s, __u64 disp, __u64 n)
{
	__u32 size = integer_size(s->basic);
	if (size == 0 || n == 0 || (n & (size - 1)) || (disp & (size - 1)) || s->op < OP_SUM || s->op > OP_NO_OP)
		return 0;
	return n == size || (is_single(s->op) && size >= 4 && n <= size * EXPRESS_MAX_ELEMENTS);
}

/* The right that the operator of an accumulate needs. */
static __always_inline __u32 changes(__u32 op)
{
	return op == OP_REPLACE ? MAY_WRITE : MAY_ACCUMULATE;
}

/*
 * Fills in what a record with n bytes of data needs, and returns the rights that it needs:
 * 0 if it is none that is executed here. part is the first word of the data.
 */
static __always_inline __u64 record_form(struct express_step *s, __u64 disp, __u64 n, __u64 part)
{
	__u64 size = opaque(integer_size(s->basic)), want = opaque(part >> 32);
	__u64 asks = opaque(n >= RECORD_PART && (__u32)part == 0 && want <= EXPRESS_MAX_RESULTS);

	s->span = s->result = 0;
	s->counts = s->code == RECORD_NOTIFY ||
		    (s->flags == RECORD_NOTIFIES && RECORD_MAY_NOTIFY(s->code));
	if (s->flags && !s->counts && (s->code != RECORD_LOCK || s->flags != RECORD_EXCLUSIVE))
		return 0;
	switch (s->code) {
	case RECORD_NOTIFY:
		return n == 0 && s->flags <= RECORD_IF_DONE ? MAY_SOMETHING : 0;
	case RECORD_LOCK:
	case RECORD_UNLOCK: /* of a lock in the same request */
		return n == 0 ? NEEDS_LOCK : 0;
	case RECORD_PUT:
		s->span = n;
		return is_whole(disp, n) ? NEEDS_PUT : 0;
	case RECORD_GET:
		s->span = s->result = want;
		return asks && n == RECORD_PART && is_whole(disp, want) ? NEEDS_GET : 0;
	case RECORD_ACCUMULATE:
		s->span = n;
		return combines(s, disp, n) ? changes(s->op) : 0;
	case RECORD_GET_ACCUMULATE:
		s->span = s->result = want;
		s->data += RECORD_PART;
		if (!asks || n != RECORD_PART + (s->op == OP_NO_OP ? 0 : want) || !combines(s, disp, want))
			return 0;
		return s->op == OP_NO_OP ? NEEDS_GET_ACCUMULATE : NEEDS_GET_ACCUMULATE | changes(s->op);
	case RECORD_COMPARE_AND_SWAP:
		s->span = s->result = size;
		return size && n == 2 * size && (disp & (size - 1)) == 0 ? NEEDS_COMPARE_AND_SWAP : 0;
	}
	return 0;
}

/* The rights in the low bits of v. */
static __always_inline __u32 rights_of(__u64 v)
{
	__u32 all = v & ((1 << EXPRESS_RIGHTS) - 1);
	return all ? all | MAY_SOMETHING : 0;
}

/* Whether record k of count may be there: a lock comes first, and its end last. */
static __always_inline int in_order(const struct express_work *w, const struct express_step *s, __u64 k, __u64 count)
{
	const struct express_step *first = &w->steps[0];

	if (s->code == RECORD_LOCK)
		return k == 0 && count != 1;
	return s->code != RECORD_UNLOCK ||
	       (k == count - 1 && k != 0 && first->code == RECORD_LOCK && first->window == s->window);
}

/* Reads record k of count of a request from a rank. Returns why it is not executed here. */
__noinline int express_check(__u64 k, __u64 count, __u64 rank)
{
	struct express_work *w = express_work();
	if (!w || k >= EXPRESS_MAX_RECORDS)
		return COUNTER_EXPRESS_BAD_FORM;
	struct express_step *s = express_step(w, k);
	__u64 next = opaque(w->next), end = opaque(w->end);
	if (next + RECORD_LEN > end)
		return COUNTER_EXPRESS_BAD_FORM;
	__u64 codes = *express_word(w, next);
	__u64 names = *express_word(w, next + 8);
	__u32 id = names, token = names >> 32;
	__u64 disp = *express_word(w, next + 16);
	__u64 n = opaque(codes >> 32);
	if (n > end - next - RECORD_LEN || padded(n) > end - next - RECORD_LEN)
		return COUNTER_EXPRESS_BAD_FORM;

	s->code = codes & 0xff;
	s->basic = codes >> 8 & 0xff;
	s->op = codes >> 16 & 0xff;
	s->flags = codes >> 24 & 0xff;
	s->window = id;
	s->data = next + RECORD_LEN;
	s->at = w->results;
	__u64 needs = record_form(s, disp, n, *express_word(w, next + RECORD_LEN));
	if (!needs)
		return COUNTER_EXPRESS_OPERATION;
	w->next = next + RECORD_LEN + padded(n);

	struct express_window *window = express_window(w, id);
	if (!window) {
		s->gone = 1;
		if (!w->goes_on)
			return COUNTER_EXPRESS_NO_WINDOW;
		if (!in_order(w, s, k, count))
			return COUNTER_EXPRESS_OPERATION;
		w->results += padded(s->result);
		return COUNTER_EXPRESS_EXECUTED;
	}
	s->gone = 0;
	__u64 r = opaque(rank);
	if (r >= EXPRESS_MAX_RANK ||
	    needs & ~rights_of(window->rights[opaque(r / EXPRESS_RANKS) & (EXPRESS_MAX_RANK / EXPRESS_RANKS - 1)] >>
			       (r % EXPRESS_RANKS * EXPRESS_RIGHTS)))
		return COUNTER_EXPRESS_NO_ACCESS;
	if (s->counts) {
		if (token >= window->counts)
			return COUNTER_EXPRESS_BOUNDS;
		__u64 counter = window->counters + (__u64)token * sizeof(struct express_counter);
		s->sync = window->sync;
		s->counter_page = counter / EXPRESS_PAGE;
		s->counter = counter % EXPRESS_PAGE;
		if (!express_page(w, s->sync, s->counter_page))
			return COUNTER_EXPRESS_BOUNDS;
	}

	if (!in_order(w, s, k, count))
		return COUNTER_EXPRESS_OPERATION;
	if (s->code == RECORD_LOCK || s->code == RECORD_UNLOCK)
		return window->flags & EXPRESS_WINDOW_LOCK ? COUNTER_EXPRESS_EXECUTED : COUNTER_EXPRESS_LOCKED;
	w->results += padded(s->result);
	if (s->code == RECORD_NOTIFY)
		return COUNTER_EXPRESS_EXECUTED;
	__u64 size = window->size, at = window->base + disp;
	if (disp > size || s->span > size - disp)
		return COUNTER_EXPRESS_BOUNDS;
	s->chunk = window->chunk;
	s->page = at / EXPRESS_PAGE;
	s->offset = at % EXPRESS_PAGE;
	if (s->span > 8 && s->offset > EXPRESS_FARTHEST && (s->code == RECORD_PUT || s->code == RECORD_GET))
		return COUNTER_EXPRESS_BOUNDS;
	if (s->offset + s->span > EXPRESS_PAGE || !express_page(w, s->chunk, s->page))
		return COUNTER_EXPRESS_BOUNDS;
	return COUNTER_EXPRESS_EXECUTED;
}

#endif
