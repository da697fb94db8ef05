// SPDX-License-Identifier: MIT
/*
 * cuda_pages.c - which pages the program's CUDA writes to for timelines. librtxg does not link
 * CUDA: the functions are those of the library that the program has loaded. May not: make a
 * context, wait, or load CUDA itself.
 */
#include <dlfcn.h>
#include <pthread.h>

#include "cuda_pages.h"
#include "errors.h"
#include "mutex.h"

#define ALREADY_REGISTERED 712 /* CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED */
#define NOT_REGISTERED	   713 /* CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED */
#define FOR_ALL_CONTEXTS   1u  /* CU_MEMHOSTREGISTER_PORTABLE */
#define FOR_THE_GPU	   2u  /* CU_MEMHOSTREGISTER_DEVICEMAP */
#define CAPTURE_IMPLICIT   906 /* CUDA_ERROR_STREAM_CAPTURE_IMPLICIT */
#define RELAXED		   2   /* CU_STREAM_CAPTURE_MODE_RELAXED */
#define PAGE_BYTES	   4096u

static struct {
	int (*host_register)(void *, size_t, unsigned int);
	int (*host_unregister)(void *);
	int (*host_pointer)(unsigned long long *, void *, unsigned int);
	int (*stream_write)(void *, unsigned long long, uint32_t, unsigned int);
	int (*is_capturing)(void *, int *);
	int (*exchange_mode)(int *);
	int (*context_number)(void *, unsigned long long *); /* since CUDA 12; NULL: not there */
} cuda;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock;
static pthread_cond_t gone = PTHREAD_COND_INITIALIZER; /* a page that was going */
static bool found;
/* Of timelines that have signalled: pages that CUDA knows from us. */
static struct cuda_page *pages;

static uintptr_t page_of(volatile uint32_t *word)
{
	return (uintptr_t)word & ~(uintptr_t)(PAGE_BYTES - 1);
}

static int find(void)
{
	void *library = found ? NULL : dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	if (found)
		return 0;
	if (!library)
		return rtx_lib_failed(-ENOENT,
				      "this program has not loaded CUDA (libcuda.so.1); write the "
				      "timeline's word by the program's own GPU API");
	*(void **)&cuda.host_register = dlsym(library, "cuMemHostRegister_v2");
	*(void **)&cuda.host_unregister = dlsym(library, "cuMemHostUnregister");
	*(void **)&cuda.host_pointer = dlsym(library, "cuMemHostGetDevicePointer_v2");
	*(void **)&cuda.stream_write = dlsym(library, "cuStreamWriteValue32_v2");
	*(void **)&cuda.is_capturing = dlsym(library, "cuStreamIsCapturing");
	*(void **)&cuda.exchange_mode = dlsym(library, "cuThreadExchangeStreamCaptureMode");
	*(void **)&cuda.context_number = dlsym(library, "cuCtxGetId");
	dlclose(library); /* the program keeps it */
	if (!cuda.host_register || !cuda.host_unregister || !cuda.host_pointer ||
	    !cuda.stream_write || !cuda.is_capturing || !cuda.exchange_mode)
		return rtx_lib_failed(-ENOENT, "this program's CUDA lacks cuStreamWriteValue32_v2, "
					       "which came with CUDA 11.7; take a newer driver");
	found = true;
	return 0;
}

static bool is_ours(uintptr_t at)
{
	for (const struct cuda_page *p = pages; p; p = p->next)
		if (p->at == at && !p->going)
			return true;
	return false;
}

static bool is_going(uintptr_t at)
{
	for (const struct cuda_page *p = pages; p; p = p->next)
		if (p->at == at && p->going)
			return true;
	return false;
}

/* 0, or CUDA's error. */
static int place(struct cuda_page *page, volatile uint32_t *word, unsigned long long *at)
{
	uintptr_t here = page_of(word);
	/* A registered page is one for all contexts, and asking again costs little. */
	int error = cuda.host_pointer(at, (void *)(uintptr_t)word, 0);
	bool ours = false;

	if (error) {
		error = cuda.host_register((void *)here, PAGE_BYTES,
					   FOR_ALL_CONTEXTS | FOR_THE_GPU);
		ours = !error;
		if (!error || error == ALREADY_REGISTERED)
			error = cuda.host_pointer(at, (void *)(uintptr_t)word, 0);
	}
	if (!page->at && (ours || is_ours(here))) {
		page->at = here;
		page->next = pages;
		pages = page;
	}
	return error;
}

static void init_lock(void)
{
	rtx_lib_mutex_init(&lock);
}

void rtx_lib_cuda_lock(void)
{
	pthread_once(&once, init_lock);
	pthread_mutex_lock(&lock);
}

void rtx_lib_cuda_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

/*
 * What a thread does meanwhile breaks no capture of a graph that another thread has begun. Returns
 * what is to be given back.
 */
static int beside_captures(int mode)
{
	cuda.exchange_mode(&mode);
	return mode;
}

int rtx_lib_cuda_place(struct cuda_page *page, volatile uint32_t *word, unsigned long long *at)
{
	unsigned long long context = 0;
	int ret = find(), error = 0;
	bool has_number = !ret && cuda.context_number && !cuda.context_number(NULL, &context);

	/*
	 * A page that CUDA knows from us stays where it is until we close it. Each call of CUDA's
	 * costs, most of all on a CPU that has slept meanwhile. A context that was made in the
	 * place of another has a number of its own.
	 */
	if (has_number && page->known && page->context == context) {
		*at = page->word_at;
		return 0;
	}
	if (!ret) {
		int mode = beside_captures(RELAXED);

		/* What CUDA is about to forget must be given to it again afterwards. */
		while (is_going(page_of(word)))
			pthread_cond_wait(&gone, &lock);

		error = place(page, word, at);
		beside_captures(mode);
		page->known = has_number && !error && page->at;
		page->context = context;
		page->word_at = *at;
	}
	if (error)
		ret = rtx_lib_failed(-EIO,
				     "CUDA cannot write to the word at %p (error %d of "
				     "cuMemHostRegister); has this thread a context?",
				     (void *)(uintptr_t)word, error);
	return ret;
}

int rtx_lib_cuda_check_stream(void *stream)
{
	int status = 0, error = cuda.is_capturing(stream, &status);

	if (error == CAPTURE_IMPLICIT || (!error && status))
		return rtx_lib_failed(-EBUSY,
				      "a CUDA graph is being captured from this stream, and would "
				      "write the same number at each launch; signal behind the "
				      "launch of the graph");
	return error ? rtx_lib_failed(-EIO,
				      "CUDA does not know the stream %p (error %d of "
				      "cuStreamIsCapturing)",
				      stream, error)
		     : 0;
}

int rtx_lib_cuda_write(struct cuda_page *page, void *stream, unsigned long long at, uint32_t value)
{
	int error = cuda.stream_write(stream, at, value, 0);

	if (error)
		page->known = false;
	return error ? rtx_lib_failed(-EIO,
				      "CUDA refused the write to the stream (error %d of "
				      "cuStreamWriteValue32)",
				      error)
		     : 0;
}

/*
 * CUDA keeps a registered page, and would write to it for whatever stands at its address later: to
 * the word of the next timeline, say, which would not see it.
 */
static void strike(const struct cuda_page *page)
{
	for (struct cuda_page **p = &pages; *p; p = &(*p)->next)
		if (*p == page) {
			*p = page->next;
			break;
		}
}

bool rtx_lib_cuda_forget(struct cuda_page *page)
{
	int error = 0, mode;

	rtx_lib_cuda_lock();
	if (page->at) {
		page->going = true;
		if (!is_ours(page->at)) {
			/* As long as a kernel that the write stands behind. */
			pthread_mutex_unlock(&lock);
			mode = beside_captures(RELAXED);
			error = cuda.host_unregister((void *)page->at);
			beside_captures(mode);
			pthread_mutex_lock(&lock);
		}
		strike(page);
		page->at = 0;
		page->known = false;
		page->going = false;
		pthread_cond_broadcast(&gone);
	}
	pthread_mutex_unlock(&lock);
	return !error || error == NOT_REGISTERED;
}

void rtx_lib_cuda_fork_child(void)
{
	pages = NULL;
	init_lock();
	pthread_cond_init(&gone, NULL);
}
