// SPDX-License-Identifier: MIT
/*
 * message.c - requests and replies over the daemon's socket. May not know what they say.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "errors.h"
#include "message.h"
#include "rtxg/control.h"
#include "sys.h"

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

void rtx_lib_close_fds(int fds[2])
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
		rtx_lib_close_fds(fds);
		if (ret)
			goto fail;
	}
	return 0;
fail:
	rtx_lib_close_fds(fds);
	free(*text);
	*text = NULL;
	return ret;
}
