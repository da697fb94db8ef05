// SPDX-License-Identifier: MIT
/*
 * nvtool_demand.c - rtxg-channels demand and objects: what of other processes' queues can be seen
 * from outside on this driver. May not: act on any process.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "../../bpf/discovery.h"
#include "adopt.h"
#include "channels.h"
#include "nvtool.h"
#include "rtxg_clock.h"
#include "userd.h"

#define LOOKED_AT 2048

struct looked_at {
	uint32_t pid, client, group, channel, engine, memory;
	uint64_t offset;
	struct nv_rm_gpu *gpu;
	struct nv_userd page;
	int err;
	uint32_t status, class_id;
	uint32_t put, moves, behind, reads; /* reads: of which GET != PUT */
	char comm[16];
	bool gone;
};

static struct looked_at *seen;
static unsigned int count_seen;
static struct nv_registry registry;
static struct nv_rm_gpu *gpu_list;
static int gpu_number;
static bool hold_all;
static volatile sig_atomic_t ended;

static void on_end(int sig)
{
	ended = 1;
}

static void let_go(struct looked_at *a)
{
	nv_userd_close(&a->page, a->gpu);
	a->gone = true;
}

static void on_record(void *ctx, const struct discover_record *r)
{
	struct nv_what what;
	unsigned int i;

	if (r->kind == DISCOVER_EXIT || r->kind == DISCOVER_EXEC)
		for (i = 0; i < count_seen && !hold_all; i++)
			if (seen[i].pid == r->pid && !seen[i].gone)
				let_go(&seen[i]);
	if (r->kind == DISCOVER_FREE)
		for (i = 0; i < count_seen && !hold_all; i++)
			if (seen[i].pid == r->pid && seen[i].client == r->client &&
			    (seen[i].memory == r->object || seen[i].channel == r->object ||
			     seen[i].client == r->object) &&
			    !seen[i].gone)
				let_go(&seen[i]);
	if (r->pid == (uint32_t)getpid())
		return;
	nv_registry_feed(&registry, r, &what);
	if (what.change == NV_GONE_PROCESS)
		nv_registry_drop(&registry, what.process);
	if (what.change != NV_NEW_CHANNEL || count_seen == LOOKED_AT)
		return;
	for (i = 0; i < (unsigned int)gpu_number; i++)
		if (gpu_list[i].device_instance == what.group->device) {
			const struct nv_channel *c = &what.group->channels[what.group->count - 1];
			struct looked_at *a = &seen[count_seen++];

			*a = (struct looked_at){ .pid = r->pid,
						 .client = r->client,
						 .group = what.group->handle,
						 .channel = c->handle,
						 .engine = what.group->engine,
						 .memory = c->userd,
						 .offset = c->userd_offset,
						 .gpu = &gpu_list[i],
						 .err = -EAGAIN };
			memcpy(a->comm, r->comm, sizeof(a->comm));
			a->comm[sizeof(a->comm) - 1] = '\0';
			nv_name_clean(a->comm);
		}
}

static void open_page(struct looked_at *a)
{
	const struct nv_sys *sys = a->gpu->rm->sys;
	const struct nv_process *p = nv_registry_process(&registry, a->pid);
	const struct nv_client *client = p ? nv_process_client(p, a->client) : NULL;
	struct nv_handle_info info = { .object = a->memory, .index = NV_HANDLE_INFO_CLASS };
	int pidfd, fd;

	a->err = -ESRCH;
	if (!client)
		return;
	pidfd = sys->pidfd_open(sys->ctx, (int)a->pid);
	a->err = pidfd;
	if (pidfd < 0)
		return;
	fd = sys->pidfd_getfd(sys->ctx, pidfd, client->fd);
	sys->close(sys->ctx, pidfd);
	a->err = fd;
	if (fd < 0)
		return;
	if (!nv_rm_control_foreign(a->gpu->rm, fd, a->client, a->client,
				   NV0000_CLIENT_GET_HANDLE_INFO, &info, sizeof(info)))
		a->class_id = (uint32_t)info.result;
	a->err = nv_userd_open(&a->page, a->gpu, fd, a->client, a->memory, a->offset, a->offset);
	a->status = a->gpu->rm->status;
	sys->close(sys->ctx, fd);
	if (!a->err)
		a->put = nv_userd_put(nv_userd_read(&a->page, a->offset));
}

static void report(uint64_t reads, uint64_t read_ns, uint64_t open_ns, unsigned int opened)
{
	for (unsigned int i = 0; i < count_seen; i++) {
		const struct looked_at *a = &seen[i];

		if (!a->moves && !a->err && !a->behind && a->engine > 8)
			continue;
		printf("pid %u (%s) client 0x%x group 0x%x channel 0x%x engine %u memory 0x%x "
		       "class 0x%x offset 0x%llx: ",
		       a->pid, a->comm, a->client, a->group, a->channel, a->engine, a->memory,
		       a->class_id, (unsigned long long)a->offset);
		if (a->err)
			printf("%s (driver 0x%x %s)\n", strerror(-a->err), a->status,
			       nv_rm_status_name(a->status));
		else
			printf("%u reads, put moved %u times, get behind it %u times%s\n", a->reads,
			       a->moves, a->behind, a->gone ? ", let go" : "");
	}
	printf("{\"channels\": %u, \"opened\": %u, \"open_us\": %.1f, \"reads\": %llu, "
	       "\"read_us\": %.3f}\n",
	       count_seen, opened, opened ? (double)open_ns / 1e3 / opened : 0.0,
	       (unsigned long long)reads, reads ? (double)read_ns / 1e3 / (double)reads : 0.0);
}

int nv_tool_demand(struct nv_rm_gpu *gpus, int count, double seconds, unsigned int us, bool hold)
{
	uint64_t end, reads = 0, read_ns = 0, open_ns = 0;
	unsigned int opened = 0, i;
	struct discovery *d;
	int err;

	gpu_list = gpus;
	gpu_number = count;
	hold_all = hold;
	seen = calloc(LOOKED_AT, sizeof(*seen));
	nv_registry_init(&registry);
	d = seen ? discovery_open(gpus[0].rm->release, &err) : NULL;
	if (!d) {
		fprintf(stderr, "rtxg-channels: cannot load the discovery program: %s\n",
			strerror(seen ? -err : ENOMEM));
		return 1;
	}
	signal(SIGINT, on_end);
	signal(SIGTERM, on_end);
	printf("ready\n");
	fflush(stdout);
	end = rtxg_now_ns() + (uint64_t)(seconds * 1e9);
	while (!ended && rtxg_now_ns() < end) {
		uint64_t t0;

		discovery_read(d, end, on_record, NULL);
		for (i = 0; i < count_seen; i++)
			if (seen[i].err == -EAGAIN) {
				t0 = rtxg_now_ns();
				open_page(&seen[i]);
				open_ns += rtxg_now_ns() - t0;
				opened++;
			}
		t0 = rtxg_now_ns();
		for (i = 0; i < count_seen; i++) {
			struct looked_at *a = &seen[i];
			uint64_t words;

			if (a->err || a->gone)
				continue;
			words = nv_userd_read(&a->page, a->offset);
			a->reads++;
			reads++;
			a->moves += nv_userd_put(words) != a->put;
			a->behind += nv_userd_put(words) != nv_userd_get(words);
			a->put = nv_userd_put(words);
		}
		read_ns += rtxg_now_ns() - t0;
		usleep(us);
	}
	report(reads, read_ns, open_ns, opened);
	for (i = 0; i < count_seen; i++)
		if (!seen[i].gone)
			let_go(&seen[i]);
	discovery_close(d);
	nv_registry_free(&registry);
	free(seen);
	return 0;
}

static void show_objects(void *ctx, int fd, uint32_t client, const struct nv_adopt_object *list,
			 unsigned int count)
{
	struct nv_rm_gpu *gpu = ctx;

	for (unsigned int i = 0; i < count; i++) {
		struct nv_userd u;

		printf("client 0x%x object 0x%x class 0x%x parent 0x%x", client, list[i].handle,
		       list[i].class_id, list[i].parent);
		if ((list[i].class_id == NV_CLASS_MEMORY_LOCAL ||
		     list[i].class_id == NV_CLASS_MEMORY_SYSTEM)) {
			int err = nv_userd_open(&u, gpu, fd, client, list[i].handle, 0, 0x17000);

			if (err) {
				printf(" (%s, driver 0x%x)", strerror(-err), gpu->rm->status);
			} else {
				for (unsigned int at = 0x2000; at <= 0x17000; at += 0x3000) {
					uint64_t w = nv_userd_read(&u, at);

					printf(" %x/%x", nv_userd_get(w), nv_userd_put(w));
				}
				nv_userd_close(&u, gpu);
			}
		}
		printf("\n");
	}
}

int nv_tool_objects(struct nv_rm_gpu *gpus, int count, uint32_t pid)
{
	int err = nv_adopt_objects(gpus, count, pid, show_objects, &gpus[0]);

	if (err)
		fprintf(stderr, "rtxg-channels: pid %u: %s\n", pid, strerror(-err));
	return err != 0;
}
