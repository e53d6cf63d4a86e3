/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Detection of shared bottlenecks by the times of reductions (mTCP's test).
 *
 * Source: the mTCP paper (strong, failure-tolerant multipath transport for mobile hosts), section
 * on shared congestion.
 *
 *   event   a reduction begins: fast retransmit, or an echoed mark.  Those of the first two round
 *           trips do not count: paths fill their queues together, shared or not
 *   match   the largest number of disjoint pairs of events, one of each path, less than an interval
 *           apart.  Two pointers find it, because all pairs have the same reach
 *   sample  two unrelated paths with events every s intervals match by chance with p = 2 / s.
 *           There must be m events, such that a share above 1/2 comes about so with at most
 *           0.05: by Chernoff's bound (4 p (1 - p))^(m/2) is at most that.  p must be below 1/2
 *   lag     81 steps of a fortieth of the longer round trip either way; the best counts, so each
 *           has an 81st of that probability
 *
 * Deviations: the last CC_EVENT_TIMES events of a path are kept, which is enough where they are
 * twenty intervals apart or more; where they are nearer nothing is decided.  Paths are compared at
 * every fourth event of the one with the higher slot, since each look is a chance to err.
 *
 * Valid range: less than half an hour from the first kept event to the last.  Any content of the
 * memory is accepted.
 */
#ifndef VMCC_EVENT_TIMES_H
#define VMCC_EVENT_TIMES_H

#include "sharing.h"

#define CC_EVENT_TIMES		 15u
#define CC_EVENTS_PER_EVALUATION 4u
#define CC_EVENT_SETTLE_ROUNDS	 2u
#define CC_EVENT_LAGS		 40 /* either way */
#define CC_EVENT_INTERVAL_US	 200000u
#define CC_EVENT_INTERVAL_MAX	 100000000u
/* (0.05 / 81)^2 in 2^-32 */
#define CC_EVENT_CHANCE 1636u

/* One path, as this detector sees it: instead of struct cc_history. */
struct CC_PRIVATE cc_event_times {
	uint32_t began_us; /* events count from here on; modulo 2^32, as all times; 0: not yet */
	uint8_t state;	   /* enum cc_state, at the last ACK */
	uint8_t kept;
	uint8_t next; /* where the next event goes */
	uint8_t fresh;
	uint32_t at_us[CC_EVENT_TIMES];
};
_Static_assert(sizeof(struct cc_event_times) == sizeof(struct cc_history), "it takes its place");

/* Two paths, and how they are compared. */
struct cc_event_pair {
	uint32_t me, other;
	uint32_t from_us; /* events from here on count */
	uint32_t interval_us;
	uint32_t lag_us; /* of the other, modulo 2^32 */
};

CC_INLINE struct cc_event_times *cc_event_times(struct cc_sharing *sharing, uint32_t path)
{
	return (struct cc_event_times *)&sharing->path[path & (CC_SHARING_PATHS - 1)];
}

/* The i-th event of those that are kept, the oldest first. */
CC_INLINE uint32_t cc_event_at(const struct cc_event_times *x, uint32_t i)
{
	uint64_t at = (x->next + CC_EVENT_TIMES - x->kept + i) % CC_EVENT_TIMES;

#ifdef __bpf__
	CC_OPAQUE(at);
#endif
	return x->at_us[at < CC_EVENT_TIMES ? at : 0];
}

/* From when on all events of a path are known. */
CC_INLINE uint32_t cc_event_from(const struct cc_event_times *x)
{
	return x->kept < CC_EVENT_TIMES ? x->began_us : cc_event_at(x, 0);
}

/* Number of events before `from_us`. */
CC_INLINE uint32_t cc_events_before(const struct cc_event_times *x, uint32_t from_us)
{
	uint32_t i, older = 0;

	for (i = 0; i < CC_EVENT_TIMES; i++)
		older += (uint32_t)(cc_less(i, x->kept) & ((cc_event_at(x, i) - from_us) >> 31));
	return older;
}

/* Pairs of events that match, at one lag. */
CC_SEPARATE int cc_events_match(struct cc_sharing *sharing, const struct cc_event_pair *pair)
{
	const struct cc_event_times *x, *y;
	uint32_t i, j, step, matched = 0;

	if (!sharing || !pair)
		return 0;
	x = cc_event_times(sharing, pair->me);
	y = cc_event_times(sharing, pair->other);
	i = cc_events_before(x, pair->from_us);
	j = cc_events_before(y, pair->from_us);
	for (step = 0; step < 2 * CC_EVENT_TIMES; step++) {
		uint32_t apart_us, later, size_us, near;

		if (i >= x->kept || j >= y->kept)
			break;
		apart_us = cc_event_at(x, i) - cc_event_at(y, j) - pair->lag_us;
		later = apart_us >> 31 ^ 1; /* is the own one the later? */
		size_us = (apart_us ^ (later - 1)) + (later ^ 1);
		near = (uint32_t)cc_less(size_us, pair->interval_us);
		matched += near;
		i += near | (later ^ 1);
		j += near | later;
	}
	return (int)matched;
}

/* True if a share of matches above one half is significant with this number of events. */
CC_INLINE int cc_events_suffice(uint32_t fewer, uint32_t more, uint32_t interval_us,
				uint32_t span_us)
{
	uint64_t p_q16 = ((2ull * interval_us * more) << 16) / cc_max(span_us, 1);
	uint64_t factor_q32 = 4 * p_q16 * (65536 - p_q16), chance_q32 = 1ull << 32;
	uint32_t i;

	if (p_q16 >= 32768)
		return 0;
	for (i = 0; i < CC_EVENT_TIMES; i++)
		chance_q32 = i < fewer ? chance_q32 * factor_q32 >> 32 : chance_q32;
	return chance_q32 <= CC_EVENT_CHANCE;
}

/* Compares two paths: evidence becomes all or nothing, or stays where there are too few events. */
CC_SEPARATE int cc_events_compare(struct cc_sharing *sharing, struct cc_event_pair *pair,
				  uint32_t now_us, uint32_t rtt_us)
{
	const struct cc_event_times *x, *y;
	uint32_t of_x, of_y, best = 0, which;
	int shares;

	if (!sharing || !pair)
		return 0;
	x = cc_event_times(sharing, pair->me);
	y = cc_event_times(sharing, pair->other);
	pair->from_us = cc_event_from(x);
	if ((cc_event_from(y) - pair->from_us) >> 31 == 0)
		pair->from_us = cc_event_from(y);
	of_x = x->kept - cc_events_before(x, pair->from_us);
	of_y = y->kept - cc_events_before(y, pair->from_us);
	if (!cc_events_suffice(cc_min(of_x, of_y), cc_max(of_x, of_y), pair->interval_us,
			       now_us - pair->from_us))
		return 0;
	for (which = 0; which <= 2 * CC_EVENT_LAGS; which++) {
		pair->lag_us = which * rtt_us / CC_EVENT_LAGS - rtt_us;
		best = cc_max(best, (uint32_t)cc_events_match(sharing, pair));
	}
	shares = 2 * best > cc_min(of_x, of_y);
	cc_sharing_conclude(sharing, pair->me, pair->other, shares);
	return 0;
}

/* Notes an event; is it time to compare? */
CC_INLINE int cc_event_noted(const struct cc_event *ev, struct cc_event_times *x)
{
	uint32_t now_us = (uint32_t)ev->now_us, state = cc_min(ev->state, CC_STATE_LOSS);
	uint64_t at = x->next % CC_EVENT_TIMES;
	int begins = state != x->state && (state == CC_STATE_CWR || state == CC_STATE_RECOVERY);

	x->state = (uint8_t)state;
	if (!x->began_us)
		x->began_us = (now_us + CC_EVENT_SETTLE_ROUNDS * (ev->srtt_8us >> 3)) | 1;
	/* A clock of 32 bits: half an hour after the beginning it would seem to lie ahead again. */
	if (!begins || (!x->kept && (now_us - x->began_us) >> 31))
		return 0;
#ifdef __bpf__
	CC_OPAQUE(at);
#endif
	x->at_us[at < CC_EVENT_TIMES ? at : 0] = now_us;
	x->next = (uint8_t)((at + 1) % CC_EVENT_TIMES);
	x->kept = (uint8_t)cc_min(x->kept + 1u, CC_EVENT_TIMES);
	x->fresh = (uint8_t)((x->fresh + 1u) % CC_EVENTS_PER_EVALUATION);
	return x->fresh == 0;
}

/* Every ACK of a path that has siblings.  A function of its own for its stack. */
CC_NOINLINE void cc_events_on_ack(const struct cc_event *ev, const struct cc_group *group,
				  struct cc_sharing *sharing, uint64_t interval_us,
				  struct cc_decision *out)
{
	uint32_t me = cc_sharing_own(ev), i;
	struct cc_event_pair pair = {0};

	if (!cc_event_noted(ev, cc_event_times(sharing, me)))
		goto done;
	pair.me = me;
	pair.interval_us = interval_us ? (uint32_t)cc_min64(interval_us, CC_EVENT_INTERVAL_MAX)
				       : CC_EVENT_INTERVAL_US;
	for (i = 0; i < CC_SHARING_PATHS; i++) {
		const struct cc_slot *slot = &group->path[i];

		pair.other = i;
		if (i < me && cc_sharing_usable(slot))
			cc_events_compare(
				sharing, &pair, (uint32_t)ev->now_us,
				cc_min(cc_max(ev->srtt_8us, cc_slot_srtt(slot)), CC_MAX_SRTT_8US) >>
					3);
	}
	cc_sharing_close(group, sharing, me, out);
done:
	CC_LEAVE();
}

#endif /* VMCC_EVENT_TIMES_H */
