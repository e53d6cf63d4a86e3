/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Shared by all algorithms: slow start, fractional growth, decisions, and integer helpers.
 *
 * Growth below one packet lives in `cc_path.credit_q40`: congestion avoidance adds
 * acked * increase (Q40 packets per acknowledged packet), moves whole packets into the window and
 * keeps the remainder, so no acknowledgment is ever lost to rounding.
 *
 * Sources: RFC 5681 section 3.1 (slow start, ssthresh, restart after a timeout), RFC 3168
 * section 6.1.2 (a window reduced by ECE may reach one packet). Valid range: windows up to 2^20
 * packets, increases up to one packet per acknowledged packet.  Outside it, values are clamped; no
 * input whatever divides by zero or overflows.
 */
#ifndef VMCC_COMMON_H
#define VMCC_COMMON_H

#include "cc.h"
#include "cc_params.h" /* generated from registry.toml: CC_P_<ALGORITHM>_<PARAMETER> */

#define CC_CREDIT_BITS 40
#define CC_CREDIT_ONE  (1ull << CC_CREDIT_BITS)
/* Bounds a credit read from unknown state: 2^20 packets. */
#define CC_CREDIT_LIMIT	    ((int64_t)(1ull << 60))
#define CC_MIN_SSTHRESH_PKT 2u /* RFC 5681, equation 4 */
#define CC_ALPHA_ONE_Q30    (1u << 30)

/*
 * Comparisons and choices.  The BPF verifier follows both sides of every branch, and a few branches
 * per path exceed its limit; so there, these are arithmetic.  CC_OPAQUE keeps the compiler from
 * turning them back into branches.
 */
#ifdef __bpf__
#define CC_OPAQUE(x) __asm__ volatile("" : "+r"(x))

/* x != 0 */
CC_INLINE uint64_t cc_nonzero(uint64_t x)
{
	uint64_t negative = x | (0 - x);

	CC_OPAQUE(negative);
	return negative >> 63;
}

/* a < b: the borrow of a - b */
CC_INLINE uint64_t cc_less(uint64_t a, uint64_t b)
{
	uint64_t borrow = (~a & b) | ((~a | b) & (a - b));

	CC_OPAQUE(borrow);
	return borrow >> 63;
}

/* a < b, of values below 2^63: three instructions instead of seven */
CC_INLINE uint64_t cc_below(uint64_t a, uint64_t b)
{
	uint64_t borrow = a - b;

	CC_OPAQUE(borrow);
	return borrow >> 63;
}

/* condition ? a : b; condition is 0 or 1 */
CC_INLINE uint64_t cc_select(uint64_t condition, uint64_t a, uint64_t b)
{
	uint64_t mask = 0 - condition;

	CC_OPAQUE(mask);
	return b ^ ((a ^ b) & mask);
}

/* Nothing is skipped: adding an absent path's zeros costs less than a branch. */
#define CC_SKIP_UNLESS(condition) ((void)0)
#else
CC_INLINE uint64_t cc_nonzero(uint64_t x)
{
	return x != 0;
}

CC_INLINE uint64_t cc_less(uint64_t a, uint64_t b)
{
	return a < b;
}

CC_INLINE uint64_t cc_below(uint64_t a, uint64_t b)
{
	return a < b;
}

CC_INLINE uint64_t cc_select(uint64_t condition, uint64_t a, uint64_t b)
{
	return condition ? a : b;
}

#define CC_SKIP_UNLESS(condition)                                                                  \
	if (!(condition))                                                                          \
	continue
#endif

CC_INLINE uint64_t cc_equal(uint64_t a, uint64_t b)
{
	return cc_nonzero(a ^ b) ^ 1;
}

CC_INLINE uint64_t cc_min64(uint64_t a, uint64_t b)
{
	return cc_select(cc_less(a, b), a, b);
}

CC_INLINE uint64_t cc_max64(uint64_t a, uint64_t b)
{
	return cc_select(cc_less(a, b), b, a);
}

CC_INLINE uint32_t cc_min(uint32_t a, uint32_t b)
{
	return (uint32_t)cc_select(cc_below(a, b), a, b);
}

CC_INLINE uint32_t cc_max(uint32_t a, uint32_t b)
{
	return (uint32_t)cc_select(cc_below(a, b), b, a);
}

/* |a - b| */
CC_INLINE uint32_t cc_distance(uint32_t a, uint32_t b)
{
	return cc_max(a, b) - cc_min(a, b);
}

/* True if sequence number a is before b, modulo 2^32. */
CC_INLINE int cc_seq_before(uint32_t a, uint32_t b)
{
	return (a - b) >> 31;
}

/*
 * True if data sent after `round_end` have been acknowledged.  Strictly after (RFC 8257
 * section 3.3): an ACK that repeats what the last round ended with is not another round.
 */
CC_INLINE int cc_round_over(const struct cc_event *ev, uint32_t round_end)
{
	return cc_seq_before(round_end, ev->snd_una);
}

/* Position of the highest set bit, counted from 1; 0 for 0.  BPF has no instruction for it. */
CC_INLINE uint32_t cc_bitlen(uint64_t v)
{
#ifdef __bpf__
	uint64_t n = 0, step;

	step = cc_nonzero(v >> 32) << 5;
	v >>= step;
	n += step;
	step = cc_nonzero(v >> 16) << 4;
	v >>= step;
	n += step;
	step = cc_nonzero(v >> 8) << 3;
	v >>= step;
	n += step;
	step = cc_nonzero(v >> 4) << 2;
	v >>= step;
	n += step;
	step = cc_nonzero(v >> 2) << 1;
	v >>= step;
	n += step;
	step = cc_nonzero(v >> 1);
	v >>= step;
	return (uint32_t)(n + step + v);
#else
	return v ? 64u - (uint32_t)__builtin_clzll(v) : 0u;
#endif
}

/* Population count of a set of at most 32 paths. */
CC_INLINE uint32_t cc_members(uint64_t set)
{
	set -= (set >> 1) & 0x55555555u;
	set = (set & 0x33333333u) + ((set >> 2) & 0x33333333u);
	set = (set + (set >> 4)) & 0x0f0f0f0fu;
	return (uint32_t)(set * 0x01010101u >> 24) & 0xff;
}

/*
 * A product wider than 64 bits, as two words of 32 bits below and 64 above: enough for a factor
 * below 2^64 times one below 2^32.  BPF has no 128-bit multiplication.
 */
struct cc_product {
	uint64_t hi;
	uint64_t lo; /* below 2^32 */
};

CC_INLINE struct cc_product cc_multiply(uint64_t a, uint32_t b)
{
	uint64_t low = (a & 0xffffffffu) * b;
	struct cc_product p = {(a >> 32) * b + (low >> 32), low & 0xffffffffu};

	return p;
}

/* x > y: the borrow of y - x.  High words must be below 2^62. */
CC_INLINE uint64_t cc_product_greater(struct cc_product x, struct cc_product y)
{
	uint64_t borrow = (y.lo - x.lo) >> 63;

	return cc_below(y.hi, x.hi + borrow);
}

CC_INLINE uint64_t cc_product_equal(struct cc_product x, struct cc_product y)
{
	return cc_equal((x.hi ^ y.hi) | (x.lo ^ y.lo), 0);
}

/* The window a hook works on: at least 1, at most the range every derivation holds for. */
CC_INLINE uint32_t cc_window(uint32_t cwnd_pkt)
{
	return cc_min(cc_max(cwnd_pkt, 1), CC_MAX_CWND_PKT);
}

/* RFC 5681's FlightSize: what an application-limited sender really has in the network. */
CC_INLINE uint32_t cc_flight(const struct cc_event *ev)
{
	uint32_t w = cc_window(ev->cwnd_pkt);

	if ((ev->flags & CC_EV_CWND_LIMITED) || !ev->in_flight_pkt)
		return w;
	return cc_min(w, ev->in_flight_pkt);
}

CC_INLINE void cc_set_cwnd(struct cc_decision *out, uint32_t cwnd_pkt)
{
	out->set |= CC_SET_CWND;
	out->cwnd_pkt = cwnd_pkt;
}

CC_INLINE void cc_set_ssthresh(struct cc_decision *out, uint32_t ssthresh_pkt)
{
	out->set |= CC_SET_SSTHRESH;
	out->ssthresh_pkt = ssthresh_pkt;
}

CC_INLINE void cc_set_gap(struct cc_decision *out, uint32_t gap_us)
{
	out->set |= CC_SET_GAP;
	out->gap_us = gap_us;
}

CC_INLINE int cc_in_slow_start(const struct cc_event *ev)
{
	return ev->cwnd_pkt < ev->ssthresh_pkt;
}

/*
 * Slow start: one packet per acknowledged packet, up to ssthresh.  Returns the acknowledged packets
 * that are left for congestion avoidance.
 */
CC_INLINE uint32_t cc_slow_start(const struct cc_event *ev, uint32_t *w)
{
	uint32_t acked = cc_min(ev->acked_pkt, CC_MAX_CWND_PKT);
	uint32_t limit = cc_min(ev->ssthresh_pkt, CC_MAX_CWND_PKT);
	uint32_t taken;

	if (*w >= limit)
		return acked;
	taken = cc_min(acked, limit - *w);
	*w += taken;
	return acked - taken;
}

/* The credit of a path, brought into range whatever the state was. */
CC_INLINE int64_t cc_credit(const struct cc_path *self)
{
	if (self->credit_q40 > CC_CREDIT_LIMIT)
		return CC_CREDIT_LIMIT;
	if (self->credit_q40 < -CC_CREDIT_LIMIT)
		return -CC_CREDIT_LIMIT;
	return self->credit_q40;
}

/* Congestion avoidance with an increase in Q40, at most 1.  Returns the new window. */
CC_INLINE uint32_t cc_avoidance(struct cc_path *self, uint32_t w, uint32_t acked, uint64_t inc_q40)
{
	uint64_t credit = cc_credit(self) > 0 ? (uint64_t)cc_credit(self) : 0;
	uint64_t whole;

	credit += (uint64_t)acked * inc_q40;
	whole = credit >> CC_CREDIT_BITS;
	self->credit_q40 = (int64_t)(credit & (CC_CREDIT_ONE - 1));
	return (uint32_t)cc_min64(w + whole, CC_MAX_CWND_PKT);
}

/* Ends on_grow: sets the host's window, never below the present one. */
CC_INLINE void cc_grown(const struct cc_event *ev, uint32_t w, struct cc_decision *out)
{
	if (w > ev->cwnd_pkt)
		cc_set_cwnd(out, w);
}

/* 1 / w in Q40, rounded up: w acknowledged packets then are a whole packet of growth, not a hair
 * less. */
CC_INLINE uint64_t cc_inverse_q40(uint32_t w)
{
	return (CC_CREDIT_ONE + w - 1) / w;
}

/* Reno's growth: slow start, then one packet per window of acknowledged packets. */
CC_INLINE void cc_reno_grow(const struct cc_event *ev, struct cc_path *self,
			    struct cc_decision *out)
{
	uint32_t w = cc_window(ev->cwnd_pkt);
	uint32_t left = cc_slow_start(ev, &w);

	if (left)
		w = cc_avoidance(self, w, left, cc_inverse_q40(w));
	cc_grown(ev, w, out);
}

/*
 * Ends on_congestion: the window shall become `target`, at least `floor`, and ssthresh with it, at
 * least `ssthresh_floor`.  A timeout restarts from one packet whatever the target.
 */
CC_INLINE void cc_reduce(const struct cc_event *ev, struct cc_path *self, uint32_t target,
			 uint32_t floor, uint32_t ssthresh_floor, struct cc_decision *out)
{
	uint32_t ssthresh = cc_max(target, ssthresh_floor);
	uint32_t w = cc_max(target, floor);

	cc_set_ssthresh(out, ssthresh);
	if (ev->cause == CC_CAUSE_RTO) {
		self->credit_q40 = 0;
		w = 1;
	}
	if (w != ssthresh)
		cc_set_cwnd(out, w);
}

/* Reno's answer (RFC 5681 equation 4; RFC 3168: after ECE the window itself may fall to one
 * packet). */
CC_INLINE void cc_reno_reduce(const struct cc_event *ev, struct cc_path *self,
			      struct cc_decision *out)
{
	uint32_t floor = ev->cause == CC_CAUSE_ECE ? 1 : CC_MIN_SSTHRESH_PKT;

	cc_reduce(ev, self, cc_flight(ev) / 2, floor, CC_MIN_SSTHRESH_PKT, out);
}

/*
 * The private state of a path as the algorithm's own struct.  The words of cc_path are cleared and
 * copied as integers, so the struct, and any struct within it that is used by pointer, must be
 * CC_PRIVATE.
 */
#define CC_PRIVATE	     __attribute__((may_alias))
#define CC_STATE(type, path) ((struct type *)(path)->priv)

/* Starts a path from nothing. */
CC_INLINE void cc_path_clear(struct cc_path *self)
{
	int i;

	self->credit_q40 = 0;
	self->pub[0] = 0;
	self->pub[1] = 0;
	for (i = 0; i < 7; i++)
		self->priv[i] = 0;
}

#endif /* VMCC_COMMON_H */
