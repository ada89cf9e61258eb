/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* SipHash-2-4 with 64 bits, of a whole number of words. */
#ifndef XDPRMA_SIPHASH_H
#define XDPRMA_SIPHASH_H

#include "kernel.h"

struct siphash {
	__u64 v0, v1, v2, v3;
};

static __always_inline __u64 siphash_rotate(__u64 v, int by)
{
	return v << by | v >> (64 - by);
}

static __always_inline void siphash_round(struct siphash *s)
{
	s->v0 += s->v1;
	s->v2 += s->v3;
	s->v1 = siphash_rotate(s->v1, 13) ^ s->v0;
	s->v3 = siphash_rotate(s->v3, 16) ^ s->v2;
	s->v0 = siphash_rotate(s->v0, 32);
	s->v2 += s->v1;
	s->v0 += s->v3;
	s->v1 = siphash_rotate(s->v1, 17) ^ s->v2;
	s->v3 = siphash_rotate(s->v3, 21) ^ s->v0;
	s->v2 = siphash_rotate(s->v2, 32);
}

static __always_inline void siphash_word(struct siphash *s, __u64 word)
{
	s->v3 ^= word;
	siphash_round(s);
	siphash_round(s);
	s->v0 ^= word;
}

static __always_inline struct siphash siphash_begin(const __u64 key[2])
{
	struct siphash s = {
		key[0] ^ 0x736f6d6570736575ULL, key[1] ^ 0x646f72616e646f6dULL,
		key[0] ^ 0x6c7967656e657261ULL, key[1] ^ 0x7465646279746573ULL,
	};
	return s;
}

/* The code of len bytes, all of which were taken. */
static __always_inline __u64 siphash_end(struct siphash *s, __u64 len)
{
	siphash_word(s, len << 56);
	s->v2 ^= 0xff;
	siphash_round(s);
	siphash_round(s);
	siphash_round(s);
	siphash_round(s);
	return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

/*
 * The code of the first *end bytes at b, a multiple of 8 and 32 * stripes at most. Bits of an
 * offset outside of mask are 0 for each word of b. zero is a place that holds 0.
 *
 * The length is read again behind the loop: from its comparisons there the verifier would
 * learn another range at each way out, and follow each to the end.
 */
static __always_inline __u64 siphash(const __u64 key[2], const __u8 *b, const volatile __u32 *end, int stripes, __u64 mask,
				     const volatile __u32 *zero)
{
	__u64 len = *end;
	struct siphash s = siphash_begin(key);

UNROLLED
	for (int i = 0; i < stripes; i++) {
		if (32 * i + 32 > len)
			break;
		const __u64 *w = (const void *)(b + ((*zero + 32ULL * i) & mask & ~31ULL));
		siphash_word(&s, w[0]);
		siphash_word(&s, w[1]);
		siphash_word(&s, w[2]);
		siphash_word(&s, w[3]);
	}
	len = *end;
UNROLLED
	for (int i = 0; i < 3; i++) {
		__u64 at = (len & ~31ULL) + 8 * i;
		if (at >= len)
			break;
		siphash_word(&s, *(const __u64 *)(b + ((*zero + at) & mask & ~7ULL)));
	}
	return siphash_end(&s, len);
}

#endif
