/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Limits of upgrade.bpf.c. */
#ifndef VMCC_UPGRADE_SHARED_H
#define VMCC_UPGRADE_SHARED_H

#define UPGRADE_MAX_CGROUPS 4096
/* Cgroups inside each other that are looked at. */
#define UPGRADE_MAX_DEPTH 16

#endif /* VMCC_UPGRADE_SHARED_H */
