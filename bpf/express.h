/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Small requests that this program executes, and answers that it takes for its process: the memory
 * that it shares with the process, and what it knows of a frame while it is at it. docs/wire.md has the frame,
 * and rank.h the maps. Package
 * internal/protocol/link/express has the memory in Go, and internal/lab/twin does what this
 * program does: a test compares the layouts, another one what both do with the same frames.
 *
 * The functions that are not inlined have global linkage, so that the verifier looks at
 * each by itself. So they take numbers only, and find the rest in maps.
 */
#ifndef XDPRMA_EXPRESS_H
#define XDPRMA_EXPRESS_H

#include "codes.h"
#include "counter.h"
#include "kernel.h"
#include "wire.h"

enum {
	EXPRESS_MAX_PAYLOAD = 1232,
	EXPRESS_MAX_RECORDS = 8,
	EXPRESS_MAX_RESULTS = EXPRESS_MAX_PAYLOAD - WIRE_HEADER_LEN,
	EXPRESS_MAX_RANK = 4096,
	EXPRESS_RIGHTS = 4, /* bits */
	EXPRESS_RANKS = 64 / EXPRESS_RIGHTS, /* whose rights are in one word */
	EXPRESS_WINDOWS = 256,
	EXPRESS_PLACES = 8, /* where a window may be */
	EXPRESS_CHUNKS = 256,
	EXPRESS_PAGE = 65536,
	EXPRESS_FARTHEST = EXPRESS_PAGE - EXPRESS_MAX_RESULTS,
	EXPRESS_TRIES = 8,   /* of a compare-exchange */
	EXPRESS_ROUNDS = 8,  /* of these, before an exchange is interrupted */
	EXPRESS_PROCESS = 1, /* that the program is in a lock word */
	EXPRESS_NO_SLOT = 0xffffffff, /* an index that no slot has */
	EXPRESS_RECENT = 64,
	EXPRESS_SHORT = 112, /* bytes of an answer's payload for which a short record of the ring is enough */
};

/* The keys of a session. */
enum {
	EXPRESS_KEY_REQUESTS, /* of the peer */
	EXPRESS_KEY_ANSWERS,  /* to them */
	EXPRESS_KEY_ANSWERED, /* of the answers to requests of this rank */
	EXPRESS_KEYS,
};

enum {
	EXPRESS_STATE_INTERRUPTED, /* some records are done; the program goes on at the next repeat */
	EXPRESS_STATE_PROGRAM,
	EXPRESS_STATE_USER,
	EXPRESS_STATE_DONE,
};

/* A session. */
struct express_slot {
	__u64 word; /* exchange << 2 | state */
	__u64 session;
	__u64 peer_session;
	__u32 rank;
	__be16 peer_port; /* 0: where a request comes from and arrives is not checked */
	__be16 local_port;
	__u64 peer_ip[2]; /* as in struct address */
	__u64 local_ip[2];
	__u64 outcome; /* length of results | fate << 32 | records done << 40 */
	__u64 locked;  /* window id + 1 */
	__u64 keyed;   /* 1: frames have codes in place of checksums */
	__u8 results[EXPRESS_MAX_RESULTS];
	__u64 keys[EXPRESS_KEYS][2];
	__u8 rest[56];
};

/* The flag of a window whose lock the program may take. */
#define EXPRESS_WINDOW_LOCK 1

struct express_window {
	__u64 id; /* window id + 1; 0: none */
	__u64 base;
	__u64 size;
	__u32 chunk;
	__u32 flags;
	__u64 lock; /* where in the chunk sync its lock is: the word, and LOCK_RETIRED words behind */
	__u64 counters; /* where in that chunk its counters are */
	__u32 counts;   /* how many */
	__u32 sync;
	__u64 pad;
	__u64 rights[EXPRESS_MAX_RANK / EXPRESS_RANKS]; /* of each rank, EXPRESS_RIGHTS bits */
};

/* A counter of notifications. */
struct express_counter {
	__u64 count;
	__u64 awaited; /* the number at which the owner is to be told; 0: it is not */
};

struct express_page {
	__u8 bytes[EXPRESS_PAGE];
};

/* The two have the size of their values in the process's memory. */
_Static_assert(sizeof(struct express_slot) == 1344, "slot length");
_Static_assert(sizeof(struct express_window) == 2112, "window length");

/* An answer to a request of this rank, in the ring. It is of one of two lengths, since the verifier wants to know it. */
struct express_short {
	__u64 len; /* of the payload */
	__u8 payload[EXPRESS_SHORT];
};

struct express_long {
	__u64 len;
	__u8 payload[EXPRESS_MAX_PAYLOAD];
};

/* One record of a request. */
struct express_step {
	__u32 code;
	__u32 basic;
	__u32 op;
	__u32 flags;
	__u32 window;
	__u32 chunk;
	__u32 page;
	__u32 offset; /* in the page */
	__u32 span;   /* bytes of the window */
	__u32 data;   /* where in the payload the operand begins */
	__u32 result; /* bytes */
	__u32 at;     /* where in the results its own begins */
	__u32 gone;   /* 1: its window is not exposed any more */
	__u32 counts; /* 1: a counter counts up then */
	__u32 sync;   /* chunk of the counter */
	__u32 counter_page;
	__u32 counter; /* where in that page it is */
};

/* A request, or an answer, that a CPU is at. */
struct express_work {
	union {
		struct wire_header header;
		__u8 payload[2048]; /* as long as a mask reaches */
	};
	struct express_step steps[EXPRESS_MAX_RECORDS];
	__u32 next;    /* where in the payload the next record begins */
	__u32 end;     /* of the payload */
	__u32 results; /* bytes */
	__u32 goes_on; /* 1: some records were done before */
	__u32 ip;      /* where the IP header begins in the frame */
	__u32 payload_at; /* where the payload does */
	__u32 near;    /* bytes of the payload that express_near has copied */
	__u32 zero;    /* 0, which the verifier does not know: see below */
	struct {
		__u64 inverse; /* of the id: at first there is none, and not that of 0, which a slot has that is not in use */
		__u64 slot;    /* that it had when it was looked for */
	} recent[EXPRESS_RECENT]; /* sessions, which are found faster than in the hash */
	__u64 rank; /* whose frame it is, of those that share the program */
};

/*
 * The word at p. No processor moves a load or store from one side of it to the other, as
 * the atomic instructions that return a value promise.
 */
#define LOAD_ORDERED(p) __sync_fetch_and_add((p), 0)

/* Memory that others change, or that the compiler is to read each time. */
#define LOAD(p) (*(volatile typeof(*(p)) *)(p))
#define STORE(p, v) (*(volatile typeof(*(p)) *)(p) = (v))

/*
 * A value of which the compiler knows nothing. It would leave a mask out that it takes
 * for needless, and the verifier needs it.
 */
static __always_inline __u64 opaque(__u64 v)
{
	asm volatile("" : "+r"(v));
	return v;
}

/*
 * The place of pass i of a loop, as a number of which the verifier knows nothing. With
 * numbers that it knows, or sums that grow from pass to pass, it would follow each pass
 * to the function's end; and without CAP_PERFMON it refuses a pointer to which another
 * known number is added each time.
 */
#define PASS(w, i) ((__u64)LOAD(&(w)->zero) + (i))

/* The word at an offset in the payload, a multiple of 8. */
static __always_inline __u64 *express_word(struct express_work *w, __u64 at)
{
	return (void *)(w->payload + (opaque(at) & 0x7f8));
}

/* Record k of the request. */
static __always_inline struct express_step *express_step(struct express_work *w, __u64 k)
{
	return &w->steps[opaque(PASS(w, k)) & (EXPRESS_MAX_RECORDS - 1)];
}

static __always_inline __u64 padded(__u64 n)
{
	return (n + 7) & ~7ULL;
}

#endif
