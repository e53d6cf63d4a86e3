/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The threshold of a class, and setting CE. */
#ifndef VMCC_PORT_MARK_H
#define VMCC_PORT_MARK_H

#define ECN_MASK 3
#define ECN_CE	 3

enum {
	MARK_NOT_ECT, /* not ECN-capable, or not IP */
	MARK_WAS_CE,  /* marked on the way here */
	MARK_DONE,
};

/* The queue length above which a packet of `class` is marked. */
static __always_inline u64 class_threshold(const struct port_config *cfg, struct port_state *state, u32 class)
{
	const struct port_class *c = &cfg->classes[class];

	if (c->rule == PORT_RULE_LENGTH)
		return c->threshold_bytes;
	return ~0ull;
}

/*
 * Sets CE in the outermost IP header.  By hand, because the helper for it looks at skb->protocol,
 * which is the VLAN's where the tag is in the packet's bytes.
 */
static __always_inline int mark_ce(struct __sk_buff *skb, const struct packet *p)
{
	u8 byte;

	if (!p->version || !(p->tos & ECN_MASK))
		return MARK_NOT_ECT;
	if ((p->tos & ECN_MASK) == ECN_CE)
		return MARK_WAS_CE;
	if (p->version == 4) {
		/* The header's sum covers the word that the byte is the low half of. */
		u16 from = __builtin_bswap16(p->tos), to = __builtin_bswap16(p->tos | ECN_CE);

		byte = p->tos | ECN_CE;
		if (bpf_l3_csum_replace(skb, p->ip_at + 10, from, to, sizeof(from)))
			return MARK_NOT_ECT;
		/* The sum and the byte cancel out in a sum over the packet: no BPF_F_RECOMPUTE_CSUM. */
		bpf_skb_store_bytes(skb, p->ip_at + 1, &byte, 1, 0);
		return MARK_DONE;
	}
	/* The traffic class is the low half of byte 0 and the high half of byte 1. */
	if (bpf_skb_load_bytes(skb, p->ip_at + 1, &byte, 1))
		return MARK_NOT_ECT;
	byte |= ECN_CE << 4;
	if (bpf_skb_store_bytes(skb, p->ip_at + 1, &byte, 1, BPF_F_RECOMPUTE_CSUM))
		return MARK_NOT_ECT;
	return MARK_DONE;
}

#endif /* VMCC_PORT_MARK_H */
