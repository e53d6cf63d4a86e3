/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by hold.bpf.c and its loader (crates/linux/bpf). */
#ifndef VMCC_HOLD_SHARED_H
#define VMCC_HOLD_SHARED_H

#include <stdint.h>

#define HOLD_ADDRESS_LEN 6

/* Set by the loader before it loads. */
struct hold_settings {
	uint32_t port;
	uint32_t device; /* where packets wait */
	uint32_t back;	 /* its other end */
	uint32_t budget; /* a device that the port's packets go through and come back from; none: ~0
			  */
	uint8_t address[HOLD_ADDRESS_LEN]; /* of the device: what it sends itself is for nobody */
	uint8_t reserved[2];
};

#endif /* VMCC_HOLD_SHARED_H */
