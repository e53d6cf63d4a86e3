/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by the programs of a port and the loader (crates/linux/port/src/serve).  Fixed layouts, no
 * pointers. */
#ifndef VMCC_PORT_SHARED_H
#define VMCC_PORT_SHARED_H

#include <stdint.h>

#define PORT_CLASSES	8
#define PORT_FILTERS	32
#define PORT_PRIORITIES 32
#define PORT_NO_CLASS	0xff

/* Source of the length of a class's queue. */
enum port_source {
	PORT_SOURCE_ROOT = 0, /* the root queue of the port, whatever it is */
	PORT_SOURCE_LEAF = 1, /* a queue below the root per class, found by its handle */
	PORT_SOURCE_MAP =
		2, /* the map port_queues, where our own queueing discipline publishes it */
};

/* Fields that may select a class although a tenant writes them. */
enum port_trust {
	PORT_TRUST_PRIORITY = 1, /* of packets that no socket of the port's namespace sent */
	PORT_TRUST_TUNNEL = 2,	 /* the packet inside VXLAN */
};

/* Marking rule of a class. */
enum port_rule {
	PORT_RULE_NONE = 0,
	PORT_RULE_LENGTH = 1,  /* above threshold_bytes */
	PORT_RULE_SHARE = 2,   /* above the class's MQ-ECN threshold */
	PORT_RULE_SOJOURN = 3, /* when the packet will wait longer than RTT x lambda (TCN) */
};

/*
 * Handles of the leaf queues.  The kernel finds a queue by handle in a hash of 16 buckets
 * (dev->qdisc_hash, bucket = handle * 0x61C88647 >> 28).  For a handle `major << 16` that is the
 * top four bits of the 16-bit product major * 0x8647; the majors below give consecutive products,
 * so one bucket holds all leaves and the product tells the class.
 */
#define PORT_LEAF_FACTOR 0x8647
#define PORT_LEAF_FIRST	 0x5010 /* product of class 0 */
#define PORT_LEAF_BUCKET 5

/*
 * With priority for sparse flows a class's leaf is the queue of its bulk, one of two bands.  The
 * handles of the queues that have the bands, and of those of sparse flows, are in other buckets.
 */
#define PORT_BANDS_FIRST  0x6010 /* product of class 0 */
#define PORT_SPARSE_FIRST 0x7010 /* product of class 0 */
/* Minors of the bands. */
#define PORT_BAND_SPARSE 1
#define PORT_BAND_BULK	 2
/* Handle of the root queue, and minor of class 0 there. */
#define PORT_ROOT_MAJOR 0xc0de
#define PORT_ROOT_FIRST 0x10

/* Set before the programs are loaded. */
struct port_settings {
	uint32_t source; /* enum port_source */
	uint32_t bare;	 /* packets have no link-layer header */
	uint32_t cpus;	 /* that this machine may have */
	uint32_t hash_seed;
};

struct port_class {
	uint64_t threshold_bytes; /* PORT_RULE_LENGTH; else what no computed threshold exceeds */
	uint64_t rtt_ns;	  /* PORT_RULE_SHARE, _SOJOURN; 0: measured */
	uint64_t ceiling;	  /* what it may use, bytes per second */
	uint64_t right;		  /* what it has a right to, bytes per second */
	uint64_t quantum_ns;	  /* its quantum at the port's rate */
	uint64_t overload_bytes;  /* a queue longer than this counts as overloaded */
	uint64_t buffer_bytes;	  /* of its queue */
	uint32_t rule;		  /* enum port_rule */
	uint32_t lambda_q16;
	uint32_t class_id;  /* skb->priority of its packets; 0: left alone */
	uint32_t sparse_id; /* that of its sparse flows' packets; 0: they have no priority */
	uint32_t placed_id; /* that of its bulk's packets whose place the filter keeps */
	uint32_t reserved;
};

/* Packets by their ECN field. */
enum port_kind {
	PORT_NOT_ECT = 0,
	PORT_ECT = 1, /* also one that is marked already */
	PORT_KINDS = 2,
};

/* Absent addresses and ports match everything; IPv4 in the first four bytes. */
struct port_filter {
	uint8_t from[16];
	uint8_t to[16];
	uint16_t from_port; /* host byte order; 0: any */
	uint16_t to_port;
	uint8_t protocol; /* 0: any */
	uint8_t version;  /* 4, 6; 0: either */
	uint8_t has_from;
	uint8_t has_to;
	uint32_t class;
};

struct port_config {
	struct port_class classes[PORT_CLASSES];
	struct port_filter filters[PORT_FILTERS];
	uint32_t priorities[PORT_PRIORITIES];
	uint8_t priority_class[PORT_PRIORITIES];
	uint8_t dscp_class[PORT_KINDS][64];
	uint64_t rate;	  /* of the port, bytes per second */
	uint64_t slot_ns; /* one MTU at that rate */
	uint32_t class_count;
	uint32_t filter_count;
	uint32_t priority_count;
	uint32_t cgroup_classes; /* bit i: class i has a cgroup */
	uint32_t phantom_q16;  /* share of the rate at which virtual queues drain; 0: real queues */
	uint32_t measure_rtt;  /* some class needs it */
	uint32_t floor_bytes;  /* no threshold is below it */
	uint32_t strict;       /* classes are served in their order, not in turns */
	uint32_t has_ceilings; /* some class may not use all of the rate */
	/* Classes in the order of ceiling / quantum, the least first. */
	uint8_t by_ceiling[PORT_CLASSES];
	uint32_t trust;	       /* PORT_TRUST_...; an untrusted DSCP is in no class of dscp_class */
	uint64_t rtt_least_ns; /* bounds of a measured RTT */
	uint64_t rtt_most_ns;
	uint64_t drop_floor_bytes;	/* the program drops nothing from a queue that is shorter */
	uint8_t kind_class[PORT_KINDS]; /* takes all packets of a kind; PORT_NO_CLASS: none does */
	uint8_t takes[PORT_KINDS];	/* bit i: class i takes packets of this kind */
	uint32_t drop_not_ect; /* what cannot be marked is dropped where others are marked */
};

/* Counters of one class, per CPU. */
struct port_counters {
	uint64_t packets;
	uint64_t bytes;
	uint64_t marked;
	uint64_t not_ect;
	uint64_t max_backlog_bytes;
	uint64_t unclassified; /* only in class 0's: of the port */
	uint64_t drops_not_ect;
	uint64_t drops_overload;
	uint64_t sparse; /* served before the class's other packets */
};

/* One class's queue as our own queueing discipline publishes it (PORT_SOURCE_MAP). */
struct port_queue {
	uint64_t backlog_bytes; /* of the bulk, as sent_bytes */
	uint64_t backlog_packets;
	uint64_t round_q8; /* smoothed time of a round as this queue saw it, 1/256 ns */
	uint64_t drops_full;
	uint64_t drops_other;
	uint64_t sent_bytes;
	uint64_t sent_packets;
	uint64_t sojourn_ns;   /* of the packet that left last */
	uint64_t sparse_bytes; /* that wait in the band of sparse flows */
	uint64_t sparse_packets;
};

/* State of the programs, which the loader shows. */
struct port_state {
	uint64_t round_q8;	       /* smoothed time of one round, 1/256 ns */
	uint64_t round_at;	       /* when it was last brought up to date */
	uint64_t rtt_ns[PORT_CLASSES]; /* as measured; 0: none yet */
	uint64_t rtt_samples[PORT_CLASSES];
	uint64_t threshold[PORT_CLASSES];
};

#endif /* VMCC_PORT_SHARED_H */
