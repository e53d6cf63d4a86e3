/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Accounts that limit entries of the table of connections and requests to close paths.
 *
 * All network namespaces of a user (containers without root) are one account.  Each namespace that
 * root made is an account of its own.  In the initial namespace each user is one.  The least
 * recently used accounts are evicted when there are too many, with their counts.
 */
#ifndef VMCC_ACCOUNT_BPF_H
#define VMCC_ACCOUNT_BPF_H

#include "kernel_types.h"
#include "shared.h"

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MP_MAX_ACCOUNTS);
	__type(key, u64);
	__type(value, struct mp_account);
} mp_accounts SEC(".maps");

#define ACCOUNT_OWNER (1ull << 63)
#define ACCOUNT_USER  (1ull << 62)

/* Nested user namespaces, of which Linux allows 33. */
#define MAX_USER_NAMESPACES 33

/*
 * User who made the outermost user namespace around one; root's is 0, as is the initial one's.
 * Owners of those within it may be subordinate uids, of which a user has 65,536.
 */
static __always_inline u32 outermost_owner(const struct user_namespace *ns)
{
	u32 owner = 0;

	for (int level = 0; level < MAX_USER_NAMESPACES; level++) {
		const struct user_namespace *parent = BPF_CORE_READ(ns, parent);

		if (!parent)
			break;
		owner = BPF_CORE_READ(ns, owner.val);
		ns = parent;
	}
	return owner;
}

static __always_inline u64 account_of(const struct sock *conn)
{
	const struct net *net = BPF_CORE_READ(conn, __sk_common.skc_net.net);
	u32 owner = outermost_owner(BPF_CORE_READ(net, user_ns));
	u32 netns = BPF_CORE_READ(net, ns.inum);

	if (owner)
		return ACCOUNT_OWNER | owner;
	/* A namespace's number is never 0: where the initial one is not known, it is one account.
	 */
	if (netns == mp_config.initial_netns)
		return ACCOUNT_USER | BPF_CORE_READ(conn, sk_uid.val);
	return netns;
}

static __noinline struct mp_account *account_find(u64 key)
{
	struct mp_account *account = bpf_map_lookup_elem(&mp_accounts, &key);
	struct mp_account none;

	if (account)
		return account;
	__builtin_memset(&none, 0, sizeof(none));
	bpf_map_update_elem(&mp_accounts, &key, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&mp_accounts, &key);
}

/* Takes room for a connection; false if there is none left. */
static __always_inline int account_take(u64 key)
{
	struct mp_account *account = account_find(key);

	if (!account)
		return 0;
	if ((s64)__sync_fetch_and_add(&account->connections, 1) <
	    (s64)mp_config.account_connections)
		return 1;
	__sync_fetch_and_add(&account->connections, -1);
	return 0;
}

static __always_inline void account_give(u64 key)
{
	struct mp_account *account = bpf_map_lookup_elem(&mp_accounts, &key);

	if (account)
		__sync_fetch_and_add(&account->connections, -1);
}

/* Counts a path that runs uncoupled: there is no room, or its connection has too many others. */
static __always_inline void account_refuse(u64 key, int beyond)
{
	struct mp_account *account = account_find(key);

	if (account)
		__sync_fetch_and_add(beyond ? &account->beyond : &account->uncoupled, 1);
}

/* True if the account may make another request in this second. */
static __always_inline int account_may_ask(struct mp_account *account)
{
	u64 second = bpf_ktime_get_ns() >> 30;

	if (account->second != second) {
		account->second = second;
		account->requests = 0;
	}
	return __sync_fetch_and_add(&account->requests, 1) < MP_ACCOUNT_REQUESTS;
}

#endif /* VMCC_ACCOUNT_BPF_H */
