// SPDX-License-Identifier: MIT
/*
 * nvrm_cuda.c - lets a stream of the program's own CUDA write a timeline's next number. May not:
 * speak to CUDA (cuda_pages.c does), or wait.
 */
#include "cuda_pages.h"
#include "errors.h"
#include "nvrm.h"
#include "rtxg_nvrm.h"
#include "sys.h"

int rtx_timeline_signal(rtx_timeline_t timeline, void *stream, uint32_t *value)
{
	not_cancelled();
	struct cuda_page *page;
	unsigned long long at = 0;
	uint32_t next;
	int ret;

	rtx_lib_forget_error();
	if (!value)
		return rtx_lib_failed(-EINVAL,
				      "there is no place for the value: the pointer is NULL");
	/* CUDA learns of no page that has gone: a close waits for this call. */
	ret = rtx_lib_timeline_enter(timeline);
	if (ret)
		return ret;
	rtx_lib_cuda_lock();
	page = rtx_lib_timeline_page(timeline);
	ret = rtx_lib_cuda_place(page, rtx_lib_timeline_word(timeline), &at);
	if (!ret)
		ret = rtx_lib_cuda_check_stream(stream);
	if (!ret) {
		/* Numbers are given and queued in one order: both under the lock. */
		next = rtx_lib_timeline_next(timeline);
		ret = rtx_lib_cuda_write(page, stream, at, next);
		if (!ret)
			*value = next;
	}
	rtx_lib_cuda_unlock();
	rtx_lib_timeline_leave(timeline);
	return ret;
}
