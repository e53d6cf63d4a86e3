/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * LIA's increase (RFC 6356 section 3), shared by LIA, vMCC and the VM-scheduling-aware LIA.
 * Equations, deviations and range: src/lia.c and coupling.h.
 */
#ifndef VMCC_LIA_H
#define VMCC_LIA_H

#include "coupling.h"

/*
 * min(coupled, 1/w) in Q40.  The product is below 2^61, so the division is rarely needed.  With one
 * path `coupled` is 1/w rounded down: the one more makes that Reno's 1/w, bit for bit.
 */
CC_INLINE uint64_t cc_capped_increase_q40(uint64_t coupled_q40, uint32_t w)
{
	return (coupled_q40 + 1) * w > CC_CREDIT_ONE ? cc_inverse_q40(w) : coupled_q40;
}

CC_INLINE uint64_t cc_lia_increase_q40(const struct cc_event *ev, const struct cc_group *group,
				       uint32_t w)
{
	struct cc_own own = cc_own(ev, w);
	struct cc_coupling c;

	if (!cc_is_coupled(ev, group))
		return cc_inverse_q40(w);
	cc_couple(group, &own, &c);
	return cc_capped_increase_q40(cc_coupled_increase_q40(&c), w);
}

CC_INLINE void cc_lia_grow(const struct cc_event *ev, struct cc_path *self,
			   const struct cc_group *group, struct cc_decision *out)
{
	uint32_t w = cc_window(ev->cwnd_pkt);
	uint32_t left = cc_slow_start(ev, &w);

	if (left)
		w = cc_avoidance(self, w, left, cc_lia_increase_q40(ev, group, w));
	cc_grown(ev, w, out);
}

#endif /* VMCC_LIA_H */
