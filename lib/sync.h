/* SPDX-License-Identifier: MIT */
/*
 * sync.h - how a launch's completion is seen. Not installed.
 */
#ifndef RTX_LIB_SYNC_H
#define RTX_LIB_SYNC_H

struct rtx_gpu;
struct rtx_gpu_notify;

int rtx_lib_sync_check(const struct rtx_gpu_notify *in, struct rtx_gpu_notify *out);
int rtx_lib_sync_wait(struct rtx_gpu *h, const struct rtx_gpu_notify *how);

#endif
