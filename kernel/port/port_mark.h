/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The threshold of a class, and setting CE. */
#ifndef VMCC_PORT_MARK_H
#define VMCC_PORT_MARK_H

enum {
	MARK_NOT_ECT, /* not ECN-capable, or not IP */
	MARK_WAS_CE,  /* marked on the way here */
	MARK_DONE,
};

/*
 * Updates T_round.  HTB does not show its rounds: a round is estimated as the quanta of all
 * backlogged classes, smoothed once per such round, so that thresholds follow when classes come and
 * go.  `sample_ns` is zero while the port is idle.
 */
static __always_inline void update_round(const struct port_config *cfg, struct port_state *state,
					 u64 sample_ns, u64 now)
{
	u64 at = state->round_at, round = state->round_q8;
	u64 period = sample_ns > cfg->slot_ns ? sample_ns : cfg->slot_ns;
	u64 elapsed = mark_elapsed(now, at), periods;
	int i;

	if (!period || elapsed < period)
		return;
	/* One CPU at a time; the others go on with what is there. */
	if (__sync_val_compare_and_swap(&state->round_at, at, now) != at)
		return;
	if (!sample_ns) {
		state->round_q8 = mark_round_idle(round, elapsed, cfg->slot_ns);
		return;
	}
	periods = elapsed / period;
	for (i = 0; i < MARK_IDLE_SLOTS; i++) {
		if ((u64)i < periods)
			round = mark_round_smooth(round, sample_ns);
	}
	state->round_q8 = round;
}

static __always_inline u64 measured_rtt(const struct port_config *cfg,
					const struct port_state *state, u32 class)
{
	u64 rtt;

	barrier_var(class);
	rtt = state->rtt_ns[class & (PORT_CLASSES - 1)];
	if (!rtt)
		return 0;
	return mark_min(rtt > cfg->rtt_least_ns ? rtt : cfg->rtt_least_ns, cfg->rtt_most_ns);
}

/*
 * The queue length above which a packet is marked.  A sojourn rule (TCN) ends here too: before a
 * packet is queued, its waiting time is the queue over what its class has of the rate now, so
 * "longer than RTT x lambda" is a length.
 */
static __always_inline u64 class_threshold(const struct port_config *cfg, u32 class,
					   struct port_state *state, const struct lengths *queue)
{
	const struct port_class *c = class_of(cfg, class);
	u64 rtt, k, round;

	if (c->rule == PORT_RULE_LENGTH)
		return c->threshold_bytes;
	if (c->rule != PORT_RULE_SHARE && c->rule != PORT_RULE_SOJOURN)
		return ~0ull;
	rtt = c->rtt_ns ? c->rtt_ns : measured_rtt(cfg, state, class);
	if (!rtt)
		return c->threshold_bytes; /* nothing measured yet */
	if (c->rule == PORT_RULE_SOJOURN || cfg->strict) {
		k = mark_port_threshold(class_rate(cfg, class, queue->busy), rtt, c->lambda_q16);
	} else {
		round = queue->round_q8;
		/* A queueing discipline counts what a class waits at its ceiling into its round. */
		if (port_set.source != PORT_SOURCE_MAP || cfg->phantom_q16 || cfg->has_ceilings) {
			update_round(cfg, state, round_of(cfg, queue->busy), bpf_ktime_get_ns());
			round = state->round_q8;
		}
		k = mark_queue_threshold(mark_port_threshold(cfg->rate, rtt, c->lambda_q16),
					 c->quantum_ns, round);
		k = mark_min(k, mark_port_threshold(c->ceiling, rtt, c->lambda_q16));
	}
	/* A queue never gets longer than its buffer: a threshold above would never mark. */
	k = mark_min(k, c->threshold_bytes);
	return k > cfg->floor_bytes ? k : cfg->floor_bytes;
}

/*
 * Sets CE in the ECN-capable IP header at `ip_at`.  By hand, because the helper for it looks at
 * skb->protocol, which is the VLAN's where the tag is in the packet's bytes.
 */
__noinline int set_ce(struct __sk_buff *skb, u32 ip_at, u32 version, u32 tos)
{
	u8 byte;

	if (version == 4) {
		/* The header's sum covers the word that the byte is the low half of. */
		u16 from = __builtin_bswap16(tos & 0xff);
		u16 to = __builtin_bswap16((tos & 0xff) | ECN_CE);

		byte = tos | ECN_CE;
		if (bpf_l3_csum_replace(skb, ip_at + 10, from, to, sizeof(from)))
			return MARK_NOT_ECT;
		/* The sum and the byte cancel out in a sum over the packet (the outer UDP's too):
		 * no BPF_F_RECOMPUTE_CSUM. */
		bpf_skb_store_bytes(skb, ip_at + 1, &byte, 1, 0);
		return MARK_DONE;
	}
	/* The traffic class is the low half of byte 0 and the high half of byte 1. */
	if (bpf_skb_load_bytes(skb, ip_at + 1, &byte, 1))
		return MARK_NOT_ECT;
	byte |= ECN_CE << 4;
	if (bpf_skb_store_bytes(skb, ip_at + 1, &byte, 1, BPF_F_RECOMPUTE_CSUM))
		return MARK_NOT_ECT;
	return MARK_DONE;
}

static __always_inline int mark_header(struct __sk_buff *skb, const struct packet *p)
{
	if (!(p->tos & ECN_MASK))
		return MARK_NOT_ECT;
	if ((p->tos & ECN_MASK) == ECN_CE)
		return MARK_WAS_CE;
	return set_ce(skb, p->ip_at, p->version, p->tos);
}

#define CHECKSUM_PARTIAL 3 /* skb->ip_summed: a device completes the sum at csum_start */

/*
 * True if the checksum of the UDP header at `at` is complete.  Else it is still the pseudo header's
 * alone: a device completes it, or segmentation does for each packet of a train.
 */
static __always_inline int is_final_sum(struct __sk_buff *skb, u32 at)
{
	struct sk_buff *kernel = kernel_skb(skb);

	if (skb->gso_size)
		return 0;
	if (BPF_CORE_READ_BITFIELD_PROBED(kernel, ip_summed) != CHECKSUM_PARTIAL)
		return 1;
	return BPF_CORE_READ(kernel, csum_start) !=
	       BPF_CORE_READ(kernel, data) - BPF_CORE_READ(kernel, head) + at;
}

/* The sum after one of the words that it covers has changed (RFC 1624, equation 3). */
static __always_inline u16 changed_sum(u16 sum, u16 from, u16 to)
{
	u32 complement = (u16)~sum + (u16)~from + to;

	complement = (complement & 0xffff) + (complement >> 16);
	complement = (complement & 0xffff) + (complement >> 16);
	/* In UDP zero means that there is no sum. */
	return (u16)~complement ? (u16)~complement : 0xffff;
}

/*
 * Marks the packet inside a tunnel.  An IPv4 header's own sum makes up for its mark in the UDP sum
 * around it, an IPv6 header has none.  It begins at an even offset from the UDP header.
 */
__noinline int mark_inner(struct __sk_buff *skb, const struct packet *outer,
			  const struct packet *inner)
{
	u16 sum = 0, from = 0, to = 0;
	u32 sum_at;
	int mark;

	if (!outer || !inner)
		return MARK_NOT_ECT;
	sum_at = outer->transport_at + UDP_CHECKSUM_AT;
	if (inner->version != 6)
		return mark_header(skb, inner);
	if (bpf_skb_load_bytes(skb, sum_at, &sum, sizeof(sum)) ||
	    bpf_skb_load_bytes(skb, inner->ip_at, &from, sizeof(from)))
		return MARK_NOT_ECT;
	mark = mark_header(skb, inner);
	if (mark != MARK_DONE || !sum || !is_final_sum(skb, outer->transport_at))
		return mark;
	bpf_skb_load_bytes(skb, inner->ip_at, &to, sizeof(to));
	sum = changed_sum(sum, from, to);
	bpf_skb_store_bytes(skb, sum_at, &sum, sizeof(sum), BPF_F_RECOMPUTE_CSUM);
	return mark;
}

/*
 * A tunnel's packet.  The outer header alone does not decide: a packet whose inner header is not
 * ECN-capable would be dropped at the tunnel's end if the outer one said CE (RFC 6040 section 4.2),
 * so it is not marked at all.  Else both headers are, so that a tunnel's end that does not do
 * RFC 6040 delivers the mark as well.
 */
static __always_inline int mark_tunnel(struct __sk_buff *skb, const struct packet *outer,
				       const struct packet *inner)
{
	int first, second;

	if (!(inner->tos & ECN_MASK))
		return MARK_NOT_ECT;
	first = mark_header(skb, outer);
	second = mark_inner(skb, outer, inner);
	if (first == MARK_DONE || second == MARK_DONE)
		return MARK_DONE;
	return first == MARK_WAS_CE || second == MARK_WAS_CE ? MARK_WAS_CE : MARK_NOT_ECT;
}

#endif /* VMCC_PORT_MARK_H */
