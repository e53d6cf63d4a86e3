/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by the programs and the loader (crates/linux/bpf).  Fixed layouts, no pointers. */
#ifndef VMCC_SHARED_H
#define VMCC_SHARED_H

#include "cc.h"
#include "host.h"

/* Connections whose paths can be coupled at once; more run uncoupled. */
#define MP_MAX_CONNECTIONS 131072
/* Those of one account (struct mp_account): one of them cannot fill the table. */
#define MP_ACCOUNT_CONNECTIONS (MP_MAX_CONNECTIONS / 8)
#define MP_MAX_ACCOUNTS	       4096
/* Requests of one account to close a path, in about a second. */
#define MP_ACCOUNT_REQUESTS 64
#define MP_EVENT_BYTES	    262144

/* Offset of the flags in the table of callbacks, and the flag that requests AccECN (RFC 9768). */
#define MP_OPS_FLAGS	      80
#define TCP_CONG_NEEDS_ACCECN 4

/* One per loaded algorithm, in its data section: parameters, and the registering process. */
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
	uint32_t accounts_map_id;
	uint32_t account_connections; /* MP_ACCOUNT_CONNECTIONS */
	uint32_t owner_start;	      /* when that process started: its number may be given again */
	uint32_t initial_netns;	      /* inode of the initial network namespace; 0: not known */
};

/*
 * Account of connections: the owner of a network namespace that a user made, else the namespace,
 * within the initial one the user.
 */
struct mp_account {
	uint64_t connections; /* in the table; wraps below 0 if the account was evicted meanwhile */
	uint64_t uncoupled;   /* paths that found no room in the table */
	uint64_t second;      /* in which `requests` were made */
	uint64_t requests;
	uint64_t requests_lost;
	uint64_t beyond; /* paths of connections that had CC_MAX_PATHS others */
};

/* Counters of an algorithm; the first are reductions, by cause (enum cc_cause). */
enum mp_count {
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
	uint64_t members; /* owner and number of members: group.bpf.h */
	uint32_t token;	  /* of the MPTCP connection */
	uint32_t netns;	  /* inode number of its network namespace */
	uint64_t account;
	uint64_t made_ns;	       /* CLOCK_MONOTONIC */
	uint64_t socket[CC_MAX_PATHS]; /* struct sock of each path; 0: the slot is free */
};

/* The same of an algorithm that detects, with what it has seen of them: one entry, one lookup. */
struct mp_watched_group {
	struct mp_group group;
	struct cc_sharing sharing;
	uint32_t several; /* a second path has joined, be it alone by now: there is what to compare
			   */
};

/* With key, the table's own 48 bytes and the allocator's 8 it is 2 KiB, as the kernel hands it out.
 */
_Static_assert(sizeof(struct mp_watched_group) <= 1984, "a connection must fit in 2 KiB");

/* Set once, by the last member to leave, before the entry is deleted: joins fail from then on. */
#define MP_GROUP_DEAD (~0ull)

/* The two ends of a path. */
struct mp_ends {
	uint16_t family;      /* AF_INET, AF_INET6 */
	uint16_t local_port;  /* host byte order */
	uint16_t remote_port; /* host byte order */
	uint16_t reserved;
	uint8_t local_addr[16]; /* IPv4: the first four bytes */
	uint8_t remote_addr[16];
};

/* An algorithm decided to close a path (CC_CLOSE_PATH). */
struct mp_close_event {
	uint64_t time_ns;     /* CLOCK_MONOTONIC */
	uint64_t cookie;      /* of its socket; 0: the socket has none yet */
	uint64_t bytes_acked; /* of its socket: tells it from a later one between the same ends */
	uint32_t token;	      /* of the MPTCP connection */
	uint32_t netns;	      /* inode number of the network namespace */
	uint32_t interface;   /* that the socket is bound to; 0: none */
	uint16_t slot;	      /* of the path to close */
	uint16_t peer;	      /* slot of the path that is kept */
	struct mp_ends ends;
	struct mp_ends peer_ends;
};

/* One step of a trace: in, and out. */
struct replay_step {
	struct cc_event event;
	struct cc_host host;
	struct cc_group group;
	struct cc_params params;
	uint32_t begin; /* nonzero: establish the path, else one step */
	uint32_t has_group;
};

#endif /* VMCC_SHARED_H */
