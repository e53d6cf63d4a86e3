/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Length of the port's own queue that a packet is about to join.
 *
 * A port with several hardware queues (mq) has a queue for each, and the kernel picks one when this
 * program has run.  So the choice is made here as the kernel will make it (netdev_pick_tx): the
 * queue that the packet's socket has, else the one of the queue that the packet came in by, else by
 * its hash.  A driver may choose in another way; the loader refuses those that are known to.
 */
#ifndef VMCC_PORT_ROOT_H
#define VMCC_PORT_ROOT_H

#define MAX_CPUS 1024

/* Something of which every CPU has its own: where that is shows where all that is theirs begins. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} port_own SEC(".maps");

static __always_inline u64 address_of(const void *pointer)
{
	u64 address = 0;

	/* As in kernel_skb(). */
	bpf_probe_read_kernel(&address, sizeof(address), &pointer);
	return address;
}

/* A queue without a lock (pfifo_fast) is counted on every CPU: one adds what another takes away. */
static __always_inline u32 sum_of_cpus(const struct gnet_stats_queue *each)
{
	u32 pptrs_at = bpf_core_field_offset(struct bpf_array, pptrs);
	u64 own = 0;
	u32 cpu, key = 0, sum = 0;

	bpf_probe_read_kernel(&own, sizeof(own), (void *)(address_of(&port_own) + pptrs_at));
	for (cpu = 0; cpu < MAX_CPUS && cpu < port_set.cpus; cpu++) {
		const void *theirs = bpf_map_lookup_percpu_elem(&port_own, &key, cpu);
		const struct gnet_stats_queue *stats;

		if (!theirs)
			break;
		stats = (const void *)((u64)each + (address_of(theirs) - own));
		sum += BPF_CORE_READ(stats, backlog);
	}
	return sum;
}

static __always_inline u32 picked_queue(struct __sk_buff *skb, struct sk_buff *kernel, u32 queues)
{
	struct sock *sk = BPF_CORE_READ(kernel, sk);
	u16 came_by = BPF_CORE_READ(kernel, queue_mapping);

	if (sk) {
		u16 used = BPF_CORE_READ(sk, __sk_common.skc_tx_queue_mapping);

		if (used < queues)
			return used;
	}
	if (came_by)
		return (came_by - 1) % queues;
	return (u64)bpf_get_hash_recalc(skb) * queues >> 32;
}

/* Stores the address of a queue that all packets of the port join, unless each CPU counts its own.
 */
static __always_inline u64 root_length(struct __sk_buff *skb, u64 *address)
{
	struct sk_buff *kernel = kernel_skb(skb);
	struct net_device *dev = BPF_CORE_READ(kernel, dev);
	u32 queues = BPF_CORE_READ(dev, real_num_tx_queues);
	void *first = BPF_CORE_READ(dev, _tx);
	struct netdev_queue *mine = first;
	struct Qdisc *queue;
	u32 sum;

	if (queues > 1)
		mine = first + (u64)picked_queue(skb, kernel, queues) *
				       bpf_core_type_size(struct netdev_queue);
	queue = BPF_CORE_READ(mine, qdisc);
	if (!(BPF_CORE_READ(queue, flags) & TCQ_F_CPUSTATS)) {
		*address = queues > 1 ? 0 : (u64)queue;
		return BPF_CORE_READ(queue, qstats.backlog);
	}
	sum = sum_of_cpus(BPF_CORE_READ(queue, cpu_qstats));
	/* Read one after the other while packets come and go: what is less than nothing is nothing.
	 */
	return (s32)sum < 0 ? 0 : sum;
}

#endif /* VMCC_PORT_ROOT_H */
