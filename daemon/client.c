// SPDX-License-Identifier: MIT
/*
 * client.c - connections: who is at the other end, packets in, and the end of it all when the
 * process dies. A client that sends what cannot be read loses its connection. One that does not
 * read its reply is not served until it does.
 *
 * A request that takes long is served in pieces, between which others are served.
 *
 * May not: take a descriptor out of a packet, or close what a client has open, too (discard.c
 * does); serve a request out of its turn (user.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "access.h"
#include "client.h"
#include "discard.h"
#include "reply.h"
#include "task.h"
#include "user.h"

#define DESCRIPTORS_SPARE 64u /* for those that come in messages, and for a reply */

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* A request that is served later, and the descriptor that came with it, or -1. */
struct kept {
	ssize_t size; /* or a negative errno */
	int flags;    /* of recvmsg(2) */
	uint32_t descriptors;
	int fd;
	char text[];
};

/* --- in --------------------------------------------------------------------------------------- */

/* The client has read its reply, or never will. */
static void reply_read(struct connection *c)
{
	if (!c->unread)
		return;
	c->user->unread--;
	c->user->unread_bytes -= c->unread;
	c->unread = 0;
}

static void listen_on(struct daemon *d)
{
	if (d->listener.ready && !d->listener.on)
		watch_on(d, &d->listener, d->listener.fd, EPOLLIN);
}

#define LISTEN_AGAIN_US 10000

static int listen_again(sd_event_source *s, uint64_t usec, void *data)
{
	struct daemon *d = data;

	if (d->spare < 0)
		d->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	listen_on(d);
	return 0;
}

static void listen_later(struct daemon *d)
{
	if (d->listener.on && sd_event_add_time_relative(d->event, NULL, CLOCK_MONOTONIC,
							 LISTEN_AGAIN_US, 0, listen_again, d) >= 0)
		watch_off(d, &d->listener);
}

static void end_pieces(struct connection *c)
{
	if (c->pieces)
		c->drop_pieces(c->pieces);
	c->pieces = NULL;
}

/* For the end of the process; see await_end(). */
static void end_waiting(struct connection *c)
{
	uint64_t own;

	if (!c->process.on) {
		watch_off(c->daemon, &c->process);
		return;
	}
	own = user_own_ns();
	watch_off(c->daemon, &c->process);
	user_packet(c->user, user_own_ns() - own);
}

void client_drop(struct connection *c)
{
	struct daemon *d = c->daemon;

	if (c->task)
		task_close(d, c->task);
	reply_read(c);
	user_unqueue(d, c);
	discard_forget(c->reading);
	if (c->kept && c->kept->fd >= 0)
		discard(c->user->uid, c->kept->fd, false);
	free(c->kept);
	end_pieces(c);
	if (c->prev)
		c->prev->next = c->next;
	else
		d->connections = c->next;
	if (c->next)
		c->next->prev = c->prev;
	d->connections_count--;
	if (!d->connections_count)
		d->idle_since = rtxg_now_ns();
	watch_off(d, &c->io);
	end_waiting(c);
	/*
	 * Requests that were not read may carry descriptors; and a socket closed over one would
	 * tell the client that the connection was reset, instead of what was said last.
	 */
	if (!discard(c->user->uid, c->fd, true))
		listen_later(d);
	if (c->pidfd >= 0)
		close(c->pidfd);
	c->user->connections--;
	free(c);
	user_put(d);
	if (d->spare < 0)
		d->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void on_process_end(struct daemon *d, struct watch *watch, uint32_t events)
{
	/* Its connection may live on in a child; the task does not. */
	client_drop(watch->data);
}

/* True: the request is kept, and the descriptor with it. */
static bool keep_request(struct connection *c, const char *text, size_t size, int fd)
{
	if (!c->later)
		return false;
	c->later = false;
	c->kept = malloc(sizeof(*c->kept) + size + 1);
	if (!c->kept) {
		c->closing = true;
		return false;
	}
	*c->kept = (struct kept){ .size = (ssize_t)size, .descriptors = fd >= 0, .fd = fd };
	memcpy(c->kept->text, text, size);
	return true;
}

static void take_request(struct connection *c, const char *text, size_t size, int fd)
{
	c->daemon->handle(c, text, size, fd);
	if (!c->later)
		end_pieces(c); /* it has its answer */
	if (!keep_request(c, text, size, fd) && fd >= 0)
		discard(c->user->uid, fd, false);
}

/* What has been read. Only what the kernel alone has an end of comes as a descriptor. */
static void take_packet(struct connection *c, const char *text, const struct kept *packet)
{
	int fd = packet->fd;
	char why[512];

	if (packet->size > (ssize_t)RTXG_REQUEST_MAX || packet->flags & MSG_TRUNC) {
		snprintf(why, sizeof(why), "the request is too long; at most %u bytes are accepted",
			 RTXG_REQUEST_MAX);
		reply_error(c, "", -EMSGSIZE, why, NULL);
		c->closing = true;
	} else if (packet->descriptors > 1 || packet->flags & MSG_CTRUNC) {
		reply_error(c, "", -EBADMSG, "descriptors came that were not asked for", NULL);
		c->closing = true;
	} else if (packet->size == 0) {
		/* The end, or a packet without bytes: that reads alike, and is no request. */
		reply_error(c, "", -EBADMSG, "the request is not JSON: it is empty", NULL);
		c->closing = true;
	} else if (packet->size < 0) {
		c->closing = true;
	} else {
		/* Of any other it is known that it came, and nothing takes this one. */
		if (packet->descriptors && fd < 0)
			fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
		take_request(c, text, (size_t)packet->size, fd);
		return;
	}
	if (fd >= 0)
		discard(c->user->uid, fd, false);
}

static void serve_kept(struct connection *c)
{
	struct kept *kept = c->kept;

	c->kept = NULL;
	take_packet(c, kept->text, kept);
	free(kept);
}

static void serve_again(struct daemon *d)
{
	for (struct connection *c = d->connections; c; c = c->next)
		if (c->kept)
			user_queue(d, c);
}

/* A packet with descriptors: it is served when it is this user's turn again. */
static void on_foreign(void *owner, const struct foreign_packet *packet, int fd)
{
	struct connection *c = owner;
	size_t size = packet->size > 0 ? (size_t)packet->size : 0;

	c->reading = NULL;
	if (packet->size == -EAGAIN || packet->size == -EINTR) {
		user_queue(c->daemon, c);
		return;
	}
	c->kept = malloc(sizeof(*c->kept) + size + 1);
	if (!c->kept) {
		if (fd >= 0)
			discard(c->user->uid, fd, false);
		client_drop(c);
		return;
	}
	*c->kept = (struct kept){ .size = packet->size,
				  .flags = (int)packet->flags,
				  .descriptors = packet->descriptors,
				  .fd = fd };
	memcpy(c->kept->text, packet->text, size);
	user_queue(c->daemon, c);
}

#define READ_AGAIN_US 10000

static int read_again(sd_event_source *s, uint64_t usec, void *data)
{
	struct daemon *d = data;

	for (struct connection *c = d->connections; c; c = c->next)
		if (c->no_room) {
			c->no_room = false;
			user_queue(d, c);
		}
	return 0;
}

/* The packet lies where it was. One time serves all that wait by then. */
static void read_later(struct connection *c)
{
	struct daemon *d = c->daemon;
	bool waits = false;

	for (struct connection *one = d->connections; one && !waits; one = one->next)
		waits = one->no_room;
	c->no_room = waits || sd_event_add_time_relative(d->event, NULL, CLOCK_MONOTONIC,
							 READ_AGAIN_US, 0, read_again, d) >= 0;
	c->closing = !c->no_room;
}

/*
 * Looks at the next packet without taking it, and without its descriptors: then the kernel says
 * whether it has some, and none is opened here. Such a packet is read in another thread, for all
 * that it carries has to be closed again. Any other is taken out of the socket.
 */
static void read_packet(struct connection *c)
{
	static char text[RTXG_REQUEST_MAX + 1];
	struct iovec io = { .iov_base = text, .iov_len = sizeof(text) };
	struct msghdr message = { .msg_iov = &io, .msg_iovlen = 1 };
	struct kept packet = { .fd = -1 };
	uint64_t own = user_own_ns();
	char nothing;
	int error;

	packet.size = recvmsg(c->fd, &message, MSG_DONTWAIT | MSG_PEEK);
	packet.flags = message.msg_flags;
	if (packet.size >= 0 && !(packet.flags & MSG_CTRUNC) &&
	    recv(c->fd, &nothing, sizeof(nothing), MSG_DONTWAIT) < 0)
		packet.size = -1;
	error = packet.size < 0 ? errno : 0;
	user_packet(c->user, user_own_ns() - own);
	if (error == EAGAIN || error == EINTR)
		return;
	if (packet.size >= 0 && packet.flags & MSG_CTRUNC) {
		c->reading = discard_read(c->user->uid, c->fd, c);
		if (!c->reading)
			read_later(c);
		return;
	}
	take_packet(c, text, &packet);
}

/* No packet takes so few, with what the kernel keeps of it. */
#define LEAST_BYTES 64

/*
 * Does a reply lie there that the client has not read? It is memory of this daemon's. While a
 * reader frees a packet, the kernel takes all but one byte off the count, tells us, and takes off
 * that byte afterwards (sock_wfree). It does not tell again, so that byte may not count.
 */
static bool unread(const struct connection *c)
{
	int bytes = 0;

	return !ioctl(c->fd, SIOCOUTQ, &bytes) && bytes >= LEAST_BYTES;
}

static void wait_for(struct connection *c, uint32_t events)
{
	watch_off(c->daemon, &c->io);
	if (watch_on(c->daemon, &c->io, c->fd, events))
		c->closing = true;
}

static void await_request(struct connection *c)
{
	reply_read(c);
	c->listening = false;
	if (c->kept) {
		watch_off(c->daemon, &c->io);
		user_queue(c->daemon, c);
	} else {
		wait_for(c, EPOLLIN);
	}
}

/* Each read of the client's is an event: the socket is writable all the time. */
static void await_reading(struct connection *c)
{
	c->listening = true;
	wait_for(c, EPOLLOUT | EPOLLET);
}

/* Something came, or was read. Requests are served in client_serve(). */
static void on_ready(struct daemon *d, struct watch *watch, uint32_t events)
{
	struct connection *c = watch->data;

	if (!c->listening) {
		watch_off(d, watch);
		user_queue(d, c);
	} else if (!unread(c)) {
		await_request(c);
		if (c->closing)
			client_drop(c);
	}
}

/*
 * From its first request on the end of the process is awaited. A process may have as many waiters
 * as a socket: so this is part of the request, and paid for, as the time for a packet is.
 */
static void await_end(struct connection *c)
{
	uint64_t own;

	if (c->pidfd < 0 || c->process.on)
		return;
	own = user_own_ns();
	if (watch_on(c->daemon, &c->process, c->pidfd, EPOLLIN))
		c->closing = true;
	user_packet(c->user, user_own_ns() - own);
}

bool client_serve(struct daemon *d)
{
	uint64_t begin, when, end;
	struct connection *c;
	struct user *user;

	if (!d->queued)
		return false;
	begin = rtxg_now_ns();
	c = user_next(d, begin, &when);
	if (!c)
		return false;
	user = c->user;
	user_unqueue(d, c);
	/*
	 * A client that sends requests one upon the other reads each reply before the next is made.
	 */
	if (unread(c)) {
		await_reading(c);
		if (c->closing)
			client_drop(c);
		return true;
	}
	reply_read(c);
	await_end(c);
	if (c->closing)
		;
	else if (c->kept)
		serve_kept(c);
	else
		read_packet(c);
	if (c->unread) {
		user->unread++;
		user->unread_bytes += c->unread;
	}
	if (!c->closing && c->unread)
		await_reading(c);
	else if (!c->closing && !c->kept && !c->reading && !c->no_room)
		wait_for(c, EPOLLIN);
	end = rtxg_now_ns();
	user_charge(d, user, end, end - begin);
	user->requests += !c->pieces;
	if (c->closing)
		client_drop(c);
	else if (c->pieces && c->kept)
		user_queue_next_piece(d, c);
	return true;
}

uint64_t client_next(struct daemon *d)
{
	uint64_t when;

	if (!d->queued)
		return RTXG_TIME_NEVER;
	return user_next(d, rtxg_now_ns(), &when) ? 0 : when;
}

/* --- new ones --------------------------------------------------------------------------------- */

static void refuse_and_close(int fd, uid_t uid, int error, const char *why)
{
	struct connection c = { .fd = fd };

	reply_error(&c, "", error, why, NULL);
	discard(uid, fd, true);
}

static const char out_of_descriptors[] =
	"the rtxg daemon is out of file descriptors (LimitNOFILE=)";

static uid_t uid_of(int fd)
{
	struct ucred peer = { .uid = (uid_t)-1 };
	socklen_t size = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) ? (uid_t)-1 : peer.uid;
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
		refuse_and_close(fd, user_key(d, uid_of(fd)), -EMFILE, out_of_descriptors);
	d->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	/* None is free: wait until a connection ends, or a thread has closed what was refused. */
	if (fd < 0 && d->spare < 0)
		listen_later(d);
}

/*
 * The lowest free number is given out, so the number says how many are taken. The last ones are for
 * descriptors that come in messages: those that find no number are closed by the kernel, here.
 */
static bool scarce(int fd)
{
	struct rlimit files;
	uint64_t spare;

	if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur == RLIM_INFINITY)
		return false;
	spare = files.rlim_cur / 4 < DESCRIPTORS_SPARE ? files.rlim_cur / 4 : DESCRIPTORS_SPARE;
	return (uint64_t)fd + spare >= files.rlim_cur;
}

/* Why the peer may have no connection more: 0, or a negative errno. */
static int may_connect(const struct connection *c, char *why, size_t size)
{
	const struct daemon *d = c->daemon;
	const struct user *user = c->user;

	if (!d->system && c->uid != geteuid() && c->uid != 0) {
		snprintf(why, size, "this rtxg daemon belongs to another user");
		return -EACCES;
	}
	if (scarce(c->fd)) {
		snprintf(why, size, "%s", out_of_descriptors);
		return -EMFILE;
	}
	if (d->connections_count >= CONNECTIONS_MAX) {
		snprintf(why, size, "the rtxg daemon has too many connections");
		return -ENOSPC;
	}
	if (!user->trusted && !access_administer(c) &&
	    !user_may(user->connections, USER_CONNECTIONS, d->connections_count, CONNECTIONS_MAX,
		      RESERVE_CONNECTIONS)) {
		snprintf(why, size,
			 "user %u has %u connections to the rtxg daemon: of %u in all, one user "
			 "has at most %u, and no more than are left",
			 c->uid, user->connections, CONNECTIONS_MAX, USER_CONNECTIONS);
		return -ENOSPC;
	}
	if (!user->trusted && discard_stuck(user->uid) > USER_FOREIGN) {
		snprintf(
			why, size,
			"user %u sent %u descriptors that do not close; end the programs that keep "
			"them",
			c->uid, discard_pending(user->uid));
		return -EBUSY;
	}
	return 0;
}

struct connection *client_add(struct daemon *d, int fd, int pidfd, const struct ucred *peer)
{
	struct connection *c = calloc(1, sizeof(*c));
	struct user *user = user_of(d, peer->uid, pidfd);

	if (!c || !user) {
		free(c);
		return NULL;
	}
	*c = (struct connection){ .daemon = d,
				  .user = user,
				  .fd = fd,
				  .pidfd = pidfd,
				  .pid = peer->pid,
				  .uid = peer->uid,
				  .gid = peer->gid };
	c->group =
		access_in_group(fd, d->group) || (d->group != (gid_t)-1 && peer->gid == d->group);
	c->next = d->connections;
	if (c->next)
		c->next->prev = c;
	d->connections = c;
	d->connections_count++;
	user->connections++;
	return c;
}

static void on_connection(struct daemon *d, struct watch *watch, uint32_t events)
{
	int listener = watch->fd;
	struct ucred peer;
	socklen_t size = sizeof(peer);
	struct connection *c;
	char why[256];
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), pidfd = -1, error;

	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE)
			turn_away(d, listener);
		return;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size)) {
		discard((uid_t)-1, fd, true);
		return;
	}
	/*
	 * The descriptor of the very process that connected, where the kernel gives it; else by
	 * number, which is the same unless that process has ended already.
	 */
	size = sizeof(pidfd);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size)) {
		pidfd = (int)syscall(SYS_pidfd_open, peer.pid, 0u);
		if (pidfd < 0 && errno == ESRCH) {
			discard(user_key(d, peer.uid), fd, true);
			return;
		}
	}
	if (pidfd < 0 && (errno == EMFILE || errno == ENFILE)) {
		refuse_and_close(fd, user_key(d, peer.uid), -EMFILE, out_of_descriptors);
		return;
	}
	c = client_add(d, fd, pidfd, &peer);
	if (!c) {
		discard(user_key(d, peer.uid), fd, true);
		if (pidfd >= 0)
			close(pidfd);
		return;
	}
	c->user->connections--; /* this one does not count against itself */
	d->connections_count--;
	error = may_connect(c, why, sizeof(why));
	c->user->connections++;
	d->connections_count++;
	if (error) {
		/*
		 * To tell a user whose packets take long takes long again. One packet that did says
		 * little: an interrupt may have come meanwhile.
		 */
		if (c->user->held_ns <= rtxg_now_ns() + USER_UNTOLD_NS)
			reply_error(c, "", error, why, NULL);
		client_drop(c);
		return;
	}
	c->io = (struct watch){ .ready = on_ready, .data = c };
	/* A death is dealt with before anything else: what it held is wanted. */
	c->process = (struct watch){ .ready = on_process_end, .data = c, .urgent = true };
	if (watch_on(d, &c->io, fd, EPOLLIN))
		client_drop(c);
}

int client_listen(struct daemon *d, int fd,
		  void (*handle)(struct connection *c, const char *text, size_t size, int fd))
{
	int ret;

	d->handle = handle;
	d->again = serve_again;
	d->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	d->listener.ready = on_connection;
	ret = discard_start(d, on_foreign);
	if (ret)
		return -ret;
	return watch_on(d, &d->listener, fd, EPOLLIN);
}
