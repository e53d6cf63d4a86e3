/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* clang-format off */
/*
 * Detection of shared bottlenecks by correlation in time.
 *
 * Two paths through one queue see the same marks and delays at the same moments; two queues that are
 * alike see similar ones at unrelated moments.
 *
 *   clock     time is divided into bins of 2^shift us, about the connection's longest RTT, the same
 *             for all its paths.  An ACK belongs to the moment half an RTT ago, when its packet was
 *             about to arrive: paths of unequal delay are then at most half a bin apart, and no
 *             search for a lag is needed.
 *   bin       the share of ACKs with ECE, and the mean RTT.  A single bin without an ACK repeats its
 *             predecessor; more are invalid.  So is a bin of which an eighth of the ACKs followed a
 *             timeout or were application-limited, and the next few: paths that start together
 *             fill their queues together, shared or not.
 *   block     of 16 bins, all valid on both paths.  r of the marks is Pearson's coefficient.  r of
 *             the delays is the mean of two, both without slow trends: of the detrended series,
 *             and of its differences.  The block's r is the mean of both signals, or one where the
 *             other is flat.
 *   evidence  of each pair of paths: the sum of r - 0.28, a sequential test (Wald) between
 *             CC_SHARING_APART, which is also its lower bound, and CC_SHARING_SHARED.  In between
 *             the pair is undecided, and nothing is done.
 *
 *   trial     correlated signals may have another common cause, so the path in the higher slot runs
 *             trials while the pair is undecided.  A random bit decides whether a trial probes.  A
 *             probe lasts while its packets count to this bin or the next.  The window is then the
 *             data in flight less their share of the queue, at least half; afterwards it is
 *             restored.  The link does not run idle.  A window that is too narrow for that grows
 *             instead.  Either way the change of both paths' delays to the next bin is measured.
 *   alone     of each pair, the sum of the difference of both changes, with the sign of the random
 *             bit.  In one queue both see the probe, so the difference is near 0, and the sum falls
 *             a little each time.  In queues of their own only the path responds, and the sum
 *             rises.  Common disturbances cancel in the difference; others are independent of the
 *             random bit and average out.
 *
 * A pair shares a bottleneck if the evidence says so and the sum is at CC_SHARING_ALONE_MIN.  Of such a
 * pair the path in the higher slot requests to be closed.
 *
 * Only the paths in the first CC_SHARING_PATHS slots are compared, with each other: those beyond
 * have no history here, and `me` is never one of them (cc_is_compared).
 *
 * A path writes its own history only; evidence is written by the end of the pair that completes the
 * block later.  In the kernel two may do so at once and count a block twice, or lose it.
 *
 * Valid range: RTTs up to 16 s.  Any content of the memory is accepted.
 */
/* clang-format on */
#ifndef VMCC_SHARING_H
#define VMCC_SHARING_H

#include "detect/verdict.h"

/* Evaluates the last trial; then requests closing, begins another trial, or waits. */
CC_INLINE void cc_sharing_decide(const struct cc_event *ev, const struct cc_group *group,
				 struct cc_sharing *sharing, uint32_t me, struct cc_decision *out)
{
	struct cc_history *h = &sharing->path[me];
	uint8_t since = (uint8_t)(h->bin - h->tried);
	struct cc_verdict v;

	if (h->trial && since >= CC_SHARING_EFFECT_BINS) {
		if (since <= CC_SHARING_BINS - 2)
			cc_sharing_evaluate(sharing, me, h->bin - since);
		h->trial = 0;
	}
	if (cc_sharing_is_pooled(sharing))
		return;
	cc_sharing_verdict(group, sharing, me, &v);
	if (v.suspicion <= CC_SHARING_APART)
		h->doubts = 0;
	if (v.kept < CC_SHARING_PATHS) {
		out->set |= CC_CLOSE_PATH;
		out->peer = v.kept;
	} else if (v.others && !h->trial && cc_sharing_due(h, h->bin, v.suspicion)) {
		cc_sharing_trial_join(ev, h, sharing->shift & 31, 0);
	}
}

/* A bin is over on this path. */
CC_NOINLINE void cc_sharing_bin_end(const struct cc_event *ev, const struct cc_group *group,
				    struct cc_sharing *sharing, uint32_t bin,
				    struct cc_decision *out)
{
	uint32_t me = cc_sharing_own(ev), before, start;
	struct cc_history *h = &sharing->path[me];

	before = h->bin;
	cc_history_advance(h, bin);
	cc_sharing_clock(group, sharing);
	if (before >> CC_SHARING_BLOCK_BITS != bin >> CC_SHARING_BLOCK_BITS) {
		start = (bin & ~(CC_SHARING_BLOCK - 1)) - CC_SHARING_BLOCK;
		cc_sharing_block(group, sharing, me, start);
		if (h->doubts < CC_SHARING_UNDECIDED_BLOCKS)
			h->doubts++;
	}
	cc_sharing_decide(ev, group, sharing, me, out);
	CC_LEAVE();
}

/* Forgets the evidence and the trials of a path's pairs. */
CC_INLINE void cc_sharing_forget(struct cc_sharing *sharing, uint32_t me)
{
	uint32_t i;

	for (i = 0; i < CC_SHARING_PATHS; i++) {
		if (i != me) {
			sharing->evidence[cc_sharing_pair(me, i)] = 0;
			sharing->alone[cc_sharing_pair(me, i)] = 0;
		}
	}
}

/* Restarts the history of a path that has just been established in a slot used before. */
CC_INLINE void cc_sharing_begin(const struct cc_event *ev, struct cc_sharing *sharing)
{
	const struct cc_history nothing = {0};
	uint32_t me = cc_sharing_own(ev);

	/* Of any detector that keeps state there. */
	sharing->path[me] = nothing;
	cc_sharing_forget(sharing, me);
}

/*
 * If the own machine was descheduled until now (1): on all paths at once ACKs waited, queues ran
 * empty and fill again.  As at the beginning, the next few bins are left out, and this one.
 */
CC_INLINE void cc_sharing_descheduled(const struct cc_event *ev, struct cc_sharing *sharing,
				      uint64_t woke)
{
	struct cc_history *h = &sharing->path[cc_sharing_own(ev)];

	h->settle = (uint8_t)cc_select(woke, CC_SHARING_SETTLING_BINS, h->settle);
}

/* True if this ACK carries no information about a queue that others may share. */
CC_INLINE int cc_sharing_ignores(const struct cc_event *ev)
{
	return !(ev->flags & CC_EV_CWND_LIMITED) || ev->state == CC_STATE_LOSS;
}

/* Every ACK of a path that has siblings.  Decides CC_CLOSE_PATH when the time has come. */
CC_INLINE void cc_sharing_on_ack(const struct cc_event *ev, const struct cc_group *group,
				 struct cc_sharing *sharing, struct cc_decision *out)
{
	uint32_t me = cc_sharing_own(ev), shift = sharing->shift & 31, bin;
	uint32_t rtt_us = ev->rtt_us ? ev->rtt_us : ev->srtt_8us >> 3;
	struct cc_history *h = &sharing->path[me];

	if (!rtt_us)
		return;
	rtt_us = cc_min(rtt_us, 1u << CC_SHARING_SHIFT_MAX);
	bin = (uint32_t)((ev->now_us - rtt_us / 2) >> shift);
	/* Samples may be a little out of order: they count to the bin that is being filled. */
	if (bin != h->bin && h->bin - bin >= CC_SHARING_BLOCK)
		cc_sharing_bin_end(ev, group, sharing, bin, out);
	if (h->hold)
		cc_sharing_probe_step(ev, h, sharing->shift, out);
	if (h->acks == UINT16_MAX)
		return;
	h->acks++;
	h->delays += cc_min((uint32_t)(((uint64_t)rtt_us << CC_SHARING_DELAY_BITS) >> shift),
			    CC_SHARING_DELAY_MAX);
	if (ev->flags & CC_EV_ECE)
		h->marked++;
	if (cc_sharing_ignores(ev))
		h->ignored++;
}

#endif /* VMCC_SHARING_H */
