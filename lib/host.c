// SPDX-License-Identifier: MIT
/*
 * host.c - the host may die, and the process may fork. Notices both, and does what the host's
 * policy of that time says: open = go on unmanaged, closed = wait; in both cases the library tries
 * to reach a host again, never faster than HOST_RETRY_NS and only from inside calls that the
 * program makes: there is no thread of our own. May not start a daemon.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

/*
 * A page that the kernel empties in every child, however the child was made (fork, _Fork, clone):
 * so a handle can be recognised as somebody else's by one load, and nothing depends on
 * pthread_atfork having run.
 */
static uint32_t *generation_word;
static uint32_t generation; /* the last one given out; survives the fork */
const uint32_t *rtx_lib_generation;

static pthread_mutex_t handles_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rtx_gpu *handles;
static bool atfork_done;

static void fork_prepare(void)
{
	pthread_mutex_lock(&handles_lock);
}

static void fork_parent(void)
{
	pthread_mutex_unlock(&handles_lock);
}

static void fork_child(void)
{
	/*
	 * The child must not keep the parent's connections open: lets go of descriptors and pages;
	 * the handles stay as husks that answer -ECHILD.
	 */
	for (struct rtx_gpu *h = handles; h; h = h->next)
		h->transport->abandon(h);
	handles = NULL;
	pthread_mutex_init(&handles_lock, NULL);
}

int rtx_lib_process_init(void)
{
	int ret = 0;

	pthread_mutex_lock(&handles_lock);
	if (!generation_word) {
		void *page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE,
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
		generation_word = page;
		rtx_lib_generation = page;
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

/* With the host gone the permits are ours to write: it is our page, and nobody else reads it. */
static void set_permits(struct rtx_gpu *h, uint32_t flags)
{
	for (unsigned int i = 0; i < LANES; i++) {
		uint32_t *permit = &h->page->lanes[i].permit;
		uint32_t seq = (load(permit) >> RTXG_PERMIT_SEQ_SHIFT) + 1;

		store(permit, seq << RTXG_PERMIT_SEQ_SHIFT | flags);
		h->transport->wake(h, i);
	}
}

/*
 * Looks whether the host lives, and if not does what is to be done. Called now and then by who
 * launches, and by who waits.
 */
void rtx_lib_host_check(struct rtx_gpu *h, uint64_t now)
{
	/* One thread looks; the others have something better to do. */
	if (pthread_mutex_trylock(&h->control))
		return;
	store_relaxed(&h->checked_ns, now);
	if (h->managed && !h->transport->alive(h)) {
		store_relaxed(&h->managed, false);
		rtx_lib_failed(-EPIPE, "the rtxg host of this task is gone; %s",
			       h->page_flags & RTXG_PAGE_F_FAIL_CLOSED
				       ? "launches wait until it is back (policy closed)"
				       : "launches go on unmanaged until it is back (policy open)");
		set_permits(h, h->page_flags & RTXG_PAGE_F_FAIL_CLOSED ? 0 : RTXG_PERMIT_GRANTED);
		h->retry_ns = now;
	}
	if (!h->managed && h->transport->reopen && now >= h->retry_ns) {
		h->retry_ns = now + HOST_RETRY_NS;
		if (!h->transport->reopen(h)) {
			store_relaxed(&h->managed, true);
			h->transport->ring(h);
		}
	}
	pthread_mutex_unlock(&h->control);
}
