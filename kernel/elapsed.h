/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Time on a clock of 32 bits, the same text in BPF and natively. */
#ifndef VMCC_ELAPSED_H
#define VMCC_ELAPSED_H

/*
 * Have `wait` microseconds passed since `then`?  After any silence: the clock comes round every 72
 * minutes, and only in the `wait` that follows is the answer late.
 */
static inline int time_passed(unsigned int now, unsigned int then, unsigned int wait)
{
	return now - then >= wait;
}

#endif /* VMCC_ELAPSED_H */
