/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Token buckets as times: a bucket is free from the moment on at which what was sent is paid for.
 * Freestanding unsigned integers, the same text in BPF and natively.  Costs are in ns per byte with
 * 20 fractional bits, times in ns.
 */
#ifndef VMCC_BUCKET_H
#define VMCC_BUCKET_H

#define BUCKET_FRACTION 20
/* Nobody owes more than this, some five hours: keeps products in 64 bits. */
#define BUCKET_MAX_NS (1ull << 44)

static inline unsigned long long cost_ns(unsigned long long bytes, unsigned long long byte_ns_q20)
{
	return bytes * byte_ns_q20 >> BUCKET_FRACTION;
}

/* Time at which all sent bytes are paid for, after `bytes` more.  Idle time counts as at most a
 * burst. */
static inline unsigned long long paid_at(unsigned long long free_at, unsigned long long now,
					 unsigned long long burst_ns, unsigned long long bytes,
					 unsigned long long byte_ns_q20)
{
	if (free_at + burst_ns < now)
		free_at = now - burst_ns;
	return free_at + cost_ns(bytes, byte_ns_q20);
}

/* Time at which the debt is paid once a byte costs `to` instead of `from`: the debt is in bytes. */
static inline unsigned long long repriced(unsigned long long free_at, unsigned long long now,
					  unsigned long long from, unsigned long long to)
{
	unsigned long long owed = free_at > now ? free_at - now : 0;

	if (from == to || !owed)
		return free_at;
	if (!from || !to)
		return now;
	owed = owed < BUCKET_MAX_NS ? owed : BUCKET_MAX_NS - 1;
	/* Bytes first: 44 bits and 20 fractional ones fit. */
	owed = (owed << BUCKET_FRACTION) / from;
	/* A price of up to a millisecond has 40 bits: more than 16 MB are not owed. */
	owed = owed < 1ull << 24 ? owed : 1ull << 24;
	return now + cost_ns(owed, to);
}

#endif /* VMCC_BUCKET_H */
