// SPDX-License-Identifier: MIT
/*
 * releases.c - the writer's side of releases.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "releases_write.h"

int nv_releases_open(const char *path, struct nv_releases **page)
{
	char fresh[4096];
	int fd, err = 0;

	*page = NULL;
	if (snprintf(fresh, sizeof(fresh), "%s.new", path) >= (int)sizeof(fresh))
		return -ENAMETOOLONG;
	unlink(fresh);
	fd = open(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		return -errno;
	if (fchmod(fd, 0644) || ftruncate(fd, sizeof(**page)))
		err = -errno;
	if (!err) {
		void *p = mmap(NULL, sizeof(**page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

		if (p == MAP_FAILED)
			err = -errno;
		else
			*page = p;
	}
	close(fd);
	if (!err) {
		(*page)->magic = NV_RELEASES_MAGIC;
		(*page)->size = sizeof(**page);
		if (rename(fresh, path)) {
			err = -errno;
			munmap(*page, sizeof(**page));
			*page = NULL;
		}
	}
	if (err)
		unlink(fresh);
	return err;
}

void nv_releases_close(const char *path, struct nv_releases *page)
{
	if (!page)
		return;
	unlink(path);
	munmap(page, sizeof(*page));
}

void nv_releases_set(struct nv_releases *page, uint32_t index, const struct nv_release *r)
{
	struct nv_release *e = &page->entry[index];

	if (e->pid == r->pid && e->warm_ns == r->warm_ns)
		return;
	__atomic_store_n(&e->sequence, e->sequence + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	e->pci_domain = r->pci_domain;
	e->pci_bus = r->pci_bus;
	e->pci_slot = r->pci_slot;
	e->warm_ns = r->warm_ns;
	__atomic_store_n(&e->pid, r->pid, __ATOMIC_RELAXED);
	__atomic_store_n(&e->sequence, e->sequence + 1, __ATOMIC_RELEASE);
}
