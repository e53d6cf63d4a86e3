/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * CUBIC: growth along a cubic curve of the time since the last reduction.
 *
 * Source: RFC 9438 sections 4.1 to 4.10; slow start: RFC 9406 (HyStart++).
 *
 *   W(t)        C (t - K)^3 + W_max, K = cbrt((W_max - cwnd_epoch) / C)
 *   target      W(t + RTT) clamped to [w, 1.5 w]
 *   W_est       += a * acked / w, a = 3 (1 - beta) / (1 + beta) until W_est >= cwnd_prior, then 1
 *   growth      W(t) < W_est: w = W_est; else w += acked * (target - w) / w
 *   congestion  W_max = w, or w (1 + beta) / 2 if w < W_max (fast convergence);
 *               ssthresh = beta * FlightSize, at least 2; after ECE the window may fall to 1
 *   RTO         the next stage starts with K = 0 and W_max = w, as when HyStart++ ends slow start
 *
 * Deviations: t - K is kept in ms, so W(t) is off by up to its slope times 2 ms.  Time during which
 * the application limits the window does not count (RFC 9438 section 4.2); it is measured per ACK.
 * Nor does time in which nothing was in flight: from the ACK that left nothing to the sending of
 * what the next one acknowledges, as far as that one has a sample of the round-trip time.
 * HyStart++'s limit of growth per ACK is a parameter: with segmentation offload one ACK stands for
 * many.
 *
 * Valid range: w up to 2^20, |t - K| up to 2^20 ms (clamped).
 */
#include "common.h"

#define CUBIC_ONE	    1000u /* fixed point of the parameters c and beta */
#define CUBIC_MAX_OFFSET_MS (1u << 20)
#define CUBIC_W_BITS	    10
#define CUBIC_EST_BITS	    32
#define CUBIC_MAX_W_Q10	    ((uint64_t)CC_MAX_CWND_PKT << CUBIC_W_BITS)

/* RFC 9406 section 4.3 */
#define HYSTART_MIN_THRESH_US 4000u
#define HYSTART_MAX_THRESH_US 16000u
#define HYSTART_RTT_DIVISOR   8u
#define HYSTART_SAMPLES	      8u
#define HYSTART_CSS_BITS      2 /* conservative slow start grows by a quarter */
#define HYSTART_CSS_ROUNDS    5u

struct CC_PRIVATE cubic {
	uint64_t last_us;  /* of the last ACK */
	uint64_t epoch_us; /* start of this avoidance stage, later by pauses; 0: not started */
	uint64_t w_est_q32;
	uint32_t w_max_q10;
	uint32_t cwnd_prior_pkt;
	uint32_t k_ms;
	uint32_t window_end;	 /* HyStart++: end of this round, sequence number */
	uint32_t last_min_us;	 /* of the last round; 0: none */
	uint32_t current_min_us; /* of this round; 0: none */
	uint32_t baseline_us;	 /* nonzero: in conservative slow start */
	uint8_t fresh;		 /* no reduction has set w_max since the start or the last RTO */
	uint8_t samples;
	uint8_t css_rounds;
	uint8_t drained; /* the last ACK left nothing in flight */
};

/* Floor of the cube root of v < 10^18 * 8: the largest r with r^3 <= v. */
CC_INLINE uint64_t cubic_root(uint64_t v)
{
	uint64_t r = 0, next;
	int bit;

	for (bit = 20; bit >= 0; bit--) {
		next = r | (1ull << bit);
		r = cc_select(cc_less(v, next * next * next), r, next);
	}
	return r;
}

CC_INLINE uint64_t cubic_param(uint64_t value, uint64_t min, uint64_t max)
{
	return cc_min64(cc_max64(value, min), max);
}

/* W(t) in Q10, for t in us since the epoch. */
CC_INLINE uint64_t cubic_w_q10(const struct cubic *c, uint64_t t_us, uint64_t c_milli)
{
	uint64_t t_ms = cc_min64(t_us / 1000, 1ull << 32);
	uint64_t w_max = cc_min64(c->w_max_q10, CUBIC_MAX_W_Q10);
	uint64_t before = cc_less(t_ms, c->k_ms);
	uint64_t d = cc_select(before, c->k_ms - t_ms, t_ms - c->k_ms);
	uint64_t offset;

	d = cc_min64(d, CUBIC_MAX_OFFSET_MS);
	/* c_milli/1000 * (d/1000)^3 * 2^10, in steps that fit: 1000 * 10^9 / 2^10 = 15625 * 62500.
	 */
	offset = d * d * d / 15625 * c_milli / 62500;
	if (before)
		return w_max > offset ? w_max - offset : 0;
	return cc_min64(w_max + offset, CUBIC_MAX_W_Q10);
}

/* Begins an avoidance stage with window w. */
CC_INLINE void cubic_start(struct cubic *c, uint64_t now_us, uint32_t w, uint64_t c_milli)
{
	uint64_t w_q10 = (uint64_t)w << CUBIC_W_BITS;

	c->epoch_us = now_us;
	c->w_est_q32 = (uint64_t)w << CUBIC_EST_BITS;
	c->k_ms = 0;
	if (c->fresh || c->w_max_q10 <= w_q10) {
		c->w_max_q10 = (uint32_t)w_q10;
		c->cwnd_prior_pkt = w;
		c->fresh = 0;
		return;
	}
	/* cbrt(10^12 * distance / c_milli) ms, distance in Q10: 10^12 / 2^10 = 976562500. */
	c->k_ms = (uint32_t)cubic_root((c->w_max_q10 - w_q10) * 976562500u / c_milli);
}

/* Reno's window estimate (RFC 9438 section 4.3). */
CC_INLINE void cubic_estimate(struct cubic *c, uint32_t w, uint32_t acked, uint64_t beta)
{
	uint64_t a = 1ull << CUBIC_EST_BITS;
	uint64_t limit = (uint64_t)CC_MAX_CWND_PKT << CUBIC_EST_BITS;

	if (c->w_est_q32 >> CUBIC_EST_BITS < c->cwnd_prior_pkt)
		a = a * 3 * (CUBIC_ONE - beta) / (CUBIC_ONE + beta);
	c->w_est_q32 = cc_min64(cc_min64(c->w_est_q32, limit) + a / w * acked, limit);
}

CC_INLINE uint32_t cubic_avoid(struct cubic *c, const struct cc_event *ev, struct cc_path *self,
			       const struct cc_params *params, uint32_t w, uint32_t acked)
{
	uint64_t c_milli = cubic_param(params->v[CC_P_CUBIC_C], 1, 10 * CUBIC_ONE);
	uint64_t beta = cubic_param(params->v[CC_P_CUBIC_BETA], 1, CUBIC_ONE - 1);
	uint64_t w_q10 = (uint64_t)w << CUBIC_W_BITS;
	uint64_t t_us, target;

	if (!c->epoch_us || c->epoch_us > ev->now_us)
		cubic_start(c, ev->now_us, w, c_milli);
	t_us = ev->now_us - c->epoch_us;
	cubic_estimate(c, w, acked, beta);
	if (cubic_w_q10(c, t_us, c_milli) < c->w_est_q32 >> (CUBIC_EST_BITS - CUBIC_W_BITS))
		return cc_max(w, (uint32_t)(c->w_est_q32 >> CUBIC_EST_BITS));
	target = cubic_w_q10(c, t_us + (ev->srtt_8us >> 3), c_milli);
	target = cc_min64(cc_max64(target, w_q10), w_q10 + w_q10 / 2);
	return cc_avoidance(self, w, acked,
			    ((target - w_q10) << (CC_CREDIT_BITS - CUBIC_W_BITS)) / w);
}

/* HyStart++ only guards the first slow start: later ones end at an ssthresh that was measured. */
CC_INLINE int cubic_hystart_active(const struct cc_event *ev, const struct cc_params *params)
{
	return params->v[CC_P_CUBIC_HYSTART] == CC_P_CUBIC_HYSTART_ON &&
	       ev->ssthresh_pkt >= CC_SSTHRESH_INFINITE;
}

/* Ends a round of slow start; the fifth conservative one ends slow start. */
CC_INLINE void cubic_hystart_round(struct cubic *c, const struct cc_event *ev,
				   struct cc_decision *out)
{
	c->window_end = ev->snd_nxt;
	c->last_min_us = c->current_min_us;
	c->current_min_us = 0;
	c->samples = 0;
	if (!c->baseline_us)
		return;
	c->css_rounds++;
	if (c->css_rounds >= HYSTART_CSS_ROUNDS)
		cc_set_ssthresh(out, cc_max(cc_window(ev->cwnd_pkt), CC_MIN_SSTHRESH_PKT));
}

/* RFC 9406 section 4.2: does the round-trip time rise? */
CC_INLINE void cubic_hystart(struct cubic *c, const struct cc_event *ev, struct cc_decision *out)
{
	uint32_t thresh;

	if (cc_round_over(ev, c->window_end))
		cubic_hystart_round(c, ev, out);
	if (!ev->rtt_us)
		return;
	c->current_min_us = c->current_min_us ? cc_min(c->current_min_us, ev->rtt_us) : ev->rtt_us;
	if (c->samples < HYSTART_SAMPLES)
		c->samples++;
	if (c->samples < HYSTART_SAMPLES || !c->last_min_us)
		return;
	if (c->baseline_us) {
		if (c->current_min_us < c->baseline_us)
			c->baseline_us = 0; /* a false alarm: back to slow start */
		return;
	}
	thresh = cc_max(HYSTART_MIN_THRESH_US,
			cc_min(c->last_min_us / HYSTART_RTT_DIVISOR, HYSTART_MAX_THRESH_US));
	if (c->current_min_us >= (uint64_t)c->last_min_us + thresh) {
		c->baseline_us = c->current_min_us;
		c->css_rounds = 0;
	}
}

CC_HOOK(cubic, init)
{
	struct cubic *c = CC_STATE(cubic, self);

	cc_path_clear(self);
	c->last_us = ev->now_us;
	c->window_end = ev->snd_nxt;
	c->fresh = 1;
}

/* Part of the time since the last ACK in which the application was the limit. */
CC_INLINE uint64_t cubic_pause_us(const struct cubic *c, const struct cc_event *ev)
{
	uint64_t since_us = ev->now_us > c->last_us ? ev->now_us - c->last_us : 0;

	if (!(ev->flags & CC_EV_CWND_LIMITED))
		return since_us;
	if (!c->drained || !ev->rtt_us)
		return 0;
	return since_us - cc_min64(since_us, ev->rtt_us);
}

CC_HOOK(cubic, on_ack)
{
	struct cubic *c = CC_STATE(cubic, self);

	if (c->epoch_us)
		c->epoch_us += cubic_pause_us(c, ev);
	c->last_us = ev->now_us;
	c->drained = ev->snd_una == ev->snd_nxt;
	if (cubic_hystart_active(ev, params))
		cubic_hystart(c, ev, out);
}

CC_HOOK(cubic, on_congestion)
{
	struct cubic *c = CC_STATE(cubic, self);
	uint64_t beta = cubic_param(params->v[CC_P_CUBIC_BETA], 1, CUBIC_ONE - 1);
	uint64_t w_q10 = (uint64_t)cc_window(ev->cwnd_pkt) << CUBIC_W_BITS;
	uint32_t target = (uint32_t)(cc_flight(ev) * beta / CUBIC_ONE);

	if (params->v[CC_P_CUBIC_FAST_CONVERGENCE] == CC_P_CUBIC_FAST_CONVERGENCE_ON &&
	    w_q10 < c->w_max_q10)
		c->w_max_q10 = (uint32_t)(w_q10 * (CUBIC_ONE + beta) / (2 * CUBIC_ONE));
	else
		c->w_max_q10 = (uint32_t)w_q10;
	c->cwnd_prior_pkt = cc_window(ev->cwnd_pkt);
	c->epoch_us = 0;
	c->fresh = ev->cause == CC_CAUSE_RTO;
	cc_reduce(ev, self, target, ev->cause == CC_CAUSE_ECE ? 1 : CC_MIN_SSTHRESH_PKT,
		  CC_MIN_SSTHRESH_PKT, out);
}

CC_HOOK(cubic, on_grow)
{
	struct cubic *c = CC_STATE(cubic, self);
	uint32_t w = cc_window(ev->cwnd_pkt), left;

	if (cubic_hystart_active(ev, params)) {
		left = (uint32_t)cc_min64(cc_min(ev->acked_pkt, CC_MAX_CWND_PKT),
					  params->v[CC_P_CUBIC_HYSTART_LIMIT]);
		w = cc_avoidance(self, w, left,
				 CC_CREDIT_ONE >> (c->baseline_us ? HYSTART_CSS_BITS : 0));
	} else {
		left = cc_slow_start(ev, &w);
		if (left)
			w = cubic_avoid(c, ev, self, params, w, left);
	}
	cc_grown(ev, w, out);
}

CC_HOOK(cubic, on_state)
{
}

CC_ALGORITHM(cubic, struct cubic);
