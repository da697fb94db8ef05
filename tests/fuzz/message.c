// SPDX-License-Identifier: MIT
/*
 * message.c - libFuzzer target: clients' messages, all the way. The bytes are requests, one a line.
 * control_packet reads each request, and the daemon's own handlers carry it out on a real daemon in
 * this process. The daemon's scheduler must keep every invariant. A line that begins with '@'
 * writes its bytes into the page of the connection's task instead, and rings.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend.h"
#include "client.h"
#include "config_apply.h"
#include "config_values.h"
#include "control.h"
#include "history.h"
#include "host.h"
#include "objects.h"
#include "task.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct daemon daemon_state;

static void start(void)
{
	struct daemon *d = &daemon_state;

	d->config_root = "/nonexistent";
	d->group = (gid_t)-1;
	d->spare = -1;
	d->generation = 1;
	d->fast = epoll_create1(EPOLL_CLOEXEC);
	assert(d->fast >= 0);
	d->backends = backends;
	assert(!host_init(d, &task_news));
	assert(sd_event_new(&d->event) >= 0);
	config_load(d, NULL, NULL);
}

static struct connection *connect_one(int *other)
{
	struct ucred self = { .pid = getpid(), .uid = geteuid(), .gid = getegid() };
	struct connection *c;
	int pair[2];

	assert(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair));
	c = client_add(&daemon_state, pair[0], -1, &self);
	assert(c);
	*other = pair[1];
	return c;
}

/* Reads replies away, closing what descriptors came; none may be anything but JSON. */
static void drain(int fd)
{
	static char text[RTXG_REPLY_MAX + 1];
	char control[256];
	ssize_t n;

	for (;;) {
		struct iovec io = { .iov_base = text, .iov_len = sizeof(text) };
		struct msghdr m = { .msg_iov = &io,
				    .msg_iovlen = 1,
				    .msg_control = control,
				    .msg_controllen = sizeof(control) };
		json_t *json;

		n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (n <= 0)
			return;
		for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h)) {
			int fds[8];
			size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);

			memcpy(fds, CMSG_DATA(h), count * sizeof(int));
			for (size_t i = 0; i < count; i++)
				close(fds[i]);
		}
		json = json_loadb(text, (size_t)n, 0, NULL);
		assert(json && json_is_boolean(json_object_get(json, "ok")));
		json_decref(json);
	}
}

static void scribble(struct connection *c, const uint8_t *bytes, size_t size)
{
	size_t at;

	if (!c->task || size < 3)
		return;
	at = (bytes[0] | (size_t)bytes[1] << 8) % RTXG_PAGE_SIZE;
	if (size - 2 > RTXG_PAGE_SIZE - at)
		size = RTXG_PAGE_SIZE - at + 2;
	memcpy((char *)c->task->permit.page + at, bytes + 2, size - 2);
	host_event(&daemon_state, c->task);
}

/* As client.c does it: what has not ended is asked again, and what a request keeps ends with it. */
static void serve(struct connection *c, const char *text, size_t size)
{
	do {
		c->later = false;
		control_packet(c, text, size, -1);
	} while (c->later);
	if (c->pieces)
		c->drop_pieces(c->pieces);
	c->pieces = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct daemon *d = &daemon_state;
	struct connection *c[2];
	int other[2];
	uint64_t ns;
	uint32_t ppm;

	if (!d->permits.core)
		start();
	if (size && size < 200) {
		char *text = strndup((const char *)data, size);

		if (!config_duration(text, &ns))
			assert(ns <= 1000000000000000ull);
		if (!config_share(text, &ppm))
			assert(ppm <= RTXG_PPM);
		free(text);
	}
	for (int i = 0; i < 2; i++)
		c[i] = connect_one(&other[i]);
	for (size_t at = 0, line = 0; at < size; line++) {
		const uint8_t *end = memchr(data + at, '\n', size - at);
		size_t length = end ? (size_t)(end - data) - at : size - at;
		int i = line & 1;

		if (length && data[at] == '@') {
			scribble(c[i], data + at + 1, length - 1);
		} else {
			serve(c[i], (const char *)data + at, length);
		}
		if (d->armed_ns <= rtxg_now_ns())
			host_timer(d);
		drain(other[0]);
		drain(other[1]);
		at += length + 1;
	}
	history_sample(d);
	assert(!rtxg_core_check(d->permits.core));
	for (int i = 0; i < 2; i++) {
		client_drop(c[i]);
		close(other[i]);
	}
	assert(!d->tasks_count && !d->connections_count);
	for (uint32_t i = 0; i < VGPUS_MAX; i++)
		if (d->vgpus[i].used && d->vgpus[i].origin != ORIGIN_BUILTIN)
			assert(!objects_vgpu_remove(d, &d->vgpus[i]));
	for (uint32_t i = 0; i < POOLS_MAX; i++)
		if (d->pools[i].used)
			assert(!objects_pool_remove(d, &d->pools[i]));
	assert(!rtxg_core_check(d->permits.core));
	d->stop = false;
	return 0;
}
