/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Executes records on window memory. Each aligned element of up to 8 bytes is read and
 * written whole: memory is touched by words of 8 bytes and what is left of them.
 * Loops load from memory each time what their passes begin with, for the reason that
 * PASS has.
 */
#ifndef XDPRMA_OPERATE_H
#define XDPRMA_OPERATE_H

#include "check.h"

/* Words of a put or get. */
#define MAX_WORDS (EXPRESS_MAX_RESULTS / 8)

/*
 * Writes a word of the results. There is room for one more word behind them; so the last
 * one's place is no number that the verifier knows, see PASS.
 */
static __always_inline void put_result(struct express_slot *slot, __u64 at, __u64 v)
{
	at = opaque(at);
	if (at <= EXPRESS_MAX_RESULTS)
		*(__u64 *)(slot->results + at) = v;
}

static __always_inline void put(struct express_work *w, const struct express_step *s, struct express_page *page)
{
	__u64 span = s->span, words = span / 8;

UNROLLED
	for (int i = 0; i < MAX_WORDS; i++) {
		if (i >= opaque(words))
			break;
		__u64 from = LOAD(&s->data) + 8 * i, to = LOAD(&s->offset) + 8 * i;
		STORE((__u64 *)(page->bytes + (opaque(to) & 0xfff8)), *express_word(w, from));
	}
	__u64 to = LOAD(&s->offset) + (span & ~7ULL);
	__u64 rest = *express_word(w, LOAD(&s->data) + (span & ~7ULL));
	if (span & 4) {
		STORE((__u32 *)(page->bytes + (opaque(to) & 0xfffc)), rest);
		rest >>= 32;
		to += 4;
	}
	if (span & 2) {
		STORE((__u16 *)(page->bytes + (opaque(to) & 0xfffe)), rest);
		rest >>= 16;
		to += 2;
	}
	if (span & 1)
		STORE((__u8 *)(page->bytes + (opaque(to) & 0xffff)), rest);
}

static __always_inline void get(struct express_slot *slot, const struct express_step *s, struct express_page *page)
{
	__u64 span = s->span, words = span / 8, rest = span % 8;

UNROLLED
	for (int i = 0; i < MAX_WORDS; i++) {
		if (i >= opaque(words))
			break;
		__u64 from = LOAD(&s->offset) + 8 * i, to = LOAD(&s->at) + 8 * i;
		put_result(slot, to, LOAD((__u64 *)(page->bytes + (opaque(from) & 0xfff8))));
	}
	if (rest) { /* of the word around them */
		__u64 from = LOAD(&s->offset) + (span & ~7ULL), to = LOAD(&s->at) + (span & ~7ULL);
		__u64 v = LOAD((__u64 *)(page->bytes + (opaque(from) & 0xfff8)));
		put_result(slot, to, v >> (from & 7) * 8 & ((1ULL << rest * 8) - 1));
	}
}

/* Operators of a single instruction, on up to 16 elements of 8 and of 4 bytes. */
static __always_inline __u64 swap8(__u64 *p, __u32 op, __u64 v)
{
	switch (op) {
	case OP_SUM:
		return __sync_fetch_and_add(p, v);
	case OP_BAND:
		return __sync_fetch_and_and(p, v);
	case OP_BOR:
		return __sync_fetch_and_or(p, v);
	case OP_BXOR:
		return __sync_fetch_and_xor(p, v);
	}
	return __sync_lock_test_and_set(p, v);
}

static __always_inline __u32 swap4(__u32 *p, __u32 op, __u32 v)
{
	switch (op) {
	case OP_SUM:
		return __sync_fetch_and_add(p, v);
	case OP_BAND:
		return __sync_fetch_and_and(p, v);
	case OP_BOR:
		return __sync_fetch_and_or(p, v);
	case OP_BXOR:
		return __sync_fetch_and_xor(p, v);
	}
	return __sync_lock_test_and_set(p, v);
}

static __always_inline void swap_all8(struct express_work *w, const struct express_step *s,
				      struct express_slot *slot, struct express_page *page)
{
	__u32 n = s->span / 8;

UNROLLED
	for (int i = 0; i < EXPRESS_MAX_ELEMENTS; i++) {
		if (i >= opaque(n))
			break;
		__u64 from = LOAD(&s->data) + 8 * i, to = LOAD(&s->offset) + 8 * i;
		__u64 old = swap8((__u64 *)(page->bytes + (opaque(to) & 0xfff8)), LOAD(&s->op), *express_word(w, from));
		if (LOAD(&s->result))
			put_result(slot, LOAD(&s->at) + 8 * i, old);
	}
}

static __always_inline void swap_all4(struct express_work *w, const struct express_step *s,
				      struct express_slot *slot, struct express_page *page)
{
	__u64 pair = 0;
	__u32 n = s->span / 4;

UNROLLED
	for (int i = 0; i < EXPRESS_MAX_ELEMENTS; i++) {
		if (i >= opaque(n))
			break;
		__u64 from = LOAD(&s->data) + 4 * i, to = LOAD(&s->offset) + 4 * i;
		__u32 v = *(__u32 *)(w->payload + (opaque(from) & 0x7fc));
		__u32 old = swap4((__u32 *)(page->bytes + (opaque(to) & 0xfffc)), LOAD(&s->op), v);
		pair = i & 1 ? pair | (__u64)old << 32 : old;
		if (LOAD(&s->result))
			put_result(slot, LOAD(&s->at) + (4 * i & ~7), pair);
	}
}

/* An operator on one element, with its operands in the low bits. */
struct combine {
	const struct express_step *s;
	__u64 is_signed;
	__u64 above; /* bits of a word above the element */
	__u64 operand;
	__u64 compare;
};

static __always_inline int is_less(const struct combine *c, __u64 a, __u64 b)
{
	a <<= c->above;
	b <<= c->above;
	return c->is_signed ? (__s64)a < (__s64)b : a < b;
}

/* The value that follows a. Its bits above the element mean nothing. */
static __always_inline __u64 combine(const struct combine *c, __u64 a)
{
	__u64 b = c->operand;

	if (LOAD(&c->s->code) == RECORD_COMPARE_AND_SWAP)
		return a == c->compare ? b : a;
	switch (LOAD(&c->s->op)) {
	case OP_SUM:
		return a + b;
	case OP_PROD:
		return a * b;
	case OP_MIN:
		return is_less(c, b, a) ? b : a;
	case OP_MAX:
		return is_less(c, a, b) ? b : a;
	case OP_LAND:
		return a && b;
	case OP_LOR:
		return a || b;
	case OP_LXOR:
		return !a != !b;
	case OP_BAND:
		return a & b;
	case OP_BOR:
		return a | b;
	case OP_BXOR:
		return a ^ b;
	case OP_REPLACE:
		return b;
	}
	return a;
}

/* Combines into an element of 8 bytes. Returns 0 if others change it all the time. */
static __always_inline int update8(__u64 *p, const struct combine *c, __u64 *old)
{
UNROLLED
	for (int i = 0; i < EXPRESS_TRIES; i++) {
		__u64 a = LOAD(p), next = combine(c, a);
		*old = a;
		if (next == a || __sync_val_compare_and_swap(p, a, next) == a)
			return 1;
	}
	return 0;
}

/* Likewise into an element of up to 4 bytes, in the word of 4 bytes around it. */
static __always_inline int update4(__u32 *p, __u32 shift, const struct combine *c, __u64 *old)
{
	__u64 mask = ~0ULL >> c->above;

UNROLLED
	for (int i = 0; i < EXPRESS_TRIES; i++) {
		__u32 all = LOAD(p);
		__u64 a = all >> shift & mask, next = combine(c, a) & mask;
		*old = a;
		__u32 changed = (all & ~(mask << shift)) | next << shift;
		if (next == a || __sync_val_compare_and_swap(p, all, changed) == all)
			return 1;
	}
	return 0;
}

/* Operators in a loop, on one element. Returns 0 if it came to no end. */
static __always_inline int update(struct express_work *w, const struct express_step *s,
				  struct express_slot *slot, struct express_page *page)
{
	__u64 size = opaque(integer_size(s->basic)), answers = opaque(s->result);
	__u64 data = s->data, at = s->at, offset = s->offset, old = 0;
	__u64 mask = ~0ULL >> ((64 - 8 * size) & 63);
	__u64 first = *express_word(w, data), second = *express_word(w, data + 8);
	struct combine c = {
		.s = s, .is_signed = opaque(s->basic <= BASIC_INT64),
		.above = opaque((64 - 8 * size) & 63), .operand = first & mask,
	};
	if (s->code == RECORD_COMPARE_AND_SWAP) {
		c.compare = first & mask;
		c.operand = size == 8 ? second : first >> (8 * size & 63) & mask;
	}
	int done = size == 8 ? update8((__u64 *)(page->bytes + (opaque(offset) & 0xfff8)), &c, &old) :
			       update4((__u32 *)(page->bytes + (opaque(offset) & 0xfffc)), (offset & 3) * 8, &c, &old);
	if (answers)
		put_result(slot, at, old);
	return done;
}

/* The bits of a lock word. */
#define LOCK_CLOSED (1ULL << 63)
#define LOCK_EXCLUSIVE (1ULL << 62)
#define LOCK_HOLDERS (LOCK_EXCLUSIVE - 1)
#define LOCK_OURS (1ULL << EXPRESS_PROCESS)
#define LOCK_RETIRED 8 /* index of the word that says so */

/* The lock word of a window. NULL if the window's memory is not there. */
static __always_inline __u64 *lock_word(const struct express_work *w, __u32 id)
{
	struct express_window *window = express_window(w, id);
	if (!window)
		return NULL;
	__u64 at = window->lock;
	struct express_page *page = express_page(w, window->sync, at / EXPRESS_PAGE);
	return page ? (void *)(page->bytes + (opaque(at) & 0xff80)) : NULL;
}

/* Takes a window's lock for this program. Returns 0 if it is not free. */
__noinline int express_lock(__u64 id, __u64 exclusive)
{
	struct express_work *w = express_work();
	__u64 *word = w ? lock_word(w, id) : NULL;
	if (!word || LOAD(word + LOCK_RETIRED))
		return 0;
	__u64 next = LOCK_OURS, blockers = LOCK_CLOSED | LOCK_EXCLUSIVE | LOCK_OURS;
	if (exclusive) {
		next |= LOCK_EXCLUSIVE;
		blockers |= LOCK_HOLDERS;
	}
UNROLLED
	for (int i = 0; i < EXPRESS_TRIES; i++) {
		__u64 v = LOAD(word);
		if (v & blockers)
			return 0;
		if (__sync_val_compare_and_swap(word, v, v | next) == v)
			return 1;
	}
	return 0;
}

/* How a record went. */
enum express_step_end {
	STEP_DONE,
	STEP_AWAITED, /* the owner is to look: requests wait for the lock, or somebody for the notification */
	STEP_REFUSED, /* its window is gone */
	STEP_STUCK,   /* others were in the way all the time */
};

/* Gives it up. */
static __always_inline int express_unlock(const struct express_work *w, __u32 id)
{
	__u64 *word = lock_word(w, id);
	if (!word)
		return STEP_STUCK;
	if (!(LOAD(word) & LOCK_OURS))
		return STEP_DONE;
	return __sync_fetch_and_and(word, ~(LOCK_OURS | LOCK_EXCLUSIVE)) & LOCK_CLOSED ? STEP_AWAITED : STEP_DONE;
}

/* Executes a record on a page of its window. Returns STEP_STUCK if it came to no end. */
static __always_inline int operate(struct express_work *w, const struct express_step *s, struct express_slot *slot,
				   struct express_page *page)
{
	switch (s->code) {
	case RECORD_PUT:
		put(w, s, page);
		return STEP_DONE;
	case RECORD_GET:
		get(slot, s, page);
		return STEP_DONE;
	case RECORD_ACCUMULATE:
	case RECORD_GET_ACCUMULATE:
		if (!is_single(s->op))
			break;
		if (integer_size(s->basic) == 8) {
			swap_all8(w, s, slot, page);
			return STEP_DONE;
		}
		if (integer_size(s->basic) == 4) {
			swap_all4(w, s, slot, page);
			return STEP_DONE;
		}
	}
	return update(w, s, slot, page) ? STEP_DONE : STEP_STUCK;
}

/*
 * Counts up the counter of a record whose operation has been executed. The owner writes at
 * which number it is to be told before it looks at the count for the last time, and this
 * looks afterwards: so one of them sees the other.
 */
__noinline int express_count(__u64 k)
{
	struct express_work *w = express_work();
	if (!w)
		return STEP_STUCK;
	const struct express_step *s = express_step(w, k);
	struct express_page *page = express_page(w, s->sync, s->counter_page);
	if (!page)
		return STEP_STUCK;
	struct express_counter *c = (void *)(page->bytes + (opaque(s->counter) & 0xfff0));
	__u64 count = __sync_fetch_and_add(&c->count, 1) + 1, awaited = LOAD(&c->awaited);
	return awaited && count >= awaited ? STEP_AWAITED : STEP_DONE;
}

/* Executes record k of the request of a slot, but for its notification. Returns an express_step_end. */
__noinline int express_execute(__u64 k, __u64 slot_index)
{
	struct express_work *w = express_work();
	struct express_slot *slot = express_slot(w, slot_index);
	if (!w || !slot)
		return STEP_STUCK;
	struct express_step *s = express_step(w, k);
	if (s->code == RECORD_LOCK) /* was taken before */
		return STEP_DONE;
	if (s->code == RECORD_UNLOCK) {
		int end = s->gone ? STEP_REFUSED : express_unlock(w, s->window);
		if (end != STEP_STUCK)
			STORE(&slot->locked, 0);
		return end;
	}
	if (s->gone)
		return STEP_REFUSED;
	if (s->counts && !express_page(w, s->sync, s->counter_page)) /* before it is too late */
		return STEP_STUCK;
	if (s->code == RECORD_NOTIFY)
		return STEP_DONE;
	struct express_page *page = express_page(w, s->chunk, s->page);
	return page ? operate(w, s, slot, page) : STEP_STUCK;
}

#endif
