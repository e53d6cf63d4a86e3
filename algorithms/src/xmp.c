/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * XMP: buffer occupancy suppression on each path, traffic shifting between them.
 *
 * Source: Cao et al., "Explicit Multipath Congestion Control for Data Center Networks", CoNEXT
 * 2013; constants and the rate used for shifting as in the ns-3 code published with AMP.
 *
 *   ECE        first of a round: w -= max(floor(w / beta), 1), ssthresh = w; in slow start only
 *              ssthresh = w; no growth and no further cut until everything sent before is
 *              acknowledged
 *   growth     once per round w += delta_r, delta_r = w_r / (sum of w_i T_min / T_i)
 *   loss, RTO  half, floor 2; one packet
 *
 * Deviations: slow start counts packets, not acknowledgments, which stretch.  The window before the
 * cut enters the sum while a path is reduced.  Floor 2 (the paper), ssthresh = w with slow start
 * strictly below it (the code).
 *
 * Valid range: see coupling.h; relative error of delta below 2e-4, or absolute below 1e-6.
 */
#include "coupling.h"

#define XMP_FLOOR_PKT	2u
#define XMP_DELTA_ONE	(1u << 20)
#define XMP_DELTA_SHIFT 20 /* from delta's Q20 to the credit's Q40 */

struct CC_PRIVATE xmp {
	uint32_t round_end;	 /* sequence number */
	uint32_t cut_end;	 /* sequence number at the last cut */
	uint32_t before_cut_pkt; /* nonzero: reduced */
	uint32_t round_over;	 /* the ACK being processed ended a round */
};

/* A path; of a sibling that is reduced the window before the cut; the own one likewise. */
CC_INLINE struct cc_term xmp_term(const struct cc_group *group, uint32_t i,
				  const struct cc_own *own)
{
	struct cc_term term = cc_term(group, i, own);
	uint64_t before = cc_min64(group->path[i].pub[0], CC_MAX_CWND_PKT);
	uint64_t use = cc_nonzero(before) & cc_nonzero(term.w) & (cc_equal(i, own->index) ^ 1);

	term.w = (uint32_t)cc_select(use, before, term.w);
	return term;
}

/* delta in Q20. */
CC_INLINE uint64_t xmp_delta_q20(const struct cc_event *ev, const struct cc_group *group,
				 uint32_t w)
{
	struct cc_own own = cc_own(ev, w);
	uint32_t fastest = CC_MAX_SRTT_8US, i;
	uint64_t sum = 0;

	if (!cc_is_coupled(ev, group))
		return XMP_DELTA_ONE;
	CC_FOR_PATHS(i, group)
	{
		struct cc_term term = xmp_term(group, i, &own);
		uint64_t faster = cc_below(term.srtt, fastest) & cc_nonzero(term.w);

		fastest = (uint32_t)cc_select(faster, term.srtt, fastest);
	}
	CC_FOR_PATHS(i, group)
	{
		struct cc_term term = xmp_term(group, i, &own);

		CC_SKIP_UNLESS(term.w);
		/* One that has become faster since must not overflow. */
		sum += ((uint64_t)term.w << 16) * fastest / cc_max(term.srtt, fastest);
	}
	return sum ? ((uint64_t)w << 36) / sum : XMP_DELTA_ONE;
}

CC_HOOK(xmp, init)
{
	cc_path_clear(self);
	CC_STATE(xmp, self)->round_end = ev->snd_nxt;
}

CC_HOOK(xmp, on_ack)
{
	struct xmp *x = CC_STATE(xmp, self);

	x->round_over = cc_round_over(ev, x->round_end);
	if (x->round_over)
		x->round_end = ev->snd_nxt;
	if (x->before_cut_pkt && !cc_seq_before(ev->snd_una, x->cut_end))
		x->before_cut_pkt = 0;
	self->pub[0] = x->before_cut_pkt;
}

CC_HOOK(xmp, on_congestion)
{
	struct xmp *x = CC_STATE(xmp, self);
	uint32_t w = cc_window(ev->cwnd_pkt);
	uint64_t beta = cc_max64(params->v[CC_P_XMP_BETA], 1);
	uint32_t target = cc_flight(ev) / 2;

	if (ev->cause == CC_CAUSE_RTO) {
		x->before_cut_pkt = 0;
		x->round_end = ev->snd_nxt;
	} else {
		if (ev->cause == CC_CAUSE_ECE) {
			target = w;
			if (!x->before_cut_pkt && !cc_in_slow_start(ev))
				target -= (uint32_t)cc_max64(w / beta, 1);
		}
		if (!x->before_cut_pkt)
			x->before_cut_pkt = w;
		x->cut_end = ev->snd_nxt;
	}
	self->pub[0] = x->before_cut_pkt;
	cc_reduce(ev, self, target, XMP_FLOOR_PKT, XMP_FLOOR_PKT, out);
}

CC_HOOK(xmp, on_grow)
{
	struct xmp *x = CC_STATE(xmp, self);
	uint32_t w = cc_window(ev->cwnd_pkt);

	if (x->before_cut_pkt || (ev->flags & CC_EV_ECE))
		return;
	if (cc_in_slow_start(ev))
		cc_slow_start(ev, &w);
	else if (x->round_over)
		w = cc_avoidance(self, w, 1, xmp_delta_q20(ev, group, w) << XMP_DELTA_SHIFT);
	cc_grown(ev, w, out);
}

CC_HOOK(xmp, on_state)
{
}

CC_ALGORITHM(xmp, struct xmp);
