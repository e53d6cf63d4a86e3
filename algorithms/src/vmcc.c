/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * vMCC: coupled increase, DCTCP-like decrease, and detection of paths that share a bottleneck.
 *
 * Source: the vMCC paper (multipath congestion control for virtualized environments), section V,
 * algorithms 1 and 2.
 *
 *   ACK without ECE  the increase of LIA (or OLIA, BALIA: parameter `increase`)
 *   ACK with ECE     no increase; ece_cnt += 1; detection; DCTCP's cut, once per window
 *   loss, RTO        as the chosen increase law does; with LIA Reno's half
 *   detection        `detector = correlation`, `events` and `statistics`: see sharing.h,
 *                    event_times.h and statistics.h.  `detector = counts` is algorithm 2:
 *                    when ece_cnt_r reaches `trigger`, path s shares a bottleneck with r if
 *                    |ece_cnt_r - ece_cnt_s| < theta and |T_r - T_s| < phi * max(T_r, T_s);
 *                    then r, the newly marked path, requests to be closed
 *
 * Deviations, where the paper's text and pseudocode disagree: alpha and the cut follow RFC 8257
 * (once per window, update before cut); the path just marked is the one closed; an ACK that
 * triggers detection is cut as well.  By default paths are compared in time instead, because two
 * disjoint paths of equal rate and delay look to algorithm 2 like one.  In algorithm 2 each path is
 * tested within `early` of its establishment: once, or, with `tests = repeated`, at each ECE from
 * then on until it requests to be closed.  "If path-sharing detection not performed" allows both;
 * no pair is left out by that only a marked path is compared, since no other's count changes.  A
 * path that requested to be closed is no longer compared with, so that of two alike one survives;
 * nor is one in recovery from a timeout, which may be dead.  The option `count = rate` scales a
 * sibling's count to the own number of acknowledged packets before comparing: tested once, raw
 * counts only find sharing paths whose windows are alike.
 *
 * Valid range: see coupling.h and src/dctcp.c.  Without ECE it is its increase law, bit for bit;
 * with one path it is DCTCP.
 */
#include "vmcc.h"

#define VMCC_COUNT_BITS 28
#define VMCC_COUNT_MAX	((1u << VMCC_COUNT_BITS) - 1)
#define VMCC_ACKED_MAX	((1ull << 35) - 1)
#define VMCC_CLOSING	(1ull << 63)
#define VMCC_PHI_ONE	1000u /* fixed point of the parameter phi */
#define VMCC_US_PER_MS	1000u

struct CC_PRIVATE vmcc {
	struct cc_dctcp ecn;
	struct cc_olia loss;
	uint64_t started_us;
	uint64_t acked_pkt;
	uint32_t ece_cnt;
	uint32_t tested; /* detection has run on this path */
};

/* pub[0]: ece_cnt, acknowledged packets, close requested. */
CC_INLINE void vmcc_publish(const struct vmcc *v, struct cc_path *self)
{
	self->pub[0] = (self->pub[0] & VMCC_CLOSING) |
		       cc_min64(v->acked_pkt, VMCC_ACKED_MAX) << VMCC_COUNT_BITS |
		       cc_min(v->ece_cnt, VMCC_COUNT_MAX);
}

/* 1 if the counts of ECE are close enough for a shared bottleneck, else 0. */
CC_INLINE uint64_t vmcc_counts_alike(const struct vmcc *v, uint64_t sibling, uint64_t theta,
				     uint64_t by_rate)
{
	uint64_t count = sibling & VMCC_COUNT_MAX;
	uint64_t acked = (sibling & ~VMCC_CLOSING) >> VMCC_COUNT_BITS;
	uint64_t mine = cc_min(v->ece_cnt, VMCC_COUNT_MAX);
	uint64_t scaled = count * cc_min64(v->acked_pkt, VMCC_ACKED_MAX) / cc_max64(acked, 1);

	count = cc_select(by_rate, scaled, count);
	return cc_less(cc_max64(mine, count) - cc_min64(mine, count), theta) &
	       (cc_nonzero(acked) | (by_rate ^ 1));
}

/* 0 or 1 */
CC_INLINE uint64_t vmcc_rtts_alike(uint32_t a_8us, uint32_t b_8us, uint64_t phi)
{
	uint32_t a = cc_min(a_8us, CC_MAX_SRTT_8US), b = cc_min(b_8us, CC_MAX_SRTT_8US);

	return cc_less((uint64_t)cc_distance(a, b) * VMCC_PHI_ONE,
		       (uint64_t)cc_max(a, b) * cc_min64(phi, VMCC_PHI_ONE));
}

/*
 * The detection of algorithm 2, on the path that was just marked: of the siblings that seem to
 * share its bottleneck the first is the one to keep.
 */
CC_INLINE void vmcc_compare_counts(CC_HOOK_ARGS)
{
	struct vmcc *v = CC_STATE(vmcc, self);
	uint64_t theta = params->v[CC_P_VMCC_THETA], phi = params->v[CC_P_VMCC_PHI];
	uint64_t by_rate = cc_equal(params->v[CC_P_VMCC_COUNT], CC_P_VMCC_COUNT_RATE);
	uint32_t me = cc_own_index(ev), i;
	uint64_t sharing = 0, tested = 0;

	CC_FOR_PATHS(i, group)
	{
		const struct cc_slot *slot = &group->path[i];
		uint64_t sibling = slot->pub[0];
		uint64_t left_out = cc_equal(i, me) | cc_nonzero(slot->flags & CC_SLOT_LOSS) |
				    cc_nonzero(sibling & VMCC_CLOSING);
		uint64_t compared = cc_slot_counts(slot) & (left_out ^ 1);

		CC_SKIP_UNLESS(compared);
		tested |= compared;
		compared &= vmcc_counts_alike(v, sibling, theta, by_rate);
		compared &= vmcc_rtts_alike(ev->srtt_8us, slot->srtt_8us, phi);
		sharing |= compared << i;
	}
	v->tested |= (uint32_t)tested;
	if (!sharing)
		return;
	self->pub[0] |= VMCC_CLOSING;
	out->set |= CC_CLOSE_PATH;
	out->peer = cc_bitlen(sharing & (0 - sharing)) - 1;
}

/* True if a test of this path is due. */
CC_INLINE int vmcc_may_compare(const struct vmcc *v, const struct cc_event *ev,
			       const struct cc_path *self, const struct cc_group *group,
			       const struct cc_params *params)
{
	uint64_t trigger = params->v[CC_P_VMCC_TRIGGER];

	if (!cc_equal(params->v[CC_P_VMCC_DETECTOR], CC_P_VMCC_DETECTOR_COUNTS))
		return 0;
	if (!trigger || v->ece_cnt < trigger || !cc_is_coupled(ev, group))
		return 0;
	if (v->tested && !cc_equal(params->v[CC_P_VMCC_TESTS], CC_P_VMCC_TESTS_REPEATED))
		return 0;
	if (self->pub[0] & VMCC_CLOSING)
		return 0;
	return ev->now_us - v->started_us < params->v[CC_P_VMCC_EARLY] * VMCC_US_PER_MS;
}

CC_HOOK(vmcc, init)
{
	struct vmcc *v = CC_STATE(vmcc, self);

	cc_path_clear(self);
	cc_dctcp_init(&v->ecn, ev, params->v[CC_P_VMCC_ALPHA_INIT]);
	v->started_us = ev->now_us;
}

CC_HOOK(vmcc, on_ack)
{
	struct vmcc *v = CC_STATE(vmcc, self);

	cc_dctcp_on_ack(&v->ecn, ev, params->v[CC_P_VMCC_G]);
	cc_olia_on_ack(&v->loss, ev, self);
	v->acked_pkt += cc_min(ev->acked_pkt, CC_MAX_CWND_PKT);
	if (ev->flags & CC_EV_ECE) {
		v->ece_cnt = cc_min(v->ece_cnt, VMCC_COUNT_MAX) + 1;
		vmcc_publish(v, self);
		if (vmcc_may_compare(v, ev, self, group, params))
			vmcc_compare_counts(CC_PASS_ARGS);
	}
	vmcc_publish(v, self);
}

CC_HOOK(vmcc, on_congestion)
{
	struct vmcc *v = CC_STATE(vmcc, self);

	cc_vmcc_reduce(&v->ecn, &v->loss, params->v[CC_P_VMCC_INCREASE], params->v[CC_P_VMCC_FLOOR],
		       ev, self, group, out);
}

CC_HOOK(vmcc, on_grow)
{
	cc_vmcc_grow(&CC_STATE(vmcc, self)->loss, params->v[CC_P_VMCC_INCREASE], ev, self, group,
		     out);
}

CC_HOOK(vmcc, on_state)
{
}

CC_DETECT_HOOK(vmcc)
{
	if (!params->v[CC_P_VMCC_TRIGGER] || !cc_is_coupled(ev, group) || !cc_is_compared(ev))
		return;
	cc_vmcc_detect(params->v[CC_P_VMCC_DETECTOR], params->v[CC_P_VMCC_INTERVAL], ev, group,
		       sharing, out);
}

CC_DCTCP_BEGINS(struct vmcc);
CC_ALGORITHM(vmcc, struct vmcc);
