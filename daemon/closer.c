// SPDX-License-Identifier: MIT
/*
 * closer.c - a process of its own closes connections of users whose descriptors do not close. A
 * connection may carry unread descriptors, and the last close of one of those takes as long as its
 * maker likes (foreign.c).
 *
 * Of a connection that carries none the process reads away what lies there, and closes it. For
 * those that carry some it forks, and the child ends. What a process leaves open, its end closes:
 * all connections first, then what they carried, and sockets do not linger. The child has the last
 * descriptors: the daemon says when it has closed its own, and the process closes its own before
 * the child ends. So neither closes anything for good. There are few children at a time, each with
 * more than the one before; what comes meanwhile waits here.
 *
 * May not: take anything in that it has no number for; be told by a client.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "closer.h"
#include "program.h"

#define SOCKET		   3	      /* the process's end */
#define ROOM		   (1 << 20)  /* bytes; a kilobyte for each that is on its way */
#define FORK_AGAIN	   100000u    /* us */
#define CHILDREN_MOST	   8u	      /* at a time */
#define CHILDREN_OF_A_USER 4u	      /* of these */
#define CHILDREN_FULL	   64u	      /* if the numbers here would not do otherwise */
#define WAITING_MOST	   (1u << 16) /* connections */
#define ACCOUNTS	   256u	      /* users; the others are one */
#define LOOK_MS		   200	      /* for the end of children, while something waits */

struct word {
	uid_t user;
	uint32_t gone; /* 1: the daemon has closed its own of those before */
};

static int closer_fd = -1;

int closer_start(void)
{
	struct program program = { .path = "/proc/self/exe",
				   .words = { "rtxgd", CLOSER },
				   .files = { { .as = SOCKET } },
				   .count = 1,
				   .deaf = true };
	int ends[2], pidfd;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
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

static bool tell(struct word word, int fd)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { { 0 } };
	struct iovec io = { .iov_base = &word, .iov_len = sizeof(word) };
	struct msghdr message = { .msg_iov = &io, .msg_iovlen = 1 };
	struct cmsghdr *m;
	ssize_t n;

	if (fd >= 0) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control.room);
		m = CMSG_FIRSTHDR(&message);
		m->cmsg_level = SOL_SOCKET;
		m->cmsg_type = SCM_RIGHTS;
		m->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(m), &fd, sizeof(int));
	}
	do
		n = sendmsg(closer_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n >= 0;
}

bool closer_take(uid_t user, int fd)
{
	if (closer_fd < 0 || !tell((struct word){ .user = user }, fd))
		return false;
	close(fd);
	/* Where this finds no room, what it is about goes with the next. */
	tell((struct word){ .gone = 1 }, -1);
	return true;
}

/* --- the process ------------------------------------------------------------------------------ */

/* A user. */
struct closer_account {
	bool used;
	uid_t user;
	uint32_t waiting; /* connections that the daemon has closed, and that carry something */
	uint32_t children;
};

struct closer_waiting {
	int fd;
	struct closer_account *account;
};

static struct {
	struct closer_account accounts[ACCOUNTS];
	struct closer_waiting all[WAITING_MOST];
	uint32_t count, most;
	uint32_t ours; /* the daemon has closed its own of so many, the first */
	struct {
		pid_t pid; /* 0: this place is free */
		struct closer_account *account;
	} children[CHILDREN_FULL];
	uint32_t living;
} closing;

static struct closer_account *account_of(uid_t user)
{
	struct closer_account *free_one = NULL;

	for (struct closer_account *one = closing.accounts; one < closing.accounts + ACCOUNTS;
	     one++) {
		if (one->used && one->user == user)
			return one;
		if (!free_one && !one->waiting && !one->children)
			free_one = one;
	}
	if (!free_one)
		return &closing.accounts[ACCOUNTS - 1];
	*free_one = (struct closer_account){ .used = true, .user = user };
	return free_one;
}

/*
 * Reads away what lies there, up to a packet that carries descriptors: the kernel tells of these
 * without taking them. True: nothing lies there any more, and nothing comes.
 */
static bool drained(int fd)
{
	char nothing;
	struct iovec io = { &nothing, sizeof(nothing) };

	shutdown(fd, SHUT_RD);
	for (;;) {
		struct msghdr message = { .msg_iov = &io, .msg_iovlen = 1 };
		ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_PEEK);
		bool empty;

		if (n < 0 || message.msg_flags & MSG_CTRUNC)
			return false;
		if (!n) {
			/* Asked so, each packet has more to tell than there is room for. */
			setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &(int){ 1 }, sizeof(int));
			n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_PEEK);
			empty = !n && !(message.msg_flags & MSG_CTRUNC);
			setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &(int){ 0 }, sizeof(int));
			if (n || empty)
				return empty;
		}
		if (recv(fd, &nothing, sizeof(nothing), MSG_DONTWAIT) < 0)
			return false;
	}
}

/* The daemon has closed its own of all that are here. Those that close are closed. */
static void all_ours(void)
{
	uint32_t left = closing.ours;

	for (uint32_t i = closing.ours; i < closing.count; i++) {
		struct closer_waiting one = closing.all[i];

		if (drained(one.fd)) {
			close(one.fd);
		} else {
			closing.all[left++] = one;
			one.account->waiting++;
		}
	}
	closing.count = closing.ours = left;
}

static void see_ends(void)
{
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
		for (uint32_t i = 0; i < CHILDREN_FULL; i++)
			if (closing.children[i].pid == pid) {
				closing.children[i].pid = 0;
				closing.children[i].account->children--;
				closing.living--;
			}
}

/* It has a copy of all. Those of others are here, too, so that to close them takes no time. */
static void be_child(const struct closer_account *account, int parent)
{
	char byte = '.';

	for (uint32_t i = 0; i < closing.count; i++)
		if (i >= closing.ours || closing.all[i].account != account)
			close(closing.all[i].fd);
	close(SOCKET);
	if (write(parent, &byte, 1) == 1)
		while (read(parent, &byte, 1) < 0 && errno == EINTR)
			;
	_exit(0);
}

/* A child has what waits of that user. */
static void forget(struct closer_account *account)
{
	uint32_t left = 0, ours = 0;

	for (uint32_t i = 0; i < closing.count; i++)
		if (i < closing.ours && closing.all[i].account == account) {
			close(closing.all[i].fd);
			account->waiting--;
		} else {
			ours += i < closing.ours;
			closing.all[left++] = closing.all[i];
		}
	closing.count = left;
	closing.ours = ours;
}

static bool let_go(struct closer_account *account)
{
	uint32_t place = 0;
	int ends[2];
	pid_t child;
	char byte;
	ssize_t n;

	while (place < CHILDREN_FULL && closing.children[place].pid)
		place++;
	if (place == CHILDREN_FULL || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return false;
	child = fork();
	if (!child) {
		close(ends[0]);
		be_child(account, ends[1]);
	}
	close(ends[1]);
	if (child > 0) {
		closing.children[place].pid = child;
		closing.children[place].account = account;
		account->children++;
		closing.living++;
		do
			n = read(ends[0], &byte, 1);
		while (n < 0 && errno == EINTR);
		if (n == 1)
			forget(account);
	}
	close(ends[0]);
	return child > 0;
}

static bool full(void)
{
	return closing.count >= closing.most;
}

/* Whose turn it is to have a child more; NULL: of no user, for now. */
static struct closer_account *next_account(void)
{
	static const uint32_t enough[CHILDREN_OF_A_USER] = { 1, 512, 4096, 16384 };
	struct closer_account *best = NULL;

	for (struct closer_account *one = closing.accounts; one < closing.accounts + ACCOUNTS;
	     one++) {
		bool may = closing.living < CHILDREN_MOST && one->children < CHILDREN_OF_A_USER &&
			   one->waiting >= enough[one->children];

		if (one->waiting && (may || full()) && (!best || one->waiting > best->waiting))
			best = one;
	}
	return best;
}

/* A word, and a connection if one came with it. False: the daemon has ended. */
static bool take_one(void)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct word word;
	struct iovec io = { .iov_base = &word, .iov_len = sizeof(word) };
	struct msghdr message = { .msg_iov = &io,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control.room) };
	const struct cmsghdr *m;
	ssize_t n = recvmsg(SOCKET, &message, MSG_CMSG_CLOEXEC);

	if (n < 0)
		return errno == EINTR;
	if (n != sizeof(word))
		return false;
	/* The daemon closes each before it says another word. */
	all_ours();
	m = CMSG_FIRSTHDR(&message);
	if (m) {
		struct closer_waiting *one = &closing.all[closing.count++];

		memcpy(&one->fd, CMSG_DATA(m), sizeof(int));
		one->account = account_of(word.user);
	}
	return true;
}

static bool comes(int wait_ms)
{
	return poll(&(struct pollfd){ .fd = SOCKET, .events = POLLIN }, 1, wait_ms) > 0;
}

int closer(void)
{
	struct rlimit files = { .rlim_cur = 1024 };
	struct closer_account *account;
	struct stat st;

	if (fstat(SOCKET, &st) || !S_ISSOCK(st.st_mode)) {
		fputs("rtxgd: " CLOSER " is how rtxgd starts a process that closes connections\n",
		      stderr);
		return 2;
	}
	/* Without a number for it, the kernel would close a connection here. */
	getrlimit(RLIMIT_NOFILE, &files);
	closing.most = files.rlim_cur > WAITING_MOST ? WAITING_MOST : (uint32_t)files.rlim_cur;
	closing.most -= closing.most < 64 ? closing.most / 2 : 32;
	setpriority(PRIO_PROCESS, 0, -20);
	for (;;) {
		/* As many at once as have come: a process is made for them. */
		if (!full() && comes(0)) {
			if (!take_one())
				return 0;
			continue;
		}
		see_ends();
		account = next_account();
		if (account && let_go(account))
			continue;
		if (full())
			usleep(FORK_AGAIN);
		else
			comes(closing.count ? LOOK_MS : -1);
	}
}
