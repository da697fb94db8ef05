// SPDX-License-Identifier: MIT
/*
 * discovery.c - loads discover.bpf.c through its skeleton. It passes records on as they come and
 * keeps none.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "discovery.h"
#include "rtxg_clock.h"
#include "subuid.h"
#include "discover.skel.h"

#define INIT_PID_NS 0xeffffffcu	  /* inode of the first pid namespace, fixed by the kernel */
#define SWEPT	    64u		  /* processes that are looked at at a time */
#define IDS_NS	    1000000000ull /* between two looks at whether /etc/subuid has changed */

struct discovery {
	struct discover *skel;
	struct ring_buffer *ring;
	discovery_fn fn;
	void *ctx;
	/* when they were looked at last */
	uint64_t lost, unnamed, ends, unfollowed;
	bool missing; /* processes that were not told of as yet */
	uint64_t until_ns;
	uint64_t ids_again; /* when whose the subordinate ids are is looked at again */
	unsigned int reading;
	bool sweeping; /* a sweep is under way, and has come so far */
	uint32_t swept;
};

/* --- whose the ids are ------------------------------------------------------------------------ */

static void tell_range(void *ctx, uint32_t first, uint32_t count, uint32_t account)
{
	struct discovery *d = ctx;
	struct discover_subordinate s = { .first = first,
					  .account = account,
					  .reading = d->reading };

	/* The largest prefix that begins there, and so on. */
	while (count) {
		uint32_t size = first & -first;
		struct discover_prefix key = { .id = htonl(first) };

		while (size > count)
			size /= 2;
		key.bits = 32 - (unsigned int)__builtin_ctz(size);
		if (bpf_map_update_elem(bpf_map__fd(d->skel->maps.subordinates), &key, &s, BPF_ANY))
			return; /* there are too many: the rest is no one's */
		first += size;
		count -= size;
	}
}

/* What an earlier reading of the file said, and this one does not. */
static void forget_ranges(struct discovery *d)
{
	int map = bpf_map__fd(d->skel->maps.subordinates);
	struct discover_prefix key, next;
	struct discover_subordinate s;
	bool more = !bpf_map_get_next_key(map, NULL, &key);

	while (more) {
		more = !bpf_map_get_next_key(map, &key, &next);
		if (!bpf_map_lookup_elem(map, &key, &s) && s.reading != d->reading)
			bpf_map_delete_elem(map, &key);
		key = next;
	}
}

static void tell_ranges(struct discovery *d)
{
	uint64_t now = rtxg_now_ns();
	unsigned int reading;

	if (now < d->ids_again)
		return;
	d->ids_again = now + IDS_NS;
	reading = rtx_lib_subuid_reading();
	if (reading == d->reading)
		return;
	d->reading = reading;
	rtx_lib_subuid_each(tell_range, d);
	forget_ranges(d);
}

/* As caller() in discover.bpf.c. The process may have ended: then the id is all that is known. */
static uint32_t account_of(uint32_t uid, uint32_t pid)
{
	char owner[RTX_LIB_SUBUID_OWNER];
	uint32_t account = rtx_lib_subuid_account(uid, owner), made_by;
	int pidfd;

	if (!uid || owner[0])
		return account;
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	made_by = rtx_lib_subuid_maker(pidfd, uid);
	if (pidfd >= 0)
		close(pidfd);
	return made_by == uid ? account : rtx_lib_subuid_account(made_by, NULL);
}

static uint32_t place_of(struct discovery *d, uint32_t account)
{
	int map = bpf_map__fd(d->skel->maps.users);
	unsigned int *known = &d->skel->bss->users_known;
	uint32_t place;

	if (!bpf_map_lookup_elem(map, &account, &place))
		return place % DISCOVER_USERS;
	if (__atomic_load_n(known, __ATOMIC_ACQUIRE) >= DISCOVER_USERS - 1)
		return 0;
	place = __atomic_add_fetch(known, 1, __ATOMIC_ACQ_REL);
	if (place >= DISCOVER_USERS)
		return 0;
	bpf_map_update_elem(map, &account, &place, BPF_NOEXIST);
	return bpf_map_lookup_elem(map, &account, &place) ? 0 : place % DISCOVER_USERS;
}

/* --- records ---------------------------------------------------------------------------------- */

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
	if (!stat("/proc/self/ns/pid", &self) && self.st_ino != INIT_PID_NS)
		d->skel->rodata->pidns_ino = self.st_ino;
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
	tell_ranges(d);
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
	tell_ranges(d);
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
	return stat(path, &st) ? 0 : st.st_uid;
}

int discovery_watch(struct discovery *d, uint32_t pid, uint32_t tag)
{
	return discovery_watch_of(d, user_of(pid), pid, tag);
}

int discovery_watch_of(struct discovery *d, uint32_t uid, uint32_t pid, uint32_t tag)
{
	int map = bpf_map__fd(d->skel->maps.watched), err;
	struct discover_watched new = { .tag = tag }, there;
	unsigned long long *has = NULL, *all = &d->skel->bss->watching;

	do {
		err = 0;
		if (!bpf_map_lookup_elem(map, &pid, &there)) {
			there.tag = tag;
			err = bpf_map_update_elem(map, &pid, &there, BPF_EXIST) ? -errno : 0;
			continue;
		}
		if (!has) {
			new.user = place_of(d, account_of(uid, pid));
			has = &d->skel->bss->held[new.user];
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

static bool is_alive(uint32_t pid)
{
	return !kill((pid_t)pid, 0) || errno != ESRCH;
}

static void drop(struct discovery *d, uint32_t pid)
{
	struct discover_watched w;

	if (bpf_map_lookup_and_delete_elem(bpf_map__fd(d->skel->maps.watched), &pid, &w))
		return;
	__atomic_fetch_sub(&d->skel->bss->held[w.user % DISCOVER_USERS], 1, __ATOMIC_ACQ_REL);
	__atomic_fetch_sub(&d->skel->bss->watching, 1, __ATOMIC_ACQ_REL);
	/* Another process may have got its number, and have entered, meanwhile. */
	if (is_alive(pid))
		discovery_watch(d, pid, w.tag);
}

bool discovery_sweep(struct discovery *d, uint64_t until_ns)
{
	int map = bpf_map__fd(d->skel->maps.watched);
	struct discover_watched values[SWEPT];
	uint32_t keys[SWEPT], count, next = 0;

	do {
		int err;

		count = SWEPT;
		err = bpf_map_lookup_batch(map, d->sweeping ? &d->swept : NULL, &next, keys, values,
					   &count, NULL);
		d->sweeping = !err;
		d->swept = next;
		for (uint32_t i = 0; (!err || err == -ENOENT) && i < count; i++)
			if (!is_alive(keys[i]))
				drop(d, keys[i]);
	} while (d->sweeping && rtxg_now_ns() < until_ns);
	return d->sweeping;
}
