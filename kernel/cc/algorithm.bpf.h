/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Includes the algorithm that CC_ALG and CC_ALG_SOURCE name; MP_HOOK(on_ack) is its on_ack. */
#ifndef VMCC_ALGORITHM_BPF_H
#define VMCC_ALGORITHM_BPF_H

#include "kernel_types.h"
#include CC_ALG_SOURCE

#define MP_CAT_(a, b)  a##_##b
#define MP_CAT(a, b)   MP_CAT_(a, b)
#define MP_HOOK(which) MP_CAT(CC_ALG, which)

#endif /* VMCC_ALGORITHM_BPF_H */
