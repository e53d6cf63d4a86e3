/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What activity.bpf.c writes; its mirror is crates/linux/bpf/src/shared/activity.rs. */
#ifndef VMCC_ACTIVITY_SHARED_H
#define VMCC_ACTIVITY_SHARED_H

#include <stdint.h>

struct activity_record {
	uint32_t netns; /* inode number of the connection's network namespace */
	uint32_t reserved;
	uint64_t fingerprint; /* of the connection, and of all that its paths have published */
};

#endif /* VMCC_ACTIVITY_SHARED_H */
