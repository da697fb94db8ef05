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
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client.h"
#include "reply.h"
#include "task.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

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
		d->idle_since = rtxg_now_ns();
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
	int got = -1, extra = 0;
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
	if (n > (ssize_t)RTXG_REQUEST_MAX || message.msg_flags & MSG_TRUNC) {
		snprintf(why, sizeof(why), "the request is too long; at most %u bytes are accepted",
			 RTXG_REQUEST_MAX);
		reply_error(c, "", -EMSGSIZE, why, NULL);
		c->closing = true;
	} else if (extra || message.msg_flags & MSG_CTRUNC) {
		reply_error(c, "", -EBADMSG, "descriptors came that were not asked for", NULL);
		c->closing = true;
	} else {
		c->daemon->handle(c, text, (size_t)n, got);
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

	reply_error(&c, "", error, why, NULL);
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
	/* None is free: wait until a connection ends. */
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

int client_listen(struct daemon *d, int fd,
		  void (*handle)(struct connection *c, const char *text, size_t size, int fd))
{
	d->handle = handle;
	d->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return sd_event_add_io(d->event, &d->listen_source, fd, EPOLLIN, on_connection, d);
}
