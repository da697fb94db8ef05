// SPDX-License-Identifier: MIT
/*
 * discovery.c - loads discover.bpf.c through its skeleton. It passes records on as they come and
 * keeps none.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "discovery.h"
#include "discover.skel.h"

#define INIT_PID_NS 0xeffffffcu /* inode of the first pid namespace, fixed by the kernel */

struct discovery {
	struct discover *skel;
	struct ring_buffer *ring;
	discovery_fn fn;
	void *ctx;
	uint64_t lost;
};

static int on_record(void *ctx, void *data, size_t size)
{
	struct discovery *d = ctx;

	if (size >= sizeof(struct discover_record) && d->fn)
		d->fn(d->ctx, data);
	return 0;
}

static int quiet(enum libbpf_print_level level, const char *format, va_list args)
{
	if (level != LIBBPF_WARN || !getenv("RTXG_BPF_DEBUG"))
		return 0;
	return vfprintf(stderr, format, args);
}

struct discovery *discovery_open(uint32_t release, int *error)
{
	struct discovery *d = calloc(1, sizeof(*d));
	struct stat self;
	int err;

	if (!d) {
		*error = -ENOMEM;
		return NULL;
	}
	libbpf_set_print(quiet);
	d->skel = discover__open();
	if (!d->skel) {
		err = -errno;
		goto fail;
	}
	/* A daemon inside a pid namespace knows processes by that namespace's numbers. */
	if (!stat("/proc/self/ns/pid", &self) && self.st_ino != INIT_PID_NS) {
		d->skel->rodata->pidns_dev = self.st_dev;
		d->skel->rodata->pidns_ino = self.st_ino;
	}
	d->skel->rodata->self = (unsigned int)getpid();
	d->skel->rodata->release = release;
	err = discover__load(d->skel);
	if (err) {
		if (access("/sys/kernel/btf/vmlinux", R_OK))
			err = -EOPNOTSUPP;
		goto fail;
	}
	err = discover__attach(d->skel);
	if (err)
		goto fail;
	d->ring = ring_buffer__new(bpf_map__fd(d->skel->maps.records), on_record, d, NULL);
	if (!d->ring) {
		err = -errno;
		goto fail;
	}
	*error = 0;
	return d;
fail:
	*error = err;
	discovery_close(d);
	return NULL;
}

void discovery_close(struct discovery *d)
{
	if (!d)
		return;
	ring_buffer__free(d->ring);
	discover__destroy(d->skel);
	free(d);
}

int discovery_fd(const struct discovery *d)
{
	return ring_buffer__epoll_fd(d->ring);
}

int discovery_read(struct discovery *d, discovery_fn fn, void *ctx)
{
	uint64_t lost = d->skel->bss->lost;
	int n;

	d->fn = fn;
	d->ctx = ctx;
	n = ring_buffer__consume(d->ring);
	if (lost != d->lost) {
		struct discover_record r = { .kind = DISCOVER_LOST,
					     .fd = -1,
					     .object = (unsigned int)(lost - d->lost) };

		d->lost = lost;
		fn(ctx, &r);
	}
	return n;
}

int discovery_watch(struct discovery *d, uint32_t pid, uint32_t tag)
{
	return bpf_map_update_elem(bpf_map__fd(d->skel->maps.watched), &pid, &tag, BPF_ANY) ? -errno
											    : 0;
}
