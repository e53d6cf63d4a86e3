/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The few kernel types the programs touch, declared by hand.
 *
 * Only names and types of members matter: every access is relocated at load time to the layout of
 * the running kernel (CO-RE), so that building needs no kernel headers and one object serves every
 * kernel. A member that a kernel lacks is found missing by bpf_core_field_exists().
 */
#ifndef VMCC_KERNEL_TYPES_H
#define VMCC_KERNEL_TYPES_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;

/* From <linux/bpf.h>. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_CGROUP_ARRAY = 8,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum {
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1,
	BPF_SK_STORAGE_GET_F_CREATE = 1,
	BPF_F_RECOMPUTE_CSUM = 1,
};

struct bpf_spin_lock {
	__u32 val;
};

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	union {
		__u8 u6_addr8[16];
	} in6_u;
};

struct ns_common {
	unsigned int inum;
};

typedef struct {
	__u32 val;
} kuid_t;

typedef struct {
	__s64 counter;
} atomic64_t;

struct user_namespace {
	struct user_namespace *parent; /* NULL for the initial one */
	kuid_t owner;
};

struct net {
	struct ns_common ns;
	struct user_namespace *user_ns;
	void *gen; /* what parts of the kernel have of it, by their numbers */
};

/* Of MPTCP. */
struct mptcp_pernet {
	__u8 mptcp_enabled;
};

struct nsproxy {
	struct net *net_ns;
};

struct task_struct {
	struct nsproxy *nsproxy;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	unsigned short skc_tx_queue_mapping;
	int skc_bound_dev_if;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
};

struct sock {
	struct sock_common __sk_common;
	kuid_t sk_uid;
	unsigned long sk_pacing_rate; /* bytes per second */
	unsigned long sk_max_pacing_rate;
	__u32 sk_pacing_status;
};

enum sk_pacing {
	SK_PACING_NONE = 0,
	SK_PACING_NEEDED = 1,
};

struct inet_sock {
	struct sock sk;
};

/* Of the kernel's structure, for reading; the one below is for filling in. */
struct tcp_congestion_ops___named {
	char name[16];
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	const struct tcp_congestion_ops___named *icsk_ca_ops;
	void *icsk_ulp_data;
	__u8 icsk_ca_state : 5;
	__u8 icsk_ca_setsockopt : 1;
	__u8 icsk_pending; /* what its timer will do */
	struct {
		__u8 pending;
	} icsk_ack;
	__u64 icsk_ca_priv[13];
};

struct minmax_sample {
	__u32 t;
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_options_received {
	__u32 rcv_tsval;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	struct tcp_options_received rx_opt;
	__u64 tcp_mstamp;
	__u64 bytes_acked;
	__u32 mss_cache;
	__u32 snd_cwnd;
	__u32 snd_cwnd_clamp;
	__u32 snd_ssthresh;
	__u32 prior_cwnd;
	__u32 undo_marker; /* 0: nothing to undo */
	__u32 snd_una;
	__u32 snd_nxt;
	__u32 write_seq;
	__u32 rcv_nxt;
	__u32 srtt_us; /* 1/8 us */
	__u32 packets_out;
	__u32 retrans_out;
	__u32 sacked_out;
	__u32 lost_out;
	__u32 max_packets_out;
	__u32 delivered_ce;
	struct minmax rtt_min;
	__u8 is_cwnd_limited : 1;
	__u8 tcp_usec_ts : 1; /* since 6.7 */
	__u8 ecn_flags;
	_Bool is_mptcp;
};

struct mptcp_sock {
	struct inet_connection_sock sk;
	__u64 write_seq;
	__u64 snd_nxt;
	__u32 token;
};

struct mptcp_subflow_context {
	__u32 backup : 1;
	__u32 request_bkup : 1;
	struct sock *conn;
	struct sock *tcp_sock;
};

struct ack_sample {
	__u32 pkts_acked;
	__s32 rtt_us;
};

enum tcp_ca_event {
	CA_EVENT_ECN_NO_CE = 4,
	CA_EVENT_ECN_IS_CE = 5,
};

enum inet_csk_ack_state_t {
	ICSK_ACK_TIMER = 2,
	ICSK_ACK_NOW = 16,
};

struct gnet_stats_queue {
	__u32 backlog;
	__u32 drops;
};

struct qdisc_skb_head {
	__u32 qlen;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

/* Bytes first, as 64 bits (Linux 5.16). */
struct gnet_stats_basic_sync {
};

struct Qdisc {
	u32 handle;
	struct hlist_node hash;
	unsigned int flags;
	struct qdisc_skb_head q;
	struct gnet_stats_basic_sync bstats;
	struct gnet_stats_queue qstats;
	struct gnet_stats_queue *cpu_qstats; /* one per CPU */
};

struct bpf_array {
	void *pptrs[1];
};

struct netdev_queue {
	struct Qdisc *qdisc;
};

struct net_device {
	struct netdev_queue *_tx;
	unsigned int real_num_tx_queues;
	possible_net_t nd_net;
	struct hlist_head qdisc_hash[16];
};

struct sk_buff {
	struct net_device *dev;
	__u32 priority;
	char cb[48];
	struct sock *sk;
	__u16 queue_mapping;
	__u16 csum_start;     /* from `head` */
	__u16 network_header; /* from `head` */
	__u8 ip_summed : 2;
	unsigned char *head;
	unsigned char *data;
};

struct qdisc_skb_cb {
	unsigned int pkt_len;
	unsigned char data[20];
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

struct bpf_iter__bpf_map_elem {
	struct bpf_iter_meta *meta;
	void *map;
	void *key;
	void *value;
};

#pragma clang attribute pop

/* Members of the kernel's structure that the wrapper fills in; libbpf matches them by name. */
struct tcp_congestion_ops {
	__u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
	void (*set_state)(struct sock *sk, __u8 new_state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event ev);
	void (*in_ack_event)(struct sock *sk, __u32 flags);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	__u32 (*undo_cwnd)(struct sock *sk);
	__u32 (*min_tso_segs)(struct sock *sk);
	char name[16];
	__u32 flags;
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
};

/* Internal constants of Linux that are not part of its type information. */
#define AF_INET6		10
#define TCP_ESTABLISHED		1
#define TCP_SYN_SENT		2
#define TCP_CLOSE_WAIT		8
#define SOL_SOCKET		1
#define SO_MAX_PACING_RATE	47
#define SK_PACING_NONE		0
#define SK_PACING_NEEDED	1
#define SOL_TCP			6
#define TCP_CONGESTION		13
#define TCP_CONG_NON_RESTRICTED (1u << 0)
#define TCP_CONG_NEEDS_ECN	(1u << 1)
#define TCP_ECN_QUEUE_CWR	(1u << 1)
#define TCP_ECN_DEMAND_CWR	(1u << 2)
#define TCP_ECN_RFC3168		(1u << 0)
#define TCP_ECN_ACCECN		(1u << 4) /* since 6.18 */
#define TCP_ECN_NEGOTIATED	(TCP_ECN_RFC3168 | TCP_ECN_ACCECN)
#define CA_ACK_ECE		(1u << 2)
#define TCQ_F_CPUSTATS		0x20

#endif /* VMCC_KERNEL_TYPES_H */
