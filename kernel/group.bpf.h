/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The table through which the subflows of an MPTCP connection see each other.
 *
 * One entry per connection, keyed by the address of its MPTCP socket and its token: an address that
 * the kernel uses again belongs to a connection with another token, hence to another entry.  A
 * subflow takes a slot when it becomes part of a connection and gives it back in release(); the
 * last one deletes the entry.  Subflows of one connection are acknowledged on several CPUs at once,
 * so membership changes by atomic operations:
 *
 *     join    old = fetch_or(members, bit)         taken before?  try the next bit
 *     leave   old = fetch_and(members, ~bit)       others left?   done
 *             cmpxchg(members, 0, DEAD)            somebody joined in between?  done
 *             delete the entry
 *
 * A subflow that meets a DEAD entry has not joined; it tries again one round trip later.  Slots are
 * written by their owner only and read by siblings without a lock: each field is a whole word, and
 * a reader that sees two fields of different moments sees a path as it was a moment ago.
 */
#ifndef VMCC_GROUP_BPF_H
#define VMCC_GROUP_BPF_H

#include "kernel_types.h"
#include "shared.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MP_MAX_CONNECTIONS);
	__type(key, u64);
	__type(value, struct mp_group);
} mp_groups SEC(".maps");

static const struct mp_group empty_group;

/* Reads what MPTCP hung onto the subflow; NULL for plain TCP and while the handshake is under way.
 */
static __always_inline const struct mptcp_subflow_context *subflow_of(const struct sock *sk)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;

	if (!bpf_core_field_exists(tp->is_mptcp) || !tp->is_mptcp)
		return 0;
	return tp->inet_conn.icsk_ulp_data;
}

/* 48 bits of the address (objects are 8-byte aligned) and 16 of the token; 0: no connection. */
static __always_inline u64 connection_key(const struct mptcp_subflow_context *subflow, u32 *token)
{
	u64 conn = (u64)BPF_CORE_READ(subflow, conn);

	if (!conn)
		return 0;
	*token = BPF_CORE_READ((const struct mptcp_sock *)conn, token);
	return conn >> 3 << 16 | (*token & 0xffff);
}

/* Is the path to be used only when no other is left?  Then it does not count in its siblings' sums.
 */
static __always_inline int subflow_is_backup(const struct sock *sk)
{
	const struct mptcp_subflow_context *subflow = subflow_of(sk);

	if (!subflow)
		return 0;
	return BPF_CORE_READ_BITFIELD_PROBED(subflow, backup) ||
	       BPF_CORE_READ_BITFIELD_PROBED(subflow, request_bkup);
}

/*
 * Takes a slot of the connection's entry, which is made if need be.  Returns the key, or 0: plain
 * TCP, all slots taken, the table is full, or the entry is just being deleted.
 */
static __noinline u64 group_join(const struct sock *sk, u8 *slot)
{
	const struct mptcp_subflow_context *subflow = subflow_of(sk);
	struct mp_group *entry;
	u32 token = 0;
	u64 key;
	u32 i;

	if (!subflow)
		return 0;
	key = connection_key(subflow, &token);
	if (!key)
		return 0;
	entry = bpf_map_lookup_elem(&mp_groups, &key);
	if (!entry) {
		bpf_map_update_elem(&mp_groups, &key, &empty_group, BPF_NOEXIST);
		entry = bpf_map_lookup_elem(&mp_groups, &key);
		if (!entry)
			return 0;
		entry->token = token;
	}
	for (i = 0; i < CC_MAX_PATHS; i++) {
		u32 old = __sync_fetch_and_or(&entry->members, 1u << i);

		if (old & MP_GROUP_DEAD)
			return 0;
		if (!(old & (1u << i))) {
			*slot = i;
			return key;
		}
	}
	return 0;
}

static __noinline void group_leave(u64 key, u8 slot)
{
	struct mp_group *entry = bpf_map_lookup_elem(&mp_groups, &key);
	u32 bit;

	if (!entry)
		return;
	slot &= CC_MAX_PATHS - 1;
	bit = 1u << slot;
	entry->group.path[slot].flags = 0;
	if (__sync_fetch_and_and(&entry->members, ~bit) & ~bit)
		return;
	if (__sync_val_compare_and_swap(&entry->members, 0, MP_GROUP_DEAD) == 0)
		bpf_map_delete_elem(&mp_groups, &key);
}

#endif /* VMCC_GROUP_BPF_H */
