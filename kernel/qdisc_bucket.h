/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Token buckets: of the port, and of a class (ceiling). */
#ifndef VMCC_QDISC_BUCKET_H
#define VMCC_QDISC_BUCKET_H

static __always_inline u64 cost_ns(u64 bytes, u64 byte_ns_q20)
{
	return bytes * byte_ns_q20 >> QDISC_FRACTION;
}

/* When what has been sent is paid for, after `bytes` more.  An idle time is worth at most a burst.
 */
static __always_inline u64 paid_at(u64 free_at, u64 now, u64 burst_ns, u64 bytes, u64 byte_ns_q20)
{
	if (free_at + burst_ns < now)
		free_at = now - burst_ns;
	return free_at + cost_ns(bytes, byte_ns_q20);
}

/* When the port may send again; 0: now. */
static __always_inline u64 held_until(const struct qdisc_config *set, const struct qdisc_port *port,
				      u64 now)
{
	if (set->open || !set->byte_ns_q20 || port->free_at_ns <= now)
		return 0;
	return port->free_at_ns;
}

#endif /* VMCC_QDISC_BUCKET_H */
