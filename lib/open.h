/* SPDX-License-Identifier: MIT */
/*
 * open.h - a GPU task begins, alone or together with a CPU task. Not installed.
 */
#ifndef RTX_LIB_OPEN_H
#define RTX_LIB_OPEN_H

#include "rtxg.h"

struct cpu_request;

int rtx_lib_open(rtx_gpu_t *handle, const struct rtx_gpu_options *options, struct cpu_request *cpu);
int rtx_lib_check_options(const struct rtx_gpu_options *in, struct rtx_gpu_options *out);

#endif
