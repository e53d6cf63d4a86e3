/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The table through which the subflows of an MPTCP connection see each other.
 *
 * One entry per connection, keyed by the address of its MPTCP socket and its token: an address that
 * the kernel uses again belongs to a connection with another token, hence to another entry.  A
 * subflow takes a slot when it becomes part of a connection and gives it back in release(); the
 * last one deletes the entry.  Subflows of one connection come and go on several CPUs at once, and
 * the kernel may reuse the memory of a deleted entry at once, also while another CPU still holds a
 * pointer to it.  So membership is one 64-bit word, which says whose entry this is and who is in
 * it, and changes by compare-and-swap:
 *
 *     members = owner (56 bits of the key) | a bit per slot
 *
 *     make    insert an entry of nobody, 0, unless there is one; fill it in; 0 -> owner|own
 *     join    owner|bits -> owner|bits|own      fails on an entry that has been deleted or reused
 *     leave   owner|bits -> owner|bits&~own     cannot fail: a member's entry is never deleted
 *             owner|0 -> MP_GROUP_DEAD          fails if somebody has joined; else delete the entry
 *
 * A subflow that could not join tries again one round trip later; so does one whose entry is gone,
 * because user space found that nobody held it any more (crates/host, reclaim).  Slots are written
 * by their owner only and read by siblings without a lock: each field is a whole word, and a reader
 * that sees two fields of different moments sees a path as it was a moment ago.
 */
#ifndef VMCC_GROUP_BPF_H
#define VMCC_GROUP_BPF_H

#include "kernel_types.h"
#include "shared.h"
#include "account.bpf.h"

#define MP_GROUP_SLOTS ((1u << CC_MAX_PATHS) - 1)
/* Attempts to join while others change the same word: more than there can be others. */
#define MP_GROUP_TRIES (2 * CC_MAX_PATHS)

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

/* What an entry is at first: too much for the stack. */
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
	return key << CC_MAX_PATHS;
}

/* Is the path to be used only when no other is left?  Then it does not count in its siblings' sums.
 */
static __always_inline int subflow_is_backup(const struct mptcp_subflow_context *subflow)
{
	if (!subflow)
		return 0;
	return BPF_CORE_READ_BITFIELD_PROBED(subflow, backup) ||
	       BPF_CORE_READ_BITFIELD_PROBED(subflow, request_bkup);
}

/*
 * Makes the connection's entry with slot 0 taken, at the cost of its account; false if that has no
 * more, there is an entry, or the table is full.  By itself for its stack.  Nobody joins or removes
 * an entry that is nobody's yet, so who has inserted it has it for itself.
 */
static __noinline int group_make(u64 key, u32 token, const struct mptcp_subflow_context *subflow)
{
	u64 account = account_of(BPF_CORE_READ(subflow, conn));
	struct mp_group *entry = 0;

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
	entry->subflow[0] = (u64)subflow;
	/* Last, and after all else is to be seen. */
	return __sync_val_compare_and_swap(&entry->members, 0, group_owner(key) | 1) == 0;
}

/* Takes a free slot of an entry, which may be another connection's by now; false if that fails. */
static __always_inline int group_take(struct mp_group *entry, u64 owner, u8 *slot)
{
	u32 i;

	for (i = 0; i < MP_GROUP_TRIES; i++) {
		u64 members = *(volatile u64 *)&entry->members;
		u64 free = ~members & (members + 1) & MP_GROUP_SLOTS;

		if ((members & ~(u64)MP_GROUP_SLOTS) != owner || !free)
			return 0;
		if (__sync_val_compare_and_swap(&entry->members, members, members | free) ==
		    members) {
			*slot = cc_bitlen(free) - 1;
			return 1;
		}
	}
	return 0;
}

/*
 * Takes a slot of the connection's entry, which is made if need be.  Returns the key, or 0: plain
 * TCP, all slots taken, the table or the account is full, or the entry is just being deleted.
 */
static __noinline u64 group_join(const struct sock *sk, u8 *slot)
{
	const struct mptcp_subflow_context *subflow = subflow_of(sk);
	struct mp_group *entry;
	u32 token = 0;
	u64 key;

	if (!subflow)
		return 0;
	key = connection_key(subflow, &token);
	if (!key)
		return 0;
	*slot = 0;
	entry = bpf_map_lookup_elem(&mp_groups, &key);
	if (!entry && group_make(key, token, subflow))
		return key;
	/* A sibling may just have made it. */
	if (!entry)
		entry = bpf_map_lookup_elem(&mp_groups, &key);
	if (!entry || !group_take(entry, group_owner(key), slot))
		return 0;
	entry->subflow[*slot & (CC_MAX_PATHS - 1)] = (u64)subflow;
	return key;
}

/* Does the slot still belong to this connection's entry? */
static __always_inline int group_has(u64 key, u8 slot)
{
	struct mp_group *entry = bpf_map_lookup_elem(&mp_groups, &key);
	u64 members = entry ? *(volatile u64 *)&entry->members : MP_GROUP_DEAD;

	return (members & ~(u64)MP_GROUP_SLOTS) == group_owner(key) && members >> slot & 1;
}

/* Counts a path that found no room; false for one that is not part of a connection yet. */
static __noinline int group_refused(const struct sock *sk)
{
	const struct mptcp_subflow_context *subflow = subflow_of(sk);
	const struct sock *conn = subflow ? BPF_CORE_READ(subflow, conn) : 0;

	if (!conn)
		return 0;
	account_refuse(account_of(conn));
	return 1;
}

/* Gives a slot back; true if that was the last: the entry is dead, and the caller's to end. */
static __noinline int group_leave(u64 key, u8 slot)
{
	struct mp_group *entry = bpf_map_lookup_elem(&mp_groups, &key);
	u64 owner = group_owner(key), bit;

	if (!entry)
		return 0;
	slot &= CC_MAX_PATHS - 1;
	bit = 1ull << slot;
	entry->group.path[slot].flags = 0;
	entry->subflow[slot] = 0;
	if (__sync_fetch_and_and(&entry->members, ~bit) != (owner | bit))
		return 0;
	return __sync_val_compare_and_swap(&entry->members, owner, MP_GROUP_DEAD) == owner;
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

/*
 * A path that became a backup may carry nothing any more, so that no callback of its own tells its
 * siblings: whoever is alive looks after all.  The owner's next callback has the last word.
 */
static __noinline int group_find_backups(u64 key)
{
	struct mp_group *entry = bpf_map_lookup_elem(&mp_groups, &key);
	u32 i;

	if (!entry)
		return 0;
	for (i = 0; i < CC_MAX_PATHS; i++) {
		if (subflow_is_backup((const struct mptcp_subflow_context *)entry->subflow[i]))
			__sync_fetch_and_and(&entry->group.path[i].flags, ~CC_SLOT_ESTABLISHED);
	}
	return 0;
}

#endif /* VMCC_GROUP_BPF_H */
