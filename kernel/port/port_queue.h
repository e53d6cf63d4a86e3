/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Current lengths of a port's queues. */
#ifndef VMCC_PORT_QUEUE_H
#define VMCC_PORT_QUEUE_H

const volatile struct port_settings port_set = {};

/* Written by our own queueing discipline; empty with the other sources. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORT_CLASSES);
	__type(key, u32);
	__type(value, struct port_queue);
} port_queues SEC(".maps");

/* Linux 6.2.  Older kernels get the same by a detour, see kernel_skb(). */
extern void *bpf_cast_to_kern_ctx(void *skb) __ksym __weak;
extern void *bpf_rdonly_cast(const void *object, __u32 btf_id) __ksym __weak;

/* Queues that one bucket of dev->qdisc_hash may hold besides ours. */
#define FOREIGN_QUEUES 4

/* The band of its class that a packet joins. */
enum band {
	BAND_BULK = 0,
	BAND_PLACED, /* the bulk, and the filter at the root queue keeps its place there */
	BAND_SPARSE,
};

/* The queues that a packet of class `own` meets. */
struct lengths {
	u64 own;      /* its class's real queue */
	u64 judged;   /* what decides about marking: that, or its class's virtual queue */
	u64 round_q8; /* a round, smoothed by the queueing discipline that knows it */
	u64 rate;     /* what the class has of the port's rate, if something needs it */
	u8 busy;      /* bit i: class i has something queued */
	u8 class;     /* of the packet */
	u8 overloaded;
	u8 band;     /* enum band */
	u32 trip;    /* round trip in ticks (port_flow.h) */
	u64 address; /* of the queueing discipline that counts what leaves its queue; 0: unknown */
	u64 left;    /* bytes that it has counted, if they were read with the length */
};

static __always_inline const struct port_class *class_of(const struct port_config *cfg, u32 index)
{
	/* So that the compiler keeps the bound where the verifier looks for it. */
	barrier_var(index);
	return &cfg->classes[index & (PORT_CLASSES - 1)];
}

static __always_inline void add_length(u32 class, u32 own, u64 backlog, struct lengths *out)
{
	out->busy |= (backlog != 0) << (class & (PORT_CLASSES - 1));
	out->own += class == own ? backlog : 0;
}

/* Duration of a round of the classes in `busy`.  A class at its ceiling has that rate, not its
 * turns. */
__noinline u64 round_of(const struct port_config *cfg, u32 busy)
{
	struct mark_left left = {};
	u32 i;

	if (!cfg)
		return 0;
	left.rate = cfg->rate;
	for (i = 0; i < PORT_CLASSES; i++)
		left.round_ns += busy >> i & 1 ? class_of(cfg, i)->quantum_ns : 0;
	if (!cfg->has_ceilings)
		return left.round_ns;
	for (i = 0; i < PORT_CLASSES; i++) {
		u32 class = cfg->by_ceiling[i] & (PORT_CLASSES - 1);
		const struct port_class *c = class_of(cfg, class);

		if (busy >> class & 1)
			mark_take_out(&left, c->quantum_ns, c->ceiling);
	}
	return mark_round_left(&left, cfg->rate);
}

/* Rate that strict priority leaves class `own` when those ahead use all of theirs. */
static __always_inline u64 left_by_order(const struct port_config *cfg, u32 own, u32 busy)
{
	u64 left = cfg->rate;
	u32 i;

	for (i = 0; i < PORT_CLASSES; i++) {
		if (i < own && busy >> i & 1)
			left -= mark_min(left, class_of(cfg, i)->ceiling);
	}
	return left;
}

/* Current rate of class `own`, with the others in `busy`. */
__noinline u64 class_rate(const struct port_config *cfg, u32 own, u32 busy)
{
	const struct port_class *c;
	u64 rate;

	if (!cfg)
		return 0;
	c = class_of(cfg, own);
	if (cfg->strict) {
		rate = left_by_order(cfg, own, busy);
		rate = rate > c->right ? rate : c->right;
	} else {
		busy |= 1u << (own & (PORT_CLASSES - 1));
		rate = mark_share(cfg->rate, c->quantum_ns, round_of(cfg, busy));
	}
	return mark_min(rate, c->ceiling);
}

/*
 * `direct`: pointers of the kernel's are followed by plain loads, which a program may only do with
 * those that the two functions above hand out; else by a helper, which takes any address.
 */
#define FOLLOW(direct, object, member) ((direct) ? (object)->member : BPF_CORE_READ(object, member))

static __always_inline struct Qdisc *queue_of(struct hlist_node *node, const int direct)
{
	void *queue = (void *)node - bpf_core_field_offset(struct Qdisc, hash);

	return direct ? bpf_rdonly_cast(queue, bpf_core_type_id_kernel(struct Qdisc)) : queue;
}

/* Bytes that a queue's owner has counted. */
static __always_inline const u64 *bytes_of(const struct Qdisc *queue)
{
	u32 at = bpf_core_field_offset(struct Qdisc, bstats);

	/* libbpf knows of a load from there only that it is none of a structure. */
	barrier_var(at);
	return (const void *)queue + at;
}

static __always_inline void leaf_lengths(struct net_device *dev, const struct port_config *cfg,
					 u32 own, struct lengths *out, const int direct)
{
	struct hlist_node *node = FOLLOW(direct, dev, qdisc_hash[PORT_LEAF_BUCKET].first);
	int i;

	for (i = 0; i < PORT_CLASSES + FOREIGN_QUEUES && node; i++) {
		struct Qdisc *q = queue_of(node, direct);
		u32 class =
			((FOLLOW(direct, q, handle) >> 16) * PORT_LEAF_FACTOR - PORT_LEAF_FIRST) &
			0xffff;

		if (class < PORT_CLASSES)
			add_length(class, own, FOLLOW(direct, q, qstats.backlog), out);
		if (class == own) {
			out->address = (u64)q;
			out->left = direct ? *bytes_of(q) : 0;
		}
		node = FOLLOW(direct, q, hash.next);
	}
}

static __always_inline void map_lengths(const struct port_config *cfg, u32 own, struct lengths *out)
{
	u32 i;

	for (i = 0; i < PORT_CLASSES && i < cfg->class_count; i++) {
		u32 key = i;
		struct port_queue *queue = bpf_map_lookup_elem(&port_queues, &key);

		if (!queue)
			continue;
		add_length(i, own, queue->backlog_bytes, out);
		out->round_q8 = queue->round_q8;
	}
}

static __always_inline void kernel_lengths(struct sk_buff *skb, const struct port_config *cfg,
					   u32 own, struct lengths *out, const int direct)
{
	leaf_lengths(FOLLOW(direct, skb, dev), cfg, own, out, direct);
}

/*
 * The kernel's own structure behind `skb` before Linux 6.2: the program's argument is its address,
 * on which the verifier permits no arithmetic.  Stored and read back by a helper it is a
 * scalar.
 */
static __always_inline struct sk_buff *kernel_skb(struct __sk_buff *skb)
{
	void *stored = skb;
	struct sk_buff *address = 0;

	bpf_probe_read_kernel(&address, sizeof(address), &stored);
	return address;
}

#include "port_root.h"

/* Bytes that have left the queue since it exists; 0 if nothing counts them. */
static __always_inline u64 bytes_left(const struct lengths *queue)
{
	u32 key = queue->class;
	u64 bytes = 0;

	if (port_set.source == PORT_SOURCE_MAP) {
		struct port_queue *shown = bpf_map_lookup_elem(&port_queues, &key);

		return shown ? shown->sent_bytes : 0;
	}
	if (queue->left)
		return queue->left;
	if (queue->address)
		bpf_probe_read_kernel(&bytes, sizeof(bytes), bytes_of((void *)queue->address));
	return bytes;
}

__noinline int queue_lengths(struct __sk_buff *skb, const struct port_config *cfg, u32 own,
			     struct lengths *out)
{
	if (!cfg || !out)
		return 0;
	if (port_set.source == PORT_SOURCE_MAP)
		map_lengths(cfg, own, out);
	else if (port_set.source == PORT_SOURCE_ROOT)
		add_length(0, 0, root_length(skb, &out->address), out);
	else if (bpf_ksym_exists(bpf_cast_to_kern_ctx))
		kernel_lengths(bpf_cast_to_kern_ctx(skb), cfg, own, out, 1);
	else
		kernel_lengths(kernel_skb(skb), cfg, own, out, 0);
	out->judged = out->own;
	return 0;
}

#endif /* VMCC_PORT_QUEUE_H */
