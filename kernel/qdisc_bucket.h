/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Token buckets: of the port, of a class (ceiling), and of the VM, which its ports share. */
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

/* Takes `bytes` from the VM's bucket.  Losing eight times against other ports lets a packet pass
 * unpaid. */
static __always_inline void pay_vm(struct qdisc_vm *vm, u64 now, u64 bytes)
{
	u64 seen, next;
	int i;

	for (i = 0; i < 8; i++) {
		seen = *(volatile u64 *)&vm->free_at_ns;
		next = paid_at(seen, now, vm->burst_ns, bytes, vm->byte_ns_q20);
		if (__sync_val_compare_and_swap(&vm->free_at_ns, seen, next) == seen)
			return;
	}
}

/* When the port or its VM may send again; 0: now. */
static __always_inline u64 held_until(const struct qdisc_config *set, const struct qdisc_port *port,
				      const struct qdisc_vm *vm, u64 now)
{
	u64 until = 0;

	if (set->open)
		return 0;
	if (set->byte_ns_q20 && port->free_at_ns > now)
		until = port->free_at_ns;
	if (vm->byte_ns_q20 && vm->free_at_ns > now && vm->free_at_ns > until)
		until = vm->free_at_ns;
	return until;
}

#endif /* VMCC_QDISC_BUCKET_H */
