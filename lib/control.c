// SPDX-License-Identifier: MIT
/*
 * control.c - requests and replies over the daemon's socket, and the administration calls built on
 * them. May not touch a page.
 */
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

/* The daemon answers within this time or something is wrong with it. */
#define REPLY_PATIENCE_NS (20 * NS_PER_S)

int rtx_lib_message_send(int socket, const char *text, size_t size, int fd)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec io = { .iov_base = (void *)text, .iov_len = size };
	struct msghdr message = { .msg_iov = &io, .msg_iovlen = 1 };

	if (size > RTXG_REQUEST_MAX)
		return rtx_lib_failed(-EMSGSIZE,
				      "the request has %zu bytes; at most %u are accepted", size,
				      RTXG_REQUEST_MAX);
	if (fd >= 0) {
		struct cmsghdr *c;

		memset(&control, 0, sizeof(control));
		message.msg_control = &control;
		message.msg_controllen = sizeof(control.room);
		c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	while (sendmsg(socket, &message, MSG_NOSIGNAL) < 0) {
		if (errno == EINTR)
			continue;
		if (errno == EPIPE || errno == ECONNRESET)
			return rtx_lib_failed(-EPIPE, "the rtxg daemon has gone");
		return rtx_lib_failed(-errno, "sending to the rtxg daemon failed: %s",
				      rtx_lib_error_name(errno));
	}
	return 0;
}

static void close_fds(int fds[2])
{
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	fds[0] = fds[1] = -1;
}

static int from_memfd(char **text, int fd)
{
	struct stat st;
	char *copy;
	ssize_t n = 0, at = 0;

	if (fstat(fd, &st) || st.st_size <= 0 || st.st_size > (off_t)RTXG_REPLY_MEMFD_MAX)
		return rtx_lib_failed(-EPROTO, "the rtxg daemon's reply has an impossible size");
	copy = malloc((size_t)st.st_size + 1);
	if (!copy)
		return rtx_lib_failed(-ENOMEM, "there is no memory for a reply of %lld bytes",
				      (long long)st.st_size);
	while (at < st.st_size && (n = pread(fd, copy + at, (size_t)(st.st_size - at), at)) > 0)
		at += n;
	if (at < st.st_size) {
		free(copy);
		return rtx_lib_failed(-EPROTO, "the rtxg daemon's reply could not be read");
	}
	copy[at] = 0;
	free(*text);
	*text = copy;
	return 0;
}

/*
 * One reply, with the descriptors that came with it (-1 = none). -EINTR by a signal, -ETIMEDOUT,
 * -EPIPE.
 */
int rtx_lib_message_receive(int socket, char **text, int fds[2], uint64_t until)
{
	union {
		char room[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec io;
	struct msghdr message = { .msg_iov = &io,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control.room) };
	struct pollfd p = { .fd = socket, .events = POLLIN };
	ssize_t n;
	int ret;

	fds[0] = fds[1] = -1;
	*text = malloc(RTXG_REPLY_MAX + 1);
	if (!*text)
		return rtx_lib_failed(-ENOMEM, "there is no memory for a reply");
	for (;;) {
		struct timespec t;
		uint64_t now = rtxg_now_ns();

		if (now >= until) {
			ret = rtx_lib_failed(-ETIMEDOUT, "the rtxg daemon does not answer");
			goto fail;
		}
		t = (struct timespec){ .tv_sec = (time_t)((until - now) / NS_PER_S),
				       .tv_nsec = (long)((until - now) % NS_PER_S) };
		ret = ppoll(&p, 1, until == NEVER ? NULL : &t, NULL);
		if (ret < 0) {
			ret = errno == EINTR
				      ? -EINTR
				      : rtx_lib_failed(-errno,
						       "waiting for the rtxg daemon failed: %s",
						       rtx_lib_error_name(errno));
			goto fail;
		}
		if (ret > 0)
			break;
	}
	io = (struct iovec){ .iov_base = *text, .iov_len = RTXG_REPLY_MAX };
	do
		n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n <= 0) {
		ret = rtx_lib_failed(-EPIPE, "the rtxg daemon has gone");
		goto fail;
	}
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && count <= 2)
			memcpy(fds, CMSG_DATA(c), count * sizeof(int));
	}
	(*text)[n] = 0;
	if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		ret = rtx_lib_failed(-EPROTO, "the rtxg daemon's reply was cut off");
		goto fail;
	}
	if (fds[0] >= 0 && fds[1] < 0 && n < 64 && strstr(*text, "\"memfd\"")) {
		ret = from_memfd(text, fds[0]);
		close_fds(fds);
		if (ret)
			goto fail;
	}
	return 0;
fail:
	close_fds(fds);
	free(*text);
	*text = NULL;
	return ret;
}

int rtx_control(const char *request, char **reply)
{
	int fds[2] = { -1, -1 };
	char path[108];
	json_error_t why;
	json_t *json;
	int fd, ret;

	rtx_lib_forget_error();
	if (!request || !reply)
		return rtx_lib_failed(-EINVAL, "a request and a place for the reply are needed");
	*reply = NULL;
	fd = rtx_lib_connect(path);
	if (fd == -ECONNREFUSED && rtx_lib_module_hosts())
		return rtx_lib_no_daemon_speaks();
	if (fd < 0)
		return fd;
	ret = rtx_lib_message_send(fd, request, strlen(request), -1);
	/* One that turns us away says why before it closes: that can still be read. */
	if (!ret || ret == -EPIPE) {
		uint64_t until = rtxg_now_ns() + REPLY_PATIENCE_NS;

		do
			ret = rtx_lib_message_receive(fd, reply, fds, until);
		while (ret == -EINTR);
	}
	close_fds(fds);
	close(fd);
	if (ret)
		return ret;
	json = json_loads(*reply, JSON_REJECT_DUPLICATES, &why);
	if (!json) {
		free(*reply);
		*reply = NULL;
		return rtx_lib_failed(-EPROTO, "the rtxg daemon's reply is not JSON: %s", why.text);
	}
	if (!json_is_true(json_object_get(json, "ok"))) {
		json_int_t error = json_integer_value(json_object_get(json, "errno"));
		const char *message = json_string_value(json_object_get(json, "message"));

		ret = rtx_lib_failed(error > 0 && error < 4096 ? -(int)error : -EPROTO, "%s",
				     message ? message : "the rtxg daemon refused");
	}
	json_decref(json);
	return ret;
}

int rtx_gpu_device_advice(const char *pool, char *name, size_t size)
{
	json_t *request, *json;
	const char *gpu;
	char *text, *reply = NULL;
	int ret;

	rtx_lib_forget_error();
	if (!name || !size)
		return rtx_lib_failed(-EINVAL, "there is no room for the device's name");
	if (rtx_lib_module_hosts())
		return rtx_lib_module_advice(pool, name, size);
	request = pool ? json_pack("{s:s, s:s}", "op", "advice", "pool", pool)
		       : json_pack("{s:s}", "op", "advice");
	text = request ? json_dumps(request, JSON_COMPACT) : NULL;
	json_decref(request);
	if (!text)
		return rtx_lib_failed(-EINVAL, "the pool's name is not UTF-8");
	ret = rtx_control(text, &reply);
	free(text);
	if (ret) {
		free(reply);
		return ret;
	}
	json = json_loads(reply, 0, NULL);
	free(reply);
	gpu = json_string_value(json_object_get(json, "gpu"));
	if (!gpu)
		ret = rtx_lib_failed(-ENODEV, "there is no GPU");
	else if (strlen(gpu) >= size)
		ret = rtx_lib_failed(-ENOSPC, "the device's name has %zu bytes, the room is %zu",
				     strlen(gpu) + 1, size);
	else
		strcpy(name, gpu);
	json_decref(json);
	return ret;
}
