/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by observe.bpf.c and its reader (crates/linux/bpf). */
#ifndef VMCC_OBSERVE_SHARED_H
#define VMCC_OBSERVE_SHARED_H

#include <stdint.h>

struct observe_config {
	uint32_t netns; /* inode number */
	uint32_t lost;	/* records that found no room */
};

struct observe_record {
	uint64_t socket;
	uint32_t entered; /* 1: a state is being entered; 0: a segment has arrived */
	uint32_t state;
	uint16_t remote_port; /* host byte order */
	uint16_t local_port;
	uint32_t cwnd_pkt;
	uint32_t prior_cwnd_pkt; /* before the reduction */
	uint32_t ssthresh_pkt;
	uint32_t lost_pkt;
	uint32_t reserved;
	uint64_t private[3]; /* where the algorithm's own state begins */
};

#endif /* VMCC_OBSERVE_SHARED_H */
