/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* clang-format off */
/*
 * Drizzle: vMCC's control law continued below the smallest window, by spacing packets.
 *
 * Source: ours; docs/explanation/drizzle.md has the reason for each part.
 *
 *   windows   vMCC: LIA's increase; once per window of marks w -= w alpha / 2, floor S = 2.  The
 *             fraction of the window is kept.
 *   spacing   begins with a reduction below S, when marked packets at windows up to 2S have exceeded
 *             a quarter of the unmarked ones by `patience`; a loss at S counts as eight marks.  The
 *             window is S, packets go a gap apart, u = T / gap of them per RTT.  Every acknowledged
 *             packet counts, as much as its path has of the growth:
 *      unmarked   rate *= 1 + gain (1 - alpha)^3 2 share
 *      marked     gap *= 1 + cut alpha min(u, 2)
 *      share      half 1/n, half u_r/T_r of the sum over all n paths; 1 for one path
 *      loss, RTO  gap *= 2
 *             If a fraction p is marked, two paths rest at u = (1 - p)^4 / p^2 with gain = cut: 0.25
 *             at one half, 2.7 at 0.3.
 *   sent      gap + (last T - T) / 2 apart: with marks alone rate and queue would oscillate, since
 *             the queue is the integral of the rate.  With u >= 1 the gap also follows T, as a
 *             window's rate does.
 *   end       u >= S: windows again.
 *
 * T is the average of the newest samples; one of more than four times that is a delayed
 * acknowledgment's.
 *
 * Valid range: see coupling.h; gaps up to 64 T and 100 ms.  A host that does not space packets has
 * vMCC with a fraction of the window.
 */
/* clang-format on */
#include "dctcp.h"
#include "lia.h"

#define DRIZZLE_BITS		20 /* fractional bits of u */
#define DRIZZLE_ONE		(1u << DRIZZLE_BITS)
#define DRIZZLE_GAP_BITS	4	/* fractional bits of a gap in microseconds */
#define DRIZZLE_MAX_GAP_RTTS	64u	/* longest gap in RTTs, ... */
#define DRIZZLE_MAX_GAP_US	100000u /* ... and this: half of the shortest timeout */
#define DRIZZLE_ALPHA_AT_FIRST	(CC_ALPHA_ONE_Q30 / 4)
#define DRIZZLE_MAX_CONGESTION	1024u
#define DRIZZLE_LOSS_CONGESTION 32u /* eight marks */
#define DRIZZLE_ACKED_MAX	4u  /* packets of one ACK that count */

struct CC_PRIVATE drizzle {
	struct cc_dctcp ecn;
	uint32_t gap_q4;     /* us; nonzero: packets are spaced */
	uint32_t rtt_us;     /* the newest sample: a delayed ACK's oldest has waited */
	uint32_t average_q4; /* of these, in us: whole ones would not move by less than 8 */
	uint32_t pressed;    /* marks that requested less than the smallest window */
};

CC_INLINE uint32_t drizzle_spacing(const struct cc_params *params)
{
	return (uint32_t)cc_min64(cc_max64(params->v[CC_P_DRIZZLE_SPACING], 2), 64);
}

CC_INLINE uint64_t drizzle_rtt_q4(const struct drizzle *d, const struct cc_event *ev)
{
	uint64_t host_q4 = (uint64_t)cc_known_srtt(ev->srtt_8us) << (DRIZZLE_GAP_BITS - 3);
	uint64_t rtt_q4 = d->average_q4 ? d->average_q4 : host_q4;

	return cc_max64(rtt_q4, 1u << DRIZZLE_GAP_BITS);
}

/* Packets per round trip, Q20. */
CC_INLINE uint64_t drizzle_u_q20(const struct drizzle *d, const struct cc_event *ev)
{
	return (drizzle_rtt_q4(d, ev) << DRIZZLE_BITS) / cc_max(d->gap_q4, 1);
}

/* 2^16 times what is the path's part of all paths' growth. */
CC_INLINE uint64_t drizzle_share_q16(const struct cc_event *ev, const struct cc_group *group,
				     uint64_t u_q20)
{
	uint32_t me = cc_own_index(ev), i;
	uint64_t own = cc_max64(cc_min64(u_q20 >> 10, CC_MAX_CWND_PKT), 1), sum = 0, n;
	struct cc_own path = cc_own(ev, 1);

	if (!cc_is_coupled(ev, group))
		return 1u << 16;
	n = 0;
	CC_FOR_PATHS(i, group)
	{
		struct cc_term term = cc_term(group, i, &path);
		uint64_t mine = cc_equal(i, me);
		uint64_t small = cc_min64(group->path[i].pub[0], CC_MAX_CWND_PKT);
		uint64_t w_q10 = (uint64_t)term.w << 10;

		CC_SKIP_UNLESS(term.w);
		w_q10 = cc_select(cc_nonzero(small) & cc_nonzero(term.w), small, w_q10);
		w_q10 = cc_select(mine, own, w_q10);
		sum += w_q10 * cc_known_srtt(ev->srtt_8us) / term.srtt;
		n += cc_nonzero(term.w);
	}
	n = cc_max64(n, 1);
	return ((1u << 16) / n + (own << 16) / cc_max64(sum, own)) / 2;
}

CC_INLINE void drizzle_set_gap(struct drizzle *d, const struct cc_event *ev, uint64_t gap_q4)
{
	uint64_t slowest = cc_min64(drizzle_rtt_q4(d, ev) * DRIZZLE_MAX_GAP_RTTS,
				    DRIZZLE_MAX_GAP_US << DRIZZLE_GAP_BITS);

	d->gap_q4 = (uint32_t)cc_max64(cc_min64(gap_q4, slowest), 1);
}

/* Begins to space packets, u of them in a round trip. */
CC_INLINE void drizzle_spread(struct drizzle *d, const struct cc_event *ev, struct cc_path *self,
			      uint64_t u_q20)
{
	drizzle_set_gap(d, ev, (drizzle_rtt_q4(d, ev) << DRIZZLE_BITS) / cc_max64(u_q20, 1));
	/* Of a young path that was marked it is one still, which would not let it grow again. */
	d->ecn.alpha_q30 = cc_min(d->ecn.alpha_q30, DRIZZLE_ALPHA_AT_FIRST);
	self->credit_q40 = 0;
}

CC_INLINE void drizzle_publish(const struct drizzle *d, const struct cc_event *ev,
			       struct cc_path *self)
{
	self->pub[0] = d->gap_q4 ? cc_max64(drizzle_u_q20(d, ev) >> 10, 1) : 0;
}

/*
 * The gap, and half of what the last round trip took longer than usual: a rate that only follows
 * marks swings, since the queue adds up what the rate adds up.
 */
CC_INLINE void drizzle_tell_gap(const struct drizzle *d, struct cc_decision *out)
{
	uint64_t gap_us = cc_max(d->gap_q4 >> DRIZZLE_GAP_BITS, 1);
	uint64_t later = gap_us + d->rtt_us / 2, usual = d->average_q4 >> (DRIZZLE_GAP_BITS + 1);

	if (!d->gap_q4)
		return;
	later = cc_max64(later, usual + gap_us / 4) - usual;
	cc_set_gap(out, (uint32_t)cc_max64(cc_min64(later, 2 * gap_us), 1));
	out->set |= CC_ACK_EACH;
}

/* Every acknowledged packet counts by itself. */
CC_INLINE void drizzle_count(CC_HOOK_ARGS)
{
	struct drizzle *d = CC_STATE(drizzle, self);
	uint64_t acked = cc_min(ev->acked_pkt, DRIZZLE_ACKED_MAX), gap = d->gap_q4, step;
	uint64_t alpha_q10 = cc_min(d->ecn.alpha_q30, CC_ALPHA_ONE_Q30) >> 20;
	uint64_t free_q10 = 1024 - alpha_q10, u = drizzle_u_q20(d, ev);

	if (ev->flags & CC_EV_ECE) {
		step = cc_min64(params->v[CC_P_DRIZZLE_CUT], DRIZZLE_ONE / 4) * alpha_q10 >> 10;
		step = step * cc_min64(u, 2 * DRIZZLE_ONE) >> DRIZZLE_BITS;
		gap += (gap * step * acked >> DRIZZLE_BITS) + 1;
	} else {
		step = params->v[CC_P_DRIZZLE_GAIN] * (free_q10 * free_q10 * free_q10) >> 30;
		step = step * drizzle_share_q16(ev, group, u) >> 15;
		gap = (gap << DRIZZLE_BITS) / (DRIZZLE_ONE + cc_min64(step, DRIZZLE_ONE) * acked);
	}
	drizzle_set_gap(d, ev, gap);
}

/* Goes on with whole windows. */
CC_INLINE void drizzle_gather(struct drizzle *d, struct cc_path *self, uint32_t spacing,
			      struct cc_decision *out)
{
	d->gap_q4 = 0;
	d->pressed = 0;
	self->credit_q40 = 0;
	cc_set_gap(out, 0);
	cc_set_cwnd(out, spacing);
	cc_set_ssthresh(out, spacing);
}

CC_HOOK(drizzle, init)
{
	struct drizzle *d = CC_STATE(drizzle, self);

	cc_path_clear(self);
	cc_dctcp_init(&d->ecn, ev, params->v[CC_P_DRIZZLE_ALPHA_INIT]);
}

/* A marked packet at a small window weighs as much as four unmarked ones. */
CC_INLINE void drizzle_press(struct drizzle *d, const struct cc_event *ev, uint32_t spacing)
{
	uint32_t acked = cc_min(ev->acked_pkt, DRIZZLE_ACKED_MAX);

	if (!(ev->flags & CC_EV_ECE))
		d->pressed -= cc_min(d->pressed, acked);
	else if (ev->cwnd_pkt <= 2 * spacing)
		d->pressed = cc_min(d->pressed, DRIZZLE_MAX_CONGESTION) + 4 * acked;
}

/*
 * With a packet or more in a round trip u is a window, which lets the rate follow the round trip;
 * with less, samples are too rare for that, and the rate is kept.
 */
CC_INLINE void drizzle_sample(struct drizzle *d, const struct cc_event *ev)
{
	uint64_t rtt_q4 = (uint64_t)cc_min(ev->rtt_us, CC_MAX_SRTT_8US >> 3) << DRIZZLE_GAP_BITS;
	uint64_t before = cc_min(d->average_q4, CC_MAX_SRTT_8US << (DRIZZLE_GAP_BITS - 3)), after;

	if (!rtt_q4)
		return;
	/* A packet whose acknowledgment was delayed tells of the receiver's timer. */
	if (before)
		rtt_q4 = cc_min64(rtt_q4, before * 4);
	after = before ? before - before / 8 + rtt_q4 / 8 : rtt_q4;
	if (rtt_q4 < before)
		after = before - before / 4 + rtt_q4 / 4;
	after = cc_max64(after, 1u << DRIZZLE_GAP_BITS);
	d->rtt_us = (uint32_t)(rtt_q4 >> DRIZZLE_GAP_BITS);
	d->average_q4 = (uint32_t)after;
	/* Never 0, which would end the spacing without a decision. */
	if (d->gap_q4 && d->gap_q4 <= before)
		drizzle_set_gap(d, ev, d->gap_q4 * after / before);
}

CC_HOOK(drizzle, on_ack)
{
	struct drizzle *d = CC_STATE(drizzle, self);
	uint32_t spacing = drizzle_spacing(params);
	int lossy = ev->state == CC_STATE_RECOVERY || ev->state == CC_STATE_LOSS;

	cc_dctcp_on_ack(&d->ecn, ev, params->v[CC_P_DRIZZLE_G]);
	drizzle_sample(d, ev);
	if (!d->gap_q4) {
		drizzle_press(d, ev, spacing);
		return;
	}
	if (ev->acked_pkt && !lossy)
		drizzle_count(CC_PASS_ARGS);
	if (drizzle_u_q20(d, ev) >= (uint64_t)spacing << DRIZZLE_BITS &&
	    ev->state <= CC_STATE_DISORDER && !(ev->flags & CC_EV_ECE)) {
		drizzle_gather(d, self, spacing, out);
	} else {
		if (ev->state <= CC_STATE_DISORDER && ev->cwnd_pkt != spacing)
			cc_set_cwnd(out, spacing);
		drizzle_tell_gap(d, out);
	}
	drizzle_publish(d, ev, self);
}

/* The window with its fraction, in Q20. */
CC_INLINE uint64_t drizzle_window_q20(const struct cc_event *ev, const struct cc_path *self)
{
	int64_t credit = cc_credit(self);
	uint64_t part = credit > 0 ? (uint64_t)credit >> (CC_CREDIT_BITS - DRIZZLE_BITS) : 0;

	return ((uint64_t)cc_window(ev->cwnd_pkt) << DRIZZLE_BITS) + (part & (DRIZZLE_ONE - 1));
}

CC_HOOK(drizzle, on_congestion)
{
	struct drizzle *d = CC_STATE(drizzle, self);
	uint32_t spacing = drizzle_spacing(params);
	uint64_t alpha = cc_min(d->ecn.alpha_q30, CC_ALPHA_ONE_Q30), w, part = 0;

	if (d->gap_q4) {
		/* Marks are counted one by one. */
		w = 0;
		if (ev->cause != CC_CAUSE_ECE)
			drizzle_set_gap(d, ev, 2ull * d->gap_q4);
	} else {
		w = (uint64_t)cc_flight(ev) << (DRIZZLE_BITS - 1);
		if (ev->cause == CC_CAUSE_ECE) {
			w = drizzle_window_q20(ev, self);
			w -= w * (alpha >> 10) >> 21;
		}
		if (ev->cause != CC_CAUSE_ECE && ev->cwnd_pkt <= spacing)
			d->pressed = cc_min(d->pressed, DRIZZLE_MAX_CONGESTION) +
				     DRIZZLE_LOSS_CONGESTION;
		if (w < (uint64_t)spacing << DRIZZLE_BITS &&
		    d->pressed >= 4 * params->v[CC_P_DRIZZLE_PATIENCE])
			drizzle_spread(d, ev, self, w);
		else if (w < (uint64_t)spacing << DRIZZLE_BITS)
			w = (uint64_t)spacing << DRIZZLE_BITS;
		else
			part = w & (DRIZZLE_ONE - 1);
	}
	drizzle_tell_gap(d, out);
	drizzle_publish(d, ev, self);
	cc_reduce(ev, self, (uint32_t)(w >> DRIZZLE_BITS), spacing, spacing, out);
	if (ev->cause == CC_CAUSE_ECE)
		self->credit_q40 = (int64_t)(part << (CC_CREDIT_BITS - DRIZZLE_BITS));
}

CC_HOOK(drizzle, on_grow)
{
	struct drizzle *d = CC_STATE(drizzle, self);
	uint32_t w = cc_window(ev->cwnd_pkt);

	if (ev->flags & CC_EV_ECE)
		return;
	if (!d->gap_q4) {
		cc_lia_grow(ev, self, group, out);
	} else {
		cc_slow_start(ev, &w);
		cc_grown(ev, w, out);
	}
}

/* A host may carry out what was decided about congestion without the gap. */
CC_HOOK(drizzle, on_state)
{
	drizzle_tell_gap(CC_STATE(drizzle, self), out);
}

CC_DCTCP_BEGINS(struct drizzle);
CC_ALGORITHM(drizzle, struct drizzle);
