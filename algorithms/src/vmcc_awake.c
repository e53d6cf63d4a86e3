/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* clang-format off */
/*
 * vMCC for machines that are descheduled: its law and its detection in time, with the detection of
 * sleep in awake.h.  Without a sleep it is vMCC, bit for bit.
 *
 * Source: src/vmcc.c and awake.h.  After a sleep of the own machine
 *
 *   RTTs         without it (awake.h), of every path, drive the law and the detection
 *   marks        count as usual: alpha averages over windows, not over time, and each window has one
 *                cut
 *   timeout      spurious: the window, ssthresh and OLIA's packets between losses are restored.
 *                alpha does not depend on timeouts
 *   detection    a sleep affects all paths at once, shared or not.  By correlation: bins are invalid
 *                until data sent after it are acknowledged, and as many more as at the beginning of
 *                a path; a block has none of them.  By events and statistics: the path's history
 *                restarts
 *
 * Deviations: those of vMCC, without its detection by counts, which would not fit into the state.
 * Paths of a machine that runs for less than about 25 RTTs at a time are hardly ever compared, and
 * so stay open.
 *
 * Valid range: that of vMCC and awake.h.
 */
/* clang-format on */
/* pub[0]: T without sleep in 1/8 us, 0 if it is the host's, and more above. */
#define CC_OWN_SRTT 1
#include "vmcc.h"
#include "awake.h"

/* The bit of pub[0]: the last ACK waited for the own machine, or was for something sent before. */
#define VMCC_AWAKE_WOKE 63
/* In pub[0] and pub[1] from a timeout to the next ACK in its turn: l1 and l2 of before it. */
#define VMCC_AWAKE_KEPT 32

struct CC_PRIVATE vmcc_awake {
	struct cc_dctcp ecn;
	struct cc_olia loss;
	struct cc_awake sleep;
};

_Static_assert(CC_P_VMCC_AWAKE_INCREASE_LIA == CC_P_VMCC_INCREASE_LIA &&
		       CC_P_VMCC_AWAKE_INCREASE_OLIA == CC_P_VMCC_INCREASE_OLIA &&
		       CC_P_VMCC_AWAKE_INCREASE_BALIA == CC_P_VMCC_INCREASE_BALIA,
	       "laws are numbered as vMCC's");
_Static_assert(CC_P_VMCC_AWAKE_DETECTOR_CORRELATION == CC_P_VMCC_DETECTOR_CORRELATION &&
		       CC_P_VMCC_AWAKE_DETECTOR_EVENTS == CC_P_VMCC_DETECTOR_EVENTS &&
		       CC_P_VMCC_AWAKE_DETECTOR_STATISTICS == CC_P_VMCC_DETECTOR_STATISTICS,
	       "detectors are numbered as vMCC's");

/* T without sleep. */
CC_INLINE uint32_t vmcc_awake_srtt(const struct cc_event *ev, uint64_t pub)
{
	uint64_t own = cc_known_srtt((uint32_t)pub);

	return (uint32_t)cc_select(cc_nonzero((uint32_t)pub), own, ev->srtt_8us);
}

/* The event as it would be without sleep. */
CC_INLINE struct cc_event vmcc_awake_seen(const struct cc_event *ev, uint64_t pub)
{
	struct cc_event seen = *ev;

	seen.srtt_8us = vmcc_awake_srtt(ev, pub);
	return seen;
}

CC_INLINE void vmcc_awake_keep(struct cc_path *self, const struct cc_olia *before)
{
	uint64_t woke = self->pub[0] & 1ull << VMCC_AWAKE_WOKE;
	uint64_t l1 = cc_min(before->l1_pkt, CC_OLIA_MAX_LOSS_GAP);
	uint64_t l2 = cc_min(before->l2_pkt, CC_OLIA_MAX_LOSS_GAP);

	self->pub[0] = (uint32_t)self->pub[0] | l1 << VMCC_AWAKE_KEPT | woke;
	self->pub[1] = (uint32_t)self->pub[1] | l2 << VMCC_AWAKE_KEPT;
}

CC_INLINE struct cc_olia vmcc_awake_kept(const struct cc_path *self)
{
	struct cc_olia before = {(uint32_t)(self->pub[0] >> VMCC_AWAKE_KEPT) & CC_OLIA_MAX_LOSS_GAP,
				 (uint32_t)(self->pub[1] >> VMCC_AWAKE_KEPT) &
					 CC_OLIA_MAX_LOSS_GAP};

	return before;
}

CC_HOOK(vmcc_awake, init)
{
	struct vmcc_awake *v = CC_STATE(vmcc_awake, self);

	cc_path_clear(self);
	cc_dctcp_init(&v->ecn, ev, params->v[CC_P_VMCC_AWAKE_ALPHA_INIT]);
	cc_awake_init(&v->sleep, ev);
}

CC_HOOK(vmcc_awake, on_ack)
{
	struct vmcc_awake *v = CC_STATE(vmcc_awake, self);
	struct cc_olia before = vmcc_awake_kept(self);
	uint64_t taken_back;

	self->pub[0] = cc_awake_on_ack(&v->sleep, ev, (uint32_t)self->pub[0],
				       params->v[CC_P_VMCC_AWAKE_GAP],
				       params->v[CC_P_VMCC_AWAKE_PACE], out);
	self->pub[0] |= cc_nonzero(v->sleep.flags & CC_AWAKE_DESCHEDULED) << VMCC_AWAKE_WOKE;
	/* Nothing but a timeout that is taken back sets the window here. */
	taken_back = cc_nonzero(out->set & CC_SET_CWND);
	v->loss.l1_pkt = (uint32_t)cc_select(taken_back, before.l1_pkt, v->loss.l1_pkt);
	v->loss.l2_pkt = (uint32_t)cc_select(taken_back, before.l2_pkt, v->loss.l2_pkt);
	cc_dctcp_on_ack(&v->ecn, ev, params->v[CC_P_VMCC_AWAKE_G]);
	cc_olia_on_ack(&v->loss, ev, self);
	/* An overtaken ACK says nothing of the timeout: the next one may. */
	if (v->sleep.before_pkt)
		vmcc_awake_keep(self, &before);
}

CC_HOOK(vmcc_awake, on_congestion)
{
	struct vmcc_awake *v = CC_STATE(vmcc_awake, self);
	struct cc_event seen = vmcc_awake_seen(ev, self->pub[0]);
	/* A timeout may follow another. */
	struct cc_olia before = v->sleep.before_pkt ? vmcc_awake_kept(self) : v->loss;

	cc_awake_on_congestion(&v->sleep, ev);
	cc_vmcc_reduce(&v->ecn, &v->loss, params->v[CC_P_VMCC_AWAKE_INCREASE],
		       params->v[CC_P_VMCC_AWAKE_FLOOR], &seen, self, group, out);
	if (ev->cause == CC_CAUSE_RTO)
		vmcc_awake_keep(self, &before);
}

CC_HOOK(vmcc_awake, on_grow)
{
	struct cc_event seen = vmcc_awake_seen(ev, self->pub[0]);

	cc_vmcc_grow(&CC_STATE(vmcc_awake, self)->loss, params->v[CC_P_VMCC_AWAKE_INCREASE], &seen,
		     self, group, out);
}

CC_HOOK(vmcc_awake, on_state)
{
}

CC_DETECT_HOOK(vmcc_awake)
{
	uint64_t detector = params->v[CC_P_VMCC_AWAKE_DETECTOR], pub, woke;

	if (detector == CC_P_VMCC_AWAKE_DETECTOR_OFF || !cc_is_coupled(ev, group) ||
	    !cc_is_compared(ev))
		return;
	pub = group->path[cc_own_index(ev)].pub[0];
	woke = pub >> VMCC_AWAKE_WOKE;
	ev->srtt_8us = vmcc_awake_srtt(ev, pub);
	if (detector == CC_P_VMCC_AWAKE_DETECTOR_CORRELATION) {
		cc_sharing_descheduled(ev, sharing, woke);
		ev->rtt_us = (uint32_t)cc_select(woke, ev->srtt_8us >> 3, ev->rtt_us);
	} else if (woke) {
		cc_sharing_begin(ev, sharing);
		return;
	}
	cc_vmcc_detect(detector, params->v[CC_P_VMCC_AWAKE_INTERVAL], ev, group, sharing, out);
}

CC_DCTCP_BEGINS(struct vmcc_awake);
CC_ALGORITHM(vmcc_awake, struct vmcc_awake);
