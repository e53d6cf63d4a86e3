/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Headers between Ethernet and IP besides VLAN tags: PPPoE, or labels of MPLS. */
#ifndef VMCC_PORT_SHIM_H
#define VMCC_PORT_SHIM_H

#define ETH_P_PPPOE	   0x8864 /* of a session */
#define PPPOE_HEADER_BYTES 6
#define PPPOE_DATA	   0x1100 /* version 1, type 1, code 0 */
#define PPP_TYPE_BYTES	   2
#define PPP_IPV4	   0x0021
#define PPP_IPV6	   0x0057
#define ETH_P_MPLS	   0x8847
#define MPLS_LABEL_BYTES   4
#define MPLS_LAST	   1 /* in a label's third byte */
#define MAX_LABELS	   6
#define ETH_SHORTEST	   60 /* shorter frames are padded */

static __always_inline u16 parse_pppoe(struct __sk_buff *skb, u32 *at)
{
	u8 h[PPPOE_HEADER_BYTES + PPP_TYPE_BYTES];
	u16 type;

	if (bpf_skb_load_bytes(skb, *at, h, sizeof(h)) || be16(h) != PPPOE_DATA)
		return 0;
	*at += sizeof(h);
	type = be16(h + PPPOE_HEADER_BYTES);
	if (type == PPP_IPV4)
		return ETH_P_IPV4;
	return type == PPP_IPV6 ? ETH_P_IPV6 : 0;
}

/* True if the header's checksum is right, and the packet is complete. */
static __always_inline int is_ipv4(struct __sk_buff *skb, u32 at)
{
	u8 h[IPV4_HEADER_BYTES] __attribute__((aligned(4)));
	u32 left = skb->len - at;
	__s64 sum;

	if (bpf_skb_load_bytes(skb, at, h, sizeof(h)) || h[0] != 0x45)
		return 0;
	sum = bpf_csum_diff(0, 0, (__be32 *)h, sizeof(h), 0);
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff && be16(h + 2) >= IPV4_HEADER_BYTES && be16(h + 2) <= left;
}

static __always_inline int is_ipv6(struct __sk_buff *skb, u32 at)
{
	u8 h[IPV6_HEADER_BYTES];
	u32 left = skb->len - at, whole;

	if (bpf_skb_load_bytes(skb, at, h, sizeof(h)) || h[0] >> 4 != 6)
		return 0;
	whole = be16(h + 4) + IPV6_HEADER_BYTES;
	return whole == left || (whole < left && skb->len <= ETH_SHORTEST);
}

/*
 * Labels do not identify their payload.  A frame of a pseudowire may begin like an IP packet (RFC
 * 4928), and must not be marked: so all fields of the IP header must be consistent.
 */
static __always_inline u16 parse_mpls(struct __sk_buff *skb, u32 *at)
{
	u8 label[MPLS_LABEL_BYTES];
	int i;

	for (i = 0; i < MAX_LABELS; i++) {
		if (bpf_skb_load_bytes(skb, *at, label, sizeof(label)))
			return 0;
		*at += MPLS_LABEL_BYTES;
		if (!(label[2] & MPLS_LAST))
			continue;
		if (is_ipv4(skb, *at))
			return ETH_P_IPV4;
		return is_ipv6(skb, *at) ? ETH_P_IPV6 : 0;
	}
	return 0;
}

/* The type behind what stands between; moves *at there. */
static __always_inline u16 parse_shim(struct __sk_buff *skb, u16 type, u32 *at)
{
	if (type == ETH_P_PPPOE)
		return parse_pppoe(skb, at);
	return type == ETH_P_MPLS ? parse_mpls(skb, at) : type;
}

#endif /* VMCC_PORT_SHIM_H */
