/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Bins of a path: the common clock, and the values of the bins that are over. */
#ifndef VMCC_DETECT_CLOCK_H
#define VMCC_DETECT_CLOCK_H

#include "detect/pairs.h"

#define CC_SHARING_BLOCK_BITS 4
#define CC_SHARING_BLOCK      (1u << CC_SHARING_BLOCK_BITS)
#define CC_SHARING_SHIFT_MIN  6u /* 64 us */
#define CC_SHARING_SHIFT_MAX  24u
/*
 * In `shift`: the connection's clock and trials are those of a pool (pool.h), which also decides.
 */
#define CC_SHARING_POOLED (1u << 31)
#define CC_SHARING_SETTLING_BINS                                                                   \
	8u /* bins that are left out after one of which nothing is known                           \
	    */

/* A bin is valid if less than 1/CC_SHARING_INVALID_PART of its ACKs carry no information. */
#define CC_SHARING_INVALID_PART 8u

/* A bin's value: share of marks in the low bits, delay above; 0: unknown. */
#define CC_SHARING_MARK_BITS  5
#define CC_SHARING_MARK_MAX   ((1u << CC_SHARING_MARK_BITS) - 1)
#define CC_SHARING_DELAY_BITS 10 /* of a bin's length */
#define CC_SHARING_DELAY_MAX  ((1u << (CC_SHARING_DELAY_BITS + 1)) - 1)

/*
 * Position of a bin in the ring.  The BPF verifier does not follow a remainder, so it is shown a
 * comparison, which the compiler must not know to be always true.
 */
CC_INLINE uint64_t cc_sharing_at(uint32_t bin)
{
	uint64_t at = bin % CC_SHARING_BINS;

#ifdef __bpf__
	CC_OPAQUE(at);
#endif
	return at < CC_SHARING_BINS ? at : 0;
}

/* Position of the next bin in the ring; within it for any `at`. */
CC_INLINE uint64_t cc_sharing_next(uint64_t at)
{
	return at + 1 < CC_SHARING_BINS ? at + 1 : 0;
}

/* True if a pool has the clock and decides.  The kernel has no pools. */
CC_INLINE int cc_sharing_is_pooled(CC_UNUSED const struct cc_sharing *sharing)
{
#ifdef __bpf__
	return 0;
#else
	return !!(sharing->shift & CC_SHARING_POOLED);
#endif
}

/* Keeps bins near the longest RTT; a new length restarts all histories. */
CC_INLINE void cc_sharing_clock(const struct cc_group *group, struct cc_sharing *sharing)
{
	uint32_t longest_us = 0, i, shift = sharing->shift;

	if (cc_sharing_is_pooled(sharing))
		return;
	CC_FOR_COMPARED(i, cc_group_end(group))
	{
		uint32_t srtt = cc_slot_srtt(&group->path[i]);

		srtt = (uint32_t)cc_select(cc_slot_counts(&group->path[i]), srtt, 0);
		longest_us = cc_max(longest_us, srtt >> 3);
	}
	longest_us = cc_min(longest_us, 1u << CC_SHARING_SHIFT_MAX);
	if (shift >= CC_SHARING_SHIFT_MIN && shift <= CC_SHARING_SHIFT_MAX) {
		uint64_t bin_us = 1ull << shift;

		if (longest_us <= bin_us + bin_us / 2 && longest_us >= bin_us / 2)
			return;
	}
	/* From 3/4 to 3/2 of it. */
	shift = cc_bitlen(longest_us * 3 / 4);
	sharing->shift = cc_min(cc_max(shift, CC_SHARING_SHIFT_MIN), CC_SHARING_SHIFT_MAX);
}

/* The value of the bin that has been filled. */
CC_INLINE uint16_t cc_history_value(struct cc_history *h)
{
	uint32_t acks = h->acks, delay;

	if (!acks || CC_SHARING_INVALID_PART * h->ignored > acks) {
		h->settle = CC_SHARING_SETTLING_BINS;
		return 0;
	}
	if (h->settle) {
		h->settle--;
		return 0;
	}
	delay = cc_max(cc_min(h->delays / acks, CC_SHARING_DELAY_MAX), 1);
	return (uint16_t)(delay << CC_SHARING_MARK_BITS |
			  cc_min(h->marked, acks) * CC_SHARING_MARK_MAX / acks);
}

/* Goes on to another bin; one that was skipped is as the last, several are unknown. */
CC_SEPARATE int cc_history_advance(struct cc_history *h, uint32_t bin)
{
	uint32_t skipped, i;
	uint16_t value;

	if (!h)
		return 0;
	skipped = bin - h->bin - 1;
	value = cc_history_value(h);
	h->value[cc_sharing_at(h->bin)] = value;
	if (skipped > 1) {
		h->settle = CC_SHARING_SETTLING_BINS;
		value = 0;
	}
	for (i = 0; i < CC_SHARING_BINS && i < skipped; i++)
		h->value[cc_sharing_at(h->bin + 1 + i)] = value;
	h->bin = bin;
	h->delays = 0;
	h->acks = 0;
	h->marked = 0;
	h->ignored = 0;
	return 0;
}

#endif /* VMCC_DETECT_CLOCK_H */
