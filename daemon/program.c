// SPDX-License-Identifier: MIT
/*
 * program.c - a process of its own starts the programs that rtxgd needs beside it. A child of the
 * daemon's has a copy of all descriptors, and closes what its program is not to have when it
 * executes it. Among those are connections, and in one a file may lie unread that a user lets no
 * process close (foreign.c): so the program would begin when that user likes. This process was made
 * before there were any users, and is given nothing of theirs.
 *
 * May not: be asked by a client; wait for what it has started.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"
#include "rtxg_clock.h"

#define SOCKET	  3 /* the process's end */
#define TEXT_MOST 4096u
#define PATIENCE  5000 /* ms, for an answer */

extern char **environ;

/* Then come the words, the environment and the path, each with the 0 at its end. */
struct order {
	uint64_t until_ns; /* nobody waits for it afterwards */
	uint32_t words, environment, files;
	int32_t as[PROGRAM_FILES];
	uint32_t given; /* bit n: file n came along, else it is /dev/null */
	bool group, deaf;
};

/* The pidfd comes along. */
struct answer {
	int32_t error, pid;
};

static struct {
	int fd; /* below 0: there is none */
	pid_t pid;
	bool owes; /* the answer to an order that was given up */
} starter = { .fd = -1 };

int program_start_starter(void)
{
	static char name[] = "rtxgd", option[] = PROGRAM_STARTER;
	char *arguments[] = { name, option, NULL };
	posix_spawn_file_actions_t files;
	posix_spawnattr_t deaf;
	sigset_t all;
	int ends[2], error;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return errno;
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, ends[1], SOCKET);
	/* What is sent to all processes of this name or group is meant for the daemon. */
	sigfillset(&all);
	posix_spawnattr_init(&deaf);
	posix_spawnattr_setsigmask(&deaf, &all);
	posix_spawnattr_setflags(&deaf, POSIX_SPAWN_SETSIGMASK);
	error = posix_spawn(&starter.pid, "/proc/self/exe", &files, &deaf, arguments, environ);
	posix_spawnattr_destroy(&deaf);
	posix_spawn_file_actions_destroy(&files);
	close(ends[1]);
	if (error)
		close(ends[0]);
	else
		starter.fd = ends[0];
	return error;
}

/* --- packets with descriptors ----------------------------------------------------------------- */

union control {
	char room[CMSG_SPACE(PROGRAM_FILES * sizeof(int))];
	struct cmsghdr align;
};

static bool say(int socket, struct iovec *io, size_t pieces, const int *fds, unsigned int count)
{
	union control control = { { 0 } };
	struct msghdr message = { .msg_iov = io, .msg_iovlen = pieces };
	struct cmsghdr *m;
	ssize_t n;

	if (count) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
		m = CMSG_FIRSTHDR(&message);
		m->cmsg_level = SOL_SOCKET;
		m->cmsg_type = SCM_RIGHTS;
		m->cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(m), fds, count * sizeof(int));
	}
	do
		n = sendmsg(socket, &message, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n >= 0;
}

/* Bytes; 0: the other side has ended; less: an error. Descriptors that did not come are -1. */
static ssize_t hear(int socket, void *data, size_t size, int fds[PROGRAM_FILES])
{
	union control control;
	struct iovec io = { .iov_base = data, .iov_len = size };
	struct msghdr message = { .msg_iov = &io,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	struct cmsghdr *m = n < 0 ? NULL : CMSG_FIRSTHDR(&message);

	for (unsigned int i = 0; i < PROGRAM_FILES; i++)
		fds[i] = -1;
	if (m && m->cmsg_type == SCM_RIGHTS && m->cmsg_len > CMSG_LEN(0))
		memcpy(fds, CMSG_DATA(m), m->cmsg_len - CMSG_LEN(0));
	return n;
}

/* --- the daemon's side ------------------------------------------------------------------------ */

static bool put(char *text, size_t *size, const char *word)
{
	size_t length = strlen(word) + 1;

	if (length > TEXT_MOST - *size)
		return false;
	memcpy(text + *size, word, length);
	*size += length;
	return true;
}

static bool put_all(char *text, size_t *size, const char *const words[PROGRAM_WORDS],
		    uint32_t *count)
{
	for (*count = 0; *count < PROGRAM_WORDS && words[*count]; ++*count)
		if (!put(text, size, words[*count]))
			return false;
	return true;
}

/* Where it has ended there is no other: a new one would be given a copy of users' connections. */
static int without_starter(int error)
{
	fprintf(stderr,
		"rtxgd: the process that starts programs does not answer: %s; restart rtxgd\n",
		strerror(error));
	close(starter.fd);
	starter.fd = -1;
	return -error;
}

/* The answer that has come: a pidfd, or a negative errno. */
static int take_answer(pid_t *pid)
{
	struct answer said;
	int fds[PROGRAM_FILES];

	if (hear(starter.fd, &said, sizeof(said), fds) != sizeof(said))
		return without_starter(EPIPE);
	if (said.error)
		return -said.error;
	if (pid)
		*pid = said.pid;
	if (fds[0] >= 0)
		return fds[0];
	/* Nobody would know that it runs. It has just begun: its number is not another's yet. */
	kill(said.pid, SIGKILL);
	return -EMFILE;
}

/* What an order that was given up has started ends. False: there still is no answer. */
static bool settle(void)
{
	int pidfd;

	if (!program_ended(starter.fd))
		return false;
	starter.owes = false;
	pidfd = take_answer(NULL);
	if (pidfd >= 0) {
		syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0u);
		close(pidfd);
	}
	return true;
}

/* Without a place for the pidfd, the program would run and nobody know it. */
static int send_order(const struct iovec io[2], const int *fds, unsigned int count)
{
	int place = fcntl(starter.fd, F_DUPFD_CLOEXEC, 0), error = 0;

	if (place < 0)
		return -errno;
	if (!say(starter.fd, (struct iovec *)io, 2, fds, count))
		error = errno;
	else if (poll(&(struct pollfd){ .fd = starter.fd, .events = POLLIN }, 1, PATIENCE) <= 0)
		error = ETIMEDOUT;
	close(place);
	if (error == EPIPE || error == ECONNRESET)
		return without_starter(error);
	if (error == ETIMEDOUT) {
		starter.owes = true;
		fprintf(stderr, "rtxgd: the process that starts programs takes its time: until it "
				"answers, no program is started\n");
	}
	return -error;
}

int program_start(const struct program *program, pid_t *pid)
{
	struct order order = { .until_ns = rtxg_now_ns() + PATIENCE * 1000000ull,
			       .files = program->count,
			       .group = program->group,
			       .deaf = program->deaf };
	char text[TEXT_MOST];
	struct iovec io[] = { { &order, sizeof(order) }, { text, 0 } };
	int fds[PROGRAM_FILES], error;
	unsigned int count = 0;

	if (starter.owes && !settle())
		return -EBUSY;
	if (starter.fd < 0) {
		waitpid(starter.pid, NULL, WNOHANG);
		return -EPIPE;
	}
	if (!put_all(text, &io[1].iov_len, program->words, &order.words) ||
	    !put_all(text, &io[1].iov_len, program->environment, &order.environment) ||
	    !put(text, &io[1].iov_len, program->path))
		return -E2BIG;
	for (unsigned int i = 0; i < program->count; i++) {
		order.as[i] = program->files[i].as;
		if (program->files[i].fd < 0)
			continue;
		order.given |= 1u << i;
		fds[count++] = program->files[i].fd;
	}
	error = send_order(io, fds, count);
	return error ? error : take_answer(pid);
}

bool program_ended(int pidfd)
{
	return poll(&(struct pollfd){ .fd = pidfd, .events = POLLIN }, 1, 0) > 0;
}

/* --- the process ------------------------------------------------------------------------------ */

static const char *take_all(const char *at, char **words, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++, at += strlen(at) + 1)
		words[i] = (char *)at;
	words[count] = NULL;
	return at;
}

static int start(const struct order *order, const char *text, const int fds[PROGRAM_FILES],
		 pid_t *child)
{
	char *words[PROGRAM_WORDS + 1], *environment[PROGRAM_WORDS + 1];
	const char *path =
		take_all(take_all(text, words, order->words), environment, order->environment);
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attributes;
	short flags = POSIX_SPAWN_SETSIGMASK;
	sigset_t blocked;
	int error;

	if (order->group)
		flags |= POSIX_SPAWN_SETPGROUP;
	if (order->deaf)
		sigfillset(&blocked);
	else
		sigemptyset(&blocked);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setpgroup(&attributes, 0);
	posix_spawnattr_setsigmask(&attributes, &blocked);
	posix_spawnattr_setflags(&attributes, flags);
	posix_spawn_file_actions_init(&files);
	for (unsigned int i = 0, n = 0; i < order->files; i++)
		if (order->given & 1u << i)
			posix_spawn_file_actions_adddup2(&files, fds[n++], order->as[i]);
		else
			posix_spawn_file_actions_addopen(&files, order->as[i], "/dev/null", O_RDWR,
							 0);
	error = posix_spawnp(child, path, &files, &attributes, words,
			     order->environment ? environment : environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attributes);
	return error;
}

/* False: the daemon has ended. */
static bool take_order(void)
{
	struct {
		struct order order;
		char text[TEXT_MOST];
	} packet;
	struct answer answer = { 0 };
	struct iovec io = { &answer, sizeof(answer) };
	int fds[PROGRAM_FILES], pidfd = -1;
	ssize_t n = hear(SOCKET, &packet, sizeof(packet), fds);
	pid_t child;

	if (n <= 0)
		return n < 0 && (errno == EINTR || errno == EAGAIN);
	answer.error = rtxg_now_ns() > packet.order.until_ns
			       ? ETIMEDOUT
			       : start(&packet.order, packet.text, fds, &child);
	if (!answer.error) {
		answer.pid = child;
		pidfd = (int)syscall(SYS_pidfd_open, child, 0u);
		if (pidfd < 0) {
			answer.error = errno;
			kill(child, SIGKILL);
		}
	}
	say(SOCKET, &io, 1, &pidfd, pidfd >= 0);
	for (unsigned int i = 0; i < PROGRAM_FILES; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (pidfd >= 0)
		close(pidfd);
	return true;
}

static void on_child(int signal)
{
	(void)signal;
}

int program_starter(void)
{
	struct sigaction action = { .sa_handler = on_child };
	struct pollfd daemon = { .fd = SOCKET, .events = POLLIN };
	sigset_t but_child;
	struct stat st;

	if (fstat(SOCKET, &st) || !S_ISSOCK(st.st_mode)) {
		fputs("rtxgd: " PROGRAM_STARTER " is how rtxgd starts a process that starts "
		      "programs\n",
		      stderr);
		return 2;
	}
	/* What rtxgd found open when it began is not for its programs. */
	close_range(SOCKET + 1, ~0u, 0);
	fcntl(SOCKET, F_SETFD, FD_CLOEXEC);
	sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){ 0 });
	sigfillset(&but_child);
	sigdelset(&but_child, SIGCHLD);
	sigaction(SIGCHLD, &action, NULL);
	for (;;) {
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (ppoll(&daemon, 1, NULL, &but_child) > 0 && !take_order())
			return 0;
	}
}
