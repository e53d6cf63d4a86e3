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

/* The queue of class `own`, and the round: what all classes that have anything queued send in one. */
struct lengths {
	u64 own;
	u64 round_ns;
};

static __always_inline void add_length(const struct port_config *cfg, u32 class, u32 own, u64 backlog,
				       struct lengths *out)
{
	/* Sums, not bits per class: what the verifier cannot tell apart it need not visit apart. */
	out->round_ns += backlog ? cfg->classes[class & (PORT_CLASSES - 1)].quantum_ns : 0;
	out->own += class == own ? backlog : 0;
}

static __always_inline void leaf_lengths(struct net_device *dev, const struct port_config *cfg, u32 own,
					 struct lengths *out)
{
	struct hlist_node *node = dev->qdisc_hash[PORT_LEAF_BUCKET].first;
	int i;

	for (i = 0; i < PORT_CLASSES + FOREIGN_QUEUES && node; i++) {
		struct Qdisc *q = bpf_rdonly_cast((void *)node - bpf_core_field_offset(struct Qdisc, hash),
						  bpf_core_type_id_kernel(struct Qdisc));
		u32 class = ((q->handle >> 16) * PORT_LEAF_FACTOR - PORT_LEAF_FIRST) & 0xffff;

		if (class < PORT_CLASSES)
			add_length(cfg, class, own, q->qstats.backlog, out);
		node = q->hash.next;
	}
}

static __always_inline void map_lengths(const struct port_config *cfg, u32 own, struct lengths *out)
{
	u32 i;

	for (i = 0; i < PORT_CLASSES && i < cfg->class_count; i++) {
		u32 key = i;
		struct port_queue *queue = bpf_map_lookup_elem(&port_queues, &key);

		if (queue)
			add_length(cfg, i, own, queue->backlog_bytes, out);
	}
}

static __always_inline void queue_lengths(struct __sk_buff *skb, const struct port_config *cfg, u32 own,
					  struct lengths *out)
{
	struct sk_buff *kskb = bpf_cast_to_kern_ctx(skb);

	out->own = 0;
	out->round_ns = 0;
	if (port_source == PORT_SOURCE_LEAF)
		leaf_lengths(kskb->dev, cfg, own, out);
	else if (port_source == PORT_SOURCE_MAP)
		map_lengths(cfg, own, out);
	else
		add_length(cfg, 0, 0, kskb->dev->_tx->qdisc->qstats.backlog, out);
}

#endif /* VMCC_PORT_QUEUE_H */
