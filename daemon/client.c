// SPDX-License-Identifier: MIT
/*
 * client.c - connections: who is at the other end, packets in, packets out, and the end of it all
 * when the process dies. A client that does not read its replies, or sends what cannot be read,
 * loses its connection; nothing is queued for it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rtxgd.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* --- out -------------------------------------------------------------------------------------- */

static int send_packet(int fd, const void *data, size_t size, const int *fds,
		       unsigned int fds_count)
{
	union {
		char room[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec io = { .iov_base = (void *)data, .iov_len = size };
	struct msghdr message = { .msg_iov = &io, .msg_iovlen = 1 };

	if (fds_count) {
		struct cmsghdr *c;

		memset(&control, 0, sizeof(control));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(fds_count * sizeof(int));
		c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(fds_count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, fds_count * sizeof(int));
	}
	/* Never waits: a client that lets its replies pile up is cut off. */
	while (sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

static int send_long(int fd, const char *text, size_t size)
{
	char small[64];
	size_t at = 0;
	int memfd = memfd_create("rtxg-reply", MFD_CLOEXEC | MFD_ALLOW_SEALING), ret;

	if (memfd < 0)
		return -errno;
	while (at < size) {
		ssize_t n = write(memfd, text + at, size - at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			close(memfd);
			return -EIO;
		}
		at += (size_t)n;
	}
	fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
	ret = snprintf(small, sizeof(small), "{\"ok\": true, \"memfd\": %zu}", size);
	ret = send_packet(fd, small, (size_t)ret, &memfd, 1);
	close(memfd);
	return ret;
}

/*
 * Sends and forgets the reply. An error means that the connection is of no more use; it is marked
 * so.
 */
int client_reply(struct connection *c, json_t *reply, const int *fds, unsigned int fds_count)
{
	char *text = reply ? json_dumps(reply, JSON_COMPACT) : NULL;
	size_t size = text ? strlen(text) : 0;
	int ret;

	json_decref(reply);
	if (!text)
		ret = -ENOMEM;
	else if (size > RTXG_REPLY_MAX)
		ret = send_long(c->fd, text, size);
	else
		ret = send_packet(c->fd, text, size, fds, fds_count);
	free(text);
	if (ret)
		c->closing = true;
	return ret;
}

int client_error(struct connection *c, const char *op, int error, const char *why,
		 const struct rtxg_refusal *refusal)
{
	const char *name = strerrorname_np(-error);
	json_t *reply = json_pack("{s:b, s:s, s:i, s:s}", "ok", 0, "op", op, "errno", -error,
				  "error", name ? name : "unknown");
	json_t *message = json_string(why);

	json_object_set_new(reply, "message",
			    message ? message : json_string("the request was refused"));
	if (refusal && refusal->what) {
		json_object_set_new(reply, "value", json_integer((json_int_t)refusal->value));
		json_object_set_new(reply, "limit", json_integer((json_int_t)refusal->limit));
	}
	client_reply(c, reply, NULL, 0);
	return error;
}

void client_pool_granted(struct daemon *d, struct task *task)
{
	client_reply(task->connection,
		     json_pack("{s:b, s:s, s:s}", "ok", 1, "op", "pool-acquire", "gpu",
			       d->gpus[task->pool_gpu].name),
		     NULL, 0);
}

/* --- in --------------------------------------------------------------------------------------- */

/*
 * Ends a connection so that what was said last is still read. A socket closed over an unread
 * request resets the connection, and the other side is then told that instead of the reply: so
 * nothing more is let in, and what is there is thrown away.
 */
static void hang_up(int fd)
{
	char nothing;

	shutdown(fd, SHUT_RD);
	while (recv(fd, &nothing, sizeof(nothing), MSG_DONTWAIT | MSG_TRUNC) > 0)
		;
	close(fd);
}

void client_drop(struct connection *c)
{
	struct daemon *d = c->daemon;

	if (c->task)
		task_close(d, c->task);
	if (c->prev)
		c->prev->next = c->next;
	else
		d->connections = c->next;
	if (c->next)
		c->next->prev = c->prev;
	d->connections_count--;
	if (!d->connections_count)
		d->idle_since = now_ns();
	sd_event_source_disable_unref(c->io);
	sd_event_source_disable_unref(c->process);
	hang_up(c->fd);
	if (c->pidfd >= 0)
		close(c->pidfd);
	free(c);
	if (d->spare < 0)
		d->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (d->listen_source)
		sd_event_source_set_enabled(d->listen_source, SD_EVENT_ON);
}

static int on_process_end(sd_event_source *s, int fd, uint32_t events, void *data)
{
	/* Its connection may live on in a child; the task does not. */
	client_drop(data);
	return 0;
}

static int on_packet(sd_event_source *s, int fd, uint32_t events, void *data)
{
	static char text[RTXG_REQUEST_MAX + 1];
	union {
		char room[CMSG_SPACE(8 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec io = { .iov_base = text, .iov_len = sizeof(text) };
	struct msghdr message = { .msg_iov = &io,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control.room) };
	struct connection *c = data;
	struct request request;
	int got = -1, extra = 0, ret;
	char why[512];
	ssize_t n;

	n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0) {
		client_drop(c);
		return 0;
	}
	for (struct cmsghdr *m = CMSG_FIRSTHDR(&message); m; m = CMSG_NXTHDR(&message, m)) {
		int fds[8];
		size_t count;

		if (m->cmsg_level != SOL_SOCKET || m->cmsg_type != SCM_RIGHTS)
			continue;
		count = (m->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(m), count * sizeof(int));
		for (size_t i = 0; i < count; i++) {
			if (got < 0) {
				got = fds[i];
			} else {
				close(fds[i]);
				extra++;
			}
		}
	}
	request.op_name = "";
	if (n > (ssize_t)RTXG_REQUEST_MAX || message.msg_flags & MSG_TRUNC) {
		snprintf(why, sizeof(why), "the request is too long; at most %u bytes are accepted",
			 RTXG_REQUEST_MAX);
		client_error(c, "", -EMSGSIZE, why, NULL);
		c->closing = true;
	} else if (extra || message.msg_flags & MSG_CTRUNC) {
		client_error(c, "", -EBADMSG, "descriptors came that were not asked for", NULL);
		c->closing = true;
	} else {
		ret = request_parse(text, (size_t)n, &request, why, sizeof(why));
		if (ret) {
			client_error(c, request.op_name, ret, why, NULL);
			c->closing = ret == -EBADMSG;
		} else if (got >= 0 && request.op != OP_OPEN) {
			client_error(c, request.op_name, -EBADMSG,
				     "a descriptor came that was not asked for", NULL);
			c->closing = true;
		} else {
			control_handle(c, &request, got);
		}
	}
	if (got >= 0)
		close(got);
	if (c->closing)
		client_drop(c);
	return 0;
}

/* --- new ones --------------------------------------------------------------------------------- */

static bool in_group(int fd, gid_t group)
{
	gid_t groups[256];
	socklen_t size = sizeof(groups);

	if (group == (gid_t)-1 || getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size))
		return false;
	for (size_t i = 0; i < size / sizeof(*groups); i++)
		if (groups[i] == group)
			return true;
	return false;
}

static void refuse_and_close(int fd, int error, const char *why)
{
	struct connection c = { .fd = fd };

	client_error(&c, "", error, why, NULL);
	hang_up(fd);
}

/*
 * Out of descriptors: gives up the spare one to tell the newcomer so, rather than leaving it to
 * wait in the backlog.
 */
static void turn_away(struct daemon *d, int listener)
{
	int fd;

	if (d->spare >= 0)
		close(d->spare);
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0)
		refuse_and_close(fd, -EMFILE,
				 "the rtxg daemon is out of file descriptors (LimitNOFILE=)");
	d->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	/* If even that is gone somebody else was faster; wait until a connection ends. */
	if (fd < 0 && d->spare < 0)
		sd_event_source_set_enabled(d->listen_source, SD_EVENT_OFF);
}

static int on_connection(sd_event_source *s, int listener, uint32_t events, void *data)
{
	struct daemon *d = data;
	struct ucred peer;
	socklen_t size = sizeof(peer);
	struct connection *c;
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), pidfd = -1;

	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE)
			turn_away(d, listener);
		return 0;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size)) {
		close(fd);
		return 0;
	}
	if (!d->system && peer.uid != geteuid() && peer.uid != 0) {
		refuse_and_close(fd, -EACCES, "this rtxg daemon belongs to another user");
		return 0;
	}
	if (d->connections_count >= CONNECTIONS_MAX) {
		refuse_and_close(fd, -ENOSPC, "the rtxg daemon has too many connections");
		return 0;
	}
	/*
	 * The descriptor of the very process that connected, where the kernel gives it; else by
	 * number, which is the same unless that process has ended already.
	 */
	size = sizeof(pidfd);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size)) {
		pidfd = (int)syscall(SYS_pidfd_open, peer.pid, 0u);
		if (pidfd < 0 && errno == ESRCH) {
			close(fd);
			return 0;
		}
	}
	if (pidfd < 0 && (errno == EMFILE || errno == ENFILE)) {
		refuse_and_close(fd, -EMFILE,
				 "the rtxg daemon is out of file descriptors (LimitNOFILE=)");
		return 0;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		close(fd);
		if (pidfd >= 0)
			close(pidfd);
		return 0;
	}
	*c = (struct connection){ .daemon = d,
				  .fd = fd,
				  .pidfd = pidfd,
				  .pid = peer.pid,
				  .uid = peer.uid,
				  .gid = peer.gid };
	c->group = in_group(fd, d->group) || (d->group != (gid_t)-1 && peer.gid == d->group);
	if (sd_event_add_io(d->event, &c->io, fd, EPOLLIN, on_packet, c) < 0 ||
	    (pidfd >= 0 &&
	     sd_event_add_io(d->event, &c->process, pidfd, EPOLLIN, on_process_end, c) < 0)) {
		sd_event_source_disable_unref(c->io);
		close(fd);
		if (pidfd >= 0)
			close(pidfd);
		free(c);
		return 0;
	}
	/* A death is dealt with before anything else: what it held is wanted. */
	if (c->process)
		sd_event_source_set_priority(c->process, SD_EVENT_PRIORITY_IMPORTANT);
	c->next = d->connections;
	if (c->next)
		c->next->prev = c;
	d->connections = c;
	d->connections_count++;
	return 0;
}

int client_listen(struct daemon *d, int fd)
{
	d->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return sd_event_add_io(d->event, &d->listen_source, fd, EPOLLIN, on_connection, d);
}
