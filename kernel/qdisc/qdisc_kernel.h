/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Kernel types of the BPF queueing discipline beyond kernel_types.h. */
#ifndef VMCC_QDISC_KERNEL_H
#define VMCC_QDISC_KERNEL_H

#define NET_XMIT_SUCCESS 0
#define NET_XMIT_DROP	 1
#define EBUSY		 16

struct bpf_iter_num {
	u64 opaque[1];
} __attribute__((aligned(8)));

struct bpf_sk_buff_ptr {
	struct sk_buff *skb;
};

struct nlattr;
struct netlink_ext_ack;

/* Members of the kernel's structure that are filled in; libbpf matches them by name. */
struct Qdisc_ops {
	char id[16];
	int (*enqueue)(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free);
	struct sk_buff *(*dequeue)(struct Qdisc *sch);
	int (*init)(struct Qdisc *sch, struct nlattr *arg, struct netlink_ext_ack *extack);
	void (*reset)(struct Qdisc *sch);
	void (*destroy)(struct Qdisc *sch);
};

extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;
extern void bpf_kfree_skb(struct sk_buff *skb) __ksym;
extern void bpf_qdisc_skb_drop(struct sk_buff *skb, struct bpf_sk_buff_ptr *to_free) __ksym;
extern void bpf_qdisc_watchdog_schedule(struct Qdisc *sch, u64 expire, u64 delta_ns) __ksym;
extern void bpf_qdisc_bstats_update(struct Qdisc *sch, const struct sk_buff *skb) __ksym;

#endif /* VMCC_QDISC_KERNEL_H */
