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

/* Slots that a loop over paths reads before it checks for more. */
#define CC_STRIDE 4
_Static_assert(CC_MAX_PATHS % CC_STRIDE == 0, "a stride must not pass the end of the array");

/*
 * Every path that may be there.  In the kernel another CPU may write the slots, and `end`, between
 * two loops: what a later loop derives from an earlier one must hold for any content.
 */
#ifdef __bpf__
#define CC_FOR_PATHS(i, group)                                                                     \
	for (uint32_t cc_base = 0, cc_last = *(volatile const uint32_t *)&(group)->end;            \
	     cc_base < CC_MAX_PATHS && cc_base < cc_last; cc_base = cc_stride(cc_base))            \
		for ((i) = cc_base; (i) < cc_base + CC_STRIDE; (i)++)

/* The verifier shall see a number, and the compiler none from which it counts the rounds. */
CC_INLINE uint32_t cc_stride(uint32_t base)
{
	base += CC_STRIDE;
	CC_OPAQUE(base);
	return base;
}
#else
#define CC_FOR_PATHS(i, group)                                                                     \
	for (uint32_t cc_last = ((i) = 0, cc_reach((group)->end)); (i) < cc_last; (i)++)

/* Whole strides, as there. */
CC_INLINE uint32_t cc_reach(uint32_t end)
{
	return (cc_min(end, CC_MAX_PATHS) + CC_STRIDE - 1) & ~(CC_STRIDE - 1u);
}
#endif

/* Slots from here on are empty; another CPU may write it meanwhile. */
CC_INLINE uint32_t cc_group_end(const struct cc_group *group)
{
	return *(volatile const uint32_t *)&group->end;
}

/* The own path as it enters the sums. */
struct cc_own {
	uint32_t index;
	uint32_t w;
	uint32_t srtt; /* 1/8 us */
};

/* A path as it enters the sums. */
struct cc_term {
	uint32_t w;    /* 0: not there */
	uint32_t srtt; /* 1/8 us */
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

/* 1 if the slot enters the sums, else 0. */
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

/* True if there are siblings and an RTT. */
CC_INLINE int cc_is_coupled(const struct cc_event *ev, const struct cc_group *group)
{
	return group && ev->srtt_8us;
}

CC_SEPARATE int cc_others(const struct cc_group *group, uint32_t me)
{
	uint64_t found = 0;
	uint32_t i;

	if (!group)
		return 0;
	CC_FOR_PATHS(i, group)
	found += cc_slot_counts(&group->path[i]) & (cc_equal(i, me) ^ 1);
	return (int)found;
}

/* Number of other paths of the connection that enter the sums. */
CC_INLINE uint32_t cc_siblings(const struct cc_event *ev, const struct cc_group *group)
{
	return cc_is_coupled(ev, group) ? (uint32_t)cc_others(group, cc_own_index(ev)) : 0;
}

CC_INLINE int cc_has_sibling(const struct cc_event *ev, const struct cc_group *group)
{
	return cc_siblings(ev, group) != 0;
}

/* The own path, with window `w` and the event's srtt. */
CC_INLINE struct cc_own cc_own(const struct cc_event *ev, uint32_t w)
{
	struct cc_own own = {cc_own_index(ev), w, ev->srtt_8us};

	return own;
}

/* The own path, with a round-trip time of its own (CC_OWN_SRTT); 0: the host's. */
CC_INLINE struct cc_own cc_own_filtered(const struct cc_event *ev, uint32_t w, uint32_t own_8us)
{
	struct cc_own own = cc_own(ev, w);

	own.srtt = (uint32_t)cc_select(cc_nonzero(own_8us), own_8us, own.srtt);
	return own;
}

CC_INLINE struct cc_term cc_term(const struct cc_group *group, uint32_t i, const struct cc_own *own)
{
	const struct cc_slot *slot = &group->path[i];
	uint64_t window = cc_select(cc_slot_counts(slot), cc_slot_window(slot), 0);
	uint64_t mine = cc_equal(i, own->index);
	struct cc_term term = {
		(uint32_t)cc_select(mine, own->w, window),
		cc_known_srtt((uint32_t)cc_select(mine, own->srtt, cc_slot_srtt(slot)))};

	return term;
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

/* Path k, of those that were looked at. */
struct cc_best {
	uint32_t w; /* 0: none was there */
	uint32_t srtt;
	uint32_t widest; /* has the bit length of the largest window */
};

CC_INLINE void cc_best_of(struct cc_best *best, const struct cc_term *term)
{
	uint64_t better = cc_better_path(term->w, term->srtt, best->w, best->srtt);

	best->widest |= term->w;
	best->w = (uint32_t)cc_select(better, term->w, best->w);
	best->srtt = (uint32_t)cc_select(better, term->srtt, best->srtt);
}

#define CC_BEST_AT_FIRST {0, 1, 1}

/* S is added up in as many places as there is room for, ... */
CC_INLINE void cc_couple_begin(const struct cc_best *best, struct cc_coupling *c)
{
	c->w = best->w;
	c->srtt = best->srtt;
	c->shift = cc_min(CC_SUM_PLACES, CC_SUM_BITS - cc_bitlen(best->widest));
	c->sum = 0;
}

CC_INLINE void cc_couple_add(const struct cc_best *best, const struct cc_term *term,
			     struct cc_coupling *c)
{
	/* A path that has grown since must not overflow. */
	uint64_t w = cc_min(term->w, best->widest);

	c->sum += cc_scale(w << c->shift, c->srtt, term->srtt);
}

/* ... and kept in fewer. */
CC_INLINE void cc_couple_end(struct cc_coupling *c)
{
	uint32_t kept = cc_min(CC_KEPT_PLACES, c->shift), surplus = c->shift - kept;

	c->shift = kept;
	c->sum = (c->sum + (1ull << surplus >> 1)) >> surplus;
}

CC_INLINE void cc_couple(const struct cc_group *group, const struct cc_own *own,
			 struct cc_coupling *c)
{
	struct cc_best best = CC_BEST_AT_FIRST;
	uint32_t i;

	CC_FOR_PATHS(i, group)
	{
		struct cc_term term = cc_term(group, i, own);

		CC_SKIP_UNLESS(term.w);
		cc_best_of(&best, &term);
	}
	cc_couple_begin(&best, c);
	CC_FOR_PATHS(i, group)
	{
		struct cc_term term = cc_term(group, i, own);

		CC_SKIP_UNLESS(term.w);
		cc_couple_add(&best, &term, c);
	}
	cc_couple_end(c);
}

/*
 * c in Q40: how much all paths together may take per acknowledged packet.  At most 1, because S is
 * at least w_k, unless path k has changed between the loops; hence the second dividend stays below
 * 2^(40 + s).
 */
CC_INLINE uint64_t cc_coupled_increase_q40(const struct cc_coupling *c)
{
	uint32_t up = 63 - cc_bitlen(c->w);

	if (!c->sum)
		return 0;
	return cc_min64(((((uint64_t)c->w << up) / c->sum) << (2 * c->shift + 40 - up)) / c->sum,
			CC_CREDIT_ONE);
}

#endif /* VMCC_COUPLING_H */
