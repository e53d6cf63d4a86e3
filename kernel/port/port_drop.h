/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Dropping by rule.
 *
 * Not-ECT packets are dropped at the rate at which ECN-capable ones are marked (RFC 7567 section
 * 4.2.1), or senders without ECN would starve those with it; see port_flow.h.  A queue that grows
 * far above its threshold although everything is marked holds unresponsive traffic.  From there on
 * packets are dropped with a probability that rises to 1 at the queue's limit, with ECN or without
 * (RFC 3168 section 7, RFC 9332 section 4.2).  The excess of a flood over its fair share is dropped
 * before that.
 */
#ifndef VMCC_PORT_DROP_H
#define VMCC_PORT_DROP_H

#include "port_flow.h"

/* Drop decision for a packet that meets `queue`; `p` is the innermost header that was read. */
static __always_inline int judge(struct __sk_buff *skb, const struct port_config *cfg,
				 const struct port_state *state, const struct packet *p, u32 class,
				 struct lengths *queue, u64 threshold)
{
	const struct port_class *c = class_of(cfg, class);
	u64 rtt = c->rtt_ns ?: measured_rtt(cfg, state, class);
	int above = queue->judged > threshold, verdict = DROP_NOTHING;

	if (c->rule == PORT_RULE_NONE)
		return DROP_NOTHING;
	queue->overloaded = queue->own > c->overload_bytes;
	if (cfg->drop_not_ect || c->sparse_id) {
		queue->class = class;
		if (queue->judged > threshold / 2) {
			queue->rate = class_rate(cfg, class, queue->busy);
			queue->trip = (rtt + mark_ns(queue->rate, queue->own)) >> FLOW_TICK_SHIFT;
		}
		verdict = flow_drops(skb, cfg, p, queue, threshold);
	}
	if (verdict || !above || !queue->overloaded || !p->version || queue->band == BAND_SPARSE)
		return verdict;
	return bpf_get_prandom_u32() < overload_q32(queue->own, c->overload_bytes, c->buffer_bytes)
		       ? DROP_OVERLOAD
		       : DROP_NOTHING;
}

/* Counts a packet that is not dropped here, where no queue's owner may count what leaves it. */
static __always_inline void passed(const struct port_config *cfg, u32 class, u32 bytes)
{
	struct class_flows *c;

	if (port_set.source != PORT_SOURCE_ROOT)
		return;
	c = flows_of(class);
	if (c && cfg->drop_not_ect && class_of(cfg, class)->rule != PORT_RULE_NONE)
		c->queued += bytes;
}

#endif /* VMCC_PORT_DROP_H */
