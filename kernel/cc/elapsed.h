/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Time in few bits, the same text in BPF and natively. */
#ifndef VMCC_ELAPSED_H
#define VMCC_ELAPSED_H

/* A clock of 16 bits that ticks every 128 us and comes round every 8.4 s. */
#define SHORT_TICK_SHIFT 7

static inline unsigned short short_clock(unsigned long long now_us)
{
	return (unsigned short)(now_us >> SHORT_TICK_SHIFT);
}

/*
 * True if `wait_us` has passed since `then`.  After a longer silence the clock may have wrapped;
 * the answer is then late by at most one wait.  A wait is between one tick and half of the clock.
 */
static inline int short_passed(unsigned short now, unsigned short then, unsigned int wait_us)
{
	unsigned int wait = wait_us >> SHORT_TICK_SHIFT;

	if (!wait)
		wait = 1;
	if (wait > 0x8000)
		wait = 0x8000;
	return (unsigned short)(now - then) >= wait;
}

/*
 * A time in 16 bits: 11 of its own, and how many are missing below them.  It is exact below 2048,
 * and elsewhere too short by less than a thousandth.
 */
#define BRIEF_BITS 11

static inline unsigned short brief(unsigned int time)
{
	unsigned int left_out = 0;

	for (unsigned int step = 16; step; step >>= 1)
		if (time >> (left_out + step - 1) >> BRIEF_BITS)
			left_out += step;
	return (unsigned short)(left_out << BRIEF_BITS | time >> left_out);
}

static inline unsigned int in_full(unsigned short kept)
{
	return (kept & ((1u << BRIEF_BITS) - 1)) << (kept >> BRIEF_BITS);
}

#endif /* VMCC_ELAPSED_H */
