/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Makes MPTCP sockets of the TCP sockets that programs of chosen cgroups ask for.
 *
 * The kernel lets a program change the protocol where a process makes a socket (Linux 6.6,
 * update_socket_protocol).  Sockets that the kernel makes for itself do not pass there.  A process
 * with MPTCP switched off in its network namespace keeps TCP: the call would fail.
 */
#include "kernel_types.h"
#include "upgrade_shared.h"

char _license[] SEC("license") = "Dual BSD/GPL";

enum {
	SOCK_TYPE_MASK = 0xf, /* the rest are flags */
	SOCK_STREAM = 1,
	IPPROTO_TCP = 6,
	IPPROTO_MPTCP = 262,
};

#define AF_INET 2

/* The chosen ones, by number; the value is for user space. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, UPGRADE_MAX_CGROUPS);
	__type(key, u64);
	__type(value, u64);
} upgrade_cgroups SEC(".maps");

/* Index of MPTCP's data in a network namespace; absent where the kernel hides its variables. */
extern const void mptcp_pernet_id __ksym __weak;

static __always_inline int switched_on(void)
{
	const struct task_struct *task = (const struct task_struct *)bpf_get_current_task();
	const struct mptcp_pernet *mptcp;
	void *const *all;
	u32 id = 0;

	if (!&mptcp_pernet_id)
		return 1;
	bpf_probe_read_kernel(&id, sizeof(id), &mptcp_pernet_id);
	all = BPF_CORE_READ(task, nsproxy, net_ns, gen);
	if (!id || bpf_probe_read_kernel(&mptcp, sizeof(mptcp), all + id))
		return 1;
	return BPF_CORE_READ(mptcp, mptcp_enabled);
}

/* True if the process is in a chosen cgroup or below one. */
static __always_inline int chosen(void)
{
	int level;

	for (level = 1; level <= UPGRADE_MAX_DEPTH; level++) {
		u64 cgroup = bpf_get_current_ancestor_cgroup_id(level);

		if (!cgroup)
			return 0;
		if (bpf_map_lookup_elem(&upgrade_cgroups, &cgroup))
			return 1;
	}
	return 0;
}

SEC("fmod_ret/update_socket_protocol")
int BPF_PROG(vmcc_upgrade, int family, int type, int protocol)
{
	if ((family != AF_INET && family != AF_INET6) || (type & SOCK_TYPE_MASK) != SOCK_STREAM)
		return protocol;
	if ((protocol && protocol != IPPROTO_TCP) || !chosen() || !switched_on())
		return protocol;
	return IPPROTO_MPTCP;
}
