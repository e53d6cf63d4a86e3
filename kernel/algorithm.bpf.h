/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Includes the algorithm that CC_ALG and CC_ALG_SOURCE name.
 *
 * Its hooks become inline here, and whoever calls them wraps each into a function that returns a
 * number: compilers leave any value in the return register of a function without result, and the
 * verifier refuses to let a pointer into the stack escape that way.
 */
#ifndef VMCC_ALGORITHM_BPF_H
#define VMCC_ALGORITHM_BPF_H

#include "kernel_types.h"
#include "cc.h"

#undef CC_NOINLINE
#define CC_NOINLINE CC_INLINE

#include CC_ALG_SOURCE

#define CC_CAT_(a, b)  a##_##b
#define CC_CAT(a, b)   CC_CAT_(a, b)
#define CC_HOOK(which) CC_CAT(CC_ALG, which)

#endif /* VMCC_ALGORITHM_BPF_H */
