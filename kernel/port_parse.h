/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Headers of a packet at a port: Ethernet, up to two VLAN tags, IPv4 or IPv6 with its extension
 * headers, the ports of TCP and UDP.  Every length is checked by the helper that copies; every loop
 * is bounded.  A VLAN tag that the kernel keeps beside the packet (skb->vlan_tci) is not in the
 * bytes.
 */
#ifndef VMCC_PORT_PARSE_H
#define VMCC_PORT_PARSE_H

#define ETH_HEADER_BYTES  14
#define ETH_P_IPV4	  0x0800
#define ETH_P_IPV6	  0x86dd
#define ETH_P_VLAN	  0x8100
#define ETH_P_QINQ	  0x88a8
#define VLAN_TAG_BYTES	  4
#define MAX_VLAN_TAGS	  2
#define IPV4_HEADER_BYTES 20
#define IPV6_HEADER_BYTES 40
#define MAX_EXTENSIONS	  6
#define PROTOCOL_TCP	  6
#define PROTOCOL_UDP	  17
#define UDP_HEADER_BYTES  8
#define UDP_CHECKSUM_AT	  6
#define VXLAN_BYTES	  8

/* What is known of a packet; addresses as on the wire, IPv4 in the first four bytes. */
struct packet {
	u32 ip_at;	  /* offset of the IP header */
	u32 transport_at; /* of the transport header; 0: none (later fragment, unknown extension) */
	u16 from_port;	  /* host byte order */
	u16 to_port;
	u8 version; /* 4, 6; 0: not IP, the rest means nothing then */
	u8 tos;
	u8 protocol; /* 0: not known */
	u8 reserved;
	u8 from[16];
	u8 to[16];
};

static __always_inline u16 be16(const u8 *bytes)
{
	return (u16)(bytes[0] << 8 | bytes[1]);
}

/* The type behind the Ethernet header at *at and its VLAN tags; moves *at there.  0: cut short. */
static __always_inline u16 parse_ethernet(struct __sk_buff *skb, u32 *at)
{
	u8 type[2];
	int i;

	if (bpf_skb_load_bytes(skb, *at + ETH_HEADER_BYTES - 2, type, sizeof(type)))
		return 0;
	*at += ETH_HEADER_BYTES;
	for (i = 0; i < MAX_VLAN_TAGS; i++) {
		u16 found = be16(type);

		if (found != ETH_P_VLAN && found != ETH_P_QINQ)
			return found;
		if (bpf_skb_load_bytes(skb, *at + 2, type, sizeof(type)))
			return 0;
		*at += VLAN_TAG_BYTES;
	}
	return be16(type);
}

static __always_inline void parse_ports(struct __sk_buff *skb, struct packet *p)
{
	u8 ports[4];

	if (p->protocol != PROTOCOL_TCP && p->protocol != PROTOCOL_UDP)
		return;
	if (bpf_skb_load_bytes(skb, p->transport_at, ports, sizeof(ports))) {
		p->transport_at = 0;
		return;
	}
	p->from_port = be16(ports);
	p->to_port = be16(ports + 2);
}

static __always_inline void parse_ipv4(struct __sk_buff *skb, u32 at, struct packet *p)
{
	u8 h[IPV4_HEADER_BYTES];
	u32 length;

	if (bpf_skb_load_bytes(skb, at, h, sizeof(h)) || h[0] >> 4 != 4)
		return;
	length = (h[0] & 15) * 4;
	if (length < IPV4_HEADER_BYTES)
		return;
	p->version = 4;
	p->ip_at = at;
	p->tos = h[1];
	__builtin_memcpy(p->from, h + 12, 4);
	__builtin_memcpy(p->to, h + 16, 4);
	p->protocol = h[9];
	/* Only the first fragment has ports. */
	if (be16(h + 6) & 0x1fff)
		return;
	p->transport_at = at + length;
	parse_ports(skb, p);
}

/* Whether `header` is an extension header, that another header follows. */
static __always_inline int is_extension(u8 header)
{
	return header == 0 || header == 43 || header == 60 || header == 51 || header == 44;
}

static __always_inline void parse_ipv6(struct __sk_buff *skb, u32 at, struct packet *p)
{
	u8 h[IPV6_HEADER_BYTES];
	u8 ext[4];
	u32 next_at = at + IPV6_HEADER_BYTES;
	u8 next;
	int i;

	if (bpf_skb_load_bytes(skb, at, h, sizeof(h)) || h[0] >> 4 != 6)
		return;
	p->version = 6;
	p->ip_at = at;
	p->tos = (u8)(h[0] << 4 | h[1] >> 4);
	__builtin_memcpy(p->from, h + 8, 16);
	__builtin_memcpy(p->to, h + 24, 16);
	next = h[6];
	for (i = 0; i < MAX_EXTENSIONS; i++) {
		if (!is_extension(next)) {
			p->protocol = next;
			p->transport_at = next_at;
			parse_ports(skb, p);
			return;
		}
		if (bpf_skb_load_bytes(skb, next_at, ext, sizeof(ext)))
			return;
		if (next == 44) {
			/* Fragment: the ports are in the first one only. */
			if (be16(ext + 2) & 0xfff8) {
				p->protocol = ext[0];
				return;
			}
			next_at += 8;
		} else {
			next_at += next == 51 ? (ext[1] + 2) * 4 : (ext[1] + 1) * 8;
		}
		next = ext[0];
	}
}

/*
 * The packet whose Ethernet header is at `at`.  Not static, as some others here: the verifier looks
 * at such a function once, not again for each way to it.
 */
__noinline int parse_packet(struct __sk_buff *skb, u32 at, struct packet *p)
{
	u16 type;

	if (!p)
		return 0;
	__builtin_memset(p, 0, sizeof(*p));
	type = parse_ethernet(skb, &at);
	if (type == ETH_P_IPV4)
		parse_ipv4(skb, at, p);
	else if (type == ETH_P_IPV6)
		parse_ipv6(skb, at, p);
	return 0;
}

/* RFC 7348, and what Linux took before and still takes unless told. */
#define VXLAN_PORT	 4789
#define VXLAN_PORT_LINUX 8472
#define VXLAN_HAS_ID	 0x08

/* Whether `p` carries an Ethernet frame with an IP packet in VXLAN, and then that packet. */
static __always_inline int parse_inner(struct __sk_buff *skb, const struct packet *p,
				       struct packet *inner)
{
	u32 at = p->transport_at + UDP_HEADER_BYTES;
	u8 flags;

	if (p->protocol != PROTOCOL_UDP || !p->transport_at)
		return 0;
	if (p->to_port != VXLAN_PORT && p->to_port != VXLAN_PORT_LINUX)
		return 0;
	if (bpf_skb_load_bytes(skb, at, &flags, sizeof(flags)) || flags != VXLAN_HAS_ID)
		return 0;
	parse_packet(skb, at + VXLAN_BYTES, inner);
	return inner->version != 0;
}

#endif /* VMCC_PORT_PARSE_H */
