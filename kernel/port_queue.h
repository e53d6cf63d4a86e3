/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How long the queues of a port are now. */
#ifndef VMCC_PORT_QUEUE_H
#define VMCC_PORT_QUEUE_H

/* Set before the program is loaded: PORT_SOURCE_... */
const volatile u32 port_source;

/* Written by our own queueing discipline; empty with the other sources. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORT_CLASSES);
	__type(key, u32);
	__type(value, struct port_queue);
} port_queues SEC(".maps");

extern void *bpf_cast_to_kern_ctx(void *skb) __ksym;
extern void *bpf_rdonly_cast(const void *object, __u32 btf_id) __ksym;

/* Queues that one bucket of dev->qdisc_hash may hold besides ours. */
#define FOREIGN_QUEUES 4

/* The queue of class `own`, and which classes have anything queued. */
struct lengths {
	u64 own;
	u32 busy; /* bit i: class i */
};

static __always_inline void leaf_lengths(struct net_device *dev, u32 own, struct lengths *out)
{
	struct hlist_node *node = dev->qdisc_hash[PORT_LEAF_BUCKET].first;
	int i;

	for (i = 0; i < PORT_CLASSES + FOREIGN_QUEUES && node; i++) {
		struct Qdisc *q = bpf_rdonly_cast((void *)node - bpf_core_field_offset(struct Qdisc, hash),
						  bpf_core_type_id_kernel(struct Qdisc));
		u32 class = ((q->handle >> 16) * PORT_LEAF_FACTOR - PORT_LEAF_FIRST) & 0xffff;
		u32 backlog = q->qstats.backlog;

		node = q->hash.next;
		if (class >= PORT_CLASSES || !backlog)
			continue;
		out->busy |= 1u << class;
		if (class == own)
			out->own = backlog;
	}
}

static __always_inline void map_lengths(u32 count, u32 own, struct lengths *out)
{
	u32 i;

	for (i = 0; i < PORT_CLASSES && i < count; i++) {
		u32 key = i;
		struct port_queue *queue = bpf_map_lookup_elem(&port_queues, &key);

		if (!queue || !queue->backlog_bytes)
			continue;
		out->busy |= 1u << i;
		if (i == own)
			out->own = queue->backlog_bytes;
	}
}

static __always_inline void queue_lengths(struct __sk_buff *skb, u32 count, u32 own, struct lengths *out)
{
	struct sk_buff *kskb = bpf_cast_to_kern_ctx(skb);

	out->own = 0;
	out->busy = 0;
	if (port_source == PORT_SOURCE_LEAF) {
		leaf_lengths(kskb->dev, own, out);
	} else if (port_source == PORT_SOURCE_MAP) {
		map_lengths(count, own, out);
	} else {
		out->own = kskb->dev->_tx->qdisc->qstats.backlog;
		out->busy = out->own ? 1 : 0;
	}
}

#endif /* VMCC_PORT_QUEUE_H */
