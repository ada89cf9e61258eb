/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The maps of a rank. A program that serves one rank has them as its own. One that serves several (SHARED) has
 * maps of maps, by the rank's index. Who owns that program writes those, and each rank has its inner maps alone.
 */
#ifndef XDPRMA_RANK_H
#define XDPRMA_RANK_H

#include "counter.h"
#include "express.h"
#include "hook.h"

/* A map of a rank. User space makes those of ranks that share a program. */
#ifdef SHARED
#define RANK_MAP(name)                                  \
	struct {                                        \
		__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS); \
		__uint(max_entries, 1);                 \
		__type(key, __u32);                     \
		__array(values, struct name##_map);     \
	} name SEC(".maps")
#define RANK_SIZED BPF_F_INNER_MAP
#define RANK_VALUE(t) __uint(value_size, sizeof(t)) /* BTF does not describe the values of inner maps */
#else
#define RANK_MAP(name) struct name##_map name SEC(".maps")
#define RANK_VALUE(t) __type(value, t)
#define RANK_SIZED 0 /* the map's length is known when the program is loaded */
#endif

struct counters_map {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
};
RANK_MAP(counters);

/* The session ids to let through. The value is the index of the slot + 1; 0: none. */
struct sessions_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, __u32);
};
RANK_MAP(sessions);

/* A slot for each session whose requests the program executes; user space sets the size. */
struct slots_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE | RANK_SIZED);
	__type(key, __u32);
	RANK_VALUE(struct express_slot);
};
RANK_MAP(slots);

/* The windows that the program reaches, each in one of the places for its id. */
struct windows_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, EXPRESS_WINDOWS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	RANK_VALUE(struct express_window);
};
RANK_MAP(windows);

/* Answers to requests of the rank, for its process. User space sets the size. */
struct answers_map {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};
RANK_MAP(answers);

/* By which the program and the rank's process tell each other something. */
struct express_bell {
	__u64 rung;     /* how often: for each frame that goes on to the UDP socket */
	__u64 rest1[7]; /* the words are not in one line of a processor's cache */
	__u64 asleep;   /* 1: who reads the ring sleeps, or is about to, and is to be woken */
	__u64 rest2[7];
};

struct bell_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	RANK_VALUE(struct express_bell);
};
RANK_MAP(bell);

/* The memory in which a window lies, in pages. User space makes one of the right size. */
struct chunk {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct express_page));
};

/*
 * The chunks, of ranks that share the program one rank's behind the other's, and one entry more: user space
 * replaces it to wait for running programs.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, EXPRESS_CHUNKS + 1);
	__type(key, __u32);
	__array(values, struct chunk);
} chunks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct express_work);
} work_map SEC(".maps");

static __always_inline struct express_work *express_work(void)
{
	__u64 zero = 0;
	return bpf_map_lookup_elem(&work_map, &zero);
}

#ifdef SHARED
static __always_inline void *of_rank(void *maps, const struct express_work *w)
{
	if (!w)
		return NULL;
	__u64 rank = w->rank;
	return bpf_map_lookup_elem(maps, &rank);
}
#define OF_RANK(map, w) of_rank(&map, (w))
#else
#define OF_RANK(map, w) ((void *)&map)
#endif

/* What a map of the rank has by a key. */
#define RANK_LOOKUP(map, w, key)                                  \
	({                                                        \
		void *in_ = OF_RANK(map, (w));                    \
		in_ ? bpf_map_lookup_elem(in_, (key)) : NULL;     \
	})

static __always_inline struct express_slot *express_slot(const struct express_work *w, __u64 index)
{
	return RANK_LOOKUP(slots, w, &index);
}

/*
 * The page of a chunk. Its keys are words on the stack, as are others that come from registers: see
 * struct datagram.
 */
static __always_inline struct express_page *express_page(const struct express_work *w, __u64 chunk, __u64 page)
{
#ifdef SHARED
	if (chunk >= EXPRESS_CHUNKS)
		return NULL;
	chunk += w->rank * EXPRESS_CHUNKS;
#endif
	void *pages = bpf_map_lookup_elem(&chunks, &chunk);
	if (!pages)
		return NULL;
	return bpf_map_lookup_elem(pages, &page);
}

/* The window with an id if it is in a place. */
static __always_inline struct express_window *express_window_at(void *in, __u64 place, __u32 id)
{
	__u64 index = place % EXPRESS_WINDOWS;
	struct express_window *window = bpf_map_lookup_elem(in, &index);
	return window && LOAD(&window->id) == (__u64)id + 1 ? window : NULL;
}

/*
 * The exposed window with an id. Its places are those of Go's placeOf. What is found is looked
 * up once more, so that NULL is one of two ways of a lookup: without CAP_PERFMON the verifier
 * follows a known NULL to what a processor might do with it by mistake.
 */
static __always_inline struct express_window *express_window(const struct express_work *w, __u32 id)
{
	__u32 folded = id ^ id >> 16;
	__u64 place = opaque(folded ^ folded >> 8), step = opaque(id * 0x9e3779b1U >> 24 | 1), found = EXPRESS_WINDOWS;
	void *in = OF_RANK(windows, w);

	if (!in)
		return NULL;
#pragma unroll
	for (int i = 0; i < EXPRESS_PLACES; i++) {
		if (express_window_at(in, place + i * step, id)) {
			found = (place + i * step) % EXPRESS_WINDOWS;
			break;
		}
	}
	return bpf_map_lookup_elem(in, &found);
}

/* Not inlined, so that BTF describes the enum. */
static __noinline int count(enum counter which, int verdict)
{
	__u32 key = which;
	__u64 *n = RANK_LOOKUP(counters, express_work(), &key);
	if (n)
		(*n)++;
	return verdict;
}

/* Leaves a frame to the kernel's UDP socket, and tells who reads it there. */
static __always_inline int to_stack(enum counter why)
{
	__u64 zero = 0;
	struct express_bell *b = RANK_LOOKUP(bell, express_work(), &zero);
	if (b)
		__sync_fetch_and_add(&b->rung, 1);
	return count(why, VERDICT_PASS);
}

#endif
