/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by states.bpf.c and its reader (crates/linux/bpf). */
#ifndef VMCC_STATES_SHARED_H
#define VMCC_STATES_SHARED_H

#include "cc.h"

/* Reason for which a path of a multipath connection is not coupled. */
enum state_refused {
	STATE_NOT_REFUSED,
	STATE_NO_ROOM, /* in the table of connections, or in its account's part of it */
	STATE_BEYOND,  /* the connection has CC_MAX_PATHS other paths */
};

/* An algorithm's state of one socket. */
struct socket_state {
	uint64_t cookie;    /* of socket diagnostics; 0: not assigned yet */
	char algorithm[16]; /* its name in the kernel */
	struct cc_path path;
	uint64_t group_key; /* of its connection, by which tables know that; 0: not coupled */
	uint32_t slot;	    /* in the connection */
	uint32_t refused;   /* enum state_refused */
};

#endif /* VMCC_STATES_SHARED_H */
