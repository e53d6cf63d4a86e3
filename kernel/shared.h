/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs and the loader (crates/host) both read.  Fixed layouts, no pointers. */
#ifndef VMCC_SHARED_H
#define VMCC_SHARED_H

#include "cc.h"
#include "host.h"

/* Connections whose paths can be coupled at once; more run uncoupled. */
#define MP_MAX_CONNECTIONS 65536
#define MP_EVENT_BYTES	   65536

/* One per loaded algorithm, in its data section: parameters, and who registered it. */
struct mp_config {
	uint32_t interface_version; /* CC_INTERFACE_VERSION */
	uint32_t owner_pid;	    /* process that registered it; 0: it outlives its process */
	uint32_t ops_map_id;	    /* the maps of this object; 0: has none */
	uint32_t groups_map_id;
	uint32_t events_map_id;
	uint32_t counters_map_id;
	uint64_t build; /* identifies the build of this algorithm */
	char name[16];	/* in the kernel */
	struct cc_params params;
};

/* What an algorithm counts; the first are reductions, by cause (enum cc_cause). */
enum {
	MP_COUNT_ECE = CC_CAUSE_ECE,
	MP_COUNT_LOSS = CC_CAUSE_LOSS,
	MP_COUNT_RTO = CC_CAUSE_RTO,
	MP_COUNT_NO_ECN, /* connections left to Reno, because ECN was not negotiated */
	MP_COUNT_MENDED, /* windows that a skipped program had left to chance */
	MP_COUNTERS = 8,
};

struct mp_counters {
	uint64_t count[MP_COUNTERS];
};

/* The paths of one connection, keyed by the connection. */
struct mp_group {
	struct cc_group group;
	uint64_t members; /* whose entry this is and which slots are taken: group.bpf.h */
	uint32_t token;	  /* of the MPTCP connection */
	uint32_t reserved;
	uint64_t subflow[CC_MAX_PATHS]; /* where the kernel keeps what it knows of each */
};

/* Set once, by the last member to leave, before the entry is deleted: nobody may join any more. */
#define MP_GROUP_DEAD (~0ull)

/* An algorithm decided to close a path (CC_CLOSE_PATH). */
struct mp_close_event {
	uint32_t token;		/* of the MPTCP connection */
	uint32_t netns;		/* inode number of the network namespace */
	uint16_t family;	/* AF_INET, AF_INET6 */
	uint16_t local_port;	/* host byte order */
	uint16_t remote_port;	/* host byte order */
	uint8_t slot;		/* of the path to close */
	uint8_t peer;		/* slot of the path that is kept */
	uint8_t local_addr[16]; /* IPv4: the first four bytes */
	uint8_t remote_addr[16];
};

/* What a marked port counts.  Per CPU. */
struct mark_counters {
	uint64_t packets;
	uint64_t bytes;
	uint64_t marked;  /* set to CE, or CE already, while the backlog was above the threshold */
	uint64_t not_ect; /* would have been marked, but did not negotiate ECN */
	uint64_t max_backlog_bytes;
};

/* One step of a recorded trace: in, and out. */
struct replay_step {
	struct cc_event event;
	struct cc_host host;
	struct cc_group group;
	struct cc_params params;
	uint32_t begin; /* nonzero: establish the path, else one step */
	uint32_t has_group;
};

struct mark_config {
	uint64_t threshold_bytes;
};

_Static_assert(sizeof(struct mp_config) == 144, "mirrored in crates/host");
_Static_assert(sizeof(struct mp_counters) == 64, "mirrored in crates/host");
_Static_assert(sizeof(struct mp_group) == 336, "mirrored in crates/host");
_Static_assert(sizeof(struct mp_close_event) == 48, "mirrored in crates/host");
_Static_assert(sizeof(struct replay_step) == 544, "mirrored in crates/host");
_Static_assert(sizeof(struct mark_counters) == 40, "mirrored in crates/host");

#endif /* VMCC_SHARED_H */
