// SPDX-License-Identifier: MIT
/*
 * holes.c - a client that shares a page with us cannot cut it away, for its memory is sealed. But
 * it may punch a hole into it, and then our next look at the page asks the kernel for new memory.
 * Where there is none (vm.overcommit_memory=2, and all that may be promised has been) the answer is
 * SIGBUS. The same comes where the memory itself is broken.
 *
 * A blank page takes the place of such a one then, which is there from the beginning. What stands
 * in it is as little believed as what a client writes. All such pages are that one, so that none
 * needs memory when there is none.
 *
 * May not: do more in the handler than to map the blank page.
 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>

#include "rtxg/page.h"
#include "daemon.h"
#include "holes.h"

/* Of each task a page, and one for the fence of each lane. */
#define PAGES (TASKS_MAX * (1u + RTXG_PAGE_LANES))

static const void *holes_pages[PAGES];
static unsigned int holes_count;
static char *holes_blank;

static void on_fault(int number, siginfo_t *info, void *context)
{
	uintptr_t at = (uintptr_t)info->si_addr & ~(uintptr_t)(RTXG_PAGE_SIZE - 1);
	int saved = errno;

	for (unsigned int i = 0; i < holes_count && info->si_code > 0; i++)
		if ((uintptr_t)holes_pages[i] == at &&
		    mremap(holes_blank, 0, RTXG_PAGE_SIZE, MREMAP_MAYMOVE | MREMAP_FIXED,
			   (void *)at) != MAP_FAILED) {
			errno = saved;
			return;
		}
	/* As without us: it comes again. */
	signal(SIGBUS, SIG_DFL);
}

int holes_begin(void)
{
	const struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };

	/* Shared, so that it can be in more places than one; and what is written is there. */
	holes_blank = mmap(NULL, RTXG_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			   -1, 0);
	if (holes_blank == MAP_FAILED)
		return -errno;
	holes_blank[0] = 0;
	return sigaction(SIGBUS, &action, NULL) ? -errno : 0;
}

void holes_add(const void *page)
{
	if (holes_count < PAGES)
		holes_pages[holes_count++] = page;
}

void holes_remove(const void *page)
{
	for (unsigned int i = holes_count; i-- > 0;)
		if (holes_pages[i] == page) {
			holes_pages[i] = holes_pages[--holes_count];
			return;
		}
}
