/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Marking thresholds: one queue (K = C x RTT x lambda) and MQ-ECN (Bai et al., NSDI 2016), a share
 * of that per service queue.
 *
 * K_i = min(quantum_i / T_round, C) x RTT x lambda, T_round the smoothed time of one round of the
 * scheduler; zero (idle) gives K_port.  Freestanding unsigned integers, the same text in BPF and
 * natively.  Rates in bytes per second up to 2^40, times in ns.  Results below a byte are cut off.
 */
#ifndef VMCC_MARKING_H
#define VMCC_MARKING_H

#define MARK_NS_PER_S 1000000000ull
/* Times beyond this are taken as this: keeps products in 64 bits. */
#define MARK_MAX_NS 16000000000ull
/* Thresholds and quanta beyond this (8 TB) are taken as this. */
#define MARK_MAX (1ull << 43)
/* T_round is kept in 1/256 ns, so that smoothing loses nothing that matters. */
#define MARK_ROUND_SHIFT 8
/* Idle slots after which a port counts as never used. */
#define MARK_IDLE_SLOTS 10
/* Limit of a virtual queue beyond its threshold, as time at its class's rate.  Marking continues
 * for at most this time after the end of an unresponsive flood. */
#define MARK_EXCESS_NS 100000000ull

static inline unsigned long long mark_min(unsigned long long a, unsigned long long b)
{
	return a < b ? a : b;
}

/* The time since `at`.  None where another CPU has been here after `now` was read. */
static inline unsigned long long mark_elapsed(unsigned long long now, unsigned long long at)
{
	return now > at ? now - at : 0;
}

/* Bytes that `rate` carries in `ns`. */
static inline unsigned long long mark_bytes(unsigned long long rate, unsigned long long ns)
{
	ns = mark_min(ns, MARK_MAX_NS);
	return rate / MARK_NS_PER_S * ns + rate % MARK_NS_PER_S * ns / MARK_NS_PER_S;
}

/* Time that `bytes` take at `rate`, ns. */
static inline unsigned long long mark_ns(unsigned long long rate, unsigned long long bytes)
{
	if (!rate)
		return MARK_MAX_NS;
	/* 2^34 bytes x 10^9 fit 64 bits. */
	return mark_min(mark_min(bytes, 1ull << 34) * MARK_NS_PER_S / rate, MARK_MAX_NS);
}

/* K_port = C x RTT x lambda; lambda in 1/65536. */
static inline unsigned long long
mark_port_threshold(unsigned long long rate, unsigned long long rtt_ns, unsigned int lambda_q16)
{
	unsigned long long bdp = mark_min(mark_bytes(rate, rtt_ns), MARK_MAX);

	/* In two parts: 43 bits x 32 bits do not fit. */
	return mark_min((bdp >> 16) * lambda_q16 + ((bdp & 0xffff) * lambda_q16 >> 16), MARK_MAX);
}

/* T_round <- 3/4 T_round + 1/4 sample; both in 1/256 ns from here on. */
static inline unsigned long long mark_round_smooth(unsigned long long round_q8,
						   unsigned long long sample_ns)
{
	return (3 * round_q8 + (mark_min(sample_ns, MARK_MAX_NS) << MARK_ROUND_SHIFT)) / 4;
}

/* T_round after an idle time, in slots of one packet's transmission time. */
static inline unsigned long long
mark_round_idle(unsigned long long round_q8, unsigned long long idle_ns, unsigned long long slot_ns)
{
	unsigned long long slots = slot_ns ? idle_ns / slot_ns : MARK_IDLE_SLOTS + 1;
	int i;

	if (slots > MARK_IDLE_SLOTS)
		return 0;
	for (i = 0; i < MARK_IDLE_SLOTS; i++) {
		if (i < (int)slots)
			round_q8 = 3 * round_q8 / 4;
	}
	return round_q8;
}

/* K_i; `quantum_ns` is the time that the queue's quantum takes at the port's rate. */
static inline unsigned long long mark_queue_threshold(unsigned long long k_port,
						      unsigned long long quantum_ns,
						      unsigned long long round_q8)
{
	unsigned long long quantum_q8 = mark_min(quantum_ns, MARK_MAX_NS) << MARK_ROUND_SHIFT;

	if (quantum_q8 >= round_q8)
		return k_port;
	/* A share of less than one, in 1/2^20. */
	return mark_min(k_port, MARK_MAX) * ((quantum_q8 << 20) / round_q8) >> 20;
}

/* A class's share of `rate` while the quanta of backlogged classes sum up to `round_ns`. */
static inline unsigned long long mark_share(unsigned long long rate, unsigned long long quantum_ns,
					    unsigned long long round_ns)
{
	quantum_ns = mark_min(quantum_ns, MARK_MAX_NS);
	if (quantum_ns >= round_ns)
		return rate;
	/* 40 bits x 20 bits. */
	return mark_min(rate, 1ull << 40) * ((quantum_ns << 20) / round_ns) >> 20;
}

/* Remainder for the classes that are not at their ceilings: of the port's rate, and as a round of
 * their quanta. */
struct mark_left {
	unsigned long long rate;
	unsigned long long round_ns;
};

/*
 * Takes a class that waits out of the turns if its ceiling is less than its turns would give it.
 * Classes come in the order of ceiling / quantum, the least first: once one is not taken out, none
 * of those that follow would be.
 */
static inline void mark_take_out(struct mark_left *left, unsigned long long quantum_ns,
				 unsigned long long ceiling)
{
	if (mark_share(left->rate, quantum_ns, left->round_ns) <= ceiling)
		return;
	/* A share is never more than the rate, nor its quantum than the round. */
	left->rate -= mark_min(ceiling, left->rate);
	left->round_ns -= mark_min(quantum_ns, left->round_ns);
}

/* Duration of a round of those, while the classes taken out have their part of `rate`. */
static inline unsigned long long mark_round_left(const struct mark_left *left,
						 unsigned long long rate)
{
	unsigned long long part = mark_min(left->rate, 1ull << 40);

	rate = mark_min(rate, 1ull << 40);
	if (part >= rate)
		return mark_min(left->round_ns, MARK_MAX_NS);
	part = (part << 20) / rate;
	if (!part)
		return left->round_ns ? MARK_MAX_NS : 0;
	return mark_min((mark_min(left->round_ns, MARK_MAX_NS) << 20) / part, MARK_MAX_NS);
}

/* Length of a virtual queue, in 1/256 bytes, after it drained for `ns` at a share (1/65536) of
 * `rate`. */
static inline unsigned long long mark_drain(unsigned long long length_q8, unsigned long long rate,
					    unsigned int share_q16, unsigned long long ns)
{
	unsigned long long drained = mark_min(rate, 1ull << 40) * mark_min(share_q16, 65536) >> 8;

	drained = mark_bytes(drained, ns);
	return length_q8 > drained ? length_q8 - drained : 0;
}

/* A virtual queue, in 1/256 bytes, after `bytes` joined it.  A class without a threshold has
 * MARK_MAX or more. */
static inline unsigned long long mark_fill(unsigned long long length_q8, unsigned long long bytes,
					   unsigned long long rate, unsigned long long threshold)
{
	unsigned long long most =
		mark_min(mark_bytes(mark_min(rate, 1ull << 40), MARK_EXCESS_NS), MARK_MAX);

	if (threshold < MARK_MAX)
		most += threshold;
	return mark_min(mark_min(length_q8, MARK_MAX << 8) + (mark_min(bytes, 1ull << 32) << 8),
			most << 8);
}

#endif /* VMCC_MARKING_H */
