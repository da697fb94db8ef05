/* SPDX-License-Identifier: MIT */
/*
 * sync.h - how a launch's completion is seen. Not installed.
 */
#ifndef RTX_LIB_SYNC_H
#define RTX_LIB_SYNC_H

#include <stdbool.h>
#include <stdint.h>

struct rtx_gpu;
struct rtx_gpu_notify;

/* of: which timeline it is (rtx_lib_timeline_opened); 0: none */
int rtx_lib_sync_check(const struct rtx_gpu_notify *in, struct rtx_gpu_notify *out, uint64_t *of);
/* fenced: the host looks at the word of that engine, too */
int rtx_lib_sync_wait(struct rtx_gpu *h, unsigned int engine, const struct rtx_gpu_notify *how,
		      bool fenced);

#endif
