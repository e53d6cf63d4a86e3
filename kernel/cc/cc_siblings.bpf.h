/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Membership in the connection's group, and the path's slot there (cc.bpf.c); empty unless
 * CC_COUPLED. */
#ifndef VMCC_CC_SIBLINGS_BPF_H
#define VMCC_CC_SIBLINGS_BPF_H

#include "cc_socket.bpf.h"
#include "elapsed.h"

#if CC_COUPLED
#include "group.bpf.h"

/* Interval at which a member scans its siblings for new backups, us. */
#define GROUP_RETRY_US 10000

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, MP_EVENT_BYTES);
} mp_events SEC(".maps");

#if CC_DETECTS
/* A path has joined: clears the history of an earlier one in its slot. */
static __noinline int sharing_begin(u64 key, u8 slot)
{
	struct mp_watched_group *entry = bpf_map_lookup_elem(&mp_groups, &key);
	struct cc_event ev = {.self = slot};

	if (!entry)
		return 0;
	/* The first has slot 0. */
	if (slot)
		entry->several = 1;
	if (slot < CC_SHARING_PATHS)
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

/* Counts a path that is refused, once per cause. */
static __always_inline u8 refuse(const struct sock *sk, int joined, u8 before)
{
	u8 refused = SLOT_REFUSED | (joined == GROUP_BEYOND ? SLOT_BEYOND : 0);
	const struct mptcp_subflow_context *subflow = subflow_of(sk);

	if (subflow && refused != (before & (SLOT_REFUSED | SLOT_BEYOND)))
		group_refused(subflow, joined);
	return refused;
}

/*
 * Joins the connection; plain TCP, and a path that is not part of one yet, has none.  noinline:
 * keeps the caller's stack below 512 bytes, which detect needs as well.
 */
static __noinline int join(struct sock *sk)
{
	struct mp_sk *ca = mp_sk(sk);
	const struct mptcp_subflow_context *subflow = subflow_of(sk);
	u8 slot = 0, before = ca->group_key ? 0 : ca->slot;
	u32 token = 0;
	u64 key = subflow ? connection_key(subflow, &token) : 0;
	int joined;

	ca->group_key = 0;
	ca->slot = 0;
	if (!key)
		return 0;
	joined = group_join(sk, key, token, &slot);
	if (joined == GROUP_JOINED) {
		ca->group_key = key;
		sharing_begin(key, slot);
	} else {
		slot = refuse(sk, joined, before);
	}
	ca->slot = slot;
	return 0;
}

/*
 * At init and periodically: joins if that was not possible before (tried once per RTT), follows
 * MP_PRIO.  Called where little is on the stack, which the insertion of an entry needs.
 */
static __always_inline void membership(struct sock *sk, struct mp_sk *ca)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;

	if (!tp->is_mptcp)
		return;
	if (!ca->group_key || !group_has(ca->group_key, ca->slot, sk))
		join(sk);
	ca->flags =
		subflow_is_backup(subflow_of(sk)) ? ca->flags | SK_BACKUP : ca->flags & ~SK_BACKUP;
	if (ca->group_key)
		group_find_backups(ca->group_key);
	ca->looked = short_clock(tp->tcp_mstamp);
}

static __always_inline int membership_due(const struct sock *sk, const struct mp_sk *ca)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;

	return tp->is_mptcp && short_passed(short_clock(tp->tcp_mstamp), ca->looked,
					    ca->group_key ? GROUP_RETRY_US : tp->srtt_us >> 3);
}

static __always_inline struct mp_group *group_find(const struct mp_sk *ca)
{
	u64 key = ca->group_key;

	return key ? bpf_map_lookup_elem(&mp_groups, &key) : 0;
}

/* Publishes the path's slot to its siblings. */
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
	/*
	 * Last: where stores and loads keep their order (x86), a new path is not seen before its
	 * window.  On arm64 a sibling may see it with the slot's earlier content for one ACK. Hooks
	 * hold for any content (coupling.h): no window counts as 1, no round-trip time not at all.
	 */
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
	fill_ends(&event->peer_ends, (const struct sock *)entry->socket[peer]);
}

/* Requests user space to close this path: BPF cannot. */
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

#endif /* VMCC_CC_SIBLINGS_BPF_H */
