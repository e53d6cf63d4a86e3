/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Compared paths: their histories, and the evidence of each pair. */
#ifndef VMCC_DETECT_PAIRS_H
#define VMCC_DETECT_PAIRS_H

#include "coupling.h"

/* Position of a pair's evidence; a and b differ. */
CC_INLINE uint32_t cc_sharing_pair(uint32_t a, uint32_t b)
{
	uint32_t high = cc_max(a, b) & (CC_SHARING_PATHS - 1), low = cc_min(a, b);

	uint32_t pair = high * (high - 1) / 2 + low;

	return pair < CC_SHARING_PAIRS ? pair : 0;
}

/*
 * The compared paths below `last`, in whole strides: slots from the group's `end` on are empty, so
 * that two paths cost no look at eight.  The compiler must not make one bound of both: the verifier
 * needs the constant one.
 */
#ifdef __bpf__
#define CC_FOR_COMPARED(i, last)                                                                   \
	for (uint32_t cc_base = 0, cc_last = (last); cc_base < cc_last && cc_is_below(cc_base);    \
	     cc_base = cc_stride(cc_base))                                                         \
		for ((i) = cc_base; (i) < cc_base + CC_STRIDE; (i)++)

CC_INLINE int cc_is_below(uint32_t base)
{
	CC_OPAQUE(base);
	return base < CC_SHARING_PATHS;
}
#else
#define CC_FOR_COMPARED(i, last)                                                                   \
	for (uint32_t cc_last = ((i) = 0, cc_reach(cc_min(last, CC_SHARING_PATHS)));               \
	     (i) < cc_last; (i)++)
#endif
_Static_assert(CC_SHARING_PATHS % CC_STRIDE == 0, "a stride must not pass the compared paths");

/* True if the path has a history, and evidence with others. */
CC_INLINE int cc_is_compared(const struct cc_event *ev)
{
	return cc_own_index(ev) < CC_SHARING_PATHS;
}

/* A path that is compared: a number of its history. */
CC_INLINE uint32_t cc_sharing_own(const struct cc_event *ev)
{
	return ev->self & (CC_SHARING_PATHS - 1);
}

/* 1 if the path can be kept or compared with, else 0. */
CC_INLINE uint64_t cc_sharing_usable(const struct cc_slot *slot)
{
	return cc_slot_counts(slot) & (cc_nonzero(slot->flags & CC_SLOT_LOSS) ^ 1);
}

#endif /* VMCC_DETECT_PAIRS_H */
