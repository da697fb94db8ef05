// SPDX-License-Identifier: MIT
/*
 * fake_stream.c - the functions of CUDA's driver library that rtx_timeline_signal() and the close
 * of a timeline call, for test_nvrm_stream.c. A write is carried out at once, as on a stream
 * without work, into the memory that was registered, whatever stands at its address since; a stream
 * of which a graph is captured keeps it for the launches of that graph. Never installed.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>

#define PAGE  4096u
#define PAGES 32u

/* How many pages are registered; what fails: 1 = all but to unregister, 2 = to unregister. */
int fake_stream_registered, fake_stream_refuses;
/*
 * What cuStreamIsCapturing tells (906: its error for the default stream), and what was captured.
 */
int fake_stream_captures, fake_stream_captured;
/* Another thread captures a graph; calls that are not safe beside it break that. */
int fake_stream_elsewhere, fake_stream_broken;
/* Calls, of all functions here; the number of the thread's context, 0: it has none. */
int fake_stream_calls;
unsigned long long fake_stream_context;
/*
 * 1: a stream has work, so that the next page is not forgotten before it ends; 2: that is waited
 * for.
 */
int fake_stream_works;

static struct {
	uintptr_t page,
		pinned; /* its address, and the same memory elsewhere; 0: this place is free */
	unsigned long long context; /* that was told last where it is, and may write there */
} pages[PAGES];

int cuMemHostRegister_v2(void *page, size_t bytes, unsigned int flags);
int cuMemHostUnregister(void *page);
int cuMemHostGetDevicePointer_v2(unsigned long long *at, void *here, unsigned int flags);
int cuStreamWriteValue32_v2(void *stream, unsigned long long at, uint32_t value,
			    unsigned int flags);
int cuStreamIsCapturing(void *stream, int *status);
int cuThreadExchangeStreamCaptureMode(int *mode);
int cuCtxGetId(void *context, unsigned long long *number);
void fake_stream_launch(void);

static void called(void)
{
	__atomic_fetch_add(&fake_stream_calls, 1, __ATOMIC_RELAXED);
}

static __thread int capture_mode;
static struct {
	unsigned long long at;
	uint32_t value;
} captured[8];

static bool breaks_a_capture(void)
{
	if (!fake_stream_elsewhere || capture_mode == 2)
		return false;
	fake_stream_broken++;
	return true;
}

static unsigned int place(uintptr_t page)
{
	unsigned int i = 0;

	while (i < PAGES && pages[i].page != page)
		i++;
	return i;
}

int cuMemHostRegister_v2(void *page, size_t bytes, unsigned int flags)
{
	unsigned int free = place(0);
	void *pinned;

	called();
	if ((uintptr_t)page & (PAGE - 1) || bytes != PAGE || flags != 3)
		return 1;
	if (fake_stream_refuses == 1)
		return 201; /* CUDA_ERROR_INVALID_CONTEXT */
	if (breaks_a_capture())
		return 900; /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */
	if (place((uintptr_t)page) < PAGES)
		return 712;
	pinned = mremap(page, 0, PAGE, MREMAP_MAYMOVE); /* shared memory, once more */
	if (free == PAGES || pinned == MAP_FAILED)
		return 2;
	pages[free].page = (uintptr_t)page;
	pages[free].pinned = (uintptr_t)pinned;
	fake_stream_registered++;
	return 0;
}

int cuMemHostUnregister(void *page)
{
	unsigned int i = place((uintptr_t)page);

	called();
	if (fake_stream_refuses == 2)
		return 201;
	if (breaks_a_capture())
		return 900;
	if (__atomic_load_n(&fake_stream_works, __ATOMIC_SEQ_CST) == 1) {
		__atomic_store_n(&fake_stream_works, 2, __ATOMIC_SEQ_CST);
		while (__atomic_load_n(&fake_stream_works, __ATOMIC_SEQ_CST))
			nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	}
	if (i == PAGES || !page)
		return 713;
	munmap((void *)pages[i].pinned, PAGE);
	pages[i].page = 0;
	fake_stream_registered--;
	return 0;
}

int cuMemHostGetDevicePointer_v2(unsigned long long *at, void *here, unsigned int flags)
{
	uintptr_t page = (uintptr_t)here & ~(uintptr_t)(PAGE - 1);
	unsigned int i = place(page);

	(void)flags;
	called();
	if (i == PAGES)
		return 1;
	pages[i].context = fake_stream_context;
	*at = pages[i].pinned + ((uintptr_t)here - page);
	return 0;
}

int cuStreamWriteValue32_v2(void *stream, unsigned long long at, uint32_t value, unsigned int flags)
{
	unsigned int i = 0;

	(void)stream;
	(void)flags;
	called();
	while (i < PAGES && pages[i].pinned != (at & ~(unsigned long long)(PAGE - 1)))
		i++;
	if (i < PAGES && pages[i].context != fake_stream_context)
		return 1; /* it does not know the address */
	if (fake_stream_refuses == 1)
		return 400; /* CUDA_ERROR_INVALID_HANDLE */
	if (fake_stream_captures) {
		captured[fake_stream_captured % 8].at = at;
		captured[fake_stream_captured++ % 8].value = value;
		return 0;
	}
	__atomic_store_n((volatile uint32_t *)(uintptr_t)at, value, __ATOMIC_RELEASE);
	return 0;
}

/* The graph that was captured. */
void fake_stream_launch(void)
{
	for (int i = 0; i < fake_stream_captured; i++)
		__atomic_store_n((volatile uint32_t *)(uintptr_t)captured[i].at, captured[i].value,
				 __ATOMIC_RELEASE);
}

int cuStreamIsCapturing(void *stream, int *status)
{
	(void)stream;
	called();
	*status = fake_stream_captures == 906 ? 99 : fake_stream_captures;
	return fake_stream_captures == 906 || fake_stream_captures == 400 ? fake_stream_captures
									  : 0;
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
	int before = capture_mode;

	called();
	if (*mode < 0 || *mode > 2)
		return 1;
	capture_mode = *mode;
	*mode = before;
	return 0;
}

/* Of the thread's own context (NULL). */
int cuCtxGetId(void *context, unsigned long long *number)
{
	called();
	*number = fake_stream_context;
	return context || !fake_stream_context ? 201 : 0;
}
