/* SPDX-License-Identifier: MIT */
/*
 * process.h - handles belong to the process that opened them. Not installed.
 */
#ifndef RTX_LIB_PROCESS_H
#define RTX_LIB_PROCESS_H

#include <stdint.h>

struct rtx_gpu;

int rtx_lib_process_init(void);
/*
 * Another one in each child, however it was made; 0: rtx_lib_process_init() has not been called in
 * it.
 */
uint32_t rtx_lib_process_generation(void);
/* A word that is 0 in each new process, however it was made; NULL: there is no handle as yet. */
uint32_t *rtx_lib_process_word(void);
void rtx_lib_handle_register(struct rtx_gpu *h);
void rtx_lib_handle_unregister(struct rtx_gpu *h);
/* 0, or the error for which a call on this handle and this engine cannot be made. */
int rtx_lib_check_handle(struct rtx_gpu *h, unsigned int engine);

#endif
