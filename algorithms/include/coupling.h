/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The sums over the paths of a connection that the coupled algorithms share.
 *
 * With w windows in packets and T smoothed round-trip times, k is the path with the largest w/T^2
 * and
 *
 *     S = sum over i of w_i * T_k / T_i
 *     c = w_k / S^2 = max(w/T^2) / (sum of w/T)^2
 *
 * c is LIA's alpha / w_total (RFC 6356 section 3).
 *
 * Only established paths with a known round-trip time enter; a path in recovery enters with its
 * ssthresh, because its window is in transit (RFC 6356 section 3).
 *
 * Arithmetic: comparisons are exact (73 bits, in two words).  S is added up in as many fractional
 * bits as let w * 2^s * T fit 64 bits, rounded term by term, and kept in s <= 23 of them.  Since k
 * maximises w/T^2, every term of S is at most sqrt(w_i * w_k) <= 2^20.  Relative error of c below
 * 6e-7 for windows up to 5000 packets, below 1e-4 anywhere in the range.
 *
 * Valid range: w up to 2^20, T from 1/8 us to 10 s; outside it values are clamped.
 */
#ifndef VMCC_COUPLING_H
#define VMCC_COUPLING_H

#include "common.h"

/*
 * 1: paths publish in pub[0] a round-trip time of their own, in 1/8 us, that is meant wherever a
 * sibling's is read; 0 there: the host's.  To be defined before anything is included.
 */
#ifndef CC_OWN_SRTT
#define CC_OWN_SRTT 0
#endif

/* A private copy of the slots: in the kernel, another CPU may be writing them. */
struct cc_view {
	uint32_t w[CC_MAX_PATHS];    /* 0: not there */
	uint32_t srtt[CC_MAX_PATHS]; /* 1/8 us */
};

#define CC_SUM_BITS    37 /* w * 2^places < 2^37, times 10 s in 1/8 us, stays below 2^64 */
#define CC_SUM_PLACES  30 /* fractional bits while adding up, at most */
#define CC_KEPT_PLACES 23 /* fractional bits of the sum, at most */

struct cc_coupling {
	uint64_t sum;	/* S << shift; 0: nothing known, behave as a single path */
	uint32_t shift; /* fractional bits of sum */
	uint32_t w;	/* window of path k */
	uint32_t srtt;	/* srtt of path k, 1/8 us */
};

CC_INLINE uint32_t cc_own_index(const struct cc_event *ev)
{
	return ev->self & (CC_MAX_PATHS - 1);
}

/* Does the slot enter the sums?  0 or 1. */
CC_INLINE uint64_t cc_slot_counts(const struct cc_slot *slot)
{
	return (slot->flags & CC_SLOT_ESTABLISHED) & cc_nonzero(slot->srtt_8us);
}

CC_INLINE uint32_t cc_slot_window(const struct cc_slot *slot)
{
	uint64_t in_transit = cc_nonzero(slot->flags & CC_SLOT_RECOVERY);

	return cc_window((uint32_t)cc_select(in_transit, slot->ssthresh_pkt, slot->cwnd_pkt));
}

CC_INLINE uint32_t cc_known_srtt(uint32_t srtt_8us)
{
	return cc_max(cc_min(srtt_8us, CC_MAX_SRTT_8US), 1);
}

/* The round-trip time of a sibling. */
CC_INLINE uint32_t cc_slot_srtt(const struct cc_slot *slot)
{
	uint32_t own = CC_OWN_SRTT ? (uint32_t)slot->pub[0] : 0;

	if (!CC_OWN_SRTT)
		return slot->srtt_8us;
	return (uint32_t)cc_select(cc_nonzero(own), own, slot->srtt_8us);
}

/* Is there anything to couple with? */
CC_INLINE int cc_is_coupled(const struct cc_event *ev, const struct cc_group *group)
{
	return group && ev->srtt_8us;
}

/* How many other paths of the connection enter the sums? */
CC_INLINE uint64_t cc_siblings(const struct cc_event *ev, const struct cc_group *group)
{
	uint32_t me = cc_own_index(ev), i;
	uint64_t found = 0;

	if (!cc_is_coupled(ev, group))
		return 0;
	for (i = 0; i < CC_MAX_PATHS; i++)
		found += cc_slot_counts(&group->path[i]) & (cc_equal(i, me) ^ 1);
	return found;
}

CC_INLINE int cc_has_sibling(const struct cc_event *ev, const struct cc_group *group)
{
	return cc_siblings(ev, group) != 0;
}

/* Copies the slots; the own path enters with window `w` and the event's srtt. */
CC_INLINE void cc_view_load(struct cc_view *view, const struct cc_event *ev,
			    const struct cc_group *group, uint32_t w)
{
	uint32_t me = cc_own_index(ev), i;

	for (i = 0; i < CC_MAX_PATHS; i++) {
		const struct cc_slot *slot = &group->path[i];
		uint64_t window = cc_select(cc_slot_counts(slot), cc_slot_window(slot), 0);
		uint64_t mine = cc_equal(i, me);

		view->w[i] = (uint32_t)cc_select(mine, w, window);
		view->srtt[i] =
			cc_known_srtt((uint32_t)cc_select(mine, ev->srtt_8us, cc_slot_srtt(slot)));
	}
}

/*
 * Replaces round-trip times by those that paths publish in pub[0], in 1/8 us, and the own one by
 * `own_8us`; 0 leaves the host's.
 */
CC_INLINE void cc_view_filter(struct cc_view *view, const struct cc_event *ev,
			      const struct cc_group *group, uint32_t own_8us)
{
	uint32_t me = cc_own_index(ev), i;

	for (i = 0; i < CC_MAX_PATHS; i++) {
		uint64_t mine = cc_equal(i, me);
		uint32_t filtered =
			(uint32_t)cc_select(mine, own_8us, (uint32_t)group->path[i].pub[0]);

		view->srtt[i] = (uint32_t)cc_select(cc_nonzero(filtered), cc_known_srtt(filtered),
						    view->srtt[i]);
	}
}

CC_INLINE uint32_t cc_view_count(const struct cc_view *view)
{
	uint32_t i, n = 0;

	for (i = 0; i < CC_MAX_PATHS; i++)
		n += (uint32_t)cc_nonzero(view->w[i]);
	return n;
}

/* wa / Ta^2 > wb / Tb^2, exactly; w up to 2^32, T up to 2^27. */
CC_INLINE uint64_t cc_better_path(uint32_t wa, uint32_t ta, uint32_t wb, uint32_t tb)
{
	return cc_product_greater(cc_multiply((uint64_t)wa * tb, tb),
				  cc_multiply((uint64_t)wb * ta, ta));
}

/* round(x * T_k / T) */
CC_INLINE uint64_t cc_scale(uint64_t x, uint32_t best_srtt, uint32_t srtt)
{
#ifndef __bpf__
	/* The same without a division: always so for path k. */
	if (best_srtt == srtt)
		return x;
#endif
	return (x * best_srtt + srtt / 2) / srtt;
}

CC_INLINE void cc_couple(const struct cc_view *view, struct cc_coupling *c)
{
	uint32_t i, widest = 1, places;
	uint64_t sum = 0;

	c->w = 0;
	c->srtt = 1;
	for (i = 0; i < CC_MAX_PATHS; i++) {
		uint64_t better;

		CC_SKIP_UNLESS(view->w[i]);
		better = cc_better_path(view->w[i], view->srtt[i], c->w, c->srtt);
		widest |= view->w[i]; /* has the bit length of the maximum */
		c->w = (uint32_t)cc_select(better, view->w[i], c->w);
		c->srtt = (uint32_t)cc_select(better, view->srtt[i], c->srtt);
	}
	places = cc_min(CC_SUM_PLACES, CC_SUM_BITS - cc_bitlen(widest));
	for (i = 0; i < CC_MAX_PATHS; i++) {
		CC_SKIP_UNLESS(view->w[i]);
		sum += cc_scale((uint64_t)view->w[i] << places, c->srtt, view->srtt[i]);
	}
	c->shift = cc_min(CC_KEPT_PLACES, places);
	places -= c->shift;
	c->sum = (sum + (1ull << places >> 1)) >> places;
}

/*
 * c in Q40: how much all paths together may take per acknowledged packet.  At most 1, because S is
 * at least w_k; hence the second dividend stays below 2^(40 + s).
 */
CC_INLINE uint64_t cc_coupled_increase_q40(const struct cc_coupling *c)
{
	uint32_t up = 63 - cc_bitlen(c->w);

	if (!c->sum)
		return 0;
	return ((((uint64_t)c->w << up) / c->sum) << (2 * c->shift + 40 - up)) / c->sum;
}

#endif /* VMCC_COUPLING_H */
