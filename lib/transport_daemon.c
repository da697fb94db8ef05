// SPDX-License-Identifier: MIT
/*
 * transport_daemon.c - a task hosted by rtxgd: its page is a memfd, its doorbell an eventfd, its
 * life a connection. May not wait for anything but a reply or the permit's futex.
 */
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "errors.h"
#include "handle.h"
#include "locate.h"
#include "message.h"
#include "nvrm.h"
#include "own_file.h"

/* One that takes longer is tried again, by a thread that has its work to do meanwhile. */
#define REOPEN_PATIENCE_NS (1 * NS_PER_S)

static int ask(int socket, json_t *request, int fd)
{
	char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;
	int ret;

	if (!text)
		return rtx_lib_failed(-EINVAL, "a name is not UTF-8");
	ret = rtx_lib_message_send(socket, text, strlen(text), fd);
	free(text);
	/* One that turns us away says why before it closes: that can still be read. */
	return ret == -EPIPE ? 0 : ret;
}

static int hear(int socket, json_t **reply, int fds[2], uint64_t until)
{
	char *answer = NULL;
	int ret;

	*reply = NULL;
	do
		ret = rtx_lib_message_receive(socket, &answer, fds, until);
	while (ret == -EINTR);
	if (ret)
		return ret;
	*reply = json_loads(answer, 0, NULL);
	free(answer);
	if (!*reply)
		ret = rtx_lib_failed(-EPROTO, "the rtxg daemon's reply is not JSON");
	else if (!json_is_true(json_object_get(*reply, "ok"))) {
		json_int_t error = json_integer_value(json_object_get(*reply, "errno"));
		const char *message = json_string_value(json_object_get(*reply, "message"));

		ret = rtx_lib_failed(error > 0 && error < 4096 ? -(int)error : -EPROTO, "%s",
				     message ? message : "the rtxg daemon refused");
	}
	if (ret) {
		rtx_lib_close_fds(fds);
		json_decref(*reply);
		*reply = NULL;
	}
	return ret;
}

/*
 * Sends a request and reads its reply; on failure rtx_strerror() has the words. The caller owns
 * *reply.
 */
static int converse(int socket, json_t *request, int fd, json_t **reply, int fds[2], uint64_t until)
{
	int ret = ask(socket, request, fd);

	*reply = NULL;
	fds[0] = fds[1] = -1;
	return ret ? ret : hear(socket, reply, fds, until);
}

static void add_params(json_t *request, const struct rtx_gpu_options *o)
{
	if (o->priority)
		json_object_set_new(request, "priority", json_integer(o->priority));
	if (o->runtime_ns)
		json_object_set_new(request, "runtime_ns", json_integer((json_int_t)o->runtime_ns));
	if (o->deadline_ns)
		json_object_set_new(request, "deadline_ns",
				    json_integer((json_int_t)o->deadline_ns));
	if (o->period_ns)
		json_object_set_new(request, "period_ns", json_integer((json_int_t)o->period_ns));
}

static json_t *open_request(struct rtx_gpu *h)
{
	json_t *request = json_pack("{s:s}", "op", "open");

	if (h->device[0])
		json_object_set_new(request, "gpu", json_string(h->device));
	/*
	 * Where a host put a program that named no vGPU may be another place by now, by its cgroup
	 * or the rules: the next host is to look, too.
	 */
	if (h->vgpu_named)
		json_object_set_new(request, "vgpu", json_string(h->vgpu));
	add_params(request, &h->options);
	return request;
}

/* The names that the daemon chose. */
static void keep_names(struct rtx_gpu *h, json_t *reply)
{
	const char *gpu = json_string_value(json_object_get(reply, "gpu"));
	const char *vgpu = json_string_value(json_object_get(reply, "vgpu"));

	if (gpu && strlen(gpu) <= RTXG_NAME_MAX)
		strcpy(h->device, gpu);
	if (vgpu && strlen(vgpu) <= RTXG_NAME_MAX)
		strcpy(h->vgpu, vgpu);
	store_relaxed(&h->host_generation,
		      (uint64_t)json_integer_value(json_object_get(reply, "generation")));
}

static void mark_files(const struct rtx_gpu *h)
{
	own_file_mark(h->socket);
	own_file_mark(h->doorbell);
	own_file_mark(h->page_fd);
}

static int open_once(struct rtx_gpu *h)
{
	json_t *request, *reply = NULL;
	int fds[2], ret, page_fd;
	struct stat st;
	void *page;

	ret = h->options.flags & RTX_OPEN_NO_SPAWN ? rtx_lib_connect(h->path)
						   : rtx_lib_connect_or_start(h->path);
	/*
	 * No host was reached. These errors are a host's answers otherwise, and a program that a
	 * host refuses may have to act in another way than one that finds none.
	 */
	if (ret == -EACCES || ret == -EPERM || ret == -ENOENT)
		ret = -ECONNREFUSED;
	if (ret < 0)
		return ret;
	h->socket = ret;
	request = open_request(h);
	ret = converse(h->socket, request, -1, &reply, fds, rtxg_now_ns() + REPLY_PATIENCE_NS);
	json_decref(request);
	if (ret) {
		/*
		 * The daemon went between connecting and answering: it had been idle for long and
		 * was leaving.
		 */
		if (ret == -EPIPE)
			ret = rtx_lib_failed(-ECONNREFUSED, "the rtxg daemon at %s went away",
					     h->path);
		goto fail;
	}
	page_fd = fds[0];
	h->doorbell = fds[1];
	if (page_fd < 0 || h->doorbell < 0 || fstat(page_fd, &st) || st.st_size != RTXG_PAGE_SIZE) {
		ret = rtx_lib_failed(-EPROTO, "the rtxg daemon at %s gave no page", h->path);
		goto fail_fds;
	}
	page = mmap(NULL, RTXG_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, page_fd, 0);
	if (page == MAP_FAILED) {
		ret = rtx_lib_failed(-errno, "the task's page cannot be mapped: %s",
				     rtx_lib_error_name(errno));
		goto fail_fds;
	}
	h->page = page;
	h->page_fd = page_fd;
	if (h->page->magic != RTXG_PAGE_MAGIC || h->page->version != RTXG_PAGE_VERSION) {
		ret = rtx_lib_failed(
			-EPROTO,
			"the rtxg daemon at %s speaks version %u of the page, this library %u",
			h->path, h->page->version, RTXG_PAGE_VERSION);
		munmap(page, RTXG_PAGE_SIZE);
		h->page = NULL;
		goto fail_fds;
	}
	mark_files(h);
	keep_names(h, reply);
	json_decref(reply);
	return 0;
fail_fds:
	rtx_lib_close_fds(fds);
	h->doorbell = h->page_fd = -1;
	json_decref(reply);
fail:
	close(h->socket);
	h->socket = -1;
	return ret;
}

static int daemon_open(struct rtx_gpu *h, struct cpu_request *cpu)
{
	int ret = open_once(h);

	/*
	 * A daemon that had been idle for long may have been leaving while we came; then there is
	 * none now, and starting one is possible.
	 */
	if (ret == -ECONNREFUSED)
		ret = open_once(h);
	return ret;
}

/*
 * Hands our page to the daemon that is there now. Descriptor numbers stay the same, since other
 * threads may be using them.
 */
static int daemon_reopen(struct rtx_gpu *h)
{
	json_t *request, *reply = NULL;
	int fds[2], ret, socket;

	socket = rtx_lib_connect_path(h->path);
	if (socket < 0)
		return socket;
	request = open_request(h);
	json_object_set_new(request, "takeover", json_integer((json_int_t)h->host_generation));
	ret = converse(socket, request, h->page_fd, &reply, fds,
		       rtxg_now_ns() + REOPEN_PATIENCE_NS);
	json_decref(request);
	if (!ret && (fds[0] < 0 || dup3(fds[0], h->doorbell, O_CLOEXEC) < 0 ||
		     dup3(socket, h->socket, O_CLOEXEC) < 0))
		ret = rtx_lib_failed(-EPROTO, "the rtxg daemon at %s did not take the task over",
				     h->path);
	rtx_lib_close_fds(fds);
	close(socket);
	if (!ret) {
		mark_files(h);
		keep_names(h, reply);
	}
	json_decref(reply);
	return ret;
}

static void daemon_abandon(struct rtx_gpu *h)
{
	int *fds[] = { &h->socket, &h->doorbell, &h->page_fd };

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		if (own_file_is_ours(*fds[i]))
			close(*fds[i]);
		*fds[i] = -1;
	}
	/* The page itself is not there in a child (MADV_DONTFORK). */
}

static void daemon_close(struct rtx_gpu *h)
{
	close(h->socket);
	close(h->doorbell);
	close(h->page_fd);
	munmap(h->page, RTXG_PAGE_SIZE);
}

static void daemon_ring(struct rtx_gpu *h)
{
	static const uint64_t one = 1;
	int saved = errno;

	/* The only failure is a full counter, which rings just as well. */
	if (write(h->doorbell, &one, sizeof(one)) < 0)
		errno = saved;
}

static int daemon_wait(struct rtx_gpu *h, unsigned int lane, uint32_t value, uint64_t until)
{
	return rtx_lib_futex_wait(&h->page->lanes[lane].permit, value, until, true);
}

static void daemon_wake(struct rtx_gpu *h, unsigned int lane)
{
	rtx_lib_futex_wake(&h->page->lanes[lane].permit, true);
}

static bool daemon_alive(struct rtx_gpu *h)
{
	char byte;
	ssize_t n = recv(h->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

/* A request whose reply is yes or no. fd goes with it; -1: none. */
static int simple_with(struct rtx_gpu *h, json_t *request, int fd)
{
	json_t *reply = NULL;
	/* Given up sooner, its answer would be taken for that of the next request. */
	int fds[2], ret = converse(h->socket, request, fd, &reply, fds,
				   rtxg_now_ns() + REPLY_PATIENCE_NS);

	rtx_lib_close_fds(fds);
	json_decref(request);
	json_decref(reply);
	return ret;
}

static int simple(struct rtx_gpu *h, json_t *request)
{
	return simple_with(h, request, -1);
}

/* Of a word elsewhere than in a timeline's memory the daemon cannot be told. */
static int daemon_fence(struct rtx_gpu *h, unsigned int lane, const struct rtx_gpu_notify *how)
{
	struct timeline_share share;
	int ret;

	if (!how->timeline)
		return -EOPNOTSUPP;
	ret = rtx_lib_timeline_share(how->timeline, &share);
	if (ret)
		return ret;
	/*
	 * Another thread may wait in a conversation for as long as it likes, for a GPU of a pool.
	 */
	if (pthread_mutex_trylock(&h->control)) {
		rtx_lib_timeline_leave(how->timeline);
		return -EAGAIN;
	}
	ret = simple_with(h,
			  json_pack("{s:s, s:i, s:i}", "op", "fence", "lane", (int)lane, "offset",
				    (int)share.offset),
			  share.memory);
	if (!ret)
		ret = simple_with(h,
				  json_pack("{s:s, s:i}", "op", "fence-event", "lane", (int)lane),
				  share.event);
	pthread_mutex_unlock(&h->control);
	rtx_lib_timeline_leave(how->timeline);
	return ret;
}

static int daemon_set(struct rtx_gpu *h, const struct rtx_gpu_options *options,
		      struct cpu_request *cpu)
{
	json_t *request = json_pack("{s:s}", "op", "set");

	add_params(request, options);
	return simple(h, request);
}

static int daemon_pool_release(struct rtx_gpu *h, const char *pool)
{
	return simple(h, json_pack("{s:s, s:s}", "op", "pool-release", "pool", pool));
}

/* A thread that waits for a GPU of a pool. */
struct requester {
	struct rtx_gpu *h;
	const char *pool;
	int before; /* may it be cancelled? */
};

/*
 * Two replies come: that of the request, which may just have been granted, and that of the release.
 */
static void withdraw(void *arg)
{
	const struct requester *r = arg;
	json_t *reply;
	int fds[2];

	simple(r->h, json_pack("{s:s, s:s}", "op", "pool-release", "pool", r->pool));
	if (hear(r->h->socket, &reply, fds, rtxg_now_ns() + REPLY_PATIENCE_NS))
		return;
	rtx_lib_close_fds(fds);
	json_decref(reply);
}

/* The thread may be cancelled (pthread_cancel) while it waits, and leaves nothing then. */
static int wait_for_grant(struct requester *r)
{
	struct pollfd p = { .fd = r->h->socket, .events = POLLIN };
	int ret;

	pthread_cleanup_push(withdraw, r);
	rtx_lib_cancel_as_before(&r->before);
	pthread_testcancel();
	ret = poll(&p, 1, -1) < 0 ? -errno : 0;
	rtx_lib_cancel_later();
	pthread_cleanup_pop(ret == -EINTR);
	return ret;
}

static int daemon_pool_acquire(struct rtx_gpu *h, const char *pool, char *device, size_t size)
{
	not_cancelled();
	struct requester r = { h, pool, cancel_before };
	json_t *request = json_pack("{s:s, s:s, s:i}", "op", "pool-acquire", "pool", pool, "thread",
				    (int)gettid());
	json_t *reply = NULL;
	const char *gpu;
	int fds[2], ret;

	ret = ask(h->socket, request, -1);
	json_decref(request);
	if (ret)
		return ret;
	ret = wait_for_grant(&r);
	if (ret == -EINTR)
		return rtx_lib_failed(-EINTR, "a signal came while waiting for a GPU of pool %s",
				      pool);
	if (ret)
		return rtx_lib_failed(ret, "waiting for the rtxg daemon failed: %s",
				      rtx_lib_error_name(-ret));
	ret = hear(h->socket, &reply, fds, rtxg_now_ns() + REPLY_PATIENCE_NS);
	if (ret)
		return ret;
	gpu = json_string_value(json_object_get(reply, "gpu"));
	if (!gpu)
		ret = rtx_lib_failed(-EPROTO, "the rtxg daemon named no GPU");
	else if (strlen(gpu) >= size)
		ret = rtx_lib_failed(-ENOSPC, "the device's name has %zu bytes, the room is %zu",
				     strlen(gpu) + 1, size);
	else
		strcpy(device, gpu);
	json_decref(reply);
	if (ret == -ENOSPC)
		daemon_pool_release(h, pool);
	return ret;
}

const struct transport rtx_lib_transport_daemon = {
	.name = "daemon",
	.open = daemon_open,
	.reopen = daemon_reopen,
	.close = daemon_close,
	.abandon = daemon_abandon,
	.ring = daemon_ring,
	.wait = daemon_wait,
	.wake = daemon_wake,
	.fence = daemon_fence,
	.alive = daemon_alive,
	.set = daemon_set,
	.pool_acquire = daemon_pool_acquire,
	.pool_release = daemon_pool_release,
};
