/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Classification: the first class that selects a packet by any field, else the last. */
#ifndef VMCC_PORT_CLASS_H
#define VMCC_PORT_CLASS_H

#include "port_fragment.h"

/* The cgroups of classes that ask by one. */
struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, PORT_CLASSES);
	__type(key, u32);
	__type(value, u32);
} port_cgroups SEC(".maps");

static __always_inline int same(const u8 *a, const u8 *b, u8 version)
{
	const u32 *x = (const u32 *)a, *y = (const u32 *)b;

	if (x[0] != y[0])
		return 0;
	return version == 4 || (x[1] == y[1] && x[2] == y[2] && x[3] == y[3]);
}

static __always_inline int matches(const struct port_filter *f, const struct packet *p)
{
	if (f->version && f->version != p->version)
		return 0;
	if (f->protocol && f->protocol != p->protocol)
		return 0;
	if (f->from_port && f->from_port != p->from_port)
		return 0;
	if (f->to_port && f->to_port != p->to_port)
		return 0;
	if (f->has_from && !same(f->from, p->from, p->version))
		return 0;
	return !f->has_to || same(f->to, p->to, p->version);
}

__noinline u32 class_by_filter(const struct port_config *cfg, const struct packet *p, u32 best,
			       u32 takes)
{
	u32 i;

	if (!cfg || !p)
		return best;
	for (i = 0; i < PORT_FILTERS && i < cfg->filter_count; i++) {
		const struct port_filter *f = &cfg->filters[i];

		if (f->class < best && takes >> (f->class & 7) & 1 && matches(f, p))
			best = f->class;
	}
	return best;
}

__noinline u32 class_by_priority(const struct port_config *cfg, u32 priority, u32 best, u32 takes)
{
	u32 i;

	if (!cfg)
		return best;
	for (i = 0; i < PORT_PRIORITIES && i < cfg->priority_count; i++) {
		u32 class = cfg->priority_class[i];

		if (class < best && takes >> (class & 7) & 1 && cfg->priorities[i] == priority)
			best = class;
	}
	return best;
}

__noinline u32 class_by_cgroup(struct __sk_buff *skb, u32 mask, u32 best)
{
	u32 i;

	for (i = 0; i < PORT_CLASSES; i++) {
		if (i < best && mask & 1u << i && bpf_skb_under_cgroup(skb, &port_cgroups, i) == 1)
			best = i;
	}
	return best;
}

/*
 * True if a socket of the port's own network namespace set the packet's priority.  Else Linux
 * took it from the TOS field when it forwarded the packet, or another namespace's socket chose it.
 */
__noinline int is_priority_of_this_host(struct __sk_buff *skb)
{
	struct sk_buff *kernel = kernel_skb(skb);
	struct sock *sk = BPF_CORE_READ(kernel, sk);

	return sk &&
	       BPF_CORE_READ(sk, __sk_common.skc_net.net) == BPF_CORE_READ(kernel, dev, nd_net.net);
}

/* Of a tunnel the packet inside counts: it decides whether there may be a mark. */
static __always_inline u32 kind_of(const struct packet *p)
{
	return p->version && p->tos & ECN_MASK ? PORT_ECT : PORT_NOT_ECT;
}

/* `p` is the outermost packet, `inner` the one that it carries or null; `kind` is PORT_ECT or
 * PORT_NOT_ECT. */
static __always_inline u32 classify(struct __sk_buff *skb, const struct port_config *cfg,
				    const struct packet *p, const struct packet *inner, u32 kind)
{
	u32 best, takes, last = cfg->class_count - 1;

	if (!(cfg->trust & PORT_TRUST_TUNNEL))
		inner = 0;

	/* Ports that are encapsulated too deeply select nothing. */
	if (p->part == PART_TOO_DEEP)
		return last;
	kind &= PORT_KINDS - 1;
	best = cfg->kind_class[kind];
	takes = cfg->takes[kind];
	if (p->version) {
		u8 wanted = cfg->dscp_class[kind][p->tos >> 2 & 63];

		if (wanted < best)
			best = wanted;
		if (cfg->filter_count) {
			best = class_by_filter(cfg, p, best, takes);
			if (inner && inner->version)
				best = class_by_filter(cfg, inner, best, takes);
		}
	}
	if (cfg->priority_count &&
	    (cfg->trust & PORT_TRUST_PRIORITY || is_priority_of_this_host(skb)))
		best = class_by_priority(cfg, skb->priority, best, takes);
	if (cfg->cgroup_classes)
		best = class_by_cgroup(skb, cfg->cgroup_classes & takes, best);
	best = class_of_datagram(p, best);
	if (inner)
		best = class_of_datagram(inner, best);
	return best < cfg->class_count ? best : last;
}

#endif /* VMCC_PORT_CLASS_H */
