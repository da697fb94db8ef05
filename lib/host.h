/* SPDX-License-Identifier: MIT */
/*
 * host.h - whether the host is there. Not installed.
 */
#ifndef RTX_LIB_HOST_H
#define RTX_LIB_HOST_H

#include <stdint.h>

#include "sys.h"

/*
 * How often a handle in use, or a thread that waits, looks whether the host still lives; and tries
 * to reach it again.
 */
#define HOST_CHECK_NS (200 * NS_PER_MS)
#define HOST_RETRY_NS (250 * NS_PER_MS)
/* A launch that shall not wait gives the host this long to answer. */
#define HOST_ANSWER_NS (2 * NS_PER_MS)

struct rtx_gpu;

void rtx_lib_host_check(struct rtx_gpu *h, uint64_t now);

#endif
