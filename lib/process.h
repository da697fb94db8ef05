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
/* What a process has of its parent, until its first call. */
enum { PROCESS_HANDLES, PROCESS_TIMELINES, PROCESS_PARTS };
/*
 * Calls let_go once in each new process, however that was made: others wait for the first thread.
 * Nothing happens before the first rtx_lib_process_init().
 */
void rtx_lib_process_forget(unsigned int part, void (*let_go)(void));
/* The same in a child of fork(), which has one thread. */
void rtx_lib_process_forget_now(unsigned int part, void (*let_go)(void));
/* Lets go of the parent's handles, in a child that _Fork() or clone() made and told nothing. */
void rtx_lib_process_forget_handles(void);
void rtx_lib_handle_register(struct rtx_gpu *h);
void rtx_lib_handle_unregister(struct rtx_gpu *h);
/* 0, or the error for which a call on this handle and this engine cannot be made. */
int rtx_lib_check_handle(struct rtx_gpu *h, unsigned int engine);

#endif
