// SPDX-License-Identifier: MIT
/*
 * journal.c - see journal.h. One writer (the daemon); the guardian reads, and writes only after the
 * daemon has gone.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "journal.h"

int nv_journal_create(struct nv_journal *journal)
{
	int fd = memfd_create("rtxg-journal", MFD_CLOEXEC | MFD_ALLOW_SEALING), err;

	journal->page = NULL;
	journal->fd = -1;
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, sizeof(struct nv_journal_page))) {
		err = -errno;
		close(fd);
		return err;
	}
	journal->page = mmap(NULL, sizeof(struct nv_journal_page), PROT_READ | PROT_WRITE,
			     MAP_SHARED, fd, 0);
	if (journal->page == MAP_FAILED) {
		err = -errno;
		journal->page = NULL;
		close(fd);
		return err;
	}
	journal->page->entries = NV_JOURNAL_ENTRIES;
	journal->page->magic = NV_JOURNAL_MAGIC;
	journal->fd = fd;
	return 0;
}

int nv_journal_attach(struct nv_journal *journal, int fd)
{
	struct stat st;
	void *p;

	journal->page = NULL;
	journal->fd = -1;
	if (fstat(fd, &st))
		return -errno;
	if ((size_t)st.st_size < sizeof(struct nv_journal_page))
		return -EPROTO;
	p = mmap(NULL, sizeof(struct nv_journal_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	journal->page = p;
	if (journal->page->magic != NV_JOURNAL_MAGIC ||
	    journal->page->entries != NV_JOURNAL_ENTRIES) {
		munmap(p, sizeof(struct nv_journal_page));
		journal->page = NULL;
		return -EPROTO;
	}
	journal->fd = fd;
	return 0;
}

void nv_journal_close(struct nv_journal *journal)
{
	if (journal->page)
		munmap(journal->page, sizeof(struct nv_journal_page));
	if (journal->fd >= 0)
		close(journal->fd);
	journal->page = NULL;
	journal->fd = -1;
}

int nv_journal_note(struct nv_journal *journal, uint32_t device, uint32_t client, uint32_t channel,
		    uint32_t times)
{
	struct nv_journal_page *page = journal->page;
	uint32_t i, spare = NV_JOURNAL_ENTRIES;

	if (!page)
		return 0;
	for (i = 0; i < page->high && i < NV_JOURNAL_ENTRIES; i++) {
		struct nv_journal_entry *e = &page->entry[i];

		if (!e->used) {
			if (spare == NV_JOURNAL_ENTRIES)
				spare = i;
		} else if (e->client == client && e->channel == channel && e->device == device) {
			__atomic_store_n(&e->used, times, __ATOMIC_RELEASE);
			return 0;
		}
	}
	if (!times)
		return 0;
	if (spare == NV_JOURNAL_ENTRIES) {
		if (page->high >= NV_JOURNAL_ENTRIES)
			return -ENOSPC;
		spare = page->high;
	}
	page->entry[spare].device = device;
	page->entry[spare].client = client;
	page->entry[spare].channel = channel;
	/* The guardian looks at `used` and `high` first: they come last. */
	__atomic_store_n(&page->entry[spare].used, times, __ATOMIC_RELEASE);
	if (spare == page->high)
		__atomic_store_n(&page->high, spare + 1, __ATOMIC_RELEASE);
	return 0;
}

unsigned int nv_journal_count(const struct nv_journal *journal)
{
	unsigned int n = 0;

	if (!journal->page)
		return 0;
	for (uint32_t i = 0; i < journal->page->high && i < NV_JOURNAL_ENTRIES; i++)
		n += __atomic_load_n(&journal->page->entry[i].used, __ATOMIC_ACQUIRE) ? 1 : 0;
	return n;
}

int nv_journal_slice(struct nv_journal *journal, const struct nv_journal_slice *slice)
{
	struct nv_journal_slice *spare = NULL;

	if (!journal->page)
		return 0;
	for (uint32_t i = 0; i < NV_JOURNAL_SLICES; i++) {
		struct nv_journal_slice *s = &journal->page->slice[i];

		if (s->used && s->client == slice->client && s->group == slice->group &&
		    s->pid == slice->pid)
			return 0;
		if (!s->used && !spare)
			spare = s;
	}
	if (!spare)
		return -ENOSPC;
	*spare = *slice;
	spare->used = 0;
	__atomic_store_n(&spare->used, 1, __ATOMIC_RELEASE);
	return 0;
}

void nv_journal_slice_remove(struct nv_journal *journal, uint32_t pid, uint32_t client,
			     uint32_t group)
{
	if (!journal->page)
		return;
	for (uint32_t i = 0; i < NV_JOURNAL_SLICES; i++) {
		struct nv_journal_slice *s = &journal->page->slice[i];

		if (s->used && s->pid == pid &&
		    (!group || (s->client == client && s->group == group)))
			__atomic_store_n(&s->used, 0, __ATOMIC_RELEASE);
	}
}
