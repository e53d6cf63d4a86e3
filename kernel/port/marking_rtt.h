/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The RTT of many connections as one number: the 25th percentile, each sample weighted by the bytes
 * that its connection sent since the one before.
 *
 * A minimum belongs to the flow with the nearest peer, or with a forged RTT.  A sender of a share x
 * of the bytes lowers this percentile only if x is over a quarter, and raises it above everybody
 * else's only if x is three quarters or more.  Low, because queues and delayed acknowledgments make
 * samples longer and nothing makes them shorter.
 */
#ifndef VMCC_MARKING_RTT_H
#define VMCC_MARKING_RTT_H

#include "marking.h"

/* Four buckets per octave, from a microsecond up to MARK_MAX_NS. */
#define MARK_RTT_BUCKETS 96
#define MARK_RTT_SHIFT	 8 /* four units of 2^8 ns are the first bucket's beginning */
#define MARK_RTT_PART	 4 /* of the bytes, one in this many has shorter RTTs */

static inline unsigned int mark_rtt_bucket(unsigned long long ns)
{
	unsigned long long units = mark_min(ns, MARK_MAX_NS) >> MARK_RTT_SHIFT;
	unsigned int octave = 0, step;

	for (step = 16; step; step /= 2) {
		if (units >> step >= 4) {
			units >>= step;
			octave += step;
		}
	}
	return units < 4 ? 0 : (unsigned int)(octave * 4 + units - 4);
}

/* Lower bound of bucket `index`, ns; its width follows. */
static inline unsigned long long mark_rtt_begin(unsigned int index)
{
	return (4ull + (index & 3)) << (index / 4 + MARK_RTT_SHIFT);
}

static inline unsigned long long mark_rtt_width(unsigned int index)
{
	return 1ull << (index / 4 + MARK_RTT_SHIFT);
}

/* Zero if there are no bytes.  Bytes of a bucket beyond 2^50 would count wrong. */
static inline unsigned long long mark_rtt_quantile(const unsigned long long *bytes)
{
	unsigned long long before = 0;
	unsigned int i;

	for (i = 0; i < MARK_RTT_BUCKETS; i++)
		before += bytes[i];
	before /= MARK_RTT_PART;
	for (i = 0; i < MARK_RTT_BUCKETS; i++) {
		if (bytes[i] > before)
			return mark_rtt_begin(i) +
			       (mark_rtt_width(i) * ((before << 10) / bytes[i]) >> 10);
		before -= bytes[i];
	}
	return 0;
}

/* A bucket's decay from one window to the next: half is gone after five. */
static inline unsigned long long mark_rtt_fade(unsigned long long bytes)
{
	return bytes - (bytes + 7) / 8;
}

#endif /* VMCC_MARKING_RTT_H */
