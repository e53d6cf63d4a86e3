/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * wVegas: equalises queueing delay over the paths, with a target per path in proportion to its
 * rate.
 *
 * Source: draft-xu-mptcp-congestion-control-05; Linux's out-of-tree module for what the draft
 * leaves open.  Once per round with at least 3 samples, with base the smallest RTT and rtt the
 * round's mean:
 *
 *   diff         floor(w (rtt - base) / rtt), packets queued
 *   slow start   if diff > gamma: w = min(w, floor(w base / rtt) + 1), ssthresh = min(ssthresh, w)
 *   avoidance    if diff >= alpha_r: rate = w / rtt, weight = rate / sum of rates,
 *                alpha_r = max(2, floor(total_alpha weight));
 *                w -= 1 if diff > alpha_r (ssthresh = min(ssthresh, w)), += 1 if less;
 *                q = rtt - base, queue_delay = its minimum; if q >= 2 queue_delay:
 *                w = floor(w base / (2 rtt)), queue_delay = 0
 *   fewer        one step of Reno
 *   congestion   Reno.  Leaving the open state disables it, returning resets rate, alpha_r and
 *                queue_delay
 *
 * Deviations: sums are wide enough for 10 s round trips; only siblings that are gone leave the sum
 * of rates, not those without a sample in their current round.
 *
 * Valid range: w up to 2^20, RTT samples up to 2^31 us.
 */
#include "coupling.h"

#define WVEGAS_FLOOR_PKT   2u
#define WVEGAS_MIN_SAMPLES 3u
#define WVEGAS_RATE_BITS   24
#define WVEGAS_WEIGHT_BITS 16
#define WVEGAS_MAX_RTT_US  0x7fffffffu
#define WVEGAS_MAX_RATE	   ((uint64_t)CC_MAX_CWND_PKT << WVEGAS_RATE_BITS)

struct CC_PRIVATE wvegas {
	uint64_t rtt_sum_us; /* in this round */
	uint32_t samples;
	uint32_t base_rtt_us;	 /* 0: none yet */
	uint32_t queue_delay_us; /* smallest nonzero; 0: none yet */
	uint32_t alpha_pkt;
	uint32_t round_end; /* sequence number */
	uint32_t enabled;
	uint32_t round_over; /* since the last ACK; growth, if it may, ends it */
};

CC_INLINE void wvegas_new_round(struct wvegas *v, const struct cc_event *ev)
{
	v->round_end = ev->snd_nxt;
	v->round_over = 0;
	v->rtt_sum_us = 0;
	v->samples = 0;
}

CC_INLINE uint32_t wvegas_param(uint64_t value)
{
	return (uint32_t)cc_min64(value, CC_MAX_CWND_PKT);
}

/* (Re)starts in the open state. */
CC_INLINE void wvegas_enable(struct wvegas *v, const struct cc_event *ev, struct cc_path *self,
			     const struct cc_params *params)
{
	v->enabled = 1;
	v->alpha_pkt = wvegas_param(params->v[CC_P_WVEGAS_ALPHA]);
	v->queue_delay_us = 0;
	self->pub[0] = 0;
	wvegas_new_round(v, ev);
}

/* Rates are published in pub[0], in packets per us, Q24.  Weight in Q16. */
CC_INLINE uint64_t wvegas_weight_q16(const struct cc_event *ev, const struct cc_group *group,
				     uint64_t rate)
{
	uint32_t me = cc_own_index(ev), i;
	uint64_t sum = rate;

	if (!cc_is_coupled(ev, group) || !rate)
		return 1u << WVEGAS_WEIGHT_BITS;
	CC_FOR_PATHS(i, group)
	{
		const struct cc_slot *slot = &group->path[i];
		uint64_t counts = cc_slot_counts(slot) & (cc_equal(i, me) ^ 1);

		sum += cc_select(counts, cc_min64(slot->pub[0], WVEGAS_MAX_RATE), 0);
	}
	return (rate << WVEGAS_WEIGHT_BITS) / sum;
}

/* alpha_r from the share of this path in the rate of the connection. */
CC_INLINE void wvegas_share(struct wvegas *v, const struct cc_event *ev, struct cc_path *self,
			    const struct cc_group *group, uint64_t total_alpha, uint32_t w,
			    uint32_t rtt)
{
	uint64_t rate = ((uint64_t)w << WVEGAS_RATE_BITS) / rtt;
	uint64_t weight = wvegas_weight_q16(ev, group, rate);

	self->pub[0] = rate;
	v->alpha_pkt = cc_max(2, (uint32_t)((total_alpha * weight) >> WVEGAS_WEIGHT_BITS));
}

/* Empties a queue that has doubled over the smallest one seen. */
CC_INLINE uint32_t wvegas_drain(struct wvegas *v, uint32_t w, uint32_t base, uint32_t rtt)
{
	uint32_t q = rtt - base;

	if (q && (!v->queue_delay_us || q < v->queue_delay_us))
		v->queue_delay_us = q;
	if (!q || q < 2 * (uint64_t)v->queue_delay_us)
		return w;
	v->queue_delay_us = 0;
	return (uint32_t)((uint64_t)w * base / (2 * (uint64_t)rtt));
}

/* A round with enough samples. */
CC_INLINE void wvegas_adjust(CC_HOOK_ARGS)
{
	struct wvegas *v = CC_STATE(wvegas, self);
	uint32_t w = cc_window(ev->cwnd_pkt), ssthresh = ev->ssthresh_pkt;
	uint32_t rtt = cc_max(
		(uint32_t)cc_min64(v->rtt_sum_us / cc_max(v->samples, 1), WVEGAS_MAX_RTT_US), 1);
	uint32_t base = cc_min(cc_max(v->base_rtt_us, 1), rtt);
	uint32_t diff = (uint32_t)((uint64_t)w * (rtt - base) / rtt);

	if (cc_in_slow_start(ev)) {
		if (diff > params->v[CC_P_WVEGAS_GAMMA]) {
			w = cc_min(w, (uint32_t)((uint64_t)w * base / rtt) + 1);
			ssthresh = cc_min(ssthresh, w);
		} else {
			cc_slow_start(ev, &w);
		}
	} else {
		if (diff >= v->alpha_pkt)
			wvegas_share(v, ev, self, group,
				     wvegas_param(params->v[CC_P_WVEGAS_TOTAL_ALPHA]), w, rtt);
		if (diff > v->alpha_pkt) {
			w--;
			ssthresh = cc_min(ssthresh, w);
		} else if (diff < v->alpha_pkt) {
			w = cc_min(w + 1, CC_MAX_CWND_PKT);
		}
		w = wvegas_drain(v, w, base, rtt);
	}
	w = cc_max(w, WVEGAS_FLOOR_PKT);
	if (ssthresh != ev->ssthresh_pkt)
		cc_set_ssthresh(out, cc_max(ssthresh, WVEGAS_FLOOR_PKT));
	if (w != ev->cwnd_pkt && ev->cwnd_pkt <= CC_MAX_CWND_PKT)
		cc_set_cwnd(out, w);
}

CC_HOOK(wvegas, init)
{
	cc_path_clear(self);
	wvegas_enable(CC_STATE(wvegas, self), ev, self, params);
}

CC_HOOK(wvegas, on_ack)
{
	struct wvegas *v = CC_STATE(wvegas, self);
	uint32_t rtt = cc_min(ev->rtt_us, WVEGAS_MAX_RTT_US);

	/* No growth followed the ACK that ended the round: nothing is decided by it. */
	if (v->round_over)
		wvegas_new_round(v, ev);
	v->round_over = cc_round_over(ev, v->round_end);
	if (!rtt)
		return;
	if (!v->base_rtt_us || rtt < v->base_rtt_us)
		v->base_rtt_us = rtt;
	if (v->samples < (1u << 20)) {
		v->rtt_sum_us = cc_min64(v->rtt_sum_us, 1ull << 52) + rtt;
		v->samples++;
	}
}

CC_HOOK(wvegas, on_congestion)
{
	if (ev->cause == CC_CAUSE_RTO)
		self->pub[0] = 0;
	cc_reno_reduce(ev, self, out);
}

CC_HOOK(wvegas, on_grow)
{
	struct wvegas *v = CC_STATE(wvegas, self);
	uint32_t w = cc_window(ev->cwnd_pkt);

	if (!v->enabled) {
		cc_reno_grow(ev, self, out);
		return;
	}
	if (!v->round_over) {
		if (cc_in_slow_start(ev)) {
			cc_slow_start(ev, &w);
			cc_grown(ev, w, out);
		}
		return;
	}
	if (v->samples >= WVEGAS_MIN_SAMPLES)
		wvegas_adjust(CC_PASS_ARGS);
	else
		cc_reno_grow(ev, self, out);
	wvegas_new_round(v, ev);
}

CC_HOOK(wvegas, on_state)
{
	struct wvegas *v = CC_STATE(wvegas, self);

	if (ev->state == CC_STATE_OPEN)
		wvegas_enable(v, ev, self, params);
	else
		v->enabled = 0;
}

CC_ALGORITHM(wvegas, struct wvegas);
