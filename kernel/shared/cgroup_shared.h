/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Configuration of a cgroup's program; its mirror is crates/linux/bpf/src/shared/cgroup.rs. */
#ifndef VMCC_CGROUP_SHARED_H
#define VMCC_CGROUP_SHARED_H

#include <stdint.h>

#define CGROUP_NAME_LEN 16

/* Set by the loader before it loads. */
struct cgroup_settings {
	char congestion_control[CGROUP_NAME_LEN];
	uint32_t needs_ecn; /* the algorithm does */
};

#endif /* VMCC_CGROUP_SHARED_H */
