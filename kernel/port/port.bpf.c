/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A port of a virtual switch: puts each packet into its class and marks CE where the class's queue
 * is longer than its threshold.
 *
 * Runs at the clsact egress hook, before the packet is queued, and reads the real length of the
 * queue that the packet is about to join.  Deciding on arrival by instantaneous length is what RFC
 * 8257 section 3.1 asks of a switch.
 *
 * Packets in VXLAN are marked inside and outside, see port_mark.h.  Other tunnels count as what
 * they are outside: there a tunnel must encapsulate in RFC 6040's normal mode, as Linux's do, where
 * the outer header is ECN-capable only if the inner one is.
 */
#include "kernel_types.h"
#include "skb.h"
#include "port_shared.h"
#include "marking_rtt.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#include "port_parse.h"
#include "port_queue.h"
#include "port_class.h"
#include "port_virtual.h"
#include "port_mark.h"
#include "port_rtt.h"
#include "port_drop.h"

/* Sizes, not types: before 6.2 Linux takes no map without types in the place of one with them. */
struct port_config_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct port_config));
};

/* A map per configuration, the one in use in here: a change is atomic, however soon the next
 * follows, and a configuration in use is never written. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct port_config_map);
} port_configs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct port_state);
} port_states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PORT_CLASSES);
	__type(key, u32);
	__type(value, struct port_counters);
} port_counts SEC(".maps");

static __always_inline struct port_config *active_config(void)
{
	u32 key = 0;
	void *in_use = bpf_map_lookup_elem(&port_configs, &key);

	return in_use ? bpf_map_lookup_elem(in_use, &key) : 0;
}

static __always_inline struct port_state *the_state(void)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&port_states, &key);
}

/* Offset of the network header: a GRE tunnel to many ends has its own header in front of it. */
static __always_inline u32 network_at(struct __sk_buff *skb)
{
	struct sk_buff *kernel = kernel_skb(skb);
	u64 data_at = BPF_CORE_READ(kernel, data) - BPF_CORE_READ(kernel, head);

	return BPF_CORE_READ(kernel, network_header) - data_at;
}

/* Reads the headers; whether the packet carries another one in VXLAN, which is then in `inner`. */
static __noinline int parse(struct __sk_buff *skb, struct packet *p, struct packet *inner)
{
	if (port_set.bare)
		parse_bare(skb, network_at(skb), p);
	else
		parse_packet(skb, 0, p);
	return parse_inner(skb, p, inner);
}

/* True if headers are needed for more than the mark, which few packets get. */
static __always_inline int needs_headers(const struct __sk_buff *skb, const struct port_config *cfg)
{
	if (cfg->class_count > 1 || cfg->measure_rtt || cfg->drop_not_ect ||
	    class_of(cfg, 0)->sparse_id)
		return 1;
	return skb->protocol != __builtin_bswap16(ETH_P_IPV4) &&
	       skb->protocol != __builtin_bswap16(ETH_P_IPV6);
}

static __always_inline void count_packet(const struct __sk_buff *skb, struct port_counters *count,
					 u32 packets, u64 backlog_bytes)
{
	count->packets += packets;
	count->bytes += skb->wire_len;
	if (backlog_bytes > count->max_backlog_bytes)
		count->max_backlog_bytes = backlog_bytes;
}

static __always_inline void count_mark(struct port_counters *count, u32 packets, int mark)
{
	count->marked += mark == MARK_DONE ? packets : 0;
	count->not_ect += mark == MARK_NOT_ECT ? packets : 0;
}

static __always_inline int drop_packet(struct port_counters *count, u32 packets, int verdict)
{
	count->drops_not_ect += verdict == DROP_NOT_ECT ? packets : 0;
	count->drops_overload += verdict == DROP_OVERLOAD ? packets : 0;
	return verdict != DROP_NOTHING;
}

static __always_inline int mark_packet(struct __sk_buff *skb, const struct packet *p,
				       const struct packet *inner)
{
	if (!p->version)
		return MARK_NOT_ECT;
	return inner ? mark_tunnel(skb, p, inner) : mark_header(skb, p);
}

SEC("tc")
int vmcc_port_out(struct __sk_buff *skb)
{
	struct port_config *cfg = active_config();
	struct port_state *state = the_state();
	u32 packets = skb->gso_segs ? skb->gso_segs : 1;
	struct packet p = {}, inner = {};
	int parsed = 0, tunnel = 0;
	struct lengths queue = {};
	struct port_counters *count;
	const struct port_class *c;
	u32 class = 0, kind = PORT_ECT;
	u64 threshold;

	if (!cfg || !state)
		return TC_ACT_UNSPEC;
	if (needs_headers(skb, cfg)) {
		parsed = 1;
		tunnel = parse(skb, &p, &inner);
		kind = kind_of(tunnel ? &inner : &p);
		class = classify(skb, cfg, &p, tunnel ? &inner : 0, kind) & (PORT_CLASSES - 1);
		if (cfg->measure_rtt)
			rtt_packet(skb, tunnel ? &inner : &p, state, 1, class);
	}
	c = class_of(cfg, class);
	if (c->class_id)
		skb->priority = c->class_id;
	queue_lengths(skb, cfg, class, &queue);
	if (cfg->phantom_q16)
		virtual_lengths(cfg, class, &queue);
	threshold = class_threshold(cfg, class, state, &queue);
	barrier_var(class);
	/* Other CPUs have it in their caches. */
	if (state->threshold[class & (PORT_CLASSES - 1)] != threshold)
		state->threshold[class & (PORT_CLASSES - 1)] = threshold;
	count = bpf_map_lookup_elem(&port_counts, &class);
	if (!count)
		return TC_ACT_UNSPEC;
	count_packet(skb, count, packets, queue.own);
	if (queue.judged > threshold && !parsed) {
		parsed = 1;
		tunnel = parse(skb, &p, &inner);
		kind = kind_of(tunnel ? &inner : &p);
	}
	if (parsed && !p.version)
		count->unclassified++;
	if (drop_packet(count, packets,
			judge(skb, cfg, state, tunnel ? &inner : &p, class, &queue, threshold)))
		return TC_ACT_SHOT;
	if (queue.band != BAND_BULK)
		skb->priority = queue.band == BAND_SPARSE ? c->sparse_id : c->placed_id;
	count->sparse += queue.band == BAND_SPARSE ? packets : 0;
	passed(cfg, class, skb->wire_len);
	if (cfg->phantom_q16)
		virtual_join(class, skb->wire_len, queue.rate, threshold);
	if (queue.judged > threshold)
		count_mark(count, packets, mark_packet(skb, &p, tunnel ? &inner : 0));
	return TC_ACT_UNSPEC;
}

SEC("tc")
int vmcc_port_in(struct __sk_buff *skb)
{
	struct port_config *cfg = active_config();
	struct port_state *state = the_state();
	struct packet p = {}, inner = {};
	int tunnel;

	if (!cfg || !state || !cfg->measure_rtt)
		return TC_ACT_UNSPEC;
	tunnel = parse(skb, &p, &inner);
	rtt_packet(skb, tunnel ? &inner : &p, state, 0, 0);
	return TC_ACT_UNSPEC;
}
