// SPDX-License-Identifier: MIT
/*
 * transport_none.c - a task that no host manages: a private page on which every permit is given.
 * May not fail once it is open.
 */
#include <sys/mman.h>

#include "errors.h"
#include "handle.h"

static int none_open(struct rtx_gpu *h, struct cpu_request *cpu)
{
	h->page = mmap(NULL, RTXG_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);
	if (h->page == MAP_FAILED) {
		h->page = NULL;
		return rtx_lib_failed(-errno, "there is no memory for librtxg");
	}
	for (unsigned int i = 0; i < LANES; i++)
		h->page->lanes[i].permit = RTXG_PERMIT_GRANTED;
	return 0;
}

static void none_close(struct rtx_gpu *h)
{
	munmap(h->page, RTXG_PAGE_SIZE);
}

static void none_abandon(struct rtx_gpu *h)
{
	/* The page itself is not there in a child (MADV_DONTFORK). */
}

static void none_ring(struct rtx_gpu *h)
{
}

static int none_wait(struct rtx_gpu *h, unsigned int lane, uint32_t value, uint64_t until)
{
	return rtx_lib_futex_wait(&h->page->lanes[lane].permit, value, until, false);
}

static void none_wake(struct rtx_gpu *h, unsigned int lane)
{
	rtx_lib_futex_wake(&h->page->lanes[lane].permit, false);
}

static bool none_alive(struct rtx_gpu *h)
{
	return true;
}

const struct transport rtx_lib_transport_none = {
	.name = "none",
	.open = none_open,
	.close = none_close,
	.abandon = none_abandon,
	.ring = none_ring,
	.wait = none_wait,
	.wake = none_wake,
	.alive = none_alive,
};
