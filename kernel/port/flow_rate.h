/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Rate of a flow over a sliding window, and the drop probability of an overloaded queue.
 * Freestanding unsigned integers, the same text in BPF and natively.  Bytes are counted in blocks.
 */
#ifndef VMCC_FLOW_RATE_H
#define VMCC_FLOW_RATE_H

#define FLOW_BLOCK_SHIFT 6
/* Window of 2^30 ns: longer than TCP's least retransmission timeout, so that a flow which waits
 * for one keeps its claim. */
#define FLOW_WINDOW_SHIFT 30
#define FLOW_WINDOW_MASK  ((1ull << FLOW_WINDOW_SHIFT) - 1)

static inline unsigned long long flow_blocks(unsigned long long bytes)
{
	return (bytes + (1ull << FLOW_BLOCK_SHIFT) - 1) >> FLOW_BLOCK_SHIFT;
}

/* Blocks in the window that ends at `now`: those of this window, and the part of the one before
 * that the sliding window still covers. */
static inline unsigned long long flow_recent(unsigned long long now, unsigned int before,
					     unsigned int blocks)
{
	unsigned long long left = FLOW_WINDOW_MASK - (now & FLOW_WINDOW_MASK);

	return blocks + (before * (left >> 10) >> (FLOW_WINDOW_SHIFT - 10));
}

/* Drop probability, in 1/2^32, of a queue of `length`: 0 up to `from`, 1 at `full`. */
static inline unsigned long long overload_q32(unsigned long long length, unsigned long long from,
					      unsigned long long full)
{
	if (length <= from)
		return 0;
	if (length >= full)
		return 1ull << 32;
	/* 32 bits of length are enough for the quotient. */
	while ((full - from) >> 31) {
		full >>= 8;
		from >>= 8;
		length >>= 8;
	}
	return ((length - from) << 32) / (full - from + 1);
}

/* Drop probability, in 1/2^32, that leaves a flow of `recent` blocks per window `fair` of them. */
static inline unsigned long long flood_q32(unsigned long long recent, unsigned long long fair)
{
	return recent <= fair ? 0 : overload_q32(recent, fair, recent + fair);
}

#endif /* VMCC_FLOW_RATE_H */
