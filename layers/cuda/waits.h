/* SPDX-License-Identifier: MIT */
/*
 * waits.h - a program's blocking waits for its GPU, turned into librtxg's.
 */
#ifndef RTXG_CUDA_WAITS_H
#define RTXG_CUDA_WAITS_H

/* Turns them if RTXG_WAITS asks for it; says on stderr why it cannot. cuda: as in warm.h. */
void inject_waits_begin(void *cuda);

#endif
