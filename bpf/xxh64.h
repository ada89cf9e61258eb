/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The XXH64 hash, with seed 0, of a whole number of words. */
#ifndef XDPRMA_XXH64_H
#define XDPRMA_XXH64_H

#include "kernel.h"

#define XXH64_P1 0x9E3779B185EBCA87ULL
#define XXH64_P2 0xC2B2AE3D27D4EB4FULL
#define XXH64_P3 0x165667B19E3779F9ULL
#define XXH64_P4 0x85EBCA77C2B2AE63ULL
#define XXH64_P5 0x27D4EB2F165667C5ULL

static __always_inline __u64 xxh64_rotate(__u64 v, int by)
{
	return v << by | v >> (64 - by);
}

static __always_inline __u64 xxh64_round(__u64 sum, __u64 word)
{
	return xxh64_rotate(sum + word * XXH64_P2, 31) * XXH64_P1;
}

static __always_inline __u64 xxh64_merge(__u64 hash, __u64 sum)
{
	return (hash ^ xxh64_round(0, sum)) * XXH64_P1 + XXH64_P4;
}

static __always_inline __u64 xxh64_finish(__u64 hash)
{
	hash = (hash ^ hash >> 33) * XXH64_P2;
	hash = (hash ^ hash >> 29) * XXH64_P3;
	return hash ^ hash >> 32;
}

/*
 * The hash of the first *end bytes at b, which are a multiple of 8, 32 at least and
 * 32 * stripes at most. Bits of an offset outside of mask are 0 for each word of b. zero
 * is a place that holds 0. The length comes from memory, so that the verifier learns nothing by the loop of the caller's
 * length, and follows the caller once.
 */
static __always_inline __u64 xxh64(const __u8 *b, const volatile __u32 *end, int stripes, __u64 mask, const volatile __u32 *zero)
{
	__u64 len = *end;
	__u64 v1 = XXH64_P1 + XXH64_P2, v2 = XXH64_P2, v3 = 0, v4 = -XXH64_P1;

UNROLLED
	for (int i = 0; i < stripes; i++) {
		if (32 * i + 32 > len)
			break;
		const __u64 *w = (const void *)(b + ((*zero + 32ULL * i) & mask & ~31ULL));
		v1 = xxh64_round(v1, w[0]);
		v2 = xxh64_round(v2, w[1]);
		v3 = xxh64_round(v3, w[2]);
		v4 = xxh64_round(v4, w[3]);
	}
	__u64 hash = xxh64_rotate(v1, 1) + xxh64_rotate(v2, 7) + xxh64_rotate(v3, 12) + xxh64_rotate(v4, 18);
	hash = xxh64_merge(hash, v1);
	hash = xxh64_merge(hash, v2);
	hash = xxh64_merge(hash, v3);
	hash = xxh64_merge(hash, v4) + len;

UNROLLED
	for (int i = 0; i < 3; i++) {
		__u64 at = (len & ~31ULL) + 8 * i;
		if (at >= len)
			break;
		const __u64 *w = (const void *)(b + ((*zero + at) & mask & ~7ULL));
		hash = xxh64_rotate(hash ^ xxh64_round(0, *w), 27) * XXH64_P1 + XXH64_P4;
	}
	return xxh64_finish(hash);
}

#endif
