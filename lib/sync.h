/* SPDX-License-Identifier: MIT */
/*
 * sync.h - how a launch's completion is seen. Not installed.
 */
#ifndef RTX_LIB_SYNC_H
#define RTX_LIB_SYNC_H

#include <stdbool.h>

struct rtx_gpu;
struct rtx_gpu_notify;

int rtx_lib_sync_check(const struct rtx_gpu_notify *in, struct rtx_gpu_notify *out);
/* fenced: the host looks at the word of that engine, too */
int rtx_lib_sync_wait(struct rtx_gpu *h, unsigned int engine, const struct rtx_gpu_notify *how,
		      bool fenced);

#endif
