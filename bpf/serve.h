/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Serves a request once, however often it comes. */
#ifndef XDPRMA_SERVE_H
#define XDPRMA_SERVE_H

#include "operate.h"
#include "parse.h"
#include "siphash.h"
#include "xxh64.h"

enum {
	EXPRESS_MAX_EXCHANGE_BITS = 62,
	EXPRESS_SUMMED = 512, /* bytes that the kernel adds up at once */
	EXPRESS_HOPS = 64,
	EXPRESS_LEFT = 64, /* bytes of a request that may stay behind its answer */
};

/* The index of the slot that a session of late has, EXPRESS_NO_SLOT if it is none or has it no more. */
static __always_inline __u64 express_recent(__u64 session)
{
	struct express_work *w = express_work();
	if (!w)
		return EXPRESS_NO_SLOT;
	__u64 at = opaque(session) & (EXPRESS_RECENT - 1), index = LOAD(&w->recent[at].slot);
	if (w->recent[at].inverse != ~session)
		return EXPRESS_NO_SLOT;
	const struct express_slot *slot = express_slot(w, index);
	return slot && LOAD(&slot->session) == session ? index : EXPRESS_NO_SLOT;
}

/* Has express_recent find a session. */
static __always_inline void express_remember(__u64 session, __u64 index)
{
	struct express_work *w = express_work();
	if (!w)
		return;
	__u64 at = opaque(session) & (EXPRESS_RECENT - 1);
	w->recent[at].inverse = ~session;
	w->recent[at].slot = index;
}

/* What this program answers has one of these behind Ethernet and its VLAN tags. */
struct express_ipv4 {
	struct iphdr ip;
	struct udphdr udp;
};

struct express_ipv6 {
	struct ipv6hdr ip;
	struct udphdr udp;
};

/* Whether the frame came over IPv6. */
static __always_inline int express_over_ipv6(const struct express_work *w)
{
	return w->payload_at - w->ip == sizeof(struct express_ipv6);
}

/* The frame's IP header, behind up to two VLAN tags. For the moves see ADVANCE. */
static __always_inline void *express_ip(FRAME *ctx, const struct express_work *w)
{
	struct cursor c = {.p = (void *)(long)ctx->data};

	ADVANCE(&c, sizeof(struct ethhdr));
	if (w->ip > sizeof(struct ethhdr))
		ADVANCE(&c, sizeof(struct vlanhdr));
	if (w->ip > sizeof(struct ethhdr) + sizeof(struct vlanhdr))
		ADVANCE(&c, sizeof(struct vlanhdr));
	return c.p;
}

/* Where in the frame the payload begins. */
static __always_inline void *express_payload(FRAME *ctx, const struct express_work *w)
{
	struct cursor c = {.p = express_ip(ctx, w)};

	if (express_over_ipv6(w))
		ADVANCE(&c, sizeof(struct express_ipv6));
	else
		ADVANCE(&c, sizeof(struct express_ipv4));
	return c.p;
}

/*
 * Copies the payload to where a short one has room, as far as it is in reach, and returns how many bytes. It saves
 * a call of the kernel. The number goes by way of memory: if the verifier knew it, it would follow each by itself.
 */
static __always_inline __u64 express_near(FRAME *ctx, struct express_work *w, __u64 *to)
{
	const void *end = (void *)(long)ctx->data_end;
	const __u64 *from = express_payload(ctx, w);
	__u32 near = 0;

	if ((void *)from + WIRE_HEADER_LEN <= end) {
#pragma unroll
		for (int i = 0; i < WIRE_HEADER_LEN / 8; i++)
			STORE(to + i, from[i]);
		near = WIRE_HEADER_LEN;
#pragma unroll
		for (int i = WIRE_HEADER_LEN / 8; i < EXPRESS_SHORT / 8; i++) {
			if ((void *)(from + i + 1) > end)
				break;
			STORE(to + i, from[i]);
			near = 8 * (i + 1);
		}
	}
	STORE(&w->near, near);
	return LOAD(&w->near);
}

static __always_inline __u64 state_word(__u64 exchange, __u64 state)
{
	return exchange << 2 | state;
}

/* The checksum of the payload up to end, whose field of it is 0. */
ROLLED int express_checksum(__u64 end)
{
	struct express_work *w = express_work();
	__u64 len = opaque(end);
	if (!w || len < WIRE_HEADER_LEN || len > EXPRESS_MAX_PAYLOAD)
		return 0;
	STORE(&w->end, len);
	return xxh64(w->payload, &w->end, EXPRESS_MAX_PAYLOAD / 32, 0x7ff, &w->zero);
}

/*
 * The code of the payload up to end, whose field of it is 0, by one of the keys of a slot's
 * session.
 */
ROLLED __u64 express_code(__u64 end, __u64 slot_index, __u64 which)
{
	struct express_work *w = express_work();
	const struct express_slot *slot = express_slot(w, slot_index);
	which = opaque(which);
	if (!w || !slot || end < WIRE_HEADER_LEN || end > EXPRESS_MAX_PAYLOAD || which >= EXPRESS_KEYS)
		return 0;
	STORE(&w->end, end);
	return siphash(slot->keys[which], w->payload, &w->end, EXPRESS_MAX_PAYLOAD / 32, 0x7ff, &w->zero);
}

/* Whether the header is one of either, but for what tells that it came as it was sent. */
static __always_inline int express_form(const struct wire_header *h)
{
	return h->session != 0 && h->packet_number != 0 && h->sequence != 0 && h->sequence >> EXPRESS_MAX_EXCHANGE_BITS == 0 &&
	       (h->ack_bits | h->ack_requests | h->ack_responses) == 0 && h->order <= 1 && h->refusals == 0;
}

static __always_inline int express_request_form(const struct wire_header *h)
{
	return (h->flags == 0 || h->flags == WIRE_FLAG_USER) && h->reserved == 0 && h->credits - 1 < EXPRESS_MAX_RECORDS;
}

/* The fate of a request that was taken as a bundle, which has no results. */
#define FATE_TAKEN 1

static __always_inline int express_answer_form(const struct wire_header *h, __u64 len)
{
	return h->flags == WIRE_FLAG_RESPONSE && h->credits == 0 &&
	       (!(h->reserved & FATE_TAKEN) || (h->reserved == FATE_TAKEN && len == WIRE_HEADER_LEN));
}

/* Whether the frame came along the path of the slot's session. */
static __always_inline int express_on_path(FRAME *ctx, const struct express_work *w, const struct express_slot *slot)
{
	void *end = (void *)(long)ctx->data_end;

	if (!slot->peer_port)
		return 1;
	if (express_over_ipv6(w)) {
		const struct express_ipv6 *f = express_ip(ctx, w);
		return (void *)(f + 1) <= end && f->udp.source == slot->peer_port && f->udp.dest == slot->local_port &&
		       f->ip.saddr[0] == slot->peer_ip[0] && f->ip.saddr[1] == slot->peer_ip[1] &&
		       f->ip.daddr[0] == slot->local_ip[0] && f->ip.daddr[1] == slot->local_ip[1];
	}
	const struct express_ipv4 *f = express_ip(ctx, w);
	return (void *)(f + 1) <= end && f->udp.source == slot->peer_port && f->udp.dest == slot->local_port &&
	       f->ip.saddr == slot->peer_ip[0] && f->ip.daddr == slot->local_ip[0];
}

/*
 * Whether the payload of len bytes came as the slot's peer has sent it, by the key which. Checksum and
 * code are 0 afterwards.
 */
static __always_inline int express_came_as_sent(struct wire_header *h, const struct express_slot *slot, __u64 slot_index,
						__u32 len, __u64 which)
{
	__u32 sum = h->checksum;
	__u64 code = h->ack_largest;

	h->checksum = 0;
	h->ack_largest = 0;
	if (LOAD(&slot->keyed))
		return sum == 0 && express_code(len, slot_index, which) == code ? COUNTER_EXPRESS_EXECUTED : COUNTER_EXPRESS_BAD_CODE;
	if (code)
		return COUNTER_EXPRESS_BAD_FORM;
	return (__u32)express_checksum(len) == sum ? COUNTER_EXPRESS_EXECUTED : COUNTER_EXPRESS_BAD_CHECKSUM;
}

/*
 * Reads len bytes of the frame into the work, and says why they are neither a request nor an
 * answer that came as it was sent along the slot's path. The arguments are as express_serve has them.
 */
static __always_inline int express_read(FRAME *ctx, struct express_work *w, const struct express_slot *slot,
					__u64 slot_index, __u64 len, __u64 ip, __u64 payload, int answer)
{
	struct wire_header *h = &w->header;

	if (!ip)
		return COUNTER_EXPRESS_PATH;
	if (len < WIRE_HEADER_LEN)
		return COUNTER_EXPRESS_BAD_FORM;
	len = opaque(len); /* for two comparisons, as in express_results */
	if (len > EXPRESS_MAX_PAYLOAD || len % 8)
		return COUNTER_EXPRESS_BAD_FORM;
	w->ip = ip;
	w->payload_at = payload;
	if (len > express_near(ctx, w, (__u64 *)w->payload) && FRAME_LOAD(ctx, payload, w->payload, len))
		return COUNTER_EXPRESS_BAD_FORM;
	if (!express_form(h) || !(answer ? express_answer_form(h, len) : express_request_form(h)))
		return COUNTER_EXPRESS_BAD_FORM;
	if (!slot || LOAD(&slot->session) != h->session)
		return COUNTER_EXPRESS_NO_SLOT;
	if (!express_on_path(ctx, w, slot))
		return COUNTER_EXPRESS_PATH;
	return express_came_as_sent(h, slot, slot_index, len, answer ? EXPRESS_KEY_ANSWERED : EXPRESS_KEY_REQUESTS);
}

/* Checks all records of the request that the work begins with. */
static __always_inline int express_check_all(struct express_work *w, __u64 rank, __u32 len)
{
	__u32 count = w->header.credits;

	w->next = WIRE_HEADER_LEN;
	w->end = len;
	w->results = 0;
UNROLLED
	for (int k = 0; k < EXPRESS_MAX_RECORDS; k++) {
		if (k >= count)
			break;
		int reason = express_check(k, count, rank);
		if (reason != COUNTER_EXPRESS_EXECUTED)
			return reason;
	}
	const struct express_step *last = express_step(w, count - 1);
	if ((w->steps[0].code == RECORD_LOCK) != (last->code == RECORD_UNLOCK))
		return COUNTER_EXPRESS_OPERATION;
	__u32 results = WIRE_HEADER_LEN + w->results;
	return len == (w->next > results ? w->next : results) ? COUNTER_EXPRESS_EXECUTED : COUNTER_EXPRESS_BAD_FORM;
}

/* In an outcome: the owner is to look, and may not have yet. Its process takes that away. */
#define OUTCOME_AWAITED (1ULL << 48)

/* What is said of an exchange of which so many records are done. kept has refusals, and whether the owner is to look. */
static __always_inline __u64 outcome_of(__u64 done, __u64 kept)
{
	return done << 40 | (kept & (0xffULL << 32 | OUTCOME_AWAITED));
}

static __always_inline __u64 progress_of(__u64 outcome)
{
	return outcome >> 40 & 0xff;
}

/*
 * Whether the request may go on with an interrupted exchange of which so many records are
 * done. One that has the exchange's number and other records may not: it would keep a lock
 * for good, or give up one that another session holds.
 */
static __always_inline int express_goes_on(struct express_work *w, struct express_slot *slot, __u64 done)
{
	__u64 held = w->steps[0].code == RECORD_LOCK ? (__u64)w->steps[0].window + 1 : 0;

	return done > 0 && done < w->header.credits && LOAD(&slot->locked) == held;
}

/*
 * Executes the claimed request from record done on. The slot's outcome says how far it
 * came, which records were refused, and whether the owner is to look, since requests wait for
 * the lock, or somebody for the notification.
 * COUNTER_EXPRESS_INTERRUPTED: not to the end. COUNTER_EXPRESS_AWAITED: the owner is to look.
 */
static __always_inline int express_run(struct express_work *w, struct express_slot *slot, __u64 slot_index, __u64 done)
{
	__u64 count = w->header.credits;

UNROLLED
	for (int k = 0; k < EXPRESS_MAX_RECORDS; k++) {
		if (k >= opaque(count))
			break;
		if (k < done)
			continue;
		int end = STEP_STUCK;
UNROLLED
		for (int i = 0; i < EXPRESS_ROUNDS && end == STEP_STUCK; i++)
			end = express_execute(k, slot_index);
		if (end == STEP_STUCK)
			return COUNTER_EXPRESS_INTERRUPTED;
		if (end == STEP_DONE && LOAD(&express_step(w, k)->counts))
			end = express_count(k);
		__u64 kept = LOAD(&slot->outcome);
		if (end == STEP_AWAITED)
			kept |= OUTCOME_AWAITED;
		if (end == STEP_REFUSED)
			kept |= 1ULL << (32 + k);
		STORE(&slot->outcome, outcome_of(k + 1, kept));
	}
	__u64 outcome = LOAD(&slot->outcome);
	STORE(&slot->outcome, w->results | outcome);
	return outcome & OUTCOME_AWAITED ? COUNTER_EXPRESS_AWAITED : COUNTER_EXPRESS_EXECUTED;
}

/*
 * Executes the request of len bytes that the frame holds, or finds its answer. ip and payload
 * say where in the frame its IP header and the request begin, ip as in struct datagram, and
 * slot_index which slot its session has. With COUNTER_EXPRESS_EXECUTED and
 * COUNTER_EXPRESS_REPEATED, it is to be answered.
 */
__noinline int express_serve(FRAME *ctx, __u64 slot_index, __u64 len, __u64 ip, __u64 payload)
{
	struct express_work *w = express_work();
	struct express_slot *slot = express_slot(w, slot_index);
	if (!w)
		return COUNTER_EXPRESS_BAD_FORM;
	len = opaque(len);
	int reason = express_read(ctx, w, slot, slot_index, len, ip, payload, 0);
	if (reason != COUNTER_EXPRESS_EXECUTED)
		return reason;
	if (!slot || w->header.flags & WIRE_FLAG_USER)
		return COUNTER_EXPRESS_USER;

	__u64 n = w->header.sequence, word = LOAD_ORDERED(&slot->word);
	__u64 begun = state_word(n, EXPRESS_STATE_INTERRUPTED), done = state_word(n, EXPRESS_STATE_DONE);
	if (word == done) /* the frame that the owner was to look at may have been lost */
		return LOAD(&slot->outcome) & OUTCOME_AWAITED ? COUNTER_EXPRESS_AWAITED : COUNTER_EXPRESS_REPEATED;
	if (word != begun && word != state_word(n - 1, EXPRESS_STATE_DONE))
		return word >> 2 == n ? COUNTER_EXPRESS_BUSY : COUNTER_EXPRESS_STALE;
	w->goes_on = word == begun;
	reason = express_check_all(w, opaque(slot->rank), len);
	if (reason != COUNTER_EXPRESS_EXECUTED)
		return reason;
	if (__sync_val_compare_and_swap(&slot->word, word, state_word(n, EXPRESS_STATE_PROGRAM)) != word)
		return COUNTER_EXPRESS_BUSY;

	__u64 from = 0;
	if (word == begun) {
		from = opaque(progress_of(LOAD(&slot->outcome)));
		if (!express_goes_on(w, slot, from)) {
			__sync_lock_test_and_set(&slot->word, begun);
			return COUNTER_EXPRESS_BAD_FORM;
		}
	} else {
		if (w->steps[0].code == RECORD_LOCK) {
			if (!express_lock(w->steps[0].window, w->steps[0].flags)) {
				__sync_lock_test_and_set(&slot->word, word);
				return COUNTER_EXPRESS_LOCKED;
			}
			STORE(&slot->locked, (__u64)w->steps[0].window + 1);
			from = 1;
		}
		STORE(&slot->outcome, outcome_of(from, 0));
	}
	reason = express_run(w, slot, slot_index, opaque(from));
	__u64 end = done;
	if (reason == COUNTER_EXPRESS_INTERRUPTED) /* with nothing done, it was not begun */
		end = progress_of(LOAD(&slot->outcome)) ? begun : word;
	__sync_lock_test_and_set(&slot->word, end);
	return reason;
}

static __always_inline __u16 folded(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* The sum of the answer up to end, to be folded. */
static __always_inline __u64 express_sum(struct express_work *w, __u64 end)
{
	__u64 sum = 0;
#pragma unroll
	for (int i = 0; i < EXPRESS_MAX_PAYLOAD; i += EXPRESS_SUMMED) {
		if (end <= i)
			break;
		__u64 n = opaque(end - i);
		if (n > EXPRESS_SUMMED)
			n = EXPRESS_SUMMED;
		sum += (__u32)bpf_csum_diff(NULL, 0, (void *)(w->payload + i), opaque(n) & (2 * EXPRESS_SUMMED - 1), 0);
	}
	return sum;
}

/* The sum of the pseudo header, which a partial checksum consists of. It is not 0. */
static __always_inline __u16 pseudo_sum(__u64 addresses, __be16 len)
{
	return folded(addresses + bpf_htons(IPPROTO_UDP) + len);
}

/* Puts the header that the work begins with to where the payload begins, and returns 0 if that is not in reach. */
static __always_inline int express_put_header(const struct express_work *w, __u64 *to, const void *end)
{
	if ((void *)to + WIRE_HEADER_LEN > end)
		return 0;
#pragma unroll
	for (int i = 0; i < WIRE_HEADER_LEN / 8; i++)
		to[i] = LOAD((const __u64 *)w->payload + i);
	return 1;
}

/* What checksum an answer has. */
enum { RETURNED_WHOLE = 1, RETURNED_PARTIAL };

/*
 * Swaps the ports, and sets the length for a payload of len bytes and the checksum: a partial
 * one or none. addresses is the sum of both IP addresses.
 *
 * A socket of this machine sends requests with a partial checksum, to which a hop that cannot
 * leave it so adds the rest. In generic mode the kernel has the answer for partial as well,
 * and the hop adds to what is in there. In native mode the answer is a new packet, whose
 * checksum is whole, or none. A whole checksum of a request can by chance be the number
 * that a partial one would be. Then the answer's is wrong, and it gets lost; the repeated
 * request has another checksum.
 */
static __always_inline int return_udp(struct udphdr *udp, __u64 addresses, __u32 len, int generic)
{
	int partial = generic && udp->check == pseudo_sum(addresses, udp->len);
	__be16 port = udp->source;
	udp->source = udp->dest;
	udp->dest = port;
	udp->len = bpf_htons(sizeof(*udp) + len);
	udp->check = partial ? pseudo_sum(addresses, udp->len) : 0;
	return partial ? RETURNED_PARTIAL : RETURNED_WHOLE;
}

static __always_inline int return_ipv4(struct express_ipv4 *f, __u32 len, int generic)
{
	__be32 from = f->ip.saddr;
	f->ip.saddr = f->ip.daddr;
	f->ip.daddr = from;
	int returned = return_udp(&f->udp, (__u64)f->ip.saddr + from, len, generic);
	f->ip.tos = 0;
	f->ip.tot_len = bpf_htons(sizeof(*f) + len);
	f->ip.id = 0;
	f->ip.frag_off = bpf_htons(0x4000); /* not to be fragmented */
	f->ip.ttl = EXPRESS_HOPS;
	f->ip.check = 0;
	__u32 sum = 0;
#pragma unroll
	for (int i = 0; i < (int)sizeof(f->ip) / 2; i++)
		sum += *((__u16 *)&f->ip + i);
	f->ip.check = ~folded(sum);
	return returned;
}

/* Likewise. IPv6 wants a checksum; sum is that of the payload. */
static __always_inline int return_ipv6(struct express_ipv6 *f, __u32 len, __u64 sum, int generic)
{
	__u64 addresses = 0;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		__u64 from = f->ip.saddr[i], to = f->ip.daddr[i];
		addresses += (from & 0xffffffff) + (from >> 32) + (to & 0xffffffff) + (to >> 32);
		f->ip.saddr[i] = to;
		f->ip.daddr[i] = from;
	}
	int returned = return_udp(&f->udp, addresses, len, generic);
	f->ip.version_class_flow = bpf_htonl(6U << 28);
	f->ip.payload_len = f->udp.len;
	f->ip.hop_limit = EXPRESS_HOPS;
	if (f->udp.check)
		return returned;
	__u16 whole = ~folded(sum + pseudo_sum(addresses, f->udp.len) + f->udp.source + f->udp.dest + f->udp.len);
	f->udp.check = whole ? whole : 0xffff; /* 0 means that there is none */
	return returned;
}

/*
 * Puts the header that the work begins with into the frame, swaps its sender and receiver, and sets its lengths
 * for a payload of len bytes, whose sum over IPv6 is given. VLAN tags stay as they came. Returns 0 if the headers are not in reach, or what
 * checksum the answer has.
 */
static __always_inline int express_return(FRAME *ctx, const struct express_work *w, __u32 len, __u64 sum, int generic)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)(long)ctx->data;

	if ((void *)(eth + 1) > end)
		return 0;
	__u16 *dest = (void *)eth->dest, *source = (void *)eth->source; /* in registers, not by way of the stack */
#pragma unroll
	for (int i = 0; i < 3; i++) {
		__u16 mac = dest[i];
		dest[i] = source[i];
		source[i] = mac;
	}
	if (express_over_ipv6(w)) {
		struct express_ipv6 *f = express_ip(ctx, w);
		if ((void *)(f + 1) > end || !express_put_header(w, (void *)(f + 1), end))
			return 0;
		return return_ipv6(f, len, sum, generic);
	} else {
		struct express_ipv4 *f = express_ip(ctx, w);
		if ((void *)(f + 1) > end || !express_put_header(w, (void *)(f + 1), end))
			return 0;
		return return_ipv4(f, len, generic);
	}
}

/*
 * Puts size bytes of a slot's results into the frame and behind the header in the work, and returns 0 if
 * there is no room. Results come in whole words. The verifier has to see that the size is not 0, so
 * it is compared twice: of both limits the compiler makes one comparison, of a difference, from which
 * Linux before 6.18 does not learn about the size.
 */
__noinline int express_results(FRAME *ctx, __u64 slot_index, __u64 size)
{
	struct express_work *w = express_work();
	struct express_slot *slot = express_slot(w, slot_index);
	if (!w || !slot || size < 8)
		return 0;
	size = opaque(size);
	if (size > EXPRESS_MAX_RESULTS || size % 8)
		return 0;
	const void *end = (void *)(long)ctx->data_end;
	__u64 *to = express_payload(ctx, w) + WIRE_HEADER_LEN;
#pragma unroll
	for (int i = 0; i < (EXPRESS_SHORT - WIRE_HEADER_LEN) / 8; i++) { /* by itself, as express_near does */
		if ((void *)(to + i + 1) > end)
			break;
		__u64 word = LOAD((const __u64 *)slot->results + i);
		STORE((__u64 *)(w->payload + WIRE_HEADER_LEN) + i, word);
		to[i] = word;
		if (size == 8 * (i + 1))
			return 1;
	}
	__u32 at = w->payload_at + WIRE_HEADER_LEN;
	return !FRAME_STORE(ctx, at, slot->results, size) && !FRAME_LOAD(ctx, at, w->payload + WIRE_HEADER_LEN, size);
}

/*
 * Makes the frame, whose request of len bytes is done, the answer. Otherwise it returns
 * why the frame is to be dropped: the exchange is over, or the frame is too short.
 */
__noinline int express_answer(FRAME *ctx, __u64 slot_index, __u64 len, int generic)
{
	struct express_work *w = express_work();
	struct express_slot *slot = express_slot(w, slot_index);
	if (!w || !slot)
		return COUNTER_EXPRESS_BUSY;
	struct wire_header *h = &w->header;
	__u64 outcome = LOAD(&slot->outcome), results = opaque(outcome & 0xffffffff);
	if (results > EXPRESS_MAX_RESULTS || WIRE_HEADER_LEN + results > len)
		return COUNTER_EXPRESS_BAD_FORM;
	if (results && !express_results(ctx, slot_index, results))
		return COUNTER_EXPRESS_BAD_FORM;
	h->flags = WIRE_FLAG_RESPONSE;
	h->reserved = outcome >> 32;
	h->session = LOAD(&slot->peer_session);
	h->credits = 0;
	h->order = 0;
	h->checksum = 0;
	if (LOAD_ORDERED(&slot->word) != state_word(h->sequence, EXPRESS_STATE_DONE))
		return COUNTER_EXPRESS_BUSY;
	__u32 end = WIRE_HEADER_LEN + results;
	if (LOAD(&slot->keyed))
		h->ack_largest = express_code(end, slot_index, EXPRESS_KEY_ANSWERS);
	else
		h->checksum = express_checksum(end);
	__u64 sum = express_over_ipv6(w) ? express_sum(w, end) : 0;
	int returned = express_return(ctx, w, end, sum, generic);
	if (!returned)
		return COUNTER_EXPRESS_BAD_FORM;
	/*
	 * A frame that stays longer than its datagram is no fault, and to cut it costs more than a few
	 * bytes. But a hop that adds the rest to a partial checksum goes on to the frame's end.
	 */
	if (len > end + EXPRESS_LEFT || returned == RETURNED_PARTIAL)
		FRAME_CUT(ctx, w->payload_at + end);
	return COUNTER_EXPRESS_EXECUTED;
}

#endif
