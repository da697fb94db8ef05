// SPDX-License-Identifier: MIT
/*
 * discovery.c - loads discover.bpf.c through its skeleton. It passes records on as they come and
 * keeps none.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "discovery.h"
#include "rtxg_clock.h"
#include "discover.skel.h"

#define INIT_PID_NS 0xeffffffcu /* inode of the first pid namespace, fixed by the kernel */

struct discovery {
	struct discover *skel;
	struct ring_buffer *ring;
	discovery_fn fn;
	void *ctx;
	/* when they were looked at last */
	uint64_t lost, unnamed, ends, unfollowed;
	bool missing; /* processes that were not told of as yet */
	uint64_t until_ns;
};

static int on_record(void *ctx, void *data, size_t size)
{
	struct discovery *d = ctx;

	const struct discover_record *r = data;
	unsigned long long *taken = d->skel->bss->taken;

	if (size < sizeof(*r))
		return 0;
	__atomic_store_n(&taken[r->user % DISCOVER_USERS], taken[r->user % DISCOVER_USERS] + 1,
			 __ATOMIC_RELEASE);
	d->fn(d->ctx, r);
	/* This one is taken out all the same. */
	return rtxg_now_ns() < d->until_ns ? 0 : -EAGAIN;
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

static void tell_unknown(struct discovery *d, uint64_t count, uint64_t *before, uint64_t value)
{
	struct discover_record r = { .kind = DISCOVER_LOST,
				     .fd = -1,
				     .object = (unsigned int)(count - *before),
				     .value = value };

	*before = count;
	if (r.object)
		d->fn(d->ctx, &r);
}

/* Which processes, at most so many at a time: a program may end as soon as it is missed. */
static bool tell_missed(struct discovery *d, uint64_t until_ns)
{
	int map = bpf_map__fd(d->skel->maps.missed);
	struct discover_record r = { .kind = DISCOVER_LOST, .fd = -1 };

	tell_unknown(d, d->skel->bss->unnamed, &d->unnamed, 0);
	tell_unknown(d, d->skel->bss->ends, &d->ends, 1);
	while (!bpf_map_get_next_key(map, NULL, &r.pid)) {
		if (bpf_map_lookup_elem(map, &r.pid, &r.object))
			r.object = 1;
		bpf_map_delete_elem(map, &r.pid);
		d->fn(d->ctx, &r);
		if (rtxg_now_ns() >= until_ns)
			return true;
	}
	return false;
}

bool discovery_read(struct discovery *d, uint64_t until_ns, discovery_fn fn, void *ctx)
{
	uint64_t lost;
	bool more;

	d->fn = fn;
	d->ctx = ctx;
	d->until_ns = until_ns;
	more = ring_buffer__consume(d->ring) == -EAGAIN;
	tell_unknown(d, d->skel->bss->unfollowed, &d->unfollowed, DISCOVER_UNWATCHED);
	lost = d->skel->bss->lost;
	if (lost == d->lost && !d->missing)
		return more;
	d->lost = lost;
	d->missing = tell_missed(d, until_ns);
	return more || d->missing;
}

static uint32_t user_of(uint32_t pid)
{
	char path[32];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%u", pid);
	return stat(path, &st) ? 0 : st.st_uid % DISCOVER_USERS;
}

int discovery_watch(struct discovery *d, uint32_t pid, uint32_t tag)
{
	int map = bpf_map__fd(d->skel->maps.watched), err;
	struct discover_watched new = { .tag = tag, .user = user_of(pid) }, there;
	unsigned long long *has = &d->skel->bss->held[new.user], *all = &d->skel->bss->watching;

	do {
		err = 0;
		if (!bpf_map_lookup_elem(map, &pid, &there)) {
			there.tag = tag;
			err = bpf_map_update_elem(map, &pid, &there, BPF_EXIST) ? -errno : 0;
			continue;
		}
		if (!DISCOVER_MAY_WATCH(__atomic_load_n(has, __ATOMIC_ACQUIRE),
					__atomic_load_n(all, __ATOMIC_ACQUIRE)))
			return -ENOSPC;
		__atomic_fetch_add(has, 1, __ATOMIC_ACQ_REL);
		__atomic_fetch_add(all, 1, __ATOMIC_ACQ_REL);
		if (!bpf_map_update_elem(map, &pid, &new, BPF_NOEXIST))
			return 0;
		err = -errno;
		__atomic_fetch_sub(has, 1, __ATOMIC_ACQ_REL);
		__atomic_fetch_sub(all, 1, __ATOMIC_ACQ_REL);
	} while (err == -EEXIST || err == -ENOENT); /* it has come, or gone, meanwhile */
	return err;
}
