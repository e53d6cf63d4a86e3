/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Configuration of live.bpf.c; its mirror is crates/linux/bpf/src/shared/live.rs. */
#ifndef VMCC_LIVE_SHARED_H
#define VMCC_LIVE_SHARED_H

#include <stdint.h>

#define LIVE_NAME_LEN 16

/* Set by the loader before it loads. */
struct live_settings {
	char from[LIVE_NAME_LEN];
	char to[LIVE_NAME_LEN];
	uint32_t spare_chosen;
};

#endif /* VMCC_LIVE_SHARED_H */
