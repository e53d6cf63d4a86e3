/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * BALIA's increase and reduction, shared by BALIA and vMCC.  Equations, deviations, range:
 * src/balia.c.
 */
#ifndef VMCC_BALIA_H
#define VMCC_BALIA_H

#include "coupling.h"

/* The path with the largest rate w/T. */
struct cc_fastest {
	uint32_t w;
	uint32_t srtt;
};

CC_INLINE struct cc_fastest cc_balia_fastest(const struct cc_group *group, const struct cc_own *own)
{
	struct cc_fastest m = {0, 1};
	uint32_t i;

	CC_FOR_PATHS(i, group)
	{
		struct cc_term term = cc_term(group, i, own);
		uint64_t faster = cc_below((uint64_t)m.w * term.srtt, (uint64_t)term.w * m.srtt);

		m.w = (uint32_t)cc_select(faster, term.w, m.w);
		m.srtt = (uint32_t)cc_select(faster, term.srtt, m.srtt);
	}
	return m;
}

/* rho = x_i / x_m in Q16, rounded, at most 1: also of a path that has grown since m was found. */
CC_INLINE uint64_t cc_balia_rho_q16(const struct cc_fastest *m, uint32_t w, uint32_t srtt)
{
	uint64_t best = (uint64_t)m->w * srtt;
	uint64_t rho = ((((uint64_t)w * m->srtt) << 16) + best / 2) / best;

	return cc_select(cc_below(rho, 1u << 16), rho, 1u << 16);
}

/* (1 + rho)(1 + 4 rho) / (10 w sigma^2) in Q40, for the own path. */
CC_INLINE uint64_t cc_balia_increase_q40(const struct cc_group *group, const struct cc_own *own)
{
	struct cc_fastest m = cc_balia_fastest(group, own);
	uint64_t sigma = 0, rho, share;
	uint32_t w = own->w, i;

	if (!m.w)
		return 0;
	CC_FOR_PATHS(i, group)
	{
		struct cc_term term = cc_term(group, i, own);

		CC_SKIP_UNLESS(term.w);
		sigma += cc_balia_rho_q16(&m, term.w, term.srtt);
	}
	/* m's own is 1, unless it has left since. */
	sigma = cc_max64(sigma, 1u << 16);
	rho = cc_balia_rho_q16(&m, w, cc_known_srtt(own->srtt));
	share = ((((1u << 16) + rho) * ((1u << 16) + 4 * rho)) << 28) / (sigma * sigma);
	return ((share << 12) + 5 * (uint64_t)w) / (10 * (uint64_t)w);
}

CC_INLINE void cc_balia_grow(const struct cc_event *ev, struct cc_path *self,
			     const struct cc_group *group, struct cc_decision *out)
{
	uint32_t w = cc_window(ev->cwnd_pkt);
	uint32_t left = cc_slow_start(ev, &w);
	struct cc_own own = cc_own(ev, w);
	uint64_t inc;

	if (left) {
		inc = cc_inverse_q40(w);
		if (cc_has_sibling(ev, group))
			inc = cc_balia_increase_q40(group, &own);
		w = cc_avoidance(self, w, left, inc);
	}
	cc_grown(ev, w, out);
}

/*
 * w - (w/2) min(alpha, 1.5), rounded down, with alpha = x_m / x_r.  Exact: since x_r = w_r / T_r,
 * w_r * alpha = w_m T_r / T_m.
 */
CC_INLINE uint32_t cc_balia_target(const struct cc_group *group, const struct cc_own *own)
{
	struct cc_fastest m = cc_balia_fastest(group, own);
	uint32_t w = own->w;
	uint64_t mine = (uint64_t)w * m.srtt;
	uint64_t best = (uint64_t)m.w * cc_known_srtt(own->srtt);

	if (3 * mine <= 2 * best)
		return w / 4;
	/* Rounded up, and at most 3/4 of the window. */
	return w - (uint32_t)((best + 2 * (uint64_t)m.srtt - 1) / (2 * (uint64_t)m.srtt));
}

CC_INLINE void cc_balia_reduce(const struct cc_event *ev, struct cc_path *self,
			       const struct cc_group *group, struct cc_decision *out)
{
	struct cc_own own = cc_own(ev, cc_window(ev->cwnd_pkt));

	if (!cc_has_sibling(ev, group)) {
		cc_reno_reduce(ev, self, out);
		return;
	}
	cc_reduce(ev, self, cc_balia_target(group, &own), 1, 1, out);
}

#endif /* VMCC_BALIA_H */
