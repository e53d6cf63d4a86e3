/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Trials: probes that a random bit decides, and the responses of both paths. */
#ifndef VMCC_DETECT_TRIAL_H
#define VMCC_DETECT_TRIAL_H

#include "detect/block.h"

/*
 * Windows up to NARROW packets cannot be reduced for a probe, and grow by WIDER instead.  Ten would
 * give a clearer signal, and take half of the rate of other flows in the same queue.
 */
#define CC_SHARING_NARROW_PKT 8u
#define CC_SHARING_GROWTH_PKT 3u
/* In a pool all grow together. */
#define CC_SHARING_POOLED_GROWTH_PKT 1u
#define CC_SHARING_GROWN_PKT	     (CC_SHARING_NARROW_PKT + CC_SHARING_GROWTH_PKT)
/* Times of a probe are in ticks of 2^-4 bins. */
#define CC_SHARING_TICK_BITS 4
/*
 * Bins from one trial to the next: while a pair is undecided; once sharing is likely; the number of
 * blocks after which an undecided pair has fewer trials, because a probe costs if the delay is no
 * queue; the interval of those; the interval of a pair that is excluded, because paths may move.
 */
#define CC_SHARING_UNDECIDED_INTERVAL 4u
#define CC_SHARING_LIKELY_INTERVAL    3u
#define CC_SHARING_UNDECIDED_BLOCKS   32u
#define CC_SHARING_LATE_INTERVAL      16u
#define CC_SHARING_APART_INTERVAL     128u

/* Kinds of a trial; the lowest bit tells whether it probes. */
#define CC_SHARING_PROBE 1u
#define CC_SHARING_PAUSE 2u
#define CC_SHARING_WIDEN 4u
/* Bins until the effect of a trial is known. */
#define CC_SHARING_EFFECT_BINS 3u
/*
 * In 1/64 of the effect of a probe on a queue without other traffic: the midpoint between no
 * response and the response in a queue with one more connection; the limit of one trial; the amount
 * subtracted per trial, so that the sum falls without a response; and its bounds.
 */
#define CC_SHARING_RESPONSE_MIDPOINT 8
#define CC_SHARING_RESPONSE_MAX	     16
#define CC_SHARING_RESPONSE_DECAY    5
#define CC_SHARING_ALONE_MIN	     (-48)
#define CC_SHARING_ALONE_MAX	     96

/* A random bit.  No external cause depends on it, so none can look like a response to it. */
CC_INLINE uint8_t cc_sharing_random_bit(const struct cc_event *ev)
{
	uint32_t drawn = ((uint32_t)ev->now_us * 0x9e3779b1u ^ ev->snd_una) * 0x85ebca6bu;

	return (uint8_t)((drawn ^ drawn >> 15) * 0xc2b2ae35u >> 31);
}

/* True if another trial is due in this bin. */
CC_INLINE int cc_sharing_due(const struct cc_history *h, uint32_t bin, int32_t suspicion)
{
	uint8_t since = (uint8_t)(bin - h->tried);

	if (suspicion <= CC_SHARING_APART)
		return since >= CC_SHARING_APART_INTERVAL;
	if (h->doubts >= CC_SHARING_UNDECIDED_BLOCKS)
		return since >= CC_SHARING_LATE_INTERVAL;
	return since >= (suspicion < CC_SHARING_SHARED ? CC_SHARING_UNDECIDED_INTERVAL
						       : CC_SHARING_LIKELY_INTERVAL);
}

/* Increase of the delay from this bin to the next; clears `known` if one of them is invalid. */
CC_INLINE int32_t cc_sharing_rise(const struct cc_history *h, uint32_t bin, uint64_t *known)
{
	uint64_t at = h->value[cc_sharing_at(bin)], next = h->value[cc_sharing_at(bin + 1)];

	*known &= cc_nonzero(at) & cc_nonzero(next);
	return (int32_t)(next >> CC_SHARING_MARK_BITS) - (int32_t)(at >> CC_SHARING_MARK_BITS);
}

/* 64 a / b, rounded towards 0, from the middle of an answer and none, within bounds. */
CC_INLINE int32_t cc_sharing_response(int32_t a, uint32_t b)
{
	uint32_t size = (uint32_t)(a < 0 ? -a : a) * 64 / cc_max(b, 1);
	int32_t answer = (int32_t)cc_min(size, 4 * CC_SHARING_RESPONSE_MAX);

	answer = (a < 0 ? -answer : answer) - CC_SHARING_RESPONSE_MIDPOINT;
	if (answer > CC_SHARING_RESPONSE_MAX)
		return CC_SHARING_RESPONSE_MAX;
	return answer < -CC_SHARING_RESPONSE_MAX ? -CC_SHARING_RESPONSE_MAX : answer;
}

/* Adds up what a pair did in trials. */
CC_INLINE void cc_sharing_add_response(struct cc_sharing *sharing, uint32_t pair, int32_t answer)
{
	int32_t sum = sharing->alone[pair] + answer - CC_SHARING_RESPONSE_DECAY;

	sum = sum > CC_SHARING_ALONE_MAX ? CC_SHARING_ALONE_MAX : sum;
	sharing->alone[pair] = (int8_t)(sum < CC_SHARING_ALONE_MIN ? CC_SHARING_ALONE_MIN : sum);
}

/*
 * Evaluates the trial of this bin.  If a path has a queue of its own, a probe moves its delay and
 * not the sibling's: the difference moves with the random bit.  If they share one, the difference
 * stays.
 */
CC_SEPARATE int cc_sharing_evaluate(struct cc_sharing *sharing, uint32_t me, uint32_t bin)
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
		more = cc_sharing_response(h->trial & CC_SHARING_WIDEN ? -more : more, h->expected);
		if (known)
			cc_sharing_add_response(sharing, cc_sharing_pair(me, i),
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
CC_INLINE void cc_sharing_probe_begin(const struct cc_event *ev, struct cc_history *h,
				      uint32_t hold, uint32_t shift)
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
 * A trial: a random bit decides whether to probe.  A probe is a pause that takes the own share out
 * of the queue; or, of a window that is too narrow for that, one that is wider.  If `order` is not
 * 0, it is a pool's: the kind of trial, and the bit.  Returns the packets that a probe moves.
 */
CC_INLINE uint32_t cc_sharing_trial_join(const struct cc_event *ev, struct cc_history *h,
					 uint32_t shift, uint8_t order)
{
	uint32_t w = cc_window(ev->cwnd_pkt), flight = cc_max(cc_min(ev->in_flight_pkt, w), 1);
	uint32_t srtt_us = ev->srtt_8us >> 3, least_us = cc_min(ev->min_rtt_us, srtt_us);
	uint32_t moved, wide = w <= CC_SHARING_NARROW_PKT;

	if (h->hold || (h->settle && !order) || !srtt_us || w > UINT16_MAX - CC_SHARING_GROWTH_PKT)
		return 0;
	moved = (uint32_t)((uint64_t)flight * (srtt_us - least_us) / srtt_us);
	moved = cc_min(moved, flight / 2);
	if (wide)
		moved = order ? CC_SHARING_POOLED_GROWTH_PKT : CC_SHARING_GROWTH_PKT;
	if (!moved || ev->state > (wide ? CC_STATE_CWR : CC_STATE_OPEN))
		return 0;
	if (order && wide != !!(order & CC_SHARING_WIDEN))
		return 0;
	h->trial = (wide ? CC_SHARING_WIDEN : CC_SHARING_PAUSE) |
		   (order ? order & CC_SHARING_PROBE : cc_sharing_random_bit(ev));
	h->tried = (uint8_t)h->bin;
	h->expected = cc_sharing_expected((uint64_t)moved * srtt_us / flight, wide, shift);
	if (h->trial & CC_SHARING_PROBE)
		cc_sharing_probe_begin(ev, h, wide ? w + moved : cc_max(flight - moved, 1), shift);
	return moved;
}

/*
 * A reduction during a pause begins from the window that the pause left.  The one to give back is
 * reduced by the same share.  Comes to the same however often it is called.
 */
CC_INLINE void cc_sharing_probe_reduced(const struct cc_event *ev, struct cc_history *h)
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
CC_INLINE void cc_sharing_probe_end(const struct cc_event *ev, struct cc_history *h,
				    struct cc_decision *out)
{
	h->hold = (uint16_t)cc_min(h->hold + cc_min(ev->acked_pkt, h->back), h->back);
	cc_set_cwnd(out, cc_max(h->hold, cc_window(ev->cwnd_pkt)));
	if (h->hold == h->back)
		h->hold = 0;
}

/* A narrow window is made wider, and then what it was. */
CC_INLINE void cc_sharing_probe_widened(const struct cc_event *ev, struct cc_history *h, int over,
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
CC_INLINE void cc_sharing_probe_step(const struct cc_event *ev, struct cc_history *h,
				     uint32_t shift, struct cc_decision *out)
{
	uint32_t left = (uint16_t)(h->until - cc_sharing_tick(ev->now_us, shift));
	int over = left - 1 > 4u << CC_SHARING_TICK_BITS; /* or never set */

	if (h->back < h->hold)
		cc_sharing_probe_widened(ev, h, over, out);
	else if (ev->state > CC_STATE_DISORDER)
		cc_sharing_probe_reduced(ev, h);
	else if (!over)
		cc_set_cwnd(out, h->hold);
	else
		cc_sharing_probe_end(ev, h, out);
}

#endif /* VMCC_DETECT_TRIAL_H */
