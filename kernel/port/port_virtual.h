/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Virtual queues (phantom queues, HULL: Alizadeh et al., NSDI 2012, section 3): each class has a
 * counter that grows with its packets and drains at a share of the rate that the class has now.
 * Marking by it keeps the real queue nearly empty, at the cost of that part of the rate.
 */
#ifndef VMCC_PORT_VIRTUAL_H
#define VMCC_PORT_VIRTUAL_H

struct virtual_queue {
	struct bpf_spin_lock lock;
	u32 reserved;
	u64 length_q8; /* 1/256 bytes, as it was at `at` */
	u64 at;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORT_CLASSES);
	__type(key, u32);
	__type(value, struct virtual_queue);
} port_virtual SEC(".maps");

/* The virtual queues that a packet of class `own` meets. */
__noinline int virtual_lengths(const struct port_config *cfg, u32 own, struct lengths *out)
{
	struct virtual_queue *queue;
	u64 now = bpf_ktime_get_ns();
	u64 any = 0, rate, left;
	u32 i, busy = 0;

	if (!cfg || !out || own >= PORT_CLASSES)
		return 0;
	for (i = 0; i < PORT_CLASSES && i < cfg->class_count; i++) {
		const struct port_class *c = class_of(cfg, i);
		u32 key = i;

		queue = bpf_map_lookup_elem(&port_virtual, &key);
		if (!queue || i == own)
			continue;
		/* At least at this rate it has drained since it was looked at. */
		rate = cfg->strict && !any ? c->ceiling : c->right;
		left = mark_drain(queue->length_q8, rate, cfg->phantom_q16,
				  mark_elapsed(now, queue->at));
		busy |= (left != 0) << i;
		any += left;
	}
	queue = bpf_map_lookup_elem(&port_virtual, &own);
	if (!queue)
		return 0;
	rate = class_rate(cfg, own, busy);
	bpf_spin_lock(&queue->lock);
	left = mark_drain(queue->length_q8, rate, cfg->phantom_q16, mark_elapsed(now, queue->at));
	queue->length_q8 = left;
	/* Another CPU may have read a later time and got the lock first. */
	queue->at = now > queue->at ? now : queue->at;
	bpf_spin_unlock(&queue->lock);
	out->judged = left >> 8;
	out->busy = busy | (left >> 8 != 0) << own;
	out->rate = rate;
	return 0;
}

/* A packet of `bytes` joins its class's virtual queue, after that was held against `threshold`. */
__noinline int virtual_join(u32 own, u32 bytes, u64 rate, u64 threshold)
{
	struct virtual_queue *queue = bpf_map_lookup_elem(&port_virtual, &own);

	if (!queue)
		return 0;
	bpf_spin_lock(&queue->lock);
	queue->length_q8 = mark_fill(queue->length_q8, bytes, rate, threshold);
	bpf_spin_unlock(&queue->lock);
	return 0;
}

#endif /* VMCC_PORT_VIRTUAL_H */
