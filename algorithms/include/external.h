/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Ends the native build of an algorithm that is not in registry.toml: exports its hooks, with the
 * shapes that they were compiled for, to the program that loads the shared object.
 */
#ifndef VMCC_EXTERNAL_H
#define VMCC_EXTERNAL_H

#include "host.h"

struct cc_external {
	uint32_t interface_version;
	uint32_t size_bytes[7]; /* event, slot, group, path, params, decision, cc_host */
	const struct cc_host_ops *ops;
};

#define CC_EXTERNAL(id)                                                                            \
	CC_HOST_OPS(id);                                                                           \
	extern __attribute__((visibility("default"))) const struct cc_external vmcc_algorithm;     \
	const struct cc_external vmcc_algorithm = {                                                \
		CC_INTERFACE_VERSION,                                                              \
		{sizeof(struct cc_event), sizeof(struct cc_slot), sizeof(struct cc_group),         \
		 sizeof(struct cc_path), sizeof(struct cc_params), sizeof(struct cc_decision),     \
		 sizeof(struct cc_host)},                                                          \
		&cc_host_ops_##id,                                                                 \
	}

#endif /* VMCC_EXTERNAL_H */
