/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The maps of the BPF queueing discipline: settings, queues, waiting packets. */
#ifndef VMCC_QDISC_MAPS_H
#define VMCC_QDISC_MAPS_H

#define CLASS_MASK (PORT_CLASSES - 1)
#define BAND_MASK  (QDISC_BANDS - 1)
#define SLOT_MASK  (QDISC_SLOTS - 1)

/* A waiting packet.  A band's ring are the slots from (class * QDISC_BANDS + band) * QDISC_SLOTS
 * on. */
struct slot {
	struct sk_buff __kptr *skb;
	u64 queued_ns;
	u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORT_CLASSES *QDISC_BANDS *QDISC_SLOTS);
	__type(key, u32);
	__type(value, struct slot);
} qdisc_slots SEC(".maps");

/* Sizes, not types: before 6.2 Linux takes no map without types in the place of one with them. */
struct qdisc_config_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct qdisc_config));
};

/* The map with the settings in use: a change is a new map, so it is atomic. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct qdisc_config_map);
} qdisc_config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORT_CLASSES);
	__type(key, u32);
	__type(value, struct qdisc_queue);
} qdisc_queues SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct qdisc_port);
} qdisc_port SEC(".maps");

/* Queue lengths for readers: the marking program's map of this name is this one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORT_CLASSES);
	__type(key, u32);
	__type(value, struct port_queue);
} port_queues SEC(".maps");

static __always_inline struct qdisc_config *config(void)
{
	u32 key = 0;
	void *in_use = bpf_map_lookup_elem(&qdisc_config, &key);

	return in_use ? bpf_map_lookup_elem(in_use, &key) : 0;
}

static __always_inline struct qdisc_port *port_state(void)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&qdisc_port, &key);
}

static __always_inline struct qdisc_queue *queue_of(u32 class)
{
	class &= CLASS_MASK;
	return bpf_map_lookup_elem(&qdisc_queues, &class);
}

static __always_inline struct port_queue *public_of(u32 class)
{
	class &= CLASS_MASK;
	return bpf_map_lookup_elem(&port_queues, &class);
}

static __always_inline struct slot *slot_of(u32 class, u32 band, u32 index)
{
	u32 ring = (class & CLASS_MASK) * QDISC_BANDS + (band & BAND_MASK);
	u32 key = ring * QDISC_SLOTS + (index & SLOT_MASK);

	return bpf_map_lookup_elem(&qdisc_slots, &key);
}

#endif /* VMCC_QDISC_MAPS_H */
