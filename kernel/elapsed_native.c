/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The clock's arithmetic as the host's compiler builds it. */
#include "elapsed.h"

int vmcc_time_passed(unsigned int now, unsigned int then, unsigned int wait);

int vmcc_time_passed(unsigned int now, unsigned int then, unsigned int wait)
{
	return time_passed(now, then, wait);
}
