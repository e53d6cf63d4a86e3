/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Headers of a packet at a port: Ethernet, up to two VLAN tags, PPPoE or MPLS, IPv4 or IPv6 with
 * its extension headers, ports.  Every length is checked by the helper that copies; every loop is
 * bounded.  A VLAN tag that the kernel keeps beside the packet (skb->vlan_tci) is not in the bytes.
 * On ports without a link layer (tun, WireGuard, IPIP, ...) a packet begins with its IP header.
 */
#ifndef VMCC_PORT_PARSE_H
#define VMCC_PORT_PARSE_H

#define ETH_HEADER_BYTES  14
#define ETH_P_IPV4	  0x0800
#define ETH_P_IPV6	  0x86dd
#define ETH_P_VLAN	  0x8100
#define ETH_P_QINQ	  0x88a8
#define ETH_P_QINQ_OLD	  0x9100 /* what switches took before 802.1ad */
#define VLAN_TAG_BYTES	  4
#define MAX_VLAN_TAGS	  2
#define IPV4_HEADER_BYTES 20
#define IPV4_OFFSET	  0x1fff
#define IPV4_MORE	  0x2000
#define IPV6_HEADER_BYTES 40
#define IPV6_OFFSET	  0xfff8
#define IPV6_MORE	  1
/* RFC 8200 knows seven at most, in their order. */
#define MAX_EXTENSIONS	  12
#define PROTOCOL_TCP	  6
#define PROTOCOL_UDP	  17
#define PROTOCOL_DCCP	  33
#define PROTOCOL_SCTP	  132
#define PROTOCOL_UDP_LITE 136
#define UDP_HEADER_BYTES  8
#define UDP_CHECKSUM_AT	  6
#define VXLAN_BYTES	  8
#define ECN_MASK	  3
#define ECN_CE		  3

/* Parsed fields of a packet; addresses as on the wire, IPv4 in the first four bytes. */
struct packet {
	u32 ip_at;	  /* offset of the IP header */
	u32 transport_at; /* of the transport header; 0: none (later fragment, unknown extension) */
	u32 end;	  /* of the IP packet: a short frame may be padded */
	u16 from_port;	  /* host byte order */
	u16 to_port;
	u8 version; /* 4, 6; 0: not IP, the rest means nothing then */
	u8 tos;
	u8 protocol; /* 0: not known */
	u8 part;     /* PART_... */
	u8 from[16];
	u8 to[16];
	u32 datagram; /* what fragments of one have in common, if it is in parts */
};

enum {
	PART_WHOLE = 0,
	PART_FIRST = 1,	   /* a fragment that has the transport header */
	PART_LATER = 2,	   /* one that has not */
	PART_TOO_DEEP = 3, /* behind more extension headers than are looked at */
};

static __always_inline u16 be16(const u8 *bytes)
{
	return (u16)(bytes[0] << 8 | bytes[1]);
}

static __always_inline u32 be32(const u8 *b)
{
	return (u32)b[0] << 24 | (u32)b[1] << 16 | (u32)b[2] << 8 | b[3];
}

static __always_inline int is_tag(u16 type)
{
	return type == ETH_P_VLAN || type == ETH_P_QINQ || type == ETH_P_QINQ_OLD;
}

#include "port_shim.h"

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

		if (!is_tag(found))
			return found;
		if (bpf_skb_load_bytes(skb, *at + 2, type, sizeof(type)))
			return 0;
		*at += VLAN_TAG_BYTES;
	}
	return be16(type);
}

/* Protocols whose header begins with the ports. */
static __always_inline int has_ports(u8 protocol)
{
	return protocol == PROTOCOL_TCP || protocol == PROTOCOL_UDP || protocol == PROTOCOL_DCCP ||
	       protocol == PROTOCOL_SCTP || protocol == PROTOCOL_UDP_LITE;
}

static __always_inline void parse_ports(struct __sk_buff *skb, struct packet *p)
{
	u8 ports[4];

	if (!has_ports(p->protocol))
		return;
	if (bpf_skb_load_bytes(skb, p->transport_at, ports, sizeof(ports))) {
		p->transport_at = 0;
		return;
	}
	p->from_port = be16(ports);
	p->to_port = be16(ports + 2);
}

/* A train too long for the header's field says zero there. */
static __always_inline u32 packet_end(const struct __sk_buff *skb, u32 at, u32 length)
{
	u32 end = at + length;

	return length && end < skb->len ? end : skb->len;
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
	p->end = packet_end(skb, at, be16(h + 2));
	p->tos = h[1];
	__builtin_memcpy(p->from, h + 12, 4);
	__builtin_memcpy(p->to, h + 16, 4);
	p->protocol = h[9];
	p->datagram = be16(h + 4);
	/* Only the first fragment has ports. */
	if (be16(h + 6) & IPV4_OFFSET) {
		p->part = PART_LATER;
		return;
	}
	p->part = be16(h + 6) & IPV4_MORE ? PART_FIRST : PART_WHOLE;
	p->transport_at = at + length;
	parse_ports(skb, p);
}

#define EXTENSION_FRAGMENT 44
#define EXTENSION_AUTH	   51

/* Not static, as the next ones: the verifier then visits their branches only once.  True if
 * `header` is an extension header, which another header follows. */
__noinline int is_extension(u32 header)
{
	return header == 0 || header == 43 || header == 60 || header == EXTENSION_AUTH ||
	       header == EXTENSION_FRAGMENT;
}

/* Its length in bytes, if its second byte is `length`. */
__noinline u32 extension_bytes(u32 header, u32 length)
{
	if (header == EXTENSION_FRAGMENT)
		return 8;
	return header == EXTENSION_AUTH ? (length + 2) * 4 : (length + 1) * 8;
}

__noinline int note_fragment(struct packet *p, u32 offset, u32 datagram)
{
	if (!p)
		return 0;
	p->datagram = datagram;
	p->part = offset & IPV6_MORE ? PART_FIRST : PART_WHOLE;
	if (offset & IPV6_OFFSET)
		p->part = PART_LATER;
	return 0;
}

/* Follows the extension headers from `next` at `at` on. */
static __always_inline void parse_extensions(struct __sk_buff *skb, u32 at, u8 next,
					     struct packet *p)
{
	u8 ext[8];
	int i;

	for (i = 0; i < MAX_EXTENSIONS; i++) {
		if (!is_extension(next)) {
			p->protocol = next;
			p->transport_at = at;
			return;
		}
		if (bpf_skb_load_bytes(skb, at, ext, sizeof(ext)))
			return;
		at += extension_bytes(next, ext[1]);
		if (next == EXTENSION_FRAGMENT)
			note_fragment(p, be16(ext + 2), be32(ext + 4));
		next = ext[0];
		if (p->part == PART_LATER) {
			/* The ports are in the first one only. */
			p->protocol = next;
			return;
		}
	}
	p->part = PART_TOO_DEEP;
}

static __always_inline void parse_ipv6(struct __sk_buff *skb, u32 at, struct packet *p)
{
	u8 h[IPV6_HEADER_BYTES];

	if (bpf_skb_load_bytes(skb, at, h, sizeof(h)) || h[0] >> 4 != 6)
		return;
	p->version = 6;
	p->ip_at = at;
	p->end = packet_end(skb, at, be16(h + 4) ? IPV6_HEADER_BYTES + be16(h + 4) : 0);
	p->tos = (u8)(h[0] << 4 | h[1] >> 4);
	__builtin_memcpy(p->from, h + 8, 16);
	__builtin_memcpy(p->to, h + 24, 16);
	parse_extensions(skb, at + IPV6_HEADER_BYTES, h[6], p);
	if (p->transport_at)
		parse_ports(skb, p);
}

/* The IP packet at `at`, of a type as Ethernet numbers them. */
static __always_inline void parse_ip(struct __sk_buff *skb, u32 at, u16 type, struct packet *p)
{
	if (type == ETH_P_IPV4)
		parse_ipv4(skb, at, p);
	else if (type == ETH_P_IPV6)
		parse_ipv6(skb, at, p);
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
	type = parse_shim(skb, type, &at);
	parse_ip(skb, at, type, p);
	return 0;
}

/* The packet of a port without a link layer, whose IP header is at `at`. */
__noinline int parse_bare(struct __sk_buff *skb, u32 at, struct packet *p)
{
	if (!p)
		return 0;
	__builtin_memset(p, 0, sizeof(*p));
	parse_ip(skb, at, __builtin_bswap16(skb->protocol), p);
	return 0;
}

/* RFC 7348; Linux's earlier default, which it still has unless configured, follows. */
#define VXLAN_PORT	 4789
#define VXLAN_PORT_LINUX 8472
#define VXLAN_HAS_ID	 0x08

/* Parses the IP packet in an Ethernet frame in VXLAN that `p` carries; false if there is none. */
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
