/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * LIA for machines that are descheduled: RTT samples over a descheduled interval are discarded, a
 * timeout at its end is undone, and the window is paced instead of sent as a burst.  Detection and
 * its limits: awake.h.
 *
 * Source: RFC 6356 section 3 for everything else; the VM-scheduling-aware MPTCP paper for the
 * question.  Without a sleep it is LIA, bit for bit.
 *
 * Deviations: those of LIA.
 *
 * Valid range: see coupling.h and awake.h.
 */
/* pub[0]: T without sleep in 1/8 us, 0 if it is the host's. */
#define CC_OWN_SRTT 1
#include "awake.h"

struct CC_PRIVATE awake {
	struct cc_awake sleep;
};

CC_INLINE uint64_t awake_increase_q40(uint32_t own_8us, const struct cc_event *ev,
				      const struct cc_group *group, uint32_t w)
{
	struct cc_own own = cc_own_filtered(ev, w, own_8us);
	struct cc_coupling c;

	if (!cc_is_coupled(ev, group))
		return cc_inverse_q40(w);
	cc_couple(group, &own, &c);
	return cc_capped_increase_q40(cc_coupled_increase_q40(&c), w);
}

CC_HOOK(awake, init)
{
	cc_path_clear(self);
	cc_awake_init(&CC_STATE(awake, self)->sleep, ev);
}

CC_HOOK(awake, on_ack)
{
	self->pub[0] = cc_awake_on_ack(&CC_STATE(awake, self)->sleep, ev, (uint32_t)self->pub[0],
				       params->v[CC_P_AWAKE_GAP], params->v[CC_P_AWAKE_PACE], out);
}

CC_HOOK(awake, on_congestion)
{
	cc_awake_on_congestion(&CC_STATE(awake, self)->sleep, ev);
	cc_reno_reduce(ev, self, out);
}

CC_HOOK(awake, on_grow)
{
	uint32_t w = cc_window(ev->cwnd_pkt);
	uint32_t left = cc_slow_start(ev, &w);

	if (left)
		w = cc_avoidance(self, w, left,
				 awake_increase_q40((uint32_t)self->pub[0], ev, group, w));
	cc_grown(ev, w, out);
}

CC_HOOK(awake, on_state)
{
}

CC_ALGORITHM(awake, struct awake);
