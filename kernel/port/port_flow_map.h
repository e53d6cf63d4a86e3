/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flows of a port's classes, in a count-min sketch per class (port_flow.h). */
#ifndef VMCC_PORT_FLOW_MAP_H
#define VMCC_PORT_FLOW_MAP_H

#define FLOW_ROWS    2
#define FLOW_BUCKETS 2048 /* of a row; a power of two */

/* One bucket of the sketch. */
struct flow {
	u32 window;
	u32 blocks; /* in this window */
	u32 before; /* in the one before */
	u32 spared; /* blocks that pass before the next drop */
	u32 dropped_at;
	u32 bulk_end; /* of its last packet among all bytes that joined the bulk (port_sparse.h) */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORT_CLASSES *FLOW_ROWS *FLOW_BUCKETS);
	__type(key, u32);
	__type(value, struct flow);
} port_flow_rates SEC(".maps");

static __always_inline struct flow *flow_at(u32 key)
{
	return bpf_map_lookup_elem(&port_flow_rates, &key);
}

/* Words of skb->cb by which the program at the egress hook tells the queue where a flow's place is
 * kept: the keys of its buckets in the first, the address of the bulk's queue in two. */
enum flow_note {
	NOTE_KEYS = 0,
	NOTE_QUEUE_HIGH = 1,
	NOTE_QUEUE_LOW = 2,
};

#define NOTE_KEY_SHIFT 16

_Static_assert(PORT_CLASSES *FLOW_ROWS *FLOW_BUCKETS <= 1 << NOTE_KEY_SHIFT, "a key fits its half");

/* Keeps where a packet of a flow ends among the bytes that ever joined the bulk. */
static __always_inline void flow_keep_end(u32 keys, u32 end)
{
	struct flow *first = flow_at(keys & ((1 << NOTE_KEY_SHIFT) - 1));
	struct flow *second = flow_at(keys >> NOTE_KEY_SHIFT);

	if (first)
		first->bulk_end = end;
	if (second)
		second->bulk_end = end;
}

#endif /* VMCC_PORT_FLOW_MAP_H */
