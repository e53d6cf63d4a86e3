/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Fragments go where their datagram goes: the first one, which has the ports, decides for all. */
#ifndef VMCC_PORT_FRAGMENT_H
#define VMCC_PORT_FRAGMENT_H

/* Datagrams that are followed at a time; beyond that the one idle longest makes room. */
#define FRAGMENTED	1024
#define FRAGMENT_MAX_NS 1000000000ull /* later ones are another datagram's */

struct fragment_key {
	u8 from[16];
	u8 to[16];
	u32 datagram;
	u8 version;
	u8 protocol; /* of IPv4, whose numbers are counted per protocol */
	u16 reserved;
};

struct fragment_class {
	u64 at;
	u32 class;
	u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, FRAGMENTED);
	__type(key, struct fragment_key);
	__type(value, struct fragment_class);
} port_fragments SEC(".maps");

/* The class of a packet that would be in `class` by what it shows of itself. */
__noinline u32 class_of_datagram(const struct packet *p, u32 class)
{
	struct fragment_class *first, now = {};
	struct fragment_key key = {};

	if (!p || (p->part != PART_FIRST && p->part != PART_LATER))
		return class;
	__builtin_memcpy(key.from, p->from, sizeof(key.from));
	__builtin_memcpy(key.to, p->to, sizeof(key.to));
	key.datagram = p->datagram;
	key.version = p->version;
	key.protocol = p->version == 4 ? p->protocol : 0;
	now.at = bpf_ktime_get_ns();
	now.class = class;
	if (p->part == PART_FIRST) {
		bpf_map_update_elem(&port_fragments, &key, &now, 0);
		return class;
	}
	first = bpf_map_lookup_elem(&port_fragments, &key);
	if (!first || mark_elapsed(now.at, first->at) > FRAGMENT_MAX_NS)
		return class;
	return first->class;
}

#endif /* VMCC_PORT_FRAGMENT_H */
