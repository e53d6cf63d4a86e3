/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The round-trip time of the TCP connections that cross a port, measured in passing.
 *
 * A packet that leaves is stored until its answer returns (the RTT from here to one end), and the
 * other way round; the two halves of a connection make its RTT.  Answers are identified by the
 * TCP timestamp that they echo (RFC 7323), or by the acknowledgment number where there is no
 * timestamp.
 *
 * Only the first packet with a new timestamp or with new bytes is remembered, one per connection
 * and direction at a time: its answer cannot be taken for that of a later packet, so a sample is
 * never too short.  Delayed acknowledgments, an idle sender and the port's own queue only make one
 * longer: of a connection the shortest of the last ten seconds counts.  Of the connections of a
 * class see marking_rtt.h; other classes' do not matter, so a sender affects only classes of its
 * own packets.
 */
#ifndef VMCC_PORT_RTT_H
#define VMCC_PORT_RTT_H

/* Connections that are followed at a time; beyond that the one idle longest makes room. */
#define RTT_FLOWS	4096
#define RTT_FLOW_NS	10000000000ull /* how long a connection's shortest counts */
#define RTT_WINDOW_NS	250000000ull
#define RTT_IDLE_NS	4000000000ull /* nothing for so long: what was before is over */
#define RTT_FORGET_NS	1000000000ull /* an answer later than this is not waited for */
#define RTT_MIN_NS	1000ull
#define TCP_MIN_BYTES	20
#define TCP_MAX_OPTIONS 8
#define TCP_OPT_END	0
#define TCP_OPT_NOP	1
#define TCP_OPT_TS	8
#define TCP_OPT_TS_LEN	10
#define TCP_FLAGS_AT	13
#define TCP_SYN		2
#define TCP_SYN_FIN	3
#define TCP_RST		4
#define TCP_ACK		16

/* A connection as packets that leave show it. */
struct rtt_key {
	u8 from[16];
	u8 to[16];
	u16 from_port;
	u16 to_port;
	u32 has_ts;
};

/* Packets of one direction, and their answers. */
struct rtt_half {
	u64 sent_at;	 /* when the remembered packet passed; 0: none is waited for */
	u64 shortest_ns; /* of late; 0: none yet */
	u64 shortest_at;
	u32 seen; /* newest mark that passed, if has_seen */
	u32 waits_for;
	u32 has_seen;
	u32 reserved;
};

struct rtt_flow {
	struct rtt_half half[2]; /* asked by packets that come in, by packets that leave */
	u64 bytes;		 /* sent since its last sample */
	u32 class;
	u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, RTT_FLOWS);
	__type(key, struct rtt_key);
	__type(value, struct rtt_flow);
} port_flows SEC(".maps");

/* The samples of one class: bytes by RTT, those before this window faded. */
struct port_rtt {
	u64 window_at;
	u64 bytes[MARK_RTT_BUCKETS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORT_CLASSES);
	__type(key, u32);
	__type(value, struct port_rtt);
} port_rtts SEC(".maps");

/* The relevant fields of a TCP header. */
struct tcp_marks {
	u32 mark;   /* what an answer will show */
	u32 answer; /* what this packet answers, if `answers` */
	u8 has_ts;
	u8 asks;
	u8 answers;
};

/* Finds the timestamp option between `at` and `end`. */
static __always_inline int find_timestamp(struct __sk_buff *skb, u32 at, u32 end,
					  struct tcp_marks *out)
{
	u8 option[TCP_OPT_TS_LEN];
	int i;

	for (i = 0; i < TCP_MAX_OPTIONS && at + TCP_OPT_TS_LEN <= end; i++) {
		if (bpf_skb_load_bytes(skb, at, option, sizeof(option)) || option[0] == TCP_OPT_END)
			return 0;
		if (option[0] == TCP_OPT_NOP) {
			at++;
			continue;
		}
		if (option[0] == TCP_OPT_TS && option[1] == TCP_OPT_TS_LEN) {
			out->mark = be32(option + 2);
			out->answer = be32(option + 6);
			return 1;
		}
		if (option[1] < 2)
			return 0;
		at += option[1];
	}
	return 0;
}

static __always_inline int read_marks(struct __sk_buff *skb, u32 at, struct tcp_marks *out)
{
	u8 h[TCP_MIN_BYTES];
	u32 header, length;

	if (bpf_skb_load_bytes(skb, at, h, sizeof(h)) || h[TCP_FLAGS_AT] & TCP_RST)
		return 0;
	header = (h[12] >> 4) * 4;
	if (header < TCP_MIN_BYTES)
		return 0;
	out->answers = !!(h[TCP_FLAGS_AT] & TCP_ACK);
	out->has_ts = find_timestamp(skb, at + TCP_MIN_BYTES, at + header, out);
	out->asks = 1;
	if (out->has_ts)
		return 1;
	/* The padding of a short frame counts as data: that answer never comes, and is forgotten.
	 */
	length = skb->len > at + header ? skb->len - at - header : 0;
	length += h[TCP_FLAGS_AT] & TCP_SYN_FIN ? 1 : 0;
	out->mark = be32(h + 4) + length;
	out->answer = be32(h + 8);
	out->asks = length > 0;
	return 1;
}

/* True if a new window begins; it then has the decayed content of those before. */
static __always_inline int rtt_turn_window(struct port_rtt *seen, u64 now)
{
	u64 at = seen->window_at;
	int idle = now - at > RTT_IDLE_NS, i;

	/* Another CPU may have been here since `now`. */
	if ((long long)(now - at) < (long long)RTT_WINDOW_NS)
		return 0;
	if (__sync_val_compare_and_swap(&seen->window_at, at, now) != at)
		return 0;
	for (i = 0; i < MARK_RTT_BUCKETS; i++)
		seen->bytes[i] = idle ? 0 : mark_rtt_fade(seen->bytes[i]);
	return 1;
}

static __always_inline void rtt_of_class(struct port_state *state, struct rtt_flow *flow, u64 now)
{
	u64 rtt = flow->half[0].shortest_ns + flow->half[1].shortest_ns;
	u64 bytes = __sync_lock_test_and_set(&flow->bytes, 0);
	u32 class = flow->class & (PORT_CLASSES - 1), bucket = mark_rtt_bucket(rtt);
	struct port_rtt *seen = bpf_map_lookup_elem(&port_rtts, &class);
	int turned;

	if (!seen || bucket >= MARK_RTT_BUCKETS)
		return;
	turned = rtt_turn_window(seen, now);
	__sync_fetch_and_add(&seen->bytes[bucket], bytes);
	barrier_var(class);
	class &= PORT_CLASSES - 1;
	if (turned || !state->rtt_ns[class])
		state->rtt_ns[class] = mark_rtt_quantile(seen->bytes);
	__sync_fetch_and_add(&state->rtt_samples[class], 1);
}

/* Takes `m` for the answer that `half` waits for, if it is; whether it was. */
static __always_inline int rtt_answer(struct rtt_half *half, const struct tcp_marks *m, u64 now)
{
	u64 took = now - half->sent_at;

	if (!half->sent_at || !m->answers || (s32)(m->answer - half->waits_for) < 0)
		return 0;
	/* Nobody answers what has not been sent: marks that jump ahead do not make one. */
	if ((s32)(half->seen - m->answer) < 0)
		return 0;
	half->sent_at = 0;
	if (took > RTT_FORGET_NS)
		return 0;
	if (took < RTT_MIN_NS)
		took = RTT_MIN_NS;
	if (!half->shortest_ns || took < half->shortest_ns ||
	    now - half->shortest_at > RTT_FLOW_NS) {
		half->shortest_ns = took;
		half->shortest_at = now;
	}
	return 1;
}

static __always_inline void rtt_ask(struct rtt_half *half, const struct tcp_marks *m, u64 now)
{
	if (!m->asks || (half->has_seen && (s32)(m->mark - half->seen) <= 0))
		return;
	half->seen = m->mark;
	half->has_seen = 1;
	if (half->sent_at && now - half->sent_at <= RTT_FORGET_NS)
		return;
	half->waits_for = m->mark;
	half->sent_at = now;
}

/* `out` is 1 for a packet that leaves, then in `class`. */
__noinline int rtt_packet(struct __sk_buff *skb, const struct packet *p, struct port_state *state,
			  u32 out, u32 class)
{
	struct tcp_marks m = {};
	struct rtt_key key = {};
	struct rtt_flow *flow;
	u64 now;

	if (!p || !state || p->protocol != PROTOCOL_TCP || !p->transport_at)
		return 0;
	if (!read_marks(skb, p->transport_at, &m))
		return 0;
	__builtin_memcpy(key.from, out ? p->from : p->to, sizeof(key.from));
	__builtin_memcpy(key.to, out ? p->to : p->from, sizeof(key.to));
	key.from_port = out ? p->from_port : p->to_port;
	key.to_port = out ? p->to_port : p->from_port;
	key.has_ts = m.has_ts;
	flow = bpf_map_lookup_elem(&port_flows, &key);
	if (!flow) {
		struct rtt_flow fresh = {};

		bpf_map_update_elem(&port_flows, &key, &fresh, BPF_NOEXIST);
		flow = bpf_map_lookup_elem(&port_flows, &key);
		if (!flow)
			return 0;
	}
	out &= 1;
	if (out) {
		flow->class = class;
		__sync_fetch_and_add(&flow->bytes, skb->wire_len);
	}
	now = bpf_ktime_get_ns();
	if (rtt_answer(&flow->half[out ^ 1], &m, now) && flow->half[0].shortest_ns &&
	    flow->half[1].shortest_ns)
		rtt_of_class(state, flow, now);
	rtt_ask(&flow->half[out], &m, now);
	return 0;
}

#endif /* VMCC_PORT_RTT_H */
