/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Shared by the BPF queueing discipline, the marking program and the loader.
 *
 * Fixed layouts, no pointers.  Costs of time per byte are in ns with 20 fractional bits: 8e9 / rate
 * in bits per second, times 2^20; exact to 2e-5 at 100 Gbit/s, no overflow for a 64 kB packet at
 * 1 kbit/s.
 */
#ifndef VMCC_QDISC_SHARED_H
#define VMCC_QDISC_SHARED_H

#include "port_shared.h"

/* Packets that one queue can hold, whatever its limit says.  A power of two. */
#define QDISC_SLOTS 4096
/* skb->priority of a packet for class N, counted from 0: 1:(N+1), as HTB's handles are.  One of the
 * next two is added for a packet of a sparse flow, and for one whose place in the bulk is kept. */
#define QDISC_MAJOR  1
#define QDISC_SPARSE 16
#define QDISC_PLACED 32
/* The longest that a port sleeps while packets wait: then it has noticed a change of its rate. */
#define QDISC_SLEEP_NS 20000000ull

struct qdisc_class {
	uint64_t limit_bytes;	/* tail drop; 0 stands for "by packets only" */
	uint64_t byte_ns_q20;	/* ceiling; 0: none */
	uint64_t right_ns_q20;	/* what it is served before the order of classes; 0: nothing */
	uint32_t limit_packets; /* tail drop, at most QDISC_SLOTS */
	uint32_t quantum_bytes; /* per round; at least 1 */
};

/* Set by the loader, also while traffic runs.  One element in map `qdisc_config`. */
struct qdisc_config {
	uint64_t byte_ns_q20; /* the port's rate; 0: no cap */
	uint64_t burst_ns;    /* what may leave at once after an idle time, as time at the rate */
	uint32_t classes;     /* 1 to PORT_CLASSES */
	uint32_t strict;      /* 1: the first class first; 0: deficit round robin */
	uint32_t mtu_bytes;   /* link-layer header included */
	uint32_t open; /* 1: every packet leaves at once; set before the qdisc is taken away */
	struct qdisc_class queue[PORT_CLASSES];
};

/* Bands of a service queue, served in this order. */
enum qdisc_bands {
	QDISC_BAND_SPARSE = 0,
	QDISC_BAND_BULK = 1,
	QDISC_BANDS = 2,
};

/* The packets of one band, in a ring of slots. */
struct qdisc_band {
	uint64_t bytes;
	uint32_t packets;
	uint32_t head; /* slot of the packet that leaves next */
};

/* One service queue, for the qdisc only: eight elements in map `qdisc_queues`. */
struct qdisc_queue {
	uint64_t round_start_ns; /* MQ-ECN: of this queue's round */
	uint64_t rounds;     /* rounds since then: a packet longer than a quantum takes several */
	uint64_t free_at_ns; /* ceiling: when what was sent so far is paid for */
	uint64_t paid_q20;   /* at which price that is */
	uint64_t right_free_at_ns; /* its right: the same */
	uint64_t right_paid_q20;
	int64_t deficit_bytes;
	struct qdisc_band bands[QDISC_BANDS];
	uint32_t head_bytes; /* length of the packet that leaves next */
	uint32_t reserved;
};

/* One element in map `qdisc_port`. */
struct qdisc_port {
	uint64_t round_q8;   /* MQ-ECN: smoothed time of a round, 1/256 ns; 0: the port was idle */
	uint64_t free_at_ns; /* when what was sent so far is paid for */
	uint64_t paid_q20;   /* at which price that is */
	uint64_t idle_since_ns; /* when the last packet left */
	uint32_t current;	/* class whose turn it is */
	uint32_t in_use;	/* a qdisc runs on these maps */
};

#endif /* VMCC_QDISC_SHARED_H */
