// SPDX-License-Identifier: GPL-2.0-only
/*
 * events.c - the module's log: see events.h. May not: do anything else.
 */
#include <linux/types.h>

#define CREATE_TRACE_POINTS
#include "events.h"
