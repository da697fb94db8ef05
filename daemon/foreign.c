// SPDX-License-Identifier: MIT
/*
 * foreign.c - threads in which descriptors of users are opened and closed. To close a file that its
 * maker serves through FUSE, or a socket with SO_LINGER, takes as long as its maker likes; so does
 * reading a message away, or closing a socket over it, if it carries such a descriptor. No signal
 * ends that, and the files of a process stay open until the last thread has ended that shares them.
 * So these threads share them with no other: when rtxgd is killed, its connections and its socket
 * end at once, whatever a thread here waits for.
 *
 * A thread has the channel from the daemon, and what it works on. It reads packets that carry
 * descriptors, and gives the daemon those which the kernel alone has an end of: memory, events, and
 * files of the NVIDIA driver. It closes the others.
 *
 * The system calls in these threads are made by number. A sanitizer watches the library's calls,
 * and takes equal numbers in two tables for one file.
 *
 * May not: touch anything of the daemon's; write a message, for standard error is not its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "foreign.h"

#define STACK_BYTES	(128u << 10)
#define DESCRIPTORS_MAX 253u	  /* of one message, in all kernels */
#define ORDERS_BYTES	(1 << 20) /* of room for orders; the kernel may give less */
#define NVIDIA_MAJOR	195u	  /* of /dev/nvidiaN; the kernel's list of devices names it */
#define EVENT		"anon_inode:[eventfd]"

/* A thread that begins finds its channel here. Both are as low as can be: see own_files(). */
static int foreign_ours = -1, foreign_theirs = -1;

union room_for_one {
	char room[CMSG_SPACE(sizeof(int))];
	struct cmsghdr align;
};

int foreign_start(void)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return errno;
	foreign_ours = ends[0];
	foreign_theirs = ends[1];
	return 0;
}

struct foreign_told {
	uint32_t order;
	int32_t fd; /* of the daemon's; -1: a copy comes along */
	uint32_t number;
};

/* Puts fd into the message. */
static void attach(struct msghdr *message, union room_for_one *control, int fd)
{
	struct cmsghdr *m;

	memset(control, 0, sizeof(*control));
	message->msg_control = control;
	message->msg_controllen = sizeof(control->room);
	m = CMSG_FIRSTHDR(message);
	m->cmsg_level = SOL_SOCKET;
	m->cmsg_type = SCM_RIGHTS;
	m->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(m), &fd, sizeof(int));
}

/* The one that came along, or -1. */
static int attached(struct msghdr *message)
{
	struct cmsghdr *m = CMSG_FIRSTHDR(message);
	int fd = -1;

	if (m && m->cmsg_type == SCM_RIGHTS && m->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(m), sizeof(int));
	return fd;
}

/* --- the thread ------------------------------------------------------------------------------- */

struct foreign_work {
	uint32_t number;
	const struct foreign_events *events;
	int channel;
	struct foreign_packet packet;
};

static void close_own(int fd)
{
	syscall(SYS_close, fd);
}

static ssize_t receive(int fd, struct msghdr *message, int flags)
{
	ssize_t n;

	do
		n = syscall(SYS_recvmsg, fd, message, flags | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	return n;
}

static bool transmit(int fd, const struct msghdr *message)
{
	ssize_t n;

	do
		n = syscall(SYS_sendmsg, fd, message, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n >= 0;
}

/* What this thread is told first: its number comes with its end of the channel. */
static int get_channel(uint32_t *number)
{
	union room_for_one control;
	struct iovec io = { number, sizeof(*number) };
	struct msghdr message = { .msg_iov = &io,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control.room) };

	return receive(foreign_theirs, &message, 0) == sizeof(*number) ? attached(&message) : -1;
}

/* Of the lower part of the daemon's table the channel stays. The daemon still has what it had. */
static void own_files(int channel)
{
	int nothing;

	syscall(SYS_close_range, STDERR_FILENO + 1, channel - 1, 0);
	syscall(SYS_close_range, channel + 1, ~0u, 0);
	nothing = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC);
	if (nothing < 0)
		return;
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		syscall(SYS_dup3, nothing, fd, O_CLOEXEC);
	close_own(nothing);
}

/* What the other side was told last can be read there only if nothing lies unread here. */
static void drain(int fd)
{
	char nothing;
	struct iovec io = { &nothing, sizeof(nothing) };
	struct msghdr message = { .msg_iov = &io, .msg_iovlen = 1 };

	syscall(SYS_shutdown, fd, SHUT_RD);
	while (receive(fd, &message, MSG_DONTWAIT | MSG_TRUNC) > 0)
		message = (struct msghdr){ .msg_iov = &io, .msg_iovlen = 1 };
}

/*
 * Does its end take no longer than the kernel, or the driver of a GPU, likes? All questions here
 * are answered by the kernel: a file system of a user's is not asked.
 */
static bool ends_at_once(int fd)
{
	static const char name[] = "/proc/thread-self/fd/";
	char path[sizeof(name) + 12], target[sizeof(EVENT)];
	struct statx st;
	char digits[12];
	int flags = (int)syscall(SYS_fcntl, fd, F_GETFL), length = 0;
	size_t at = sizeof(name) - 1;

	/* A descriptor of a path may be the last that keeps a whole file system. */
	if (flags < 0 || flags & O_PATH)
		return false;
	/* Memory of the kernel's own: nothing else has seals. */
	if (syscall(SYS_fcntl, fd, F_GET_SEALS) >= 0)
		return true;
	if (!syscall(SYS_statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) &&
	    S_ISCHR(st.stx_mode) && st.stx_rdev_major == NVIDIA_MAJOR)
		return true;
	memcpy(path, name, at);
	do
		digits[length++] = (char)('0' + fd % 10);
	while (fd /= 10);
	while (length)
		path[at++] = digits[--length];
	path[at] = 0;
	return syscall(SYS_readlinkat, AT_FDCWD, path, target, sizeof(target)) ==
		       sizeof(EVENT) - 1 &&
	       !memcmp(target, EVENT, sizeof(EVENT) - 1);
}

/* All that a message can carry: what does not fit is closed by the kernel, here. */
static uint32_t take_descriptors(struct msghdr *message, int fds[DESCRIPTORS_MAX])
{
	uint32_t all = 0;

	for (struct cmsghdr *m = CMSG_FIRSTHDR(message); m; m = CMSG_NXTHDR(message, m)) {
		size_t count;

		if (m->cmsg_level != SOL_SOCKET || m->cmsg_type != SCM_RIGHTS)
			continue;
		count = (m->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count && all < DESCRIPTORS_MAX; i++)
			memcpy(&fds[all++], CMSG_DATA(m) + i * sizeof(int), sizeof(int));
	}
	return all;
}

static bool say(struct foreign_work *work, size_t text, int given)
{
	union room_for_one one;
	struct iovec io = { &work->packet, offsetof(struct foreign_packet, text) + text };
	struct msghdr message = { .msg_iov = &io, .msg_iovlen = 1 };

	if (given >= 0)
		attach(&message, &one, given);
	return transmit(work->channel, &message);
}

/* The daemon is told what came before anything is closed. */
static void read_packet(struct foreign_work *work, int connection, uint32_t number)
{
	union {
		char room[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct foreign_packet *packet = &work->packet;
	struct iovec io = { .iov_base = packet->text, .iov_len = sizeof(packet->text) };
	struct msghdr message = { .msg_iov = &io,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control.room) };
	int fds[DESCRIPTORS_MAX];
	ssize_t n = receive(connection, &message, MSG_DONTWAIT);

	packet->news = FOREIGN_PACKET;
	packet->number = number;
	packet->size = n < 0 ? -errno : (int32_t)n;
	packet->flags = n < 0 ? 0 : (uint32_t)message.msg_flags;
	packet->descriptors = n < 0 ? 0 : take_descriptors(&message, fds);
	packet->given =
		packet->descriptors == 1 && !(packet->flags & MSG_CTRUNC) && ends_at_once(fds[0]);
	if (!say(work, n > 0 ? (size_t)n : 0, packet->given ? fds[0] : -1) && packet->given) {
		/* Too many are on their way. */
		packet->given = 0;
		say(work, n > 0 ? (size_t)n : 0, -1);
	}
	/* The daemon has another; and what comes now may take for ever. */
	close_own(connection);
	for (uint32_t i = 0; i < packet->descriptors; i++)
		close_own(fds[i]);
}

/* One of the daemon's, in its first thread's table, as one of this thread's. */
static int take(struct foreign_work *work, const struct foreign_told *told)
{
	int self = (int)syscall(SYS_pidfd_open, getpid(), 0), fd;

	fd = self < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, self, told->fd, 0);
	work->packet.news = FOREIGN_TAKEN;
	work->packet.number = (uint32_t)told->fd;
	work->packet.size = fd < 0 ? -errno : 0;
	if (self >= 0)
		close_own(self);
	if (told->order != FOREIGN_READ)
		say(work, 0, -1);
	return fd;
}

/* An order, and what it is about. False: the daemon has ended. */
static bool get_order(struct foreign_work *work, struct foreign_told *told, int *fd)
{
	union room_for_one control;
	struct iovec io = { told, sizeof(*told) };
	struct msghdr message = { .msg_iov = &io,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control.room) };
	ssize_t n = receive(work->channel, &message, 0);

	*fd = n > 0 ? attached(&message) : -1;
	return n == sizeof(*told);
}

static void *be_foreign(void *memory)
{
	struct foreign_work *work = memory;
	enum foreign_next next = FOREIGN_GO_ON;
	/*
	 * The kernel copies what is not closed. Where it has no such call, or a sandbox forbids it,
	 * the daemon's table stays the thread's, too.
	 */
	bool own = !syscall(SYS_close_range, foreign_theirs + 1, ~0u, CLOSE_RANGE_UNSHARE);
	struct foreign_told told;
	int fd;

	work->channel = get_channel(&work->number);
	if (own)
		own_files(work->channel);
	while (next != FOREIGN_LEAVE && get_order(work, &told, &fd)) {
		work->events->begins(work->number);
		if (told.fd >= 0)
			fd = take(work, &told);
		if (told.order == FOREIGN_READ) {
			read_packet(work, fd, told.number);
		} else {
			if (told.order == FOREIGN_END)
				drain(fd);
			close_own(fd);
		}
		next = work->events->done(work->number);
		work->packet.news = FOREIGN_ROOM;
		if (next == FOREIGN_TELL)
			say(work, 0, -1);
	}
	close_own(work->channel);
	free(work);
	return NULL;
}

/* --- the daemon's side ------------------------------------------------------------------------ */

/* 0, or a negative errno. */
static int send_now(int channel, void *data, size_t size, int fd)
{
	union room_for_one control;
	struct iovec io = { data, size };
	struct msghdr message = { .msg_iov = &io, .msg_iovlen = 1 };
	ssize_t n;

	if (fd >= 0)
		attach(&message, &control, fd);
	do
		n = sendmsg(channel, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

static int start(const struct foreign_events *events)
{
	struct foreign_work *work = calloc(1, sizeof(*work));
	pthread_attr_t attributes;
	pthread_t thread;
	int error;

	if (!work)
		return ENOMEM;
	work->events = events;
	error = pthread_attr_init(&attributes);
	if (!error) {
		pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
		pthread_attr_setstacksize(&attributes, STACK_BYTES);
		error = pthread_create(&thread, &attributes, be_foreign, work);
		pthread_attr_destroy(&attributes);
	}
	if (error)
		free(work);
	return error;
}

int foreign_thread(uint32_t number, const struct foreign_events *events)
{
	static bool waits; /* a thread that was not told its number */
	int ends[2], error;

	if (foreign_ours < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return -EAGAIN;
	setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &(int){ ORDERS_BYTES }, sizeof(int));
	error = waits ? 0 : start(events);
	if (!error) {
		waits = send_now(foreign_ours, &number, sizeof(number), ends[1]) != 0;
		error = waits ? EAGAIN : 0;
	}
	close(ends[1]);
	if (error)
		close(ends[0]);
	return error ? -error : ends[0];
}

int foreign_order(int channel, enum foreign_order order, int fd, uint32_t number)
{
	struct foreign_told told = { .order = order, .fd = -1, .number = number };

	return send_now(channel, &told, sizeof(told), fd);
}

int foreign_order_of(int channel, enum foreign_order order, int fd, uint32_t number)
{
	struct foreign_told told = { .order = order, .fd = fd, .number = number };

	return send_now(channel, &told, sizeof(told), -1);
}

int foreign_hear(int channel, struct foreign_packet *packet, int *fd)
{
	union room_for_one control;
	struct iovec io = { packet, sizeof(*packet) };
	struct msghdr message = { .msg_iov = &io,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control.room) };
	ssize_t n = recvmsg(channel, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	*fd = -1;
	if (n < 0)
		return -errno;
	if (!n)
		return -EPIPE;
	*fd = attached(&message);
	return 0;
}
