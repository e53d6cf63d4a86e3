/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * AMP: one packet per round for all paths together, and a single path while all are at their
 * minimum.
 *
 * Source: Kheirkhah, Wakeman, Parisis, "AMP: A Better Multipath TCP for Data Center Networks", IFIP
 * Networking 2019 (arXiv 1707.00322); constants as in its authors' ns-3 code.
 *
 *   growth       w_r += acked / w_total
 *   ECE          w = 3/4 w, once per window, floor 1; ssthresh = w
 *   loss, RTO    Reno
 *   suppression  after 10 rounds of the first path with every path at one packet: new data on the
 *                first path only; after 8 rounds with it above one packet, unmarked, not in
 *                recovery: on all
 *
 * The first path is the established one with the lowest index; it decides (CC_ONLY_PATH,
 * CC_ALL_PATHS).
 *
 * Deviations: a path that reduces to one packet counts as being there.  If the first path leaves,
 * the host resumes all paths.
 *
 * Valid range: see coupling.h.
 */
#include "coupling.h"

#define AMP_MIN_PKT 1u

struct CC_PRIVATE amp {
	uint32_t round_end; /* sequence number */
	uint32_t low_rounds;
	uint32_t clean_rounds;
	uint32_t marked; /* in this round */
	uint32_t suppressing;
};

CC_INLINE uint32_t amp_first_path(const struct cc_event *ev, const struct cc_group *group)
{
	uint32_t me = cc_own_index(ev), first = me, i;

	CC_FOR_PATHS(i, group)
	{
		uint64_t earlier = cc_slot_counts(&group->path[i]) & cc_less(i, first);

		first = (uint32_t)cc_select(earlier, i, first);
	}
	return first;
}

/* 1 if every path is at the minimum, and none in recovery from loss. */
CC_INLINE uint64_t amp_all_low(const struct cc_event *ev, const struct cc_group *group)
{
	uint32_t me = cc_own_index(ev), i;
	uint64_t high = cc_less(AMP_MIN_PKT, cc_window(ev->cwnd_pkt));

	high |= cc_equal(ev->state, CC_STATE_RECOVERY) | cc_equal(ev->state, CC_STATE_LOSS);
	CC_FOR_PATHS(i, group)
	{
		const struct cc_slot *slot = &group->path[i];
		uint64_t busy = cc_less(AMP_MIN_PKT, cc_slot_window(slot)) |
				cc_nonzero(slot->flags & CC_SLOT_LOSS);

		high |= busy & cc_slot_counts(slot) & (cc_equal(i, me) ^ 1);
	}
	return high ^ 1;
}

CC_INLINE int amp_is_clean(const struct amp *a, const struct cc_event *ev)
{
	return !a->marked && cc_window(ev->cwnd_pkt) > AMP_MIN_PKT &&
	       ev->state != CC_STATE_RECOVERY && ev->state != CC_STATE_LOSS;
}

/* Ends a round of the first path: decides. */
CC_INLINE void amp_decide(CC_HOOK_ARGS)
{
	struct amp *a = CC_STATE(amp, self);

	if (!a->suppressing) {
		a->low_rounds = amp_all_low(ev, group) ? cc_min(a->low_rounds, 1u << 16) + 1 : 0;
		if (a->low_rounds >= params->v[CC_P_AMP_SUPPRESS_AFTER]) {
			a->suppressing = 1;
			a->clean_rounds = 0;
			out->set |= CC_ONLY_PATH;
		}
	} else {
		a->clean_rounds = amp_is_clean(a, ev) ? cc_min(a->clean_rounds, 1u << 16) + 1 : 0;
		if (a->clean_rounds >= params->v[CC_P_AMP_RELEASE_AFTER]) {
			a->suppressing = 0;
			a->low_rounds = 0;
			out->set |= CC_ALL_PATHS;
		}
	}
}

/* 1 / w_total in Q40. */
CC_INLINE uint64_t amp_increase_q40(const struct cc_event *ev, const struct cc_group *group,
				    uint32_t w)
{
	struct cc_own own = cc_own(ev, w);
	uint64_t total = 0;
	uint32_t i;

	if (!cc_is_coupled(ev, group))
		return cc_inverse_q40(w);
	CC_FOR_PATHS(i, group)
	total += cc_term(group, i, &own).w;
	return cc_inverse_q40((uint32_t)cc_max64(total, 1));
}

CC_HOOK(amp, init)
{
	cc_path_clear(self);
	CC_STATE(amp, self)->round_end = ev->snd_nxt;
}

CC_HOOK(amp, on_ack)
{
	struct amp *a = CC_STATE(amp, self);

	if (ev->flags & CC_EV_ECE)
		a->marked = 1;
	/* Rounds go on on paths that decide nothing: they may have to later. */
	if (cc_round_over(ev, a->round_end)) {
		a->round_end = ev->snd_nxt;
		if (cc_has_sibling(ev, group) && amp_first_path(ev, group) == cc_own_index(ev))
			amp_decide(CC_PASS_ARGS);
		a->marked = 0;
	}
	self->pub[0] = a->suppressing; /* for observers */
}

CC_HOOK(amp, on_congestion)
{
	uint32_t w = cc_window(ev->cwnd_pkt);

	if (ev->cause == CC_CAUSE_ECE)
		cc_reduce(ev, self, w * 3 / 4, AMP_MIN_PKT, AMP_MIN_PKT, out);
	else
		cc_reno_reduce(ev, self, out);
}

CC_HOOK(amp, on_grow)
{
	uint32_t w = cc_window(ev->cwnd_pkt), left;

	left = cc_slow_start(ev, &w);
	if (left)
		w = cc_avoidance(self, w, left, amp_increase_q40(ev, group, w));
	cc_grown(ev, w, out);
}

CC_HOOK(amp, on_state)
{
}

CC_ALGORITHM(amp, struct amp);
