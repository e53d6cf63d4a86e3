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
#include "marking.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#include "port_parse.h"
#include "port_class.h"
#include "port_queue.h"
#include "port_virtual.h"
#include "port_mark.h"
#include "port_rtt.h"

/* Two, so that a change appears at once and whole: one is in use while the other is written. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, struct port_config);
} port_configs SEC(".maps");

/* Which of the two is in use. */
u32 port_active SEC(".data.active");

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
	u32 key = *(volatile u32 *)&port_active & 1;

	return bpf_map_lookup_elem(&port_configs, &key);
}

static __always_inline struct port_state *the_state(void)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&port_states, &key);
}

/* Counts a packet that meets `queue`, and marks it if that is too long. */
static __always_inline void count_and_mark(struct __sk_buff *skb, const struct packet *p,
					   const struct packet *inner, u32 class,
					   const struct lengths *queue, u64 threshold)
{
	struct port_counters *count = bpf_map_lookup_elem(&port_counts, &class);
	u32 packets = skb->gso_segs ? skb->gso_segs : 1;
	int mark = MARK_NOT_ECT;

	if (!count)
		return;
	count->packets += packets;
	count->bytes += skb->wire_len;
	if (!p->version)
		count->unclassified++;
	if (queue->own > count->max_backlog_bytes)
		count->max_backlog_bytes = queue->own;
	if (queue->judged <= threshold)
		return;
	if (p->version)
		mark = inner ? mark_tunnel(skb, p, inner) : mark_header(skb, p);
	count->marked += mark == MARK_DONE ? packets : 0;
	count->not_ect += mark == MARK_NOT_ECT ? packets : 0;
}

SEC("tc")
int vmcc_port_out(struct __sk_buff *skb)
{
	struct port_config *cfg = active_config();
	struct port_state *state = the_state();
	const struct port_class *c;
	struct lengths queue = {};
	struct packet p = {}, inner = {};
	u64 threshold;
	int tunnel;
	u32 class;

	if (!cfg || !state)
		return TC_ACT_UNSPEC;
	parse_packet(skb, 0, &p);
	tunnel = parse_inner(skb, &p, &inner);
	if (cfg->measure_rtt)
		rtt_packet(skb, tunnel ? &inner : &p, state, 1);
	class = classify(skb, cfg, &p, tunnel ? &inner : 0) & (PORT_CLASSES - 1);
	c = class_of(cfg, class);
	if (c->class_id)
		skb->priority = c->class_id;
	queue_lengths(skb, cfg, class, &queue);
	if (cfg->phantom_q16)
		virtual_lengths(cfg, class, skb->wire_len, &queue);
	threshold = class_threshold(cfg, c, state, &queue);
	barrier_var(class);
	state->threshold[class & (PORT_CLASSES - 1)] = threshold;
	count_and_mark(skb, &p, tunnel ? &inner : 0, class, &queue, threshold);
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
	parse_packet(skb, 0, &p);
	tunnel = parse_inner(skb, &p, &inner);
	rtt_packet(skb, tunnel ? &inner : &p, state, 0);
	return TC_ACT_UNSPEC;
}
