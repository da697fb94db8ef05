/* SPDX-License-Identifier: MIT */
/*
 * nvrm.h - waiting for timelines, for the rest of librtxg. Not installed.
 */
#ifndef RTX_LIB_NVRM_H
#define RTX_LIB_NVRM_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_pages.h"
#include "rtxg.h"

/* 0, or the error for which a call on this timeline cannot be made. */
int rtx_lib_timeline_check(rtx_timeline_t timeline);
/* The same, and if it is 0, what closes the timeline waits until the thread leaves. */
int rtx_lib_timeline_enter(rtx_timeline_t timeline);
void rtx_lib_timeline_leave(rtx_timeline_t timeline);
/* 0, or -ENODEV: the GPU is lost. Of a timeline that stays open. */
int rtx_lib_timeline_alive(rtx_timeline_t timeline);
/* 0, or -ERANGE: the word has gone back since it was *seen. Of a timeline that stays open. */
int rtx_lib_timeline_went_back(rtx_timeline_t timeline, uint32_t *seen);
/* The next number of the timeline's own counting. */
uint32_t rtx_lib_timeline_next(rtx_timeline_t timeline);

/* A number that no other timeline of the process has, or had: its word's address it may have. */
uint64_t rtx_lib_timeline_opened(rtx_timeline_t timeline);

/* Of a timeline that stays open: the word, and what CUDA knows of it. */
volatile uint32_t *rtx_lib_timeline_word(rtx_timeline_t timeline);
struct cuda_page *rtx_lib_timeline_page(rtx_timeline_t timeline);

/*
 * What another process needs to see the timeline's word, and when to look: memory is a memfd of one
 * page, event becomes readable by the GPU's interrupts and is for that process alone. Both stay the
 * timeline's, which stays open until the thread leaves. -EOPNOTSUPP: the word is not in librtxg's
 * memory.
 */
struct timeline_share {
	int memory, event;
	uint32_t offset; /* of the word in the memory, bytes */
};
int rtx_lib_timeline_share(rtx_timeline_t timeline, struct timeline_share *share);
/* As rtx_timeline_arm(), and for one that does not wait here: whatever is foreseen. */
int rtx_lib_timeline_ask(rtx_timeline_t timeline, uint32_t value);
/* As rtx_timeline_wait(), until *stop is true as well: -ECANCELED. */
int rtx_lib_timeline_wait(rtx_timeline_t timeline, uint32_t value, enum rtx_sync how,
			  uint64_t until, const bool *stop);

#endif
