/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * An algorithm as one of Linux's TCP congestion controls: the only struct_ops wrapper.
 *
 * Compiled once per entry of registry.toml with
 *     CC_ALG          its name          CC_KERNEL_NAME  its name in the kernel, a string
 *     CC_ALG_SOURCE   its source file   CC_COUPLED      1 if it reads its siblings, else 0
 *     CC_NEEDS_ECN    1 if it needs every mark echoed, else 0
 *     CC_DETECTS      1 if it detects paths that share a bottleneck, else 0
 *     CC_PACES        1 if it has packets spaced, else 0
 *
 * What Linux calls, and what becomes of it:
 *
 *   pkts_acked, in_ack_event: noted.  Either may come first (Linux 6.16 swapped them), either may
 *   be missing.  on_ack runs once both are there, or growth or a change of state follows, at the
 *   latest when the next ACK arrives.  in_ack_event exists for echoed marks only: Linux calls it
 *   for every segment at a receiver as well, which an algorithm without ECN need not pay for.
 *   Whether an ACK echoed a mark stays known until the next in_ack_event: one ACK may end a
 *   reduction and begin another, so that Linux asks again after on_ack has run.
 *
 *   ssthresh: noted.  Linux asks before it says why; set_state, which follows at once, tells
 *   whether a loss, an echoed mark or a timeout was the reason.
 *
 *   set_state: on_congestion if ssthresh was asked for, then on_state.
 *
 *   cong_avoid: on_ack if still due, on_grow.
 *
 *   detect: at the end of the callback in which on_ack ran, by itself for its stack.
 *
 *   cwnd_event: the receiver's echo of marks (echo.bpf.h).
 *
 *   undo_cwnd: Linux's own rule; no hook.
 *
 *   min_tso_segs: the spacing that was asked for.  Linux sets its own rate, from its own RTT, at
 * the end of every ACK, and asks this right before it sends.
 *
 * The window that on_congestion answers is not taken: Linux reduces gradually (PRR) to ssthresh.
 */
#include "kernel_types.h"
#include "algorithm.bpf.h"
#include "shared.h"
#include "echo.bpf.h"
#include "elapsed.h"
#include "mp_sk.h"

char _license[] SEC("license") = "Dual BSD/GPL";

struct mp_config mp_config SEC(".data.vmcc") = {
	.interface_version = CC_INTERFACE_VERSION,
	.name = CC_KERNEL_NAME,
	.account_connections = MP_ACCOUNT_CONNECTIONS,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct mp_counters);
} mp_counters SEC(".maps");

#if CC_COUPLED
#include "group.bpf.h"
#endif

/* Bits of mp_sk.flags. */
#define SK_ACK	    (1u << 0) /* in_ack_event has been called for an ACK that on_ack has not seen */
#define SK_SAMPLE   (1u << 1) /* the same for pkts_acked */
#define SK_ECE	    (1u << 2) /* the last ACK echoed a mark, whether on_ack has seen it or not */
#define SK_CE	    (1u << 3) /* receiver: the last segment carried CE */
#define SK_REDUCING (1u << 4) /* ssthresh was asked for */
#define SK_BACKUP   (1u << 5)
#define SK_LIVE	    (1u << 6) /* init has run: Linux calls back already during the handshake */
#define SK_MENDED   (1u << 7) /* mend_ssthresh has cut the window below what is in flight */

/* What Linux says about an ACK before it lets the window grow. */
#define SK_WHOLE_ACK (CC_NEEDS_ECN ? SK_ACK | SK_SAMPLE : SK_SAMPLE)

/* The highest ssthresh that an algorithm sets whatever the window was before. */
#if CC_DETECTS
#define LOW_SSTHRESH CC_SHARING_WIDE
#else
#define LOW_SSTHRESH CC_MIN_SSTHRESH_PKT
#endif

/* Linux's own (net.ipv4.tcp_min_tso_segs). */
#define MIN_TSO_SEGS 2

/* How often a member looks for siblings that have become backups. */
#define LOOK_AGAIN_US 10000

/* One call of an algorithm, on the stack: map or socket memory cannot be passed as plain memory. */
struct call {
	struct cc_event ev;
	struct cc_path path;
	struct cc_decision out;
};

static __always_inline struct mp_sk *mp_sk(struct sock *sk)
{
	return (struct mp_sk *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

static __always_inline int live(struct sock *sk)
{
	return mp_sk(sk)->flags & SK_LIVE;
}

static __always_inline u32 ca_state(struct sock *sk)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)sk;

	return BPF_CORE_READ_BITFIELD(icsk, icsk_ca_state);
}

static __always_inline int cwnd_limited(const struct tcp_sock *tp)
{
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return 1;
	/* In slow start the window may run ahead of what the application sends, up to twice. */
	return tp->snd_cwnd < tp->snd_ssthresh && tp->snd_cwnd < 2 * tp->max_packets_out;
}

static __always_inline u32 in_flight(const struct tcp_sock *tp)
{
	u32 left = tp->sacked_out + tp->lost_out;
	u32 out = tp->packets_out + tp->retrans_out;

	return out > left ? out - left : 0;
}

#if CC_COUPLED

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, MP_EVENT_BYTES);
} mp_events SEC(".maps");

#if CC_DETECTS
/* A path has joined: forgets what was seen of an earlier one in its slot. */
static __noinline int sharing_begin(u64 key, u8 slot)
{
	struct mp_watched_group *entry = bpf_map_lookup_elem(&mp_groups, &key);
	struct cc_event ev = {.self = slot};

	if (!entry)
		return 0;
	/* The first has slot 0. */
	if (slot)
		entry->several = 1;
	cc_sharing_begin(&ev, &entry->sharing);
	return 0;
}
#else
static __always_inline int sharing_begin(u64 key, u8 slot)
{
	(void)key;
	(void)slot;
	return 0;
}
#endif

static __always_inline void join(struct sock *sk, struct mp_sk *ca)
{
	u8 slot = 0, refused = ca->slot & SLOT_REFUSED;

	ca->group_key = group_join(sk, &slot);
	if (ca->group_key)
		sharing_begin(ca->group_key, slot);
	if (!ca->group_key)
		slot = refused || group_refused(sk) ? SLOT_REFUSED : 0;
	ca->slot = slot;
}

/*
 * At init, and now and then: joins if that was not possible before (tried once per round trip),
 * follows MP_PRIO.  Called where little is on the stack, which an entry to insert needs.
 */
static __always_inline void membership(struct sock *sk, struct mp_sk *ca)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;

	if (!tp->is_mptcp)
		return;
	if (!ca->group_key || !group_has(ca->group_key, ca->slot & (CC_MAX_PATHS - 1)))
		join(sk, ca);
	ca->flags =
		subflow_is_backup(subflow_of(sk)) ? ca->flags | SK_BACKUP : ca->flags & ~SK_BACKUP;
	if (ca->group_key)
		group_find_backups(ca->group_key);
	ca->looked_us = (u32)tp->tcp_mstamp;
}

static __always_inline int membership_due(const struct sock *sk, const struct mp_sk *ca)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;

	return tp->is_mptcp && time_passed(tp->tcp_mstamp, ca->looked_us,
					   ca->group_key ? LOOK_AGAIN_US : tp->srtt_us >> 3);
}

static __always_inline struct mp_group *group_find(const struct mp_sk *ca)
{
	u64 key = ca->group_key;

	return key ? bpf_map_lookup_elem(&mp_groups, &key) : 0;
}

/* Shows the path to its siblings. */
static __always_inline void publish(struct sock *sk, const struct mp_sk *ca, const struct call *c,
				    struct mp_group *entry)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	u32 state = c->ev.state, flags = 0;
	u8 tcp_state = sk->__sk_common.skc_state;
	struct cc_slot *slot;

	if (!entry)
		return;
	slot = &entry->group.path[ca->slot & (CC_MAX_PATHS - 1)];
	if ((tcp_state == TCP_ESTABLISHED || tcp_state == TCP_CLOSE_WAIT) &&
	    !(ca->flags & SK_BACKUP))
		flags |= CC_SLOT_ESTABLISHED;
	if (state == CC_STATE_CWR || state == CC_STATE_RECOVERY)
		flags |= CC_SLOT_RECOVERY;
	if (state == CC_STATE_LOSS)
		flags |= CC_SLOT_LOSS;
	if (tp->snd_cwnd < tp->snd_ssthresh)
		flags |= CC_SLOT_SLOW_START;
	slot->cwnd_pkt = tp->snd_cwnd;
	slot->ssthresh_pkt = tp->snd_ssthresh;
	slot->srtt_8us = tp->srtt_us;
	slot->pub[0] = c->path.pub[0];
	slot->pub[1] = c->path.pub[1];
	/* Last, so that a new path is not seen before its window. */
	*(volatile u32 *)&slot->flags = flags;
}

static __always_inline void fill_ends(struct mp_ends *ends, const struct sock *sk)
{
	const struct sock_common *skc = &sk->__sk_common;

	ends->family = BPF_CORE_READ(skc, skc_family);
	ends->local_port = BPF_CORE_READ(skc, skc_num);
	ends->remote_port = __builtin_bswap16(BPF_CORE_READ(skc, skc_dport));
	if (ends->family == AF_INET6) {
		bpf_core_read(ends->local_addr, 16, &skc->skc_v6_rcv_saddr);
		bpf_core_read(ends->remote_addr, 16, &skc->skc_v6_daddr);
	} else {
		bpf_core_read(ends->local_addr, 4, &skc->skc_rcv_saddr);
		bpf_core_read(ends->remote_addr, 4, &skc->skc_daddr);
	}
}

static __always_inline void fill_event(struct mp_close_event *event, const struct sock *sk,
				       const struct mp_group *entry, u32 slot, u32 peer)
{
	const struct mptcp_subflow_context *kept;

	__builtin_memset(event, 0, sizeof(*event));
	event->time_ns = bpf_ktime_get_ns();
	event->cookie = BPF_CORE_READ(sk, __sk_common.skc_cookie.counter);
	event->bytes_acked = ((const struct tcp_sock *)sk)->bytes_acked;
	event->token = entry->token;
	event->netns = entry->netns;
	event->interface = BPF_CORE_READ(sk, __sk_common.skc_bound_dev_if);
	event->slot = slot;
	event->peer = peer;
	fill_ends(&event->ends, sk);
	kept = (const struct mptcp_subflow_context *)entry->subflow[peer];
	fill_ends(&event->peer_ends, BPF_CORE_READ(kept, tcp_sock));
}

/* Asks user space to close this path: BPF cannot. */
static __noinline int close_path(struct sock *sk, u32 peer)
{
	struct mp_sk *ca = mp_sk(sk);
	struct mp_group *entry = group_find(ca);
	struct mp_close_event *event;
	struct mp_account *account;

	if (!entry)
		return 0;
	account = account_find(entry->account);
	if (!account)
		return 0;
	event = account_may_ask(account) ? bpf_ringbuf_reserve(&mp_events, sizeof(*event), 0) : 0;
	if (!event) {
		__sync_fetch_and_add(&account->requests_lost, 1);
		return 0;
	}
	fill_event(event, sk, entry, ca->slot & (CC_MAX_PATHS - 1), peer & (CC_MAX_PATHS - 1));
	bpf_ringbuf_submit(event, 0);
	return 0;
}

#else /* !CC_COUPLED: no table, no lookup */

static __always_inline void membership(struct sock *sk, struct mp_sk *ca)
{
	(void)sk;
	(void)ca;
}

static __always_inline int membership_due(const struct sock *sk, const struct mp_sk *ca)
{
	(void)sk;
	(void)ca;
	return 0;
}

static __always_inline struct mp_group *group_find(const struct mp_sk *ca)
{
	(void)ca;
	return 0;
}

static __always_inline void publish(struct sock *sk, const struct mp_sk *ca, const struct call *c,
				    struct mp_group *entry)
{
	(void)sk;
	(void)ca;
	(void)c;
	(void)entry;
}

static __always_inline void close_path(struct sock *sk, u32 peer)
{
	(void)sk;
	(void)peer;
}

#endif

/* Linux's timestamps are in milliseconds unless a route asks for microseconds. */
static __always_inline u32 peer_clock_ms(const struct tcp_sock *tp)
{
	u32 tsval = tp->rx_opt.rcv_tsval;

	if (bpf_core_field_exists(tp->tcp_usec_ts) && BPF_CORE_READ_BITFIELD(tp, tcp_usec_ts))
		return tsval / 1000;
	return tsval;
}

static __always_inline void event_load(struct cc_event *ev, struct sock *sk, const struct mp_sk *ca)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	u32 min_rtt_us = tp->rtt_min.s[0].v;

	ev->now_us = tp->tcp_mstamp | !tp->tcp_mstamp;
	ev->flags = cwnd_limited(tp) ? CC_EV_CWND_LIMITED : 0;
	if (ca->flags & SK_ECE)
		ev->flags |= CC_EV_ECE;
	ev->state = ca_state(sk);
	ev->cause = CC_CAUSE_NONE;
	ev->self = ca->slot & (CC_MAX_PATHS - 1);
	ev->cwnd_pkt = tp->snd_cwnd;
	ev->ssthresh_pkt = tp->snd_ssthresh;
	ev->srtt_8us = tp->srtt_us;
	ev->min_rtt_us = min_rtt_us == ~0u ? 0 : min_rtt_us;
	ev->rtt_us = 0;
	ev->acked_pkt = 0;
	ev->in_flight_pkt = in_flight(tp);
	ev->snd_una = tp->snd_una;
	ev->snd_nxt = tp->snd_nxt;
	ev->peer_ms = peer_clock_ms(tp);
}

static __always_inline void call_load(struct call *c, struct sock *sk, const struct mp_sk *ca)
{
	event_load(&c->ev, sk, ca);
	c->path = ca->path;
}

static __always_inline void decision_clear(struct call *c)
{
	__builtin_memset(&c->out, 0, sizeof(c->out));
}

/*
 * Spaces packets as the decision says.  What is written to sk_pacing_rate would not last: Linux
 * computes it anew after every ACK, from an RTT that may be anything after a sleep.  So a gap for
 * long is a limit, below which Linux stays, as an application can set one; and a gap for a round
 * trip is written right before Linux sends (cc_min_tso_segs), and leaves an application's limit
 * alone.
 */
#if CC_PACES && CC_NEEDS_ECN
static __noinline int space(struct sock *sk, u32 gap_us)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	u32 rate = ~0u;

	if (gap_us)
		rate = cc_max((u32)cc_min64((u64)tp->mss_cache * 1000000 / gap_us, ~0u - 1), 1);
	bpf_setsockopt(sk, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate));
	if (gap_us && tp->ecn_flags & TCP_ECN_NEGOTIATED)
		tp->ecn_flags |= TCP_ECN_QUEUE_CWR;
	/* Spaced no more: Linux shall not go on by its own rate, which no sibling has. */
	if (!gap_us && sk->sk_pacing_status == SK_PACING_NEEDED)
		sk->sk_pacing_status = SK_PACING_NONE;
	return 0;
}
#elif CC_PACES
/* Who has set no limit of his own has no pacing but ours. */
static __always_inline void space(struct sock *sk, u32 gap_us)
{
	u32 status = sk->sk_pacing_status;

	mp_sk(sk)->gap_us = gap_us;
	if (gap_us && status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
	else if (!gap_us && status == SK_PACING_NEEDED && !~sk->sk_max_pacing_rate)
		sk->sk_pacing_status = SK_PACING_NONE;
}
#else
static __always_inline void space(struct sock *sk, u32 gap_us)
{
	(void)sk;
	(void)gap_us;
}
#endif

/* Takes over a decision; the event follows, for the next hook of the same ACK. */
static __always_inline void apply(struct call *c, struct sock *sk)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;

	if (c->out.set & CC_SET_SSTHRESH) {
		tp->snd_ssthresh = c->out.ssthresh_pkt;
		c->ev.ssthresh_pkt = c->out.ssthresh_pkt;
	}
	if (c->out.set & CC_SET_CWND) {
		c->ev.cwnd_pkt = cc_min(cc_max(c->out.cwnd_pkt, 1), tp->snd_cwnd_clamp);
		tp->snd_cwnd = c->ev.cwnd_pkt;
	}
	if (CC_PACES && c->out.set & CC_SET_GAP)
		space(sk, c->out.gap_us);
	if (CC_COUPLED && c->out.set & CC_CLOSE_PATH)
		close_path(sk, c->out.peer);
}

/* Asks the algorithm; `c` is a struct call *, `entry` the connection's. */
#define RUN(hook, c, entry)                                                                        \
	do {                                                                                       \
		decision_clear(c);                                                                 \
		MP_HOOK(hook)(&(c)->ev, &(c)->path, (entry) ? &(entry)->group : 0,                 \
			      &mp_config.params, &(c)->out);                                       \
	} while (0)

/* Fills in what the callbacks of this ACK noted; true if on_ack is due. */
static __always_inline int take_ack(struct call *c, struct mp_sk *ca)
{
	u8 flags = ca->flags;

	if (!(flags & (SK_ACK | SK_SAMPLE)))
		return 0;
	if (flags & SK_SAMPLE) {
		c->ev.rtt_us = ca->rtt_us;
		c->ev.acked_pkt = ca->acked_pkt;
	}
	ca->flags = flags & ~(SK_ACK | SK_SAMPLE);
	if (CC_DETECTS)
		ca->slot |= SLOT_DETECT;
	return 1;
}

/* Adds one to a counter, of all CPUs together: for what happens far less often than ACKs. */
static __always_inline void count(u32 which)
{
	u32 zero = 0;
	struct mp_counters *counters = bpf_map_lookup_elem(&mp_counters, &zero);

	if (counters && which < MP_COUNTERS)
		__sync_fetch_and_add(&counters->count[which], 1);
}

/* Starts a call: the event, and on_ack if an ACK is still due. */
static __always_inline struct mp_group *call_begin(struct call *c, struct sock *sk,
						   struct mp_sk *ca)
{
	struct mp_group *entry = group_find(ca);

	call_load(c, sk, ca);
	if (take_ack(c, ca)) {
		RUN(on_ack, c, entry);
		apply(c, sk);
	}
	return entry;
}

/* Ends a call: what the algorithm keeps, and what it shows to siblings. */
static __always_inline void call_end(const struct call *c, struct sock *sk, struct mp_sk *ca,
				     struct mp_group *entry)
{
	ca->path = c->path;
	publish(sk, ca, c, entry);
}

/* on_ack by itself: no growth follows. */
static __noinline int ack_only(struct sock *sk)
{
	struct mp_sk *ca = mp_sk(sk);
	struct mp_group *entry;
	struct call c;

	entry = call_begin(&c, sk, ca);
	call_end(&c, sk, ca, entry);
	return 0;
}

#if CC_DETECTS
/*
 * Does the application wait?  A narrow subflow has sent all that it was given, most of the time,
 * while the connection still has what it will be given when an ACK has come.
 */
static __always_inline int more_to_send(const struct tcp_sock *tp)
{
	const struct mptcp_subflow_context *subflow;
	const struct mptcp_sock *connection;

	if (tp->write_seq != tp->snd_nxt)
		return 1;
	subflow = subflow_of((const struct sock *)tp);
	if (!subflow)
		return 0;
	connection = (const struct mptcp_sock *)BPF_CORE_READ(subflow, conn);
	return BPF_CORE_READ(connection, write_seq) != BPF_CORE_READ(connection, snd_nxt);
}

/* Looks whether the path shares a bottleneck; at most one look per ACK that on_ack has seen. */
static __noinline int detect(struct sock *sk)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct mp_sk *ca = mp_sk(sk);
	struct mp_watched_group *entry;
	struct cc_decision out = {0};
	struct cc_event ev;

	ca->slot &= ~SLOT_DETECT;
	entry = (struct mp_watched_group *)group_find(ca);
	if (!entry || !entry->several)
		return 0;
	event_load(&ev, sk, ca);
	ev.rtt_us = ca->rtt_us;
	ev.acked_pkt = ca->acked_pkt;
	/*
	 * Where the host's own queue is the bottleneck, Linux holds a socket back before its window
	 * is full (TCP small queues).  What matters here is that the application is not the limit.
	 */
	if (more_to_send(tp))
		ev.flags |= CC_EV_CWND_LIMITED;
	MP_HOOK(detect)(&ev, &entry->group.group, &entry->sharing, &mp_config.params, &out);
	if (out.set & CC_SET_SSTHRESH)
		tp->snd_ssthresh = out.ssthresh_pkt;
	if (out.set & CC_SET_CWND)
		tp->snd_cwnd = cc_min(cc_max(out.cwnd_pkt, 1), tp->snd_cwnd_clamp);
	if (out.set & CC_CLOSE_PATH)
		close_path(sk, out.peer);
	return 0;
}

static __always_inline void detect_if_due(struct sock *sk)
{
	if (mp_sk(sk)->slot & SLOT_DETECT && mp_sk(sk)->group_key)
		detect(sk);
}
#else
static __always_inline void detect_if_due(struct sock *sk)
{
	(void)sk;
}
#endif

/* Every callback of an ACK has come, and Linux is in a state in which no growth will follow. */
static __always_inline void ack_complete(struct sock *sk, u8 flags)
{
	u32 state = ca_state(sk);

	if ((flags & SK_WHOLE_ACK) == SK_WHOLE_ACK &&
	    (state == CC_STATE_CWR || state == CC_STATE_RECOVERY))
		ack_only(sk);
}

/*
 * Leaves the connection to Reno, as Linux's own DCTCP does, if ECN has not been negotiated; true if
 * it has been left.  Its packets must not say that they can be marked: nothing would echo the
 * marks.  Only Linux can take ECT from a socket, and does so for an algorithm that needs no ECN.
 */
static __always_inline int without_ecn(struct sock *sk)
{
	char reno[] = "reno";

	if (!CC_NEEDS_ECN || ((const struct tcp_sock *)sk)->ecn_flags & TCP_ECN_NEGOTIATED)
		return 0;
	if (bpf_setsockopt(sk, SOL_TCP, TCP_CONGESTION, reno, sizeof(reno) - 1))
		return 0;
	count(MP_COUNT_NO_ECN);
	return 1;
}

static __noinline int init_path(struct sock *sk)
{
	struct mp_sk *ca = mp_sk(sk);
	struct mp_group *entry;
	struct call c;

	call_load(&c, sk, ca);
	entry = group_find(ca);
	RUN(init, &c, entry);
	apply(&c, sk);
	call_end(&c, sk, ca, entry);
	return 0;
}

/* Begins, unless the handshake has shown that there is no ECN. */
static __always_inline void begin(struct sock *sk)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	struct mp_sk *ca = mp_sk(sk);

	if (without_ecn(sk))
		return;
	ca->group_key = 0;
	ca->rtt_us = 0;
	/* In the same place as gap_us, of which one that needs no ECN has none yet. */
	ca->prior_rcv_nxt = CC_NEEDS_ECN ? tp->rcv_nxt : 0;
	ca->acked_pkt = 0;
	ca->slot = 0;
	ca->flags = SK_LIVE;
	membership(sk, ca);
	init_path(sk);
}

/*
 * An algorithm that was selected while connecting was initialised before the peer could answer
 * about ECN, and Linux does not do so again: it begins with the first ACK.  What Linux calls during
 * a handshake, before init, does not get here: the state is another.
 */
static __always_inline void begin_late(struct sock *sk)
{
	if (CC_NEEDS_ECN && sk->__sk_common.skc_state == TCP_ESTABLISHED)
		begin(sk);
}

SEC("struct_ops")
void BPF_PROG(cc_init, struct sock *sk)
{
	/* Keeps the configuration alive, by which a registration is found after its owner was
	 * killed. */
	if (mp_config.interface_version != CC_INTERFACE_VERSION)
		return;
	mp_sk(sk)->flags = 0;
	if (CC_NEEDS_ECN && sk->__sk_common.skc_state == TCP_SYN_SENT)
		return;
	begin(sk);
}

SEC("struct_ops")
void BPF_PROG(cc_release, struct sock *sk)
{
#if CC_COUPLED
	struct mp_sk *ca = mp_sk(sk);

	if (live(sk) && ca->group_key && group_leave(ca->group_key, ca->slot & (CC_MAX_PATHS - 1)))
		group_end(ca->group_key);
	ca->group_key = 0;
#endif
	mp_sk(sk)->flags = 0;
}

/*
 * Whether the window or what it is reduced to are nothing that an algorithm can have answered: then
 * Linux asked, and the program did not run.  Linux itself raises ssthresh during a reduction in two
 * cases, and both take back undo_marker: when it undoes (without SACK the state stays), and when it
 * sends again what has become too long for the path, which enters Loss without asking.  In Loss it
 * may also restart from the window after idleness.
 */
static __always_inline int unanswered(struct sock *sk)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	u32 state = ca_state(sk), highest = CC_SSTHRESH_INFINITE;

	if (state == CC_STATE_CWR || (state > CC_STATE_CWR && tp->undo_marker))
		highest = cc_max(tp->prior_cwnd, LOW_SSTHRESH);
	if (state == CC_STATE_LOSS)
		highest = cc_max(highest, tp->snd_cwnd);
	return tp->snd_ssthresh > highest || tp->snd_cwnd > CC_MAX_CWND_PKT;
}

/*
 * A kernel may skip our programs: one that guards its init process was seen to skip every BPF
 * program in softirqs that interrupt process 1.  ssthresh then answers what was on the stack; PRR
 * raises the window towards it without limit, and the end of the reduction sets the window to it.
 * The next ACK ends that.
 */
static __always_inline void mend_ssthresh(struct sock *sk)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	u32 before = tp->prior_cwnd;

	if (!unanswered(sk))
		return;
	if (before > CC_MAX_CWND_PKT)
		before = CC_MIN_SSTHRESH_PKT;
	tp->snd_ssthresh = cc_max(before / 2, CC_MIN_SSTHRESH_PKT);
	tp->snd_cwnd = cc_max(cc_min(tp->snd_cwnd, before), 1);
	mp_sk(sk)->flags |= SK_MENDED;
	count(MP_COUNT_MENDED);
}

#if CC_NEEDS_ECN
SEC("struct_ops")
void BPF_PROG(cc_in_ack_event, struct sock *sk, u32 ack_flags)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	struct mp_sk *ca = mp_sk(sk);
	u8 flags;

	if (!live(sk))
		return;
	/* The one before: nothing but on_ack was due. */
	if (ca->flags & SK_ACK)
		ack_only(sk);
	flags = ca->flags & ~SK_ECE;
	/* A receiver is called for each segment; it has nothing in flight that could be
	 * acknowledged. */
	if (tp->packets_out || flags & SK_SAMPLE) {
		flags |= SK_ACK;
		if (ack_flags & CA_ACK_ECE)
			flags |= SK_ECE;
	}
	ca->flags = flags;
	ack_complete(sk, flags);
	detect_if_due(sk);
}
#endif

SEC("struct_ops")
void BPF_PROG(cc_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct mp_sk *ca = mp_sk(sk);
	u32 acked = sample->pkts_acked;
	s32 rtt_us = sample->rtt_us;
	u8 flags;

	if (!live(sk)) {
		begin_late(sk);
		return;
	}
	mend_ssthresh(sk);
	if (membership_due(sk, ca))
		membership(sk, ca);
	if (ca->flags & SK_SAMPLE)
		ack_only(sk);
	ca->rtt_us = rtt_us > 0 ? rtt_us : 0;
	ca->acked_pkt = cc_min(acked, 0xffff);
	flags = ca->flags | SK_SAMPLE;
	ca->flags = flags;
	ack_complete(sk, flags);
	detect_if_due(sk);
}

SEC("struct_ops")
u32 BPF_PROG(cc_ssthresh, struct sock *sk)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	struct mp_sk *ca = mp_sk(sk);

	ca->flags |= SK_REDUCING;
	/* Overwritten by set_state, which is the next thing Linux calls. */
	return cc_max(tp->snd_cwnd / 2, CC_MIN_SSTHRESH_PKT);
}

/*
 * PRR reduces what is in flight by the ratio of ssthresh to the window that the reduction started
 * from.  With far more in flight than that window, as a run-away leaves it, both are at the floor
 * and the ratio is one: a packet is sent for each that leaves, and marks change nothing any more.
 * So when the reduction ends that mend_ssthresh mended, the window is what is in flight.  The next
 * reduction may start within the same ACK, without another call in between.
 */
static __always_inline void mend_window(struct sock *sk, struct mp_sk *ca)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	u32 out = in_flight(tp);

	if (!(ca->flags & SK_MENDED))
		return;
	ca->flags &= ~SK_MENDED;
	if (out / 2 > tp->snd_cwnd)
		tp->snd_cwnd = out;
}

/*
 * Whether Linux enters Loss because its timer has expired.  During a reduction it then asks for no
 * new ssthresh, but clears icsk_pending before the timer's work.  Otherwise it sends again what has
 * become too long for the path (tcp_simple_retransmit), which is no congestion.
 */
static __always_inline int timed_out(const struct sock *sk, int asked)
{
	return asked || !((const struct inet_connection_sock *)sk)->icsk_pending;
}

/*
 * Why Linux reduces.  An algorithm that needs no ECN does not hear of single ACKs; with ECN
 * negotiated Linux enters CWR for an echoed mark, and hardly ever because the own device had no
 * room or a probe repaired the tail.
 */
static __always_inline u32 cause_of(const struct sock *sk, u32 new_state, u32 flags)
{
	int marked = flags & CC_EV_ECE;

	if (!CC_NEEDS_ECN)
		marked = ((const struct tcp_sock *)sk)->ecn_flags & TCP_ECN_NEGOTIATED;
	if (new_state == CC_STATE_LOSS)
		return CC_CAUSE_RTO;
	return new_state == CC_STATE_CWR && marked ? CC_CAUSE_ECE : CC_CAUSE_LOSS;
}

SEC("struct_ops")
void BPF_PROG(cc_set_state, struct sock *sk, u8 new_state)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct mp_sk *ca = mp_sk(sk);
	u32 old_state = ca_state(sk);
	struct mp_group *entry;
	int asked;
	struct call c;

	if (!live(sk))
		return;
	if (new_state == CC_STATE_OPEN && old_state >= CC_STATE_CWR)
		mend_window(sk, ca);
	entry = call_begin(&c, sk, ca);
	asked = ca->flags & SK_REDUCING;
	ca->flags &= ~SK_REDUCING;
	if ((asked && new_state >= CC_STATE_CWR) ||
	    (new_state == CC_STATE_LOSS && old_state != CC_STATE_LOSS && timed_out(sk, asked))) {
		c.ev.cause = cause_of(sk, new_state, c.ev.flags);
		/* After a timeout Linux has already cut the window. */
		if (c.ev.cause == CC_CAUSE_RTO)
			c.ev.cwnd_pkt = cc_max(tp->snd_cwnd, tp->prior_cwnd);
		/* RFC 5681 counts everything that is not acknowledged. */
		c.ev.in_flight_pkt = tp->packets_out;
		RUN(on_congestion, &c, entry);
		count(c.ev.cause);
		if (asked && c.out.set & CC_SET_SSTHRESH)
			tp->snd_ssthresh = c.out.ssthresh_pkt;
	}
	c.ev.state = new_state;
	c.ev.cwnd_pkt = tp->snd_cwnd;
	c.ev.ssthresh_pkt = tp->snd_ssthresh;
	if (new_state != old_state) {
		RUN(on_state, &c, entry);
		apply(&c, sk);
	}
	call_end(&c, sk, ca, entry);
}

/* By itself, so that its stack is free again when detect runs. */
static __noinline int grow(struct sock *sk, u32 acked)
{
	struct mp_sk *ca = mp_sk(sk);
	struct mp_group *entry;
	struct call c;

	entry = call_begin(&c, sk, ca);
	if (c.ev.flags & CC_EV_CWND_LIMITED && acked) {
		c.ev.acked_pkt = acked;
		RUN(on_grow, &c, entry);
		apply(&c, sk);
	}
	call_end(&c, sk, ca, entry);
	return 0;
}

SEC("struct_ops")
void BPF_PROG(cc_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	if (!live(sk))
		return;
	grow(sk, acked);
	detect_if_due(sk);
}

SEC("struct_ops")
u32 BPF_PROG(cc_undo_cwnd, struct sock *sk)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;

	return cc_max(tp->snd_cwnd, tp->prior_cwnd);
}

#if CC_NEEDS_ECN
SEC("struct_ops")
void BPF_PROG(cc_cwnd_event, struct sock *sk, int event)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct mp_sk *ca = mp_sk(sk);
	int was, ce;

	if (event != CA_EVENT_ECN_IS_CE && event != CA_EVENT_ECN_NO_CE)
		return;
	if (!live(sk))
		begin_late(sk);
	if (!live(sk))
		return;
	was = !!(ca->flags & SK_CE);
	ce = event == CA_EVENT_ECN_IS_CE;
	echo_segment(tp, was, ce, ca->prior_rcv_nxt);
	ca->prior_rcv_nxt = tp->rcv_nxt;
	ca->flags = ce ? ca->flags | SK_CE : ca->flags & ~SK_CE;
}
#endif

#if CC_PACES && !CC_NEEDS_ECN
SEC("struct_ops")
u32 BPF_PROG(cc_min_tso_segs, struct sock *sk)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	u32 gap_us = mp_sk(sk)->gap_us;
	u64 rate;

	if (live(sk) && gap_us) {
		rate = (u64)tp->mss_cache * 1000000 / gap_us;
		sk->sk_pacing_rate = cc_min64(rate | 1, sk->sk_max_pacing_rate);
	}
	return MIN_TSO_SEGS;
}
#endif

SEC(".struct_ops.link")
struct tcp_congestion_ops mp_ops = {
	.init = (void *)cc_init,
	.release = (void *)cc_release,
	.ssthresh = (void *)cc_ssthresh,
	.cong_avoid = (void *)cc_cong_avoid,
	.set_state = (void *)cc_set_state,
	.pkts_acked = (void *)cc_pkts_acked,
	.undo_cwnd = (void *)cc_undo_cwnd,
#if CC_PACES && !CC_NEEDS_ECN
	.min_tso_segs = (void *)cc_min_tso_segs,
#endif
#if CC_NEEDS_ECN
	.in_ack_event = (void *)cc_in_ack_event,
	.cwnd_event = (void *)cc_cwnd_event,
	.flags = TCP_CONG_NON_RESTRICTED | TCP_CONG_NEEDS_ECN,
#else
	.flags = TCP_CONG_NON_RESTRICTED,
#endif
	.name = CC_KERNEL_NAME,
};
