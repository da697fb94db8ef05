// SPDX-License-Identifier: MIT
/*
 * nvrm_cuda.c - lets a stream of the program's own CUDA write a timeline's next number. May not:
 * speak to CUDA (cuda_pages.c does), or wait.
 */
#include "cuda_pages.h"
#include "errors.h"
#include "nvrm.h"
#include "rtxg_nvrm.h"

int rtx_timeline_signal(rtx_timeline_t timeline, void *stream, uint32_t *value)
{
	unsigned long long at = 0;
	volatile uint32_t *word;
	uint32_t next;
	int ret;

	rtx_lib_forget_error();
	ret = rtx_lib_timeline_check(timeline);
	if (ret)
		return ret;
	if (!value)
		return rtx_lib_failed(-EINVAL,
				      "there is no place for the value: the pointer is NULL");
	rtx_lib_cuda_lock();
	/* Who closes it from now on waits for the lock: CUDA learns of no page that has gone. */
	word = rtx_timeline_word(timeline);
	ret = word ? rtx_lib_cuda_place(rtx_lib_timeline_page(timeline), word, &at) : -EBADF;
	if (!ret)
		ret = rtx_lib_cuda_check_stream(stream);
	if (!ret) {
		/* Numbers are given and queued in one order: both under the lock. */
		next = rtx_lib_timeline_next(timeline);
		ret = rtx_lib_cuda_write(stream, at, next);
		if (!ret)
			*value = next;
	}
	rtx_lib_cuda_unlock();
	return ret;
}
