/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Virtual queues (phantom queues, HULL: Alizadeh et al., NSDI 2012, section 3): each class has a
 * counter that grows with its packets and drains at a share of the rate that the class has now.
 * Marking by it keeps the real queue nearly empty, at the cost of that part of the rate.
 */
#ifndef VMCC_PORT_VIRTUAL_H
#define VMCC_PORT_VIRTUAL_H

/* A flood that does not listen to marks fills no more than this time's worth: then marking ends
 * soon after the flood. */
#define VIRTUAL_MAX_NS 100000000ull

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

/* The virtual queues that a packet of class `own` meets; `bytes` of it join them. */
__noinline int virtual_lengths(const struct port_config *cfg, u32 own, u32 bytes,
			       struct lengths *out)
{
	struct virtual_queue *queue;
	u64 now = bpf_ktime_get_ns();
	u64 any = 0, rate, left, most;
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
		left = mark_drain(queue->length_q8, rate, cfg->phantom_q16, now - queue->at);
		busy |= (left != 0) << i;
		any += left;
	}
	queue = bpf_map_lookup_elem(&port_virtual, &own);
	if (!queue)
		return 0;
	rate = class_rate(cfg, own, busy);
	most = mark_bytes(rate, VIRTUAL_MAX_NS) << 8;
	bpf_spin_lock(&queue->lock);
	left = mark_drain(queue->length_q8, rate, cfg->phantom_q16, now - queue->at);
	queue->length_q8 = mark_min(left + ((u64)bytes << 8), most);
	queue->at = now;
	bpf_spin_unlock(&queue->lock);
	out->judged = left >> 8;
	out->busy = busy | (left >> 8 != 0) << own;
	return 0;
}

#endif /* VMCC_PORT_VIRTUAL_H */
