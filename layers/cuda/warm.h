/* SPDX-License-Identifier: MIT */
/*
 * warm.h - contexts that are on the GPU when a release comes.
 */
#ifndef RTXG_CUDA_WARM_H
#define RTXG_CUDA_WARM_H

/* Starts the thread that does it. cuda: the program's libcuda.so.1, or NULL. */
void inject_warm_begin(void *cuda);

#endif
