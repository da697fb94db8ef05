// SPDX-License-Identifier: MIT
/*
 * process.c - the process may fork: a handle belongs to the process that opened it, and a child
 * lets go of what it inherited. May not tell the host anything.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "errors.h"
#include "handle.h"
#include "process.h"

/*
 * A page that the kernel empties in every child, however the child was made (fork, _Fork, clone):
 * so a handle can be recognised as another process's by one load, and nothing depends on
 * pthread_atfork having run.
 */
static uint32_t *generation_word;
static uint32_t generation; /* the last one given out; survives the fork */

static pthread_mutex_t handles_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rtx_gpu *handles;
static bool atfork_done;

/* Of a word for each part, behind the first: has the process nothing of its parent's? */
enum { PART_NEW, PART_TAKEN, PART_OWN };

static uint32_t *word_of(unsigned int part)
{
	uint32_t *word = load(&generation_word);

	return word ? word + 1 + part : NULL;
}

void rtx_lib_process_forget(unsigned int part, void (*let_go)(void))
{
	uint32_t *word = word_of(part), state = PART_NEW;

	if (!word)
		return;
	if (__atomic_compare_exchange_n(word, &state, PART_TAKEN, false, __ATOMIC_SEQ_CST,
					__ATOMIC_SEQ_CST)) {
		let_go();
		store(word, PART_OWN);
		rtx_lib_futex_wake(word, false);
	}
	while (load(word) != PART_OWN)
		rtx_lib_futex_wait(word, PART_TAKEN, NEVER, false);
}

void rtx_lib_process_forget_now(unsigned int part, void (*let_go)(void))
{
	uint32_t *word = word_of(part);

	let_go();
	if (word)
		store(word, PART_OWN);
}

/*
 * The child must not keep the parent's connections open: lets go of descriptors and pages; the
 * handles stay as husks that answer -ECHILD.
 */
static void let_go_of_parent(void)
{
	/* Of a thread that is cancelled, fork() makes a child that is to be cancelled, too. */
	not_cancelled();

	for (struct rtx_gpu *h = handles; h; h = h->next)
		h->transport->abandon(h);
	handles = NULL;
	pthread_mutex_init(&handles_lock, NULL);
}

void rtx_lib_process_forget_handles(void)
{
	rtx_lib_process_forget(PROCESS_HANDLES, let_go_of_parent);
}

static void fork_prepare(void)
{
	/* The lock of a child that was told nothing may be held by a thread of its parent. */
	rtx_lib_process_forget_handles();
	pthread_mutex_lock(&handles_lock);
}

static void fork_parent(void)
{
	pthread_mutex_unlock(&handles_lock);
}

static void fork_child(void)
{
	rtx_lib_process_forget_now(PROCESS_HANDLES, let_go_of_parent);
}

int rtx_lib_process_init(void)
{
	int ret = 0;

	rtx_lib_process_forget_handles();
	pthread_mutex_lock(&handles_lock);
	if (!generation_word) {
		uint32_t *page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (page == MAP_FAILED) {
			ret = rtx_lib_failed(-errno, "there is no memory for librtxg");
			goto out;
		}
		if (madvise(page, (size_t)sysconf(_SC_PAGESIZE), MADV_WIPEONFORK)) {
			ret = rtx_lib_failed(-errno,
					     "the kernel does not know MADV_WIPEONFORK; librtxg "
					     "needs Linux 4.14 or newer");
			munmap(page, (size_t)sysconf(_SC_PAGESIZE));
			goto out;
		}
		page[1 + PROCESS_HANDLES] = PART_OWN;
		store(&generation_word, page);
	}
	if (!*generation_word)
		store(generation_word, ++generation);
	if (!atfork_done) {
		ret = -pthread_atfork(fork_prepare, fork_parent, fork_child);
		if (ret)
			rtx_lib_failed(ret, "there is no memory for librtxg");
		else
			atfork_done = true;
	}
out:
	pthread_mutex_unlock(&handles_lock);
	return ret;
}

uint32_t rtx_lib_process_generation(void)
{
	const uint32_t *word = load(&generation_word);

	return word ? load_relaxed(word) : 0;
}

void rtx_lib_handle_register(struct rtx_gpu *h)
{
	pthread_mutex_lock(&handles_lock);
	h->generation = generation;
	h->next = handles;
	h->prev = NULL;
	if (handles)
		handles->prev = h;
	handles = h;
	pthread_mutex_unlock(&handles_lock);
}

void rtx_lib_handle_unregister(struct rtx_gpu *h)
{
	pthread_mutex_lock(&handles_lock);
	if (h->prev)
		h->prev->next = h->next;
	else if (handles == h)
		handles = h->next;
	if (h->next)
		h->next->prev = h->prev;
	pthread_mutex_unlock(&handles_lock);
}

int rtx_lib_check_handle(struct rtx_gpu *h, unsigned int engine)
{
	if (!h)
		return rtx_lib_failed(-EINVAL, "the handle is NULL; rtx_gpu_open gives one");
	if (h->generation != load_relaxed(generation_word))
		return rtx_lib_failed(
			-ECHILD,
			"the handle belongs to the parent process; a forked child opens its own");
	if (engine >= LANES)
		return rtx_lib_failed(
			-EINVAL,
			"engine %u does not exist; there are RTX_COMPUTE, RTX_COPY_IN and "
			"RTX_COPY_OUT",
			engine);
	return 0;
}
