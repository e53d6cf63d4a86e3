/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Detection of shared bottlenecks by RFC 8382, with a sender's RTTs.
 *
 * Time is cut into intervals T, the same for all paths.  Section 3.2, over the last M = 30 of them,
 * or N = 50:
 *
 *   skewness     samples below their mean less those above, as a share of all
 *   variability  the mean deviation from the mean of the interval before (MAD)
 *   oscillation  how often an interval's mean crosses the long mean by 0.7 of that, per interval
 *   loss         as a share
 *
 * Section 3.3: paths whose skewness is below 0.1, or below 0.3 if it was, or that lose more than
 * 5 %, cross a bottleneck; of those two share one if their oscillation, variability, and skewness,
 * or loss if it is high, are alike.
 *
 * Deviations: samples are round-trip times, since a sender does not see one-way delays, and include
 * the way back.  Means over M and N intervals are exponential, which takes a word each instead of
 * fifty.  A sender's episodes of fast recovery count as losses.  Pairs are compared, not
 * neighbours in an order.  They are compared from the N-th interval on.
 *
 * Units: delays in 2^-20 of T, shares in 2^-16.
 *
 * Valid range: T from 100 us to 100 s; of an interval the first 4095 ACKs count.  Any content of
 * the memory is accepted.
 */
#ifndef VMCC_STATISTICS_H
#define VMCC_STATISTICS_H

#include "sharing.h"

#define CC_STATISTICS_T_US  350000u
#define CC_STATISTICS_T_MIN 100u
#define CC_STATISTICS_T_MAX 100000000u
#define CC_STATISTICS_M	    30
#define CC_STATISTICS_N	    50
#define CC_STATISTICS_DELAY 20 /* bits; T is one */
#define CC_STATISTICS_SHARE 16 /* bits; all is one */
#define CC_STATISTICS_ACKS  4095u

/* RFC 8382, section 3.3, in percent. */
#define CC_STATISTICS_C_S   10
#define CC_STATISTICS_C_H   30
#define CC_STATISTICS_P_S   15u
#define CC_STATISTICS_P_F   10u
#define CC_STATISTICS_P_V   70u
#define CC_STATISTICS_P_MAD 10u
#define CC_STATISTICS_P_L   5u
#define CC_STATISTICS_P_D   10u

/* One path, as this detector sees it: instead of struct cc_history. */
struct CC_PRIVATE cc_statistics {
	uint32_t interval; /* that is being filled */
	uint32_t acks;	   /* in it; and sums over them: */
	uint32_t delays;
	uint32_t deviations;
	int32_t below; /* the long mean, less above it */
	uint32_t packets;
	uint32_t losses;
	uint32_t mean;	/* of the last interval */
	uint32_t known; /* intervals, at most N */
	/* Over M intervals, and over N. */
	uint32_t long_mean;
	int32_t skewness;
	uint32_t variability;
	uint32_t oscillation;
	uint32_t loss;
	uint8_t state; /* enum cc_state, at the last ACK */
	uint8_t above; /* the side of the last crossing */
	uint8_t congested;
	uint8_t reserved;
	uint32_t unused[2];
};
_Static_assert(sizeof(struct cc_statistics) == sizeof(struct cc_history), "it takes its place");

CC_INLINE struct cc_statistics *cc_statistics(struct cc_sharing *sharing, uint32_t path)
{
	return (struct cc_statistics *)&sharing->path[path & (CC_SHARING_PATHS - 1)];
}

/* An exponential mean over n, that is the plain mean while there are fewer. */
CC_INLINE int32_t cc_mean_add(int32_t mean, int32_t sample, uint32_t known, uint32_t n)
{
	int64_t more = (int64_t)sample - mean;
	uint64_t size = (uint64_t)(more < 0 ? -more : more);
	uint64_t over = cc_min(known + 1, n);
	int64_t step = (int64_t)((size + over / 2) / over);

	return (int32_t)(mean + (more < 0 ? -step : step));
}

CC_INLINE uint32_t cc_percent(uint32_t of, uint32_t percent)
{
	return (uint32_t)((uint64_t)of * percent / 100);
}

/* Crosses the long mean by enough to count?  Changes the side. */
CC_INLINE int32_t cc_statistics_crosses(struct cc_statistics *s, uint32_t mean)
{
	uint32_t reach = cc_percent(s->variability, CC_STATISTICS_P_V);
	uint8_t above = s->above;

	if (mean > s->long_mean + reach)
		above = 1;
	else if (mean + reach < s->long_mean)
		above = 0;
	if (above == s->above)
		return 0;
	s->above = above;
	return 1 << CC_STATISTICS_SHARE;
}

/* True if the path crosses a bottleneck (section 3.3, step 1). */
CC_INLINE uint8_t cc_statistics_congested(const struct cc_statistics *s)
{
	int32_t most = s->congested ? CC_STATISTICS_C_H : CC_STATISTICS_C_S;

	return s->skewness < (most << CC_STATISTICS_SHARE) / 100 ||
	       s->loss > cc_percent(1u << CC_STATISTICS_SHARE, CC_STATISTICS_P_L);
}

/* An interval is over. */
CC_SEPARATE int cc_statistics_turn(struct cc_statistics *s, uint32_t interval)
{
	const uint32_t m = CC_STATISTICS_M, n = CC_STATISTICS_N;
	uint32_t acks, known, mean, below;
	int32_t skewness;
	uint64_t loss;

	if (!s)
		return 0;
	acks = cc_max(s->acks, 1);
	known = cc_min(s->known, n);
	mean = s->delays / acks;
	below = (uint32_t)(s->below < 0 ? -s->below : s->below);
	skewness = (int32_t)(((uint64_t)below << CC_STATISTICS_SHARE) / acks);
	loss = ((uint64_t)s->losses << CC_STATISTICS_SHARE) / cc_max(s->packets, 1);
	if (s->acks) {
		/* Of the first there is no mean to compare with. */
		if (known) {
			skewness = s->below < 0 ? -skewness : skewness;
			s->skewness = cc_mean_add(s->skewness, skewness, known - 1, m);
			s->variability = (uint32_t)cc_mean_add((int32_t)s->variability,
							       (int32_t)(s->deviations / acks),
							       known - 1, m);
			s->oscillation =
				(uint32_t)cc_mean_add((int32_t)s->oscillation,
						      cc_statistics_crosses(s, mean), known - 1, n);
		}
		s->loss = (uint32_t)cc_mean_add((int32_t)s->loss, (int32_t)cc_min64(loss, 65536),
						known, n);
		s->long_mean =
			(uint32_t)cc_mean_add((int32_t)s->long_mean, (int32_t)mean, known, m);
		s->mean = mean;
		s->congested = cc_statistics_congested(s);
		s->known = cc_min(known + 1, n);
	}
	s->interval = interval;
	s->acks = 0;
	s->delays = 0;
	s->deviations = 0;
	s->below = 0;
	s->packets = 0;
	s->losses = 0;
	return 0;
}

/* True if two values differ by less than `percent` of the larger. */
CC_INLINE int cc_statistics_near(uint32_t a, uint32_t b, uint32_t percent)
{
	return 100ull * cc_distance(a, b) < (uint64_t)percent * cc_max(a, b);
}

/* Section 3.3, steps 2 to 5. */
CC_INLINE int cc_statistics_alike(const struct cc_statistics *x, const struct cc_statistics *y)
{
	const uint32_t all = 1u << CC_STATISTICS_SHARE;
	uint32_t high = cc_percent(all, CC_STATISTICS_P_L);
	int64_t skew = (int64_t)x->skewness - y->skewness;

	if (!x->congested || !y->congested ||
	    cc_distance(x->oscillation, y->oscillation) >= cc_percent(all, CC_STATISTICS_P_F) ||
	    !cc_statistics_near(x->variability, y->variability, CC_STATISTICS_P_MAD))
		return 0;
	if (x->loss > high && y->loss > high)
		return cc_statistics_near(x->loss, y->loss, CC_STATISTICS_P_D);
	return (skew < 0 ? -skew : skew) < cc_percent(all, CC_STATISTICS_P_S);
}

/* Compares two paths after an interval. */
CC_SEPARATE int cc_statistics_compare(struct cc_sharing *sharing, uint32_t me, uint32_t other)
{
	const struct cc_statistics *x, *y;

	if (!sharing)
		return 0;
	x = cc_statistics(sharing, me);
	y = cc_statistics(sharing, other);
	if (x->known >= CC_STATISTICS_N && y->known >= CC_STATISTICS_N)
		cc_sharing_conclude(sharing, me, other, cc_statistics_alike(x, y));
	return 0;
}

CC_INLINE void cc_statistics_add(const struct cc_event *ev, struct cc_statistics *s,
				 uint32_t rtt_us, uint32_t t_us)
{
	uint64_t delay = ((uint64_t)rtt_us << CC_STATISTICS_DELAY) / t_us;
	uint32_t d = (uint32_t)cc_min64(delay, 1u << CC_STATISTICS_DELAY);

	if (ev->state == CC_STATE_RECOVERY && s->state != CC_STATE_RECOVERY)
		s->losses++;
	s->state = (uint8_t)cc_min(ev->state, CC_STATE_LOSS);
	s->packets += cc_min(ev->acked_pkt, CC_MAX_CWND_PKT);
	if (s->acks >= CC_STATISTICS_ACKS)
		return;
	s->acks++;
	s->delays += d;
	s->deviations += cc_distance(d, s->mean);
	s->below += (int32_t)cc_less(d, s->long_mean) - (int32_t)cc_less(s->long_mean, d);
}

/* Every ACK of a path that has siblings.  A function of its own for its stack. */
CC_NOINLINE void cc_statistics_on_ack(const struct cc_event *ev, const struct cc_group *group,
				      struct cc_sharing *sharing, uint64_t t_us,
				      struct cc_decision *out)
{
	uint32_t me = cc_sharing_own(ev), rtt_us = ev->rtt_us ? ev->rtt_us : ev->srtt_8us >> 3, i;
	struct cc_statistics *s = cc_statistics(sharing, me);
	uint32_t interval, length_us = CC_STATISTICS_T_US;

	if (t_us)
		length_us =
			cc_max((uint32_t)cc_min64(t_us, CC_STATISTICS_T_MAX), CC_STATISTICS_T_MIN);
	interval = (uint32_t)(ev->now_us / length_us);
	if (interval != s->interval) {
		cc_statistics_turn(s, interval);
		for (i = 0; i < CC_SHARING_PATHS; i++) {
			if (i < me && cc_sharing_usable(&group->path[i]))
				cc_statistics_compare(sharing, me, i);
		}
		cc_sharing_close(group, sharing, me, out);
	}
	cc_statistics_add(ev, s, rtt_us, length_us);
	CC_LEAVE();
}

#endif /* VMCC_STATISTICS_H */
