/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Marking's arithmetic as the host's compiler builds it. */
#include "marking_step.h"

void vmcc_marking_native(struct marking_step *s);

void vmcc_marking_native(struct marking_step *s)
{
	marking_step(s);
}
