/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* clang-format off */
/*
 * Detection of shared bottlenecks by correlation in time.
 *
 * Two paths through one queue see the same marks and delays at the same moments; two queues that are
 * alike see similar ones at unrelated moments.
 *
 *   clock     time is divided into bins of 2^shift us, about the connection's longest RTT, the same
 *             for all its paths.  An ACK belongs to the moment half an RTT ago, when its packet was
 *             about to arrive: paths of unequal delay are then at most half a bin apart, and no
 *             search for a lag is needed.
 *   bin       the share of ACKs with ECE, and the mean RTT.  A single bin without an ACK repeats its
 *             predecessor; more are invalid.  So is a bin of which an eighth of the ACKs followed a
 *             timeout or were application-limited, and the next few: paths that start together
 *             fill their queues together, shared or not.
 *   block     of 16 bins, all valid on both paths.  r of the marks is Pearson's coefficient.  r of
 *             the delays is the mean of two, both without slow trends: of the detrended series,
 *             and of its differences.  The block's r is the mean of both signals, or one where the
 *             other is flat.
 *   evidence  of each pair of paths: the sum of r - 0.28, a sequential test (Wald) between
 *             CC_SHARING_APART, which is also its lower bound, and CC_SHARING_SHARED.  In between
 *             the pair is undecided, and nothing is done.
 *
 *   trial     correlated signals may have another common cause, so the path in the higher slot runs
 *             trials while the pair is undecided.  A random bit decides whether a trial probes.  A
 *             probe lasts while its packets count to this bin or the next.  The window is then the
 *             data in flight less their share of the queue, at least half; afterwards it is
 *             restored.  The link does not run idle.  A window that is too narrow for that grows
 *             instead.  Either way the change of both paths' delays to the next bin is measured.
 *   alone     of each pair, the sum of the difference of both changes, with the sign of the random
 *             bit.  In one queue both see the probe, so the difference is near 0, and the sum falls
 *             a little each time.  In queues of their own only the path responds, and the sum
 *             rises.  Common disturbances cancel in the difference; others are independent of the
 *             random bit and average out.
 *
 * A pair shares a bottleneck if the evidence says so and the sum is at CC_SHARING_BOTH.  Of such a
 * pair the path in the higher slot requests to be closed.
 *
 * Only the paths in the first CC_SHARING_PATHS slots are compared, with each other: those beyond
 * have no history here, and `me` is never one of them (cc_is_compared).
 *
 * A path writes its own history only; evidence is written by the end of the pair that completes the
 * block later.  In the kernel two may do so at once and count a block twice, or lose it.
 *
 * Valid range: RTTs up to 16 s.  Any content of the memory is accepted.
 */
/* clang-format on */
#ifndef VMCC_SHARING_H
#define VMCC_SHARING_H

#include "coupling.h"

#define CC_SHARING_BLOCK_BITS 4
#define CC_SHARING_BLOCK      (1u << CC_SHARING_BLOCK_BITS)
#define CC_SHARING_SHIFT_MIN  6u /* 64 us */
#define CC_SHARING_SHIFT_MAX  24u
#define CC_SHARING_SETTLE     8u /* bins that are left out after one of which nothing is known */

/* A bin is valid if less than 1/CC_SHARING_FEW of its ACKs carry no information. */
#define CC_SHARING_FEW 8u

/* Evidence, in 1/32 of r.  At least three blocks decide. */
#define CC_SHARING_MIDDLE 9
#define CC_SHARING_SHARED 48
#define CC_SHARING_APART  (-16)

/*
 * Windows up to NARROW packets cannot be reduced for a probe, and grow by WIDER instead.  Ten would
 * give a clearer signal, and take half of the rate of other flows in the same queue.
 */
#define CC_SHARING_NARROW 8u
#define CC_SHARING_WIDER  3u
#define CC_SHARING_WIDE	  (CC_SHARING_NARROW + CC_SHARING_WIDER)
/* Times of a probe are in ticks of 2^-4 bins. */
#define CC_SHARING_TICK_BITS 4
/*
 * Bins from one trial to the next: while a pair is undecided; once sharing is likely; the number of
 * blocks after which an undecided pair has fewer trials, because a probe costs if the delay is no
 * queue; the interval of those; the interval of a pair that is excluded, because paths may move.
 */
#define CC_SHARING_DOUBTFUL 4u
#define CC_SHARING_URGENT   3u
#define CC_SHARING_PATIENCE 32u
#define CC_SHARING_SELDOM   16u
#define CC_SHARING_RARELY   128u

/* Kinds of a trial; the lowest bit tells whether it probes. */
#define CC_SHARING_PROBE 1u
#define CC_SHARING_PAUSE 2u
#define CC_SHARING_WIDEN 4u
/* Bins until the effect of a trial is known. */
#define CC_SHARING_SEEN 3u
/*
 * In 1/64 of the effect of a probe on a queue without other traffic: the midpoint between no
 * response and the response in a queue with one more connection; the limit of one trial; the amount
 * subtracted per trial, so that the sum falls without a response; and its bounds.
 */
#define CC_SHARING_ANSWER 8
#define CC_SHARING_ODD	  16
#define CC_SHARING_DOUBT  5
#define CC_SHARING_BOTH	  (-48)
#define CC_SHARING_ALONE  96

/* The least evidence without a trial. */
#define CC_SHARING_UNLIKELY (-12)

/* A bin's value: share of marks in the low bits, delay above; 0: unknown. */
#define CC_SHARING_MARK_BITS  5
#define CC_SHARING_MARK_MAX   ((1u << CC_SHARING_MARK_BITS) - 1)
#define CC_SHARING_DELAY_BITS 10 /* of a bin's length */
#define CC_SHARING_DELAY_MAX  ((1u << (CC_SHARING_DELAY_BITS + 1)) - 1)

/* Below these n^2-fold variances a signal is flat: 0.06 of full marking, 1/1024 of a bin. */
#define CC_SHARING_MARKS_FLAT  1024u
#define CC_SHARING_DELAYS_FLAT 256u

/* If one signal is flat and the other has this many times its variance, r is 0. */
#define CC_SHARING_UNLIKE 16u
/* Below any r: nothing moves; nothing is known. */
#define CC_SHARING_NOTHING (-64)
#define CC_SHARING_UNKNOWN (-65)

/* n sum(i^2) - sum(i)^2 for i below 16 */
#define CC_SHARING_LINE 5440u

/* Position of a pair's evidence; a and b differ. */
CC_INLINE uint32_t cc_sharing_pair(uint32_t a, uint32_t b)
{
	uint32_t high = cc_max(a, b) & (CC_SHARING_PATHS - 1), low = cc_min(a, b);

	uint32_t pair = high * (high - 1) / 2 + low;

	return pair < CC_SHARING_PAIRS ? pair : 0;
}

/*
 * The compared paths below `last`, in whole strides: slots from the group's `end` on are empty, so
 * that two paths cost no look at eight.  The compiler must not make one bound of both: the verifier
 * needs the constant one.
 */
#ifdef __bpf__
#define CC_FOR_COMPARED(i, last)                                                                   \
	for (uint32_t cc_base = 0, cc_last = (last); cc_base < cc_last && cc_is_below(cc_base);    \
	     cc_base = cc_stride(cc_base))                                                         \
		for ((i) = cc_base; (i) < cc_base + CC_STRIDE; (i)++)

CC_INLINE int cc_is_below(uint32_t base)
{
	CC_OPAQUE(base);
	return base < CC_SHARING_PATHS;
}
#else
#define CC_FOR_COMPARED(i, last)                                                                   \
	for (uint32_t cc_last = ((i) = 0, cc_reach(cc_min(last, CC_SHARING_PATHS)));               \
	     (i) < cc_last; (i)++)
#endif
_Static_assert(CC_SHARING_PATHS % CC_STRIDE == 0, "a stride must not pass the compared paths");

/* True if the path has a history, and evidence with others. */
CC_INLINE int cc_is_compared(const struct cc_event *ev)
{
	return cc_own_index(ev) < CC_SHARING_PATHS;
}

/* A path that is compared: a number of its history. */
CC_INLINE uint32_t cc_sharing_own(const struct cc_event *ev)
{
	return ev->self & (CC_SHARING_PATHS - 1);
}

/* n^2-fold variances and covariance of two signals.  Values below 2^11, 16 of them: below 2^30. */
struct cc_covariance {
	uint64_t xx;
	uint64_t yy;
	int64_t xy;
};

/* |r| in 1/16, rounded down, with the sign of r; r = xy / sqrt(xx yy). */
CC_INLINE int64_t cc_covariance_r(const struct cc_covariance *c)
{
	uint64_t negative = (uint64_t)c->xy >> 63;
	uint64_t size = ((uint64_t)c->xy ^ (0 - negative)) + negative;
	uint64_t whole = (c->xx * c->yy) >> 8, r = 0, step;

	size = size * size;
	for (step = 8; step; step >>= 1)
		r += step & (0 - (cc_less(size, (r + step) * (r + step) * whole) ^ 1));
	return (int64_t)((r ^ (0 - negative)) + negative);
}

CC_INLINE uint64_t cc_covariance_flat(const struct cc_covariance *c, uint64_t flat)
{
	return cc_less(c->xx, flat) | cc_less(c->yy, flat);
}

/* Sums over a block, of the marks of two paths. */
struct cc_marks {
	uint64_t known; /* bins that are, on both */
	uint64_t x, y, xx, yy, xy;
};

/* The same of delays, and what a line and differences take. */
struct cc_delays {
	uint64_t x, y, xx, yy, xy;
	uint64_t ix, iy; /* of the bin's number times the delay */
	uint64_t first_x, first_y, last_x, last_y;
	uint64_t exx, eyy; /* of the differences from bin to bin */
	int64_t exy;
};

CC_INLINE void cc_delays_add(struct cc_delays *d, uint32_t i, uint64_t x, uint64_t y)
{
	uint64_t later = cc_nonzero(i);
	int64_t ex = (int64_t)(x - d->last_x) * (int64_t)later;
	int64_t ey = (int64_t)(y - d->last_y) * (int64_t)later;

	d->x += x;
	d->y += y;
	d->xx += x * x;
	d->yy += y * y;
	d->xy += x * y;
	d->ix += i * x;
	d->iy += i * y;
	d->first_x = cc_select(later, d->first_x, x);
	d->first_y = cc_select(later, d->first_y, y);
	d->last_x = x;
	d->last_y = y;
	d->exx += (uint64_t)(ex * ex);
	d->eyy += (uint64_t)(ey * ey);
	d->exy += ex * ey;
}

/* |a| |b| / CC_SHARING_LINE with the sign of a b */
CC_INLINE int64_t cc_line_part(int64_t a, int64_t b)
{
	uint64_t na = (uint64_t)a >> 63, nb = (uint64_t)b >> 63, n = na ^ nb;
	uint64_t size = (((uint64_t)a ^ (0 - na)) + na) * (((uint64_t)b ^ (0 - nb)) + nb);

	return (int64_t)(((size / CC_SHARING_LINE) ^ (0 - n)) + n);
}

/* Delays, what is left of them after the best straight line. */
CC_INLINE void cc_delays_ripples(const struct cc_delays *d, struct cc_covariance *c)
{
	const uint64_t n = CC_SHARING_BLOCK, sum = n * (n - 1) / 2;
	int64_t slope_x = (int64_t)(n * d->ix - sum * d->x);
	int64_t slope_y = (int64_t)(n * d->iy - sum * d->y);

	c->xx = n * d->xx - d->x * d->x - (uint64_t)cc_line_part(slope_x, slope_x);
	c->yy = n * d->yy - d->y * d->y - (uint64_t)cc_line_part(slope_y, slope_y);
	c->xy = (int64_t)(n * d->xy - d->x * d->y) - cc_line_part(slope_x, slope_y);
}

/* Delays, the differences from bin to bin. */
CC_INLINE void cc_delays_steps(const struct cc_delays *d, struct cc_covariance *c)
{
	const int64_t n = CC_SHARING_BLOCK - 1;
	int64_t x = (int64_t)(d->last_x - d->first_x), y = (int64_t)(d->last_y - d->first_y);

	c->xx = (uint64_t)n * d->exx - (uint64_t)(x * x);
	c->yy = (uint64_t)n * d->eyy - (uint64_t)(y * y);
	c->xy = n * d->exy - x * y;
}

/*
 * Position of a bin in the ring.  The BPF verifier does not follow a remainder, so it is shown a
 * comparison, which the compiler must not know to be always true.
 */
CC_INLINE uint64_t cc_sharing_at(uint32_t bin)
{
	uint64_t at = bin % CC_SHARING_BINS;

#ifdef __bpf__
	CC_OPAQUE(at);
#endif
	return at < CC_SHARING_BINS ? at : 0;
}

/* Position of the next bin in the ring; within it for any `at`. */
CC_INLINE uint64_t cc_sharing_next(uint64_t at)
{
	return at + 1 < CC_SHARING_BINS ? at + 1 : 0;
}

/* r of the marks in 1/32; CC_SHARING_NOTHING if flat, CC_SHARING_UNKNOWN if a bin is not known. */
CC_NOINLINE int cc_sharing_marks(const struct cc_history *x, const struct cc_history *y,
				 uint64_t at)
{
	const uint64_t n = CC_SHARING_BLOCK;
	struct cc_marks m = {0};
	struct cc_covariance c;
	uint32_t i;

	for (i = 0; i < CC_SHARING_BLOCK; i++) {
		uint64_t a, b;

		if (at >= CC_SHARING_BINS)
			return CC_SHARING_UNKNOWN;
		a = x->value[at];
		b = y->value[at];
		at = cc_sharing_next(at);
		m.known += cc_nonzero(a) & cc_nonzero(b);
		a &= CC_SHARING_MARK_MAX;
		b &= CC_SHARING_MARK_MAX;
		m.x += a;
		m.y += b;
		m.xx += a * a;
		m.yy += b * b;
		m.xy += a * b;
	}
	if (m.known != CC_SHARING_BLOCK)
		return CC_SHARING_UNKNOWN;
	c.xx = n * m.xx - m.x * m.x;
	c.yy = n * m.yy - m.y * m.y;
	c.xy = (int64_t)(n * m.xy - m.x * m.y);
	if (cc_covariance_flat(&c, CC_SHARING_MARKS_FLAT))
		return CC_SHARING_NOTHING;
	return 2 * (int)cc_covariance_r(&c);
}

/* r of the delays in 1/32, the sum of both kinds in 1/16. */
CC_NOINLINE int cc_sharing_delays(const struct cc_history *x, const struct cc_history *y,
				  uint64_t at)
{
	struct cc_delays d = {0};
	struct cc_covariance ripples, steps;
	uint32_t i;

	for (i = 0; i < CC_SHARING_BLOCK; i++) {
		if (at >= CC_SHARING_BINS)
			return CC_SHARING_UNKNOWN;
		cc_delays_add(&d, i, x->value[at] >> CC_SHARING_MARK_BITS,
			      y->value[at] >> CC_SHARING_MARK_BITS);
		at = cc_sharing_next(at);
	}
	cc_delays_ripples(&d, &ripples);
	cc_delays_steps(&d, &steps);
	if (!(cc_covariance_flat(&ripples, CC_SHARING_DELAYS_FLAT) |
	      cc_covariance_flat(&steps, CC_SHARING_DELAYS_FLAT)))
		return (int)(cc_covariance_r(&ripples) + cc_covariance_r(&steps));
	if (cc_less(CC_SHARING_UNLIKE * ripples.xx, ripples.yy) |
	    cc_less(CC_SHARING_UNLIKE * ripples.yy, ripples.xx))
		return 0;
	return CC_SHARING_NOTHING;
}

/* Adds to the evidence, within its bounds; without a trial those are narrower. */
CC_INLINE void cc_sharing_add(struct cc_sharing *sharing, uint32_t pair, int32_t step)
{
	int32_t before = sharing->evidence[pair], after = before + step;
	int32_t least = sharing->alone[pair] ? CC_SHARING_APART : CC_SHARING_UNLIKELY;

	if (before < least)
		least = before;
	if (after > CC_SHARING_SHARED)
		after = CC_SHARING_SHARED;
	if (after < least)
		after = least;
	sharing->evidence[pair] = (int8_t)after;
}

/* Compares two paths over the block that begins with bin `start`. */
CC_SEPARATE int cc_sharing_compare(struct cc_sharing *sharing, uint32_t me, uint32_t other,
				   uint32_t start)
{
	const struct cc_history *x, *y;
	int of_marks, of_delays, r;

	if (!sharing)
		return 0;
	x = &sharing->path[me & (CC_SHARING_PATHS - 1)];
	y = &sharing->path[other & (CC_SHARING_PATHS - 1)];
	of_marks = cc_sharing_marks(x, y, cc_sharing_at(start));
	if (of_marks == CC_SHARING_UNKNOWN)
		return 0;
	of_delays = cc_sharing_delays(x, y, cc_sharing_at(start));
	r = of_marks < of_delays ? of_delays : of_marks;
	if (of_marks != CC_SHARING_NOTHING && of_delays != CC_SHARING_NOTHING)
		r = (int)((uint32_t)(of_marks + of_delays - 2 * CC_SHARING_NOTHING) >> 1) +
		    CC_SHARING_NOTHING;
	if (r != CC_SHARING_NOTHING)
		cc_sharing_add(sharing, cc_sharing_pair(me, other), r - CC_SHARING_MIDDLE);
	return 0;
}

/* 1 if the path can be kept or compared with, else 0. */
CC_INLINE uint64_t cc_sharing_lives(const struct cc_slot *slot)
{
	return cc_slot_counts(slot) & (cc_nonzero(slot->flags & CC_SLOT_LOSS) ^ 1);
}

/* Compares the path with every other that has completed the block as well. */
CC_INLINE void cc_sharing_block(const struct cc_group *group, struct cc_sharing *sharing,
				uint32_t me, uint32_t start)
{
	uint32_t i;

	for (i = 0; i < CC_SHARING_PATHS; i++) {
		uint32_t ahead = sharing->path[i].bin - start;

		if (i != me && cc_sharing_lives(&group->path[i]) && ahead >= CC_SHARING_BLOCK &&
		    ahead < CC_SHARING_BINS)
			cc_sharing_compare(sharing, me, i, start);
	}
}

/* Keeps bins near the longest RTT; a new length restarts all histories. */
CC_INLINE void cc_sharing_clock(const struct cc_group *group, struct cc_sharing *sharing)
{
	uint32_t longest_us = 0, i, shift = sharing->shift;

	CC_FOR_COMPARED(i, cc_group_end(group))
	{
		uint32_t srtt = cc_slot_srtt(&group->path[i]);

		srtt = (uint32_t)cc_select(cc_slot_counts(&group->path[i]), srtt, 0);
		longest_us = cc_max(longest_us, srtt >> 3);
	}
	longest_us = cc_min(longest_us, 1u << CC_SHARING_SHIFT_MAX);
	if (shift >= CC_SHARING_SHIFT_MIN && shift <= CC_SHARING_SHIFT_MAX) {
		uint64_t bin_us = 1ull << shift;

		if (longest_us <= bin_us + bin_us / 2 && longest_us >= bin_us / 2)
			return;
	}
	/* From 3/4 to 3/2 of it. */
	shift = cc_bitlen(longest_us * 3 / 4);
	sharing->shift = cc_min(cc_max(shift, CC_SHARING_SHIFT_MIN), CC_SHARING_SHIFT_MAX);
}

/* The value of the bin that has been filled. */
CC_INLINE uint16_t cc_history_value(struct cc_history *h)
{
	uint32_t acks = h->acks, delay;

	if (!acks || CC_SHARING_FEW * h->ignored > acks) {
		h->settle = CC_SHARING_SETTLE;
		return 0;
	}
	if (h->settle) {
		h->settle--;
		return 0;
	}
	delay = cc_max(cc_min(h->delays / acks, CC_SHARING_DELAY_MAX), 1);
	return (uint16_t)(delay << CC_SHARING_MARK_BITS |
			  cc_min(h->marked, acks) * CC_SHARING_MARK_MAX / acks);
}

/* Goes on to another bin; one that was skipped is as the last, several are unknown. */
CC_SEPARATE int cc_history_turn(struct cc_history *h, uint32_t bin)
{
	uint32_t skipped, i;
	uint16_t value;

	if (!h)
		return 0;
	skipped = bin - h->bin - 1;
	value = cc_history_value(h);
	h->value[cc_sharing_at(h->bin)] = value;
	if (skipped > 1) {
		h->settle = CC_SHARING_SETTLE;
		value = 0;
	}
	for (i = 0; i < CC_SHARING_BINS && i < skipped; i++)
		h->value[cc_sharing_at(h->bin + 1 + i)] = value;
	h->bin = bin;
	h->delays = 0;
	h->acks = 0;
	h->marked = 0;
	h->ignored = 0;
	return 0;
}

/* Comparison of a path with those in lower slots. */
struct cc_verdict {
	uint32_t kept; /* the lowest that shares with it and may be kept; CC_SHARING_PATHS: none */
	uint32_t others;   /* is there any? */
	int32_t suspicion; /* the strongest evidence */
};

CC_NOINLINE void cc_sharing_verdict(const struct cc_group *group, const struct cc_sharing *sharing,
				    uint32_t me, struct cc_verdict *v)
{
	uint64_t strongest = 0, shared = 0, others = 0;
	uint32_t i;

	CC_FOR_COMPARED(i, me)
	{
		uint64_t lives = cc_sharing_lives(&group->path[i]) & cc_less(i, me);
		uint32_t pair = cc_sharing_pair(me, i);
		uint64_t above = (uint64_t)(sharing->evidence[pair] - INT8_MIN) & (0 - lives);
		uint64_t alone = (uint64_t)(sharing->alone[pair] - INT8_MIN);

		others |= lives;
		strongest = cc_max64(strongest, above);
		shared |= (cc_less(CC_SHARING_SHARED - INT8_MIN - 1, above) &
			   cc_less(alone, CC_SHARING_BOTH - INT8_MIN + 1))
			  << i;
	}
	v->kept = shared ? cc_bitlen(shared & (0 - shared)) - 1 : CC_SHARING_PATHS;
	v->others = (uint32_t)others;
	v->suspicion = (int32_t)strongest + INT8_MIN;
	CC_LEAVE();
}

/* Stores another detector's conclusion about two paths where the verdict is read. */
CC_INLINE void cc_sharing_conclude(struct cc_sharing *sharing, uint32_t a, uint32_t b, int shares)
{
	uint32_t pair = cc_sharing_pair(a, b);

	sharing->evidence[pair] = shares ? CC_SHARING_SHARED : CC_SHARING_APART;
	sharing->alone[pair] = shares ? CC_SHARING_BOTH : 0;
}

/* Requests that the path be closed if it shares a bottleneck with one in a lower slot. */
CC_SEPARATE int cc_sharing_close(const struct cc_group *group, const struct cc_sharing *sharing,
				 uint32_t me, struct cc_decision *out)
{
	struct cc_verdict v;

	if (!group || !sharing || !out)
		return 0;
	cc_sharing_verdict(group, sharing, me & (CC_SHARING_PATHS - 1), &v);
	if (v.kept < CC_SHARING_PATHS) {
		out->set |= CC_CLOSE_PATH;
		out->peer = v.kept;
	}
	return 0;
}

/* A random bit.  No external cause depends on it, so none can look like a response to it. */
CC_INLINE uint8_t cc_sharing_coin(const struct cc_event *ev)
{
	uint32_t drawn = ((uint32_t)ev->now_us * 0x9e3779b1u ^ ev->snd_una) * 0x85ebca6bu;

	return (uint8_t)((drawn ^ drawn >> 15) * 0xc2b2ae35u >> 31);
}

/* True if another trial is due. */
CC_INLINE int cc_sharing_due(const struct cc_history *h, int32_t suspicion)
{
	uint8_t since = (uint8_t)(h->bin - h->tried);

	if (suspicion <= CC_SHARING_APART)
		return since >= CC_SHARING_RARELY;
	if (h->doubts >= CC_SHARING_PATIENCE)
		return since >= CC_SHARING_SELDOM;
	return since >= (suspicion < CC_SHARING_SHARED ? CC_SHARING_DOUBTFUL : CC_SHARING_URGENT);
}

/* Increase of the delay from this bin to the next; clears `known` if one of them is invalid. */
CC_INLINE int32_t cc_sharing_rise(const struct cc_history *h, uint32_t bin, uint64_t *known)
{
	uint64_t at = h->value[cc_sharing_at(bin)], next = h->value[cc_sharing_at(bin + 1)];

	*known &= cc_nonzero(at) & cc_nonzero(next);
	return (int32_t)(next >> CC_SHARING_MARK_BITS) - (int32_t)(at >> CC_SHARING_MARK_BITS);
}

/* 64 a / b, rounded towards 0, from the middle of an answer and none, within bounds. */
CC_INLINE int32_t cc_sharing_answer(int32_t a, uint32_t b)
{
	uint32_t size = (uint32_t)(a < 0 ? -a : a) * 64 / cc_max(b, 1);
	int32_t answer = (int32_t)cc_min(size, 4 * CC_SHARING_ODD);

	answer = (a < 0 ? -answer : answer) - CC_SHARING_ANSWER;
	if (answer > CC_SHARING_ODD)
		return CC_SHARING_ODD;
	return answer < -CC_SHARING_ODD ? -CC_SHARING_ODD : answer;
}

/* Adds up what a pair did in trials. */
CC_INLINE void cc_sharing_heard(struct cc_sharing *sharing, uint32_t pair, int32_t answer)
{
	int32_t sum = sharing->alone[pair] + answer - CC_SHARING_DOUBT;

	sum = sum > CC_SHARING_ALONE ? CC_SHARING_ALONE : sum;
	sharing->alone[pair] = (int8_t)(sum < CC_SHARING_BOTH ? CC_SHARING_BOTH : sum);
}

/*
 * Evaluates the trial of this bin.  If a path has a queue of its own, a probe moves its delay and
 * not the sibling's: the difference moves with the coin.  If they share one, the difference stays.
 */
CC_SEPARATE int cc_sharing_hear(struct cc_sharing *sharing, uint32_t me, uint32_t bin)
{
	const struct cc_history *h, *other;
	uint32_t i;

	if (!sharing)
		return 0;
	me &= CC_SHARING_PATHS - 1;
	h = &sharing->path[me];
	CC_FOR_COMPARED(i, me)
	{
		uint64_t known = 1;
		int32_t more;

		other = &sharing->path[i];
		if (i >= me || other->bin - bin < 2 || other->bin - bin >= CC_SHARING_BINS)
			continue;
		more = cc_sharing_rise(other, bin, &known) - cc_sharing_rise(h, bin, &known);
		more = cc_sharing_answer(h->trial & CC_SHARING_WIDEN ? -more : more, h->expected);
		if (known)
			cc_sharing_heard(sharing, cc_sharing_pair(me, i),
					 h->trial & CC_SHARING_PROBE ? more : -more);
	}
	return 0;
}

/* The time in ticks, modulo 2^16. */
CC_INLINE uint16_t cc_sharing_tick(uint64_t us, uint32_t shift)
{
	return (uint16_t)(us >> ((shift - CC_SHARING_TICK_BITS) & 31));
}

/* A probe begins.  It lasts until what is sent will no more count to the next bin. */
CC_INLINE void cc_sharing_begins(const struct cc_event *ev, struct cc_history *h, uint32_t hold,
				 uint32_t shift)
{
	uint32_t bin_us = 1u << shift, rtt_us = cc_min(ev->srtt_8us >> 3, bin_us + bin_us / 2);

	h->hold = (uint16_t)hold;
	h->back = (uint16_t)ev->cwnd_pkt;
	h->until = cc_sharing_tick(ev->now_us + 2ull * bin_us - rtt_us, shift);
}

/*
 * Expected change of a queue's delay, in 1/1024 of a bin; a quarter of it for a narrow window,
 * whose path hardly has the queue to itself.
 */
CC_INLINE uint16_t cc_sharing_expected(uint64_t us, uint32_t wide, uint32_t shift)
{
	uint64_t expected = (us << CC_SHARING_DELAY_BITS) >> (shift + 2 * wide);

	return (uint16_t)cc_min64(expected, UINT16_MAX);
}

/*
 * A trial: a coin decides whether to probe.  A probe is a pause that takes the own share out of the
 * queue; or, of a window that is too narrow for that, one that is wider.
 */
CC_INLINE void cc_sharing_try(const struct cc_event *ev, struct cc_history *h, uint32_t shift)
{
	uint32_t w = cc_window(ev->cwnd_pkt), flight = cc_max(cc_min(ev->in_flight_pkt, w), 1);
	uint32_t srtt_us = ev->srtt_8us >> 3, least_us = cc_min(ev->min_rtt_us, srtt_us);
	uint32_t moved, wide = w <= CC_SHARING_NARROW;

	if (h->hold || h->settle || !srtt_us || w > UINT16_MAX - CC_SHARING_WIDER)
		return;
	moved = (uint32_t)((uint64_t)flight * (srtt_us - least_us) / srtt_us);
	moved = cc_min(moved, flight / 2);
	if (wide)
		moved = CC_SHARING_WIDER;
	if (!moved || ev->state > (wide ? CC_STATE_CWR : CC_STATE_OPEN))
		return;
	h->trial = (wide ? CC_SHARING_WIDEN : CC_SHARING_PAUSE) | cc_sharing_coin(ev);
	h->tried = (uint8_t)h->bin;
	h->expected = cc_sharing_expected((uint64_t)moved * srtt_us / flight, wide, shift);
	if (h->trial & CC_SHARING_PROBE)
		cc_sharing_begins(ev, h, wide ? w + moved : cc_max(flight - moved, 1), shift);
}

/*
 * A reduction during a pause begins from the window that the pause left.  The one to give back is
 * reduced by the same share.  Comes to the same however often it is called.
 */
CC_INLINE void cc_sharing_reduced(const struct cc_event *ev, struct cc_history *h)
{
	uint32_t hold = h->hold, left = cc_min(ev->ssthresh_pkt, hold);

	if (ev->state == CC_STATE_LOSS) {
		h->hold = 0;
		return;
	}
	h->hold = (uint16_t)cc_max(left, 1);
	h->back = (uint16_t)cc_max((uint32_t)h->back * left / cc_max(hold, 1), h->hold);
}

/* The pause is over.  Not at once: a burst of half a window may be more than some buffer holds. */
CC_INLINE void cc_sharing_resume(const struct cc_event *ev, struct cc_history *h,
				 struct cc_decision *out)
{
	h->hold = (uint16_t)cc_min(h->hold + cc_min(ev->acked_pkt, h->back), h->back);
	cc_set_cwnd(out, cc_max(h->hold, cc_window(ev->cwnd_pkt)));
	if (h->hold == h->back)
		h->hold = 0;
}

/* A narrow window is made wider, and then what it was. */
CC_INLINE void cc_sharing_widen(const struct cc_event *ev, struct cc_history *h, int over,
				struct cc_decision *out)
{
	uint32_t w = cc_max(over ? h->back : h->hold, 1);

	if (ev->state > CC_STATE_CWR) {
		h->hold = 0;
		return;
	}
	cc_set_ssthresh(out, cc_max(w, CC_MIN_SSTHRESH_PKT));
	if (over ? ev->cwnd_pkt > w : ev->state == CC_STATE_OPEN && ev->cwnd_pkt < w)
		cc_set_cwnd(out, w);
	if (over)
		h->hold = 0;
}

/* Carries a probe on, or ends it.  What a pause holds back is the host's during a reduction. */
CC_INLINE void cc_sharing_hold(const struct cc_event *ev, struct cc_history *h, uint32_t shift,
			       struct cc_decision *out)
{
	uint32_t left = (uint16_t)(h->until - cc_sharing_tick(ev->now_us, shift));
	int over = left - 1 > 4u << CC_SHARING_TICK_BITS; /* or never set */

	if (h->back < h->hold)
		cc_sharing_widen(ev, h, over, out);
	else if (ev->state > CC_STATE_DISORDER)
		cc_sharing_reduced(ev, h);
	else if (!over)
		cc_set_cwnd(out, h->hold);
	else
		cc_sharing_resume(ev, h, out);
}

/* Hears of the last trial; then closes, makes another, or waits. */
CC_INLINE void cc_sharing_decide(const struct cc_event *ev, const struct cc_group *group,
				 struct cc_sharing *sharing, uint32_t me, struct cc_decision *out)
{
	struct cc_history *h = &sharing->path[me];
	uint8_t since = (uint8_t)(h->bin - h->tried);
	struct cc_verdict v;

	if (h->trial && since >= CC_SHARING_SEEN) {
		if (since <= CC_SHARING_BINS - 2)
			cc_sharing_hear(sharing, me, h->bin - since);
		h->trial = 0;
	}
	cc_sharing_verdict(group, sharing, me, &v);
	if (v.suspicion <= CC_SHARING_APART)
		h->doubts = 0;
	if (v.kept < CC_SHARING_PATHS) {
		out->set |= CC_CLOSE_PATH;
		out->peer = v.kept;
	} else if (v.others && !h->trial && cc_sharing_due(h, v.suspicion)) {
		cc_sharing_try(ev, h, sharing->shift & 31);
	}
}

/* A bin is over on this path. */
CC_NOINLINE void cc_sharing_turn(const struct cc_event *ev, const struct cc_group *group,
				 struct cc_sharing *sharing, uint32_t bin, struct cc_decision *out)
{
	uint32_t me = cc_sharing_own(ev), before, start;
	struct cc_history *h = &sharing->path[me];

	before = h->bin;
	cc_history_turn(h, bin);
	cc_sharing_clock(group, sharing);
	if (before >> CC_SHARING_BLOCK_BITS != bin >> CC_SHARING_BLOCK_BITS) {
		start = (bin & ~(CC_SHARING_BLOCK - 1)) - CC_SHARING_BLOCK;
		cc_sharing_block(group, sharing, me, start);
		if (h->doubts < CC_SHARING_PATIENCE)
			h->doubts++;
	}
	cc_sharing_decide(ev, group, sharing, me, out);
	CC_LEAVE();
}

/* Restarts the history of a path that has just been established in a slot used before. */
CC_INLINE void cc_sharing_begin(const struct cc_event *ev, struct cc_sharing *sharing)
{
	const struct cc_history nothing = {0};
	uint32_t me = cc_sharing_own(ev), i;

	/* Of any detector that keeps state there. */
	sharing->path[me] = nothing;
	for (i = 0; i < CC_SHARING_PATHS; i++) {
		if (i != me) {
			sharing->evidence[cc_sharing_pair(me, i)] = 0;
			sharing->alone[cc_sharing_pair(me, i)] = 0;
		}
	}
}

/*
 * If the own machine was descheduled until now (1): on all paths at once ACKs waited, queues ran
 * empty and fill again.  As at the beginning, the next few bins are left out, and this one.
 */
CC_INLINE void cc_sharing_woke(const struct cc_event *ev, struct cc_sharing *sharing, uint64_t woke)
{
	struct cc_history *h = &sharing->path[cc_sharing_own(ev)];

	h->settle = (uint8_t)cc_select(woke, CC_SHARING_SETTLE, h->settle);
}

/* True if this ACK carries no information about a queue that others may share. */
CC_INLINE int cc_sharing_ignores(const struct cc_event *ev)
{
	return !(ev->flags & CC_EV_CWND_LIMITED) || ev->state == CC_STATE_LOSS;
}

/* Every ACK of a path that has siblings.  Decides CC_CLOSE_PATH when the time has come. */
CC_INLINE void cc_sharing_on_ack(const struct cc_event *ev, const struct cc_group *group,
				 struct cc_sharing *sharing, struct cc_decision *out)
{
	uint32_t me = cc_sharing_own(ev), shift = sharing->shift & 31, bin;
	uint32_t rtt_us = ev->rtt_us ? ev->rtt_us : ev->srtt_8us >> 3;
	struct cc_history *h = &sharing->path[me];

	if (!rtt_us)
		return;
	rtt_us = cc_min(rtt_us, 1u << CC_SHARING_SHIFT_MAX);
	bin = (uint32_t)((ev->now_us - rtt_us / 2) >> shift);
	/* Samples may be a little out of order: they count to the bin that is being filled. */
	if (bin != h->bin && h->bin - bin >= CC_SHARING_BLOCK)
		cc_sharing_turn(ev, group, sharing, bin, out);
	if (h->hold)
		cc_sharing_hold(ev, h, sharing->shift, out);
	if (h->acks == UINT16_MAX)
		return;
	h->acks++;
	h->delays += cc_min((uint32_t)(((uint64_t)rtt_us << CC_SHARING_DELAY_BITS) >> shift),
			    CC_SHARING_DELAY_MAX);
	if (ev->flags & CC_EV_ECE)
		h->marked++;
	if (cc_sharing_ignores(ev))
		h->ignored++;
}

#endif /* VMCC_SHARING_H */
