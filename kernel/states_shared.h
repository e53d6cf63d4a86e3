/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What states.bpf.c and its reader (crates/host) share. */
#ifndef VMCC_STATES_SHARED_H
#define VMCC_STATES_SHARED_H

#include "cc.h"

/* What an algorithm keeps of one socket. */
struct socket_state {
	uint64_t cookie;    /* as socket diagnostics say it; 0: nobody has asked them yet */
	char algorithm[16]; /* its name in the kernel */
	struct cc_path path;
	uint64_t group_key; /* of its connection, by which tables know that; 0: not coupled */
	uint64_t slot;	    /* in the connection */
};

#endif /* VMCC_STATES_SHARED_H */
