// SPDX-License-Identifier: MIT
/*
 * closer.c - a process of its own closes connections of users whose descriptors do not close. A
 * connection may carry unread descriptors, and the last close of one of those takes as long as its
 * maker likes (discard.c): while it does, the number of the connection stays taken, and so a user
 * who connects again and again has all numbers of the daemon.
 *
 * The process forks for what it was given, and the child ends. What a process leaves open, its end
 * closes, and sockets do not linger then. The child has the last descriptors: the daemon says when
 * it has closed its own, and the process closes its own before the child ends. So neither closes
 * anything for good.
 *
 * May not: keep what it was given; be told by a client.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "closer.h"
#include "program.h"

#define SOCKET	   3 /* the process's end */
#define BATCH	   512u
#define ROOM	   (1 << 20) /* bytes; a kilobyte for each that is on its way */
#define FORK_AGAIN 100000u   /* us */

static int closer_fd = -1;

int closer_start(void)
{
	struct program program = { .path = "/proc/self/exe",
				   .words = { "rtxgd", CLOSER },
				   .files = { { .as = SOCKET } },
				   .count = 1,
				   .deaf = true };
	int ends[2], pidfd;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return errno;
	if (setsockopt(ends[0], SOL_SOCKET, SO_SNDBUFFORCE, &(int){ ROOM }, sizeof(int)))
		setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &(int){ ROOM }, sizeof(int));
	program.files[0].fd = ends[1];
	pidfd = program_start(&program, NULL);
	close(ends[1]);
	close(pidfd < 0 ? ends[0] : pidfd);
	if (pidfd < 0)
		return -pidfd;
	closer_fd = ends[0];
	return 0;
}

static bool tell(const struct msghdr *message)
{
	ssize_t n;

	do
		n = sendmsg(closer_fd, message, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n >= 0;
}

bool closer_take(int fd)
{
	static char byte = '.';
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { { 0 } };
	struct iovec io = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr gone = { .msg_iov = &io, .msg_iovlen = 1 };
	struct msghdr take = gone;
	struct cmsghdr *m;

	if (closer_fd < 0)
		return false;
	take.msg_control = &control;
	take.msg_controllen = sizeof(control.room);
	m = CMSG_FIRSTHDR(&take);
	m->cmsg_level = SOL_SOCKET;
	m->cmsg_type = SCM_RIGHTS;
	m->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(m), &fd, sizeof(int));
	if (!tell(&take))
		return false;
	close(fd);
	/* Where this finds no room, what it is about goes with the next. */
	tell(&gone);
	return true;
}

/* --- the process ------------------------------------------------------------------------------ */

static struct {
	int fds[BATCH];
	unsigned int count, ours; /* so many of them the daemon has closed */
} batch;

static void let_go(void)
{
	int ends[2] = { -1, -1 };
	pid_t child;
	char byte;

	if (!batch.ours)
		return;
	while (pipe2(ends, O_CLOEXEC))
		usleep(FORK_AGAIN);
	while ((child = fork()) < 0)
		usleep(FORK_AGAIN);
	if (!child) {
		close(ends[1]);
		while (read(ends[0], &byte, 1) < 0 && errno == EINTR)
			;
		_exit(0);
	}
	for (unsigned int i = 0; i < batch.ours; i++)
		close(batch.fds[i]);
	batch.count -= batch.ours;
	memmove(batch.fds, batch.fds + batch.ours, batch.count * sizeof(*batch.fds));
	batch.ours = 0;
	close(ends[0]);
	close(ends[1]);
}

/* One byte, and a descriptor if one came with it. False: the daemon has ended. */
static bool take_one(void)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	char byte;
	struct iovec io = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr message = { .msg_iov = &io,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control.room) };
	/* As many at once as have come: a process is made for them. */
	bool more = batch.count && batch.count < BATCH;
	const struct cmsghdr *m;
	ssize_t n = recvmsg(SOCKET, &message, MSG_CMSG_CLOEXEC | (more ? MSG_DONTWAIT : 0));

	if (n < 0 && errno == EINTR)
		return true;
	if (n < 0 && errno == EAGAIN) {
		let_go();
		/* What is left now waits for a word that found no room: it comes with the next. */
		if (batch.count)
			poll(&(struct pollfd){ .fd = SOCKET, .events = POLLIN }, 1, -1);
		return true;
	}
	if (n <= 0)
		return false;
	/* The daemon closes each before it says another word. */
	batch.ours = batch.count;
	m = CMSG_FIRSTHDR(&message);
	if (m)
		memcpy(&batch.fds[batch.count++], CMSG_DATA(m), sizeof(int));
	if (batch.count == BATCH)
		let_go();
	return true;
}

int closer(void)
{
	struct stat st;

	if (fstat(SOCKET, &st) || !S_ISSOCK(st.st_mode)) {
		fputs("rtxgd: " CLOSER " is how rtxgd starts a process that closes connections\n",
		      stderr);
		return 2;
	}
	signal(SIGCHLD, SIG_IGN);
	setpriority(PRIO_PROCESS, 0, -20);
	while (take_one())
		;
	return 0;
}
