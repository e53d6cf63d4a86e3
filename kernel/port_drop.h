/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Dropping by rule.
 *
 * What cannot be marked is dropped where it would have been (RFC 7567 section 4.2.1), or senders
 * without ECN would take everything from those that slow down.  And a queue that grows far above
 * its threshold although everything is marked is full of what does not listen: then ECN saves
 * nobody from being dropped (RFC 3168 section 7) until the queue has drained, and a while longer.
 */
#ifndef VMCC_PORT_DROP_H
#define VMCC_PORT_DROP_H

#define OVERLOAD_NS    100000000ull
#define OVERLOAD_DRAIN (~0ull)

enum {
	DROP_NOTHING,
	DROP_NOT_ECT,
	DROP_OVERLOAD,
};

/* Whether class `class` is overloaded; `low` is the length at which it is not any more. */
static __always_inline int is_overloaded(struct port_state *state, const struct port_class *c,
					 u32 class, u64 length, u64 low)
{
	u64 until;

	barrier_var(class);
	class &= PORT_CLASSES - 1;
	until = state->overload_until[class];
	if (length > c->overload_bytes) {
		if (until != OVERLOAD_DRAIN)
			state->overload_until[class] = OVERLOAD_DRAIN;
		return 1;
	}
	if (!until)
		return 0;
	if (until == OVERLOAD_DRAIN) {
		if (length <= low)
			state->overload_until[class] = bpf_ktime_get_ns() + OVERLOAD_NS;
		return 1;
	}
	if ((long long)(bpf_ktime_get_ns() - until) < 0)
		return 1;
	state->overload_until[class] = 0;
	return 0;
}

/* What becomes of a packet of kind `kind` that meets a queue of `length`. */
static __always_inline int judge(const struct port_config *cfg, struct port_state *state, u32 class,
				 u32 kind, const struct lengths *queue, u64 threshold)
{
	const struct port_class *c = class_of(cfg, class);
	u64 low = threshold > cfg->drop_floor_bytes ? threshold : cfg->drop_floor_bytes;
	int overloaded;

	if (c->rule == PORT_RULE_NONE)
		return DROP_NOTHING;
	overloaded = is_overloaded(state, c, class, queue->own, low);
	if (queue->judged <= low)
		return DROP_NOTHING;
	if (kind == PORT_NOT_ECT && cfg->drop_not_ect)
		return DROP_NOT_ECT;
	return overloaded ? DROP_OVERLOAD : DROP_NOTHING;
}

#endif /* VMCC_PORT_DROP_H */
