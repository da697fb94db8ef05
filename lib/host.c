// SPDX-License-Identifier: MIT
/*
 * host.c - the host may die. Notices it, and does what the host's policy of that time says: open =
 * go on unmanaged, closed = wait. In both cases the library tries to reach a host again, never
 * faster than HOST_RETRY_NS and only from inside calls that the program makes: librtxg has no
 * thread. May not start a daemon.
 */
#include "errors.h"
#include "handle.h"
#include "host.h"

/*
 * With the host gone the permits are ours to write: it is our page, and no other process reads it.
 */
static void set_permits(struct rtx_gpu *h, uint32_t flags)
{
	for (unsigned int i = 0; i < LANES; i++) {
		uint32_t *permit = &h->page->lanes[i].permit;
		uint32_t seq = (load(permit) >> RTXG_PERMIT_SEQ_SHIFT) + 1;

		store(permit, seq << RTXG_PERMIT_SEQ_SHIFT | flags);
		h->transport->wake(h, i);
	}
}

/* An outage is told of once, with each reason why it goes on, however long that is. */
static void try_again(struct rtx_gpu *h, uint64_t now)
{
	int error;

	h->retry_ns = now + HOST_RETRY_NS;
	h->retries++;
	rtx_lib_be_quiet(true);
	error = h->transport->reopen(h);
	rtx_lib_be_quiet(false);
	if (!error) {
		rtx_lib_say("the rtxg host of this task is back after %.1f s (attempt %u)",
			    (double)(rtxg_now_ns() - h->gone_ns) / NS_PER_S, h->retries);
		store_relaxed(&h->managed, true);
		h->transport->ring(h);
	} else if (error != h->retry_error) {
		rtx_lib_say("%s", rtx_strerror());
	}
	h->retry_error = error;
}

/*
 * Looks whether the host lives, and if not does what is to be done. Called now and then by who
 * launches, and by who waits.
 */
void rtx_lib_host_check(struct rtx_gpu *h, uint64_t now)
{
	not_cancelled();

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
		h->gone_ns = h->retry_ns = now;
		h->retries = 0;
		h->retry_error = 0;
	}
	if (!h->managed && h->transport->reopen && now >= h->retry_ns)
		try_again(h, now);
	pthread_mutex_unlock(&h->control);
}
