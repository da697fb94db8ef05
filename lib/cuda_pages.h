/* SPDX-License-Identifier: MIT */
/*
 * cuda_pages.h - pages that the program's CUDA writes to for timelines. Not installed.
 */
#ifndef RTX_LIB_CUDA_PAGES_H
#define RTX_LIB_CUDA_PAGES_H

#include <stdbool.h>
#include <stdint.h>

/* Of a timeline: the page of its word, which CUDA knows from us; 0: none. */
struct cuda_page {
	uintptr_t at;
	bool going; /* CUDA is asked to forget it */
	/*
	 * where the GPU finds the word in the context of CUDA's that has this number, if it is
	 * known
	 */
	bool known;
	unsigned long long context, word_at;
	struct cuda_page *next;
};

/* Around the next three, and what must not change between them. The timeline stays open. */
void rtx_lib_cuda_lock(void);
void rtx_lib_cuda_unlock(void);
/* Where the GPU finds the word: -ENOENT no CUDA, -EIO CUDA cannot write there. */
int rtx_lib_cuda_place(struct cuda_page *page, volatile uint32_t *word, unsigned long long *at);
/* Is what the stream is given carried out in its order? -EBUSY it becomes a part of a graph. */
int rtx_lib_cuda_check_stream(void *stream);
/*
 * Lets a stream write there, behind what it has been given: -EIO CUDA refused, and the next one
 * asks for the place once more.
 */
int rtx_lib_cuda_write(struct cuda_page *page, void *stream, unsigned long long at, uint32_t value);
/*
 * Waits until the streams have written what they were given for the page, while others signal to
 * other pages. False: CUDA still holds it, so it has to stay.
 */
bool rtx_lib_cuda_forget(struct cuda_page *page);
/* A forked child has none. */
void rtx_lib_cuda_fork_child(void);

#endif
