/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The table through which the subflows of an MPTCP connection see each other.
 *
 * One entry per connection, keyed by the address of its MPTCP socket and its token: an address that
 * the kernel uses again belongs to a connection with another token, hence to another entry.  A
 * subflow takes a slot when it becomes part of a connection and gives it back in release(); the
 * last one deletes the entry.  Subflows of one connection come and go on several CPUs at once, and
 * the kernel may reuse the memory of a deleted entry at once, also while another CPU still holds a
 * pointer to it.  So membership is one 64-bit word, owner and number of members, which changes
 * atomically:
 *
 *     members = owner (56 bits of the key) | count
 *
 *     make    insert an unowned entry, 0, unless there is one; fill it in; 0 -> owner|1
 *     join    owner|n -> owner|n+1      fails on an entry that has been deleted or reused
 *     leave   owner|n -> owner|n-1      cannot fail: a member's entry is never deleted
 *             owner|0 -> MP_GROUP_DEAD  fails after another join; else delete the entry
 *
 * A member then takes the first slot whose socket is 0, by compare-and-swap as well.  It gives the
 * slot back before it leaves, so there is one for each that is counted.
 *
 * A subflow that could not join tries again one round trip later; so does one whose entry is gone,
 * because user space found that no socket held it any more (crates/linux/bpf, gc.rs).
 *
 * A slot is written by its owner and read by siblings without a lock.  One bit is shared: siblings
 * clear CC_SLOT_ESTABLISHED of a path that became a backup (group_find_backups).  Each field is a
 * whole word on 64-bit kernels, but fields may be read from different moments, in any order: see
 * publish(), and docs/adr/0003-sibling-state.md for the order on arm64.
 *
 * Slots lie in one value, not in entries of their own: a lookup per sibling and ACK would cost more
 * than all that an algorithm computes from it.
 */
#ifndef VMCC_GROUP_BPF_H
#define VMCC_GROUP_BPF_H

#include "kernel_types.h"
#include "shared.h"
#include "account.bpf.h"

#define MP_GROUP_COUNT_BITS 8
#define MP_GROUP_COUNT	    ((1ull << MP_GROUP_COUNT_BITS) - 1)
/* Attempts to join while others change the same word: more than there can be others. */
#define MP_GROUP_PROBES (2 * CC_MAX_PATHS)

/* Its first member is always the struct mp_group. */
#if CC_DETECTS
#define MP_ENTRY struct mp_watched_group
#else
#define MP_ENTRY struct mp_group
#endif

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MP_MAX_CONNECTIONS);
	__type(key, u64);
	__type(value, MP_ENTRY);
} mp_groups SEC(".maps");

/* Initial content of an entry: too large for the stack. */
static const MP_ENTRY nobodys_entry;

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

static __always_inline u64 group_owner(u64 key)
{
	return key << MP_GROUP_COUNT_BITS;
}

/* True for a backup (MP_PRIO), which does not count in its siblings' sums. */
static __always_inline int subflow_is_backup(const struct mptcp_subflow_context *subflow)
{
	if (!subflow)
		return 0;
	return BPF_CORE_READ_BITFIELD_PROBED(subflow, backup) ||
	       BPF_CORE_READ_BITFIELD_PROBED(subflow, request_bkup);
}

/* MPTCP's context of a socket in the table, which may be freed by now. */
static __always_inline const struct mptcp_subflow_context *subflow_in(u64 socket)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)socket;

	if (!socket || !BPF_CORE_READ(tp, is_mptcp))
		return 0;
	return BPF_CORE_READ(tp, inet_conn.icsk_ulp_data);
}

/*
 * Makes the connection's entry with slot 0 taken, at the cost of its account; false if that has no
 * more, there is an entry, or the table is full.  noinline for the stack limit.  An entry without
 * owner is neither joined nor removed, so its creator has exclusive access.
 */
static __noinline int group_make(u64 key, u32 token, const struct sock *sk)
{
	const struct mptcp_subflow_context *subflow = subflow_of(sk);
	struct mp_group *entry = 0;
	u64 account;

	if (!subflow)
		return 0;
	account = account_of(BPF_CORE_READ(subflow, conn));
	if (!account_take(account))
		return 0;
	if (bpf_map_update_elem(&mp_groups, &key, &nobodys_entry, BPF_NOEXIST) == 0)
		entry = bpf_map_lookup_elem(&mp_groups, &key);
	if (!entry) {
		account_give(account);
		return 0;
	}
	entry->token = token;
	entry->netns = BPF_CORE_READ(subflow, conn, __sk_common.skc_net.net, ns.inum);
	entry->account = account;
	entry->made_ns = bpf_ktime_get_ns();
	entry->socket[0] = (u64)sk;
	entry->group.end = 1;
	/* Last, and after all else is to be seen. */
	return __sync_val_compare_and_swap(&entry->members, 0, group_owner(key) | 1) == 0;
}

/* Result of joining. */
enum group_joined {
	GROUP_JOINED,
	GROUP_NO_ROOM, /* in the table or the account; or the entry is just being deleted */
	GROUP_BEYOND,  /* the connection has CC_MAX_PATHS other paths */
};

/* Becomes a member of an entry, which may be another connection's by now. */
static __always_inline int group_enter(struct mp_group *entry, u64 owner)
{
	u32 i;

	for (i = 0; i < MP_GROUP_PROBES; i++) {
		u64 members = *(volatile u64 *)&entry->members;

		if ((members & ~MP_GROUP_COUNT) != owner)
			return GROUP_NO_ROOM;
		if ((members & MP_GROUP_COUNT) >= CC_MAX_PATHS)
			return GROUP_BEYOND;
		if (__sync_val_compare_and_swap(&entry->members, members, members + 1) == members)
			return GROUP_JOINED;
	}
	return GROUP_NO_ROOM;
}

/* Leaves; true if that was the last: the entry is dead, and the caller's to end. */
static __always_inline int group_exit(struct mp_group *entry, u64 owner)
{
	if (__sync_fetch_and_add(&entry->members, -1) != (owner | 1))
		return 0;
	return __sync_val_compare_and_swap(&entry->members, owner, MP_GROUP_DEAD) == owner;
}

/* Extends the range of slots that siblings read to this slot. */
static __always_inline void group_reach(struct mp_group *entry, u32 slot)
{
	u32 i;

	for (i = 0; i < CC_MAX_PATHS; i++) {
		u32 end = *(volatile u32 *)&entry->group.end;

		if (end > slot)
			return;
		if (__sync_val_compare_and_swap(&entry->group.end, end, slot + 1) == end)
			return;
	}
}

/* Takes a member's slot; false if all were taken when looked at. */
static __noinline int group_take(struct mp_group *entry, const struct sock *sk, u8 *slot)
{
	u32 i;

	if (!entry || !slot)
		return 0;
	for (i = 0; i < CC_MAX_PATHS; i++) {
		if (*(volatile u64 *)&entry->socket[i])
			continue;
		if (__sync_val_compare_and_swap(&entry->socket[i], 0, (u64)sk))
			continue;
		*slot = i;
		group_reach(entry, i);
		return 1;
	}
	return 0;
}

/* Deletes an entry that is dead.  Until then no path joins or makes another. */
static __noinline int group_end(u64 key)
{
	struct mp_group *entry = bpf_map_lookup_elem(&mp_groups, &key);
	u64 account;

	if (!entry || *(volatile u64 *)&entry->members != MP_GROUP_DEAD)
		return 0;
	account = entry->account;
	bpf_map_delete_elem(&mp_groups, &key);
	account_give(account);
	return 0;
}

/* Takes a slot of the connection's entry, which is made if need be: enum group_joined. */
static __noinline int group_join(const struct sock *sk, u64 key, u32 token, u8 *slot)
{
	struct mp_group *entry;
	int joined;

	*slot = 0;
	entry = bpf_map_lookup_elem(&mp_groups, &key);
	if (!entry && group_make(key, token, sk))
		return GROUP_JOINED;
	/* A sibling may just have made it. */
	if (!entry)
		entry = bpf_map_lookup_elem(&mp_groups, &key);
	if (!entry)
		return GROUP_NO_ROOM;
	joined = group_enter(entry, group_owner(key));
	if (joined != GROUP_JOINED)
		return joined;
	if (group_take(entry, sk, slot))
		return GROUP_JOINED;
	if (group_exit(entry, group_owner(key)))
		group_end(key);
	return GROUP_NO_ROOM;
}

/* True if the slot still belongs to this socket. */
static __always_inline int group_has(u64 key, u8 slot, const struct sock *sk)
{
	struct mp_group *entry = bpf_map_lookup_elem(&mp_groups, &key);
	u64 members = entry ? *(volatile u64 *)&entry->members : MP_GROUP_DEAD;

	return entry && (members & ~MP_GROUP_COUNT) == group_owner(key) &&
	       *(volatile u64 *)&entry->socket[slot & (CC_MAX_PATHS - 1)] == (u64)sk;
}

/* Counts a path that could not join. */
static __always_inline void group_refused(const struct mptcp_subflow_context *subflow, int joined)
{
	account_refuse(account_of(BPF_CORE_READ(subflow, conn)), joined == GROUP_BEYOND);
}

/* Gives a slot back; true if that was the last: the entry is dead, and the caller's to end. */
static __noinline int group_leave(u64 key, u8 slot, const struct sock *sk)
{
	struct mp_group *entry = bpf_map_lookup_elem(&mp_groups, &key);

	if (!entry)
		return 0;
	slot &= CC_MAX_PATHS - 1;
	/* User space may have removed the entry, and siblings made another. */
	if (*(volatile u64 *)&entry->socket[slot] != (u64)sk)
		return 0;
	entry->group.path[slot].flags = 0;
	__sync_lock_test_and_set(&entry->socket[slot], 0);
	return group_exit(entry, group_owner(key));
}

/*
 * A path that became a backup may carry nothing any more, so none of its own callbacks updates its
 * slot.  Therefore every live subflow scans all slots for backups.  The owner's next callback
 * overwrites the result.
 */
static __noinline int group_find_backups(u64 key)
{
	struct mp_group *entry = bpf_map_lookup_elem(&mp_groups, &key);
	u32 i;

	if (!entry)
		return 0;
	for (i = 0; i < CC_MAX_PATHS && i < *(volatile u32 *)&entry->group.end; i++) {
		if (subflow_is_backup(subflow_in(entry->socket[i])))
			__sync_fetch_and_and(&entry->group.path[i].flags, ~CC_SLOT_ESTABLISHED);
	}
	return 0;
}

#endif /* VMCC_GROUP_BPF_H */
