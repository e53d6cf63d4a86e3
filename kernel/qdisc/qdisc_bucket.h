/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Token buckets: of the port, and of a class (ceiling). */
#ifndef VMCC_QDISC_BUCKET_H
#define VMCC_QDISC_BUCKET_H

#include "bucket.h"

/* Follows a change of a rate: debts stay the same in bytes. */
static __always_inline void follow_price(uint64_t *free_at, uint64_t *price, u64 now,
					 u64 byte_ns_q20)
{
	if (*price == byte_ns_q20)
		return;
	*free_at = repriced(*free_at, now, *price, byte_ns_q20);
	*price = byte_ns_q20;
}

/* Time at which the port may send again; 0: now. */
static __always_inline u64 held_until(const struct qdisc_config *set, struct qdisc_port *port,
				      u64 now)
{
	follow_price(&port->free_at_ns, &port->paid_q20, now, set->byte_ns_q20);
	if (set->open || !set->byte_ns_q20 || port->free_at_ns <= now)
		return 0;
	return port->free_at_ns;
}

#endif /* VMCC_QDISC_BUCKET_H */
