/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Marks packets CE at a port whose queue is longer than a threshold.
 *
 * Runs at the clsact egress hook, before the packet is queued, and reads the real backlog of the
 * port's root queueing discipline (HTB, TBF, bfifo, ... keep it in bytes, children included).
 * Deciding on arrival by instantaneous length is what RFC 8257 section 3.1 asks of a switch.
 *
 * Valid for ports with one transmit queue.  A queueing discipline without a lock (pfifo_fast)
 * counts per CPU and shows no backlog here; the shaping ones do.
 */
#include "kernel_types.h"
#include "shared.h"

char _license[] SEC("license") = "Dual BSD/GPL";

extern void *bpf_cast_to_kern_ctx(void *skb) __ksym;

/* What the loader sets, also while traffic runs. */
struct mark_config mark_config SEC(".data.mark") = {
	.threshold_bytes = ~0ull,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct mark_counters);
} mark_counts SEC(".maps");

struct __sk_buff {
	__u32 len;
};

#define TC_ACT_UNSPEC (-1) /* continue with the next filter, then the queue */

SEC("tc")
int vmcc_mark(struct __sk_buff *skb)
{
	struct sk_buff *kskb = bpf_cast_to_kern_ctx(skb);
	u64 backlog = kskb->dev->_tx->qdisc->qstats.backlog;
	struct mark_counters *count;
	u32 key = 0;

	count = bpf_map_lookup_elem(&mark_counts, &key);
	if (!count)
		return TC_ACT_UNSPEC;
	count->packets++;
	count->bytes += skb->len;
	if (backlog > count->max_backlog_bytes)
		count->max_backlog_bytes = backlog;
	if (backlog <= mark_config.threshold_bytes)
		return TC_ACT_UNSPEC;
	/* Answers 0 for what is neither IPv4 nor IPv6 and for senders without ECN. */
	if (bpf_skb_ecn_set_ce(skb))
		count->marked++;
	else
		count->not_ect++;
	return TC_ACT_UNSPEC;
}
