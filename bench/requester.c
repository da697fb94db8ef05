// SPDX-License-Identifier: MIT
/*
 * requester.c - the clients of bench/requests.py, and the server that rtxgd is compared with. That
 * one does nothing for a packet but send one back: what it takes is what any server takes.
 *
 * requester answer SOCKET              be that server
 * requester ask KIND TIMES BLOCK PAUSE-US SOCKET...
 *     ask each so many times, a block of them at one before the next; prints a line when it begins,
 *     and then for each answer which socket it was of, and how long it took in nanoseconds
 * requester flood KIND SOCKET          prepare, print a line, and wait for one; then ask for all
 *     that can be had, until it is sent SIGTERM, and print the number of rounds
 *
 * KIND of what is asked: plain, descriptor. Of a flood: see flood_kinds.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "rtxg_clock.h"

#define PAGE	     4096
#define REPLY_BYTES  400 /* as many as those of a hello */
#define TASKS	     1000
#define CONNECTIONS  32
#define SOCKETS_MOST 4
#define DESCRIPTORS  8 /* that come with a reply, at most */

static volatile sig_atomic_t stop;

static void on_stop(int signal_number)
{
	stop = 1;
}

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "requester: %s: %s\n", what, strerror(errno));
	exit(1);
}

static struct sockaddr_un address_of(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	if (strlen(path) >= sizeof(address.sun_path)) {
		errno = ENAMETOOLONG;
		die(path);
	}
	strcpy(address.sun_path, path);
	return address;
}

static int new_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		die("socket");
	return fd;
}

/* -1 and errno if it is refused. */
static int try_to_connect(const char *path)
{
	struct sockaddr_un address = address_of(path);
	int fd = new_socket(), ret;

	do
		ret = connect(fd, (struct sockaddr *)&address, sizeof(address));
	while (ret && (errno == EAGAIN || errno == EINTR));
	if (!ret)
		return fd;
	close(fd);
	return -1;
}

static int connect_to(const char *path)
{
	int fd = try_to_connect(path);

	if (fd < 0)
		die(path);
	return fd;
}

/* --- packets ---------------------------------------------------------------------------------- */

union room {
	char room[CMSG_SPACE(DESCRIPTORS * sizeof(int))];
	struct cmsghdr align;
};

/* fd: goes along, or -1. */
static bool put(int connection, const char *text, size_t size, int fd)
{
	union room control;
	struct iovec io = { (void *)text, size };
	struct msghdr message = { .msg_iov = &io, .msg_iovlen = 1 };
	ssize_t n;

	if (fd >= 0) {
		struct cmsghdr *m;

		memset(&control, 0, sizeof(control));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(sizeof(int));
		m = CMSG_FIRSTHDR(&message);
		m->cmsg_level = SOL_SOCKET;
		m->cmsg_type = SCM_RIGHTS;
		m->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(m), &fd, sizeof(int));
	}
	do
		n = sendmsg(connection, &message, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n >= 0;
}

/* What came, of which the beginning is in text; its descriptors are closed. <= 0: nothing did. */
static ssize_t take(int connection, char *text, size_t room)
{
	union room control;
	struct iovec io = { text, room };
	struct msghdr message = { .msg_iov = &io,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control.room) };
	ssize_t n;

	do
		n = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return n;
	for (struct cmsghdr *m = CMSG_FIRSTHDR(&message); m; m = CMSG_NXTHDR(&message, m))
		if (m->cmsg_level == SOL_SOCKET && m->cmsg_type == SCM_RIGHTS)
			for (size_t at = 0; at + sizeof(int) <= m->cmsg_len - CMSG_LEN(0);
			     at += sizeof(int)) {
				int fd;

				memcpy(&fd, CMSG_DATA(m) + at, sizeof(int));
				close(fd);
			}
	return n;
}

/* One request, which has to be granted. */
static void ask(int connection, const char *request, int fd)
{
	static const char granted[] = "{\"ok\":true", long_one[] = "{\"ok\": true";
	char reply[1 << 16];
	ssize_t n;

	if (!put(connection, request, strlen(request), fd))
		die("a request cannot be sent");
	n = take(connection, reply, sizeof(reply) - 1);
	if (n <= 0)
		die("no reply");
	reply[n] = 0;
	if (strncmp(reply, granted, sizeof(granted) - 1) &&
	    strncmp(reply, long_one, sizeof(long_one) - 1)) {
		fprintf(stderr, "requester: %s is answered with %.300s\n", request, reply);
		exit(1);
	}
}

/* --- the server that does nothing else -------------------------------------------------------- */

static void answer(const char *path)
{
	struct sockaddr_un address = address_of(path);
	struct epoll_event event = { .events = EPOLLIN };
	int listener = new_socket(), set = epoll_create1(EPOLL_CLOEXEC);
	char reply[REPLY_BYTES], request[1 << 15];

	memset(reply, ' ', sizeof(reply));
	memcpy(reply, "{\"ok\":true}", 11);
	event.data.fd = listener;
	if (set < 0 || bind(listener, (struct sockaddr *)&address, sizeof(address)) ||
	    listen(listener, 16) || epoll_ctl(set, EPOLL_CTL_ADD, listener, &event))
		die(path);
	for (;;) {
		int fd;

		if (epoll_wait(set, &event, 1, -1) != 1)
			continue;
		fd = event.data.fd;
		if (fd == listener) {
			fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
			event = (struct epoll_event){ .events = EPOLLIN, .data.fd = fd };
			if (fd < 0 || epoll_ctl(set, EPOLL_CTL_ADD, fd, &event))
				die("accept");
		} else if (take(fd, request, sizeof(request)) <= 0 ||
			   !put(fd, reply, sizeof(reply), -1)) {
			close(fd);
		}
	}
}

/* --- who asks --------------------------------------------------------------------------------- */

static int sealed_page(void)
{
	int fd = memfd_create("fence", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, PAGE) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		die("memfd");
	return fd;
}

static uint64_t number(const char *text)
{
	char *end;
	uint64_t value = strtoull(text, &end, 10);

	if (!*text || *end) {
		fprintf(stderr, "requester: \"%s\" is no number\n", text);
		exit(2);
	}
	return value;
}

static void ask_all(bool descriptor, uint64_t times, uint64_t block, useconds_t pause_us,
		    char **paths, int count)
{
	const char *request = descriptor ? "{\"op\": \"fence\", \"lane\": 0, \"offset\": 0}"
					 : "{\"op\": \"hello\"}";
	int connections[SOCKETS_MOST], page = descriptor ? sealed_page() : -1;
	uint64_t *took = calloc(times * (uint64_t)count, sizeof(*took));

	if (!took)
		die("calloc");
	for (int i = 0; i < count; i++) {
		connections[i] = connect_to(paths[i]);
		if (descriptor)
			ask(connections[i], "{\"op\": \"open\"}", -1);
		ask(connections[i], request, page);
	}
	puts("begins");
	fflush(stdout);
	for (uint64_t done = 0; done < times; done += block)
		for (int i = 0; i < count; i++)
			for (uint64_t at = done; at < done + block && at < times; at++) {
				uint64_t began;

				if (pause_us)
					usleep(pause_us);
				began = rtxg_now_ns();
				ask(connections[i], request, page);
				took[at * (uint64_t)count + (uint64_t)i] = rtxg_now_ns() - began;
			}
	/* Told afterwards: who reads it wants a processor, too. */
	for (uint64_t i = 0; i < times * (uint64_t)count; i++)
		printf("%llu %llu\n", (unsigned long long)(i % (uint64_t)count),
		       (unsigned long long)took[i]);
	free(took);
}

/* --- who floods ------------------------------------------------------------------------------- */

struct flood {
	const char *path;
	int connections[CONNECTIONS];
	int fd; /* what the kind needs */
	uint64_t rounds;
};

static void connect_all(struct flood *f)
{
	for (int i = 0; i < CONNECTIONS; i++)
		f->connections[i] = connect_to(f->path);
}

/* This process's tasks stay as long as it does. */
static void open_tasks(struct flood *f)
{
	for (int i = 0; i < TASKS; i++)
		ask(connect_to(f->path), "{\"op\": \"open\", \"vgpu\": \"one\"}", -1);
	connect_all(f);
}

static void set_tasks(struct flood *f)
{
	char request[128];

	snprintf(request, sizeof(request), "{\"op\": \"task-set\", \"pid\": %d, \"vgpu\": \"%s\"}",
		 (int)getpid(), f->rounds % 2 ? "one" : "other");
	ask(f->connections[0], request, -1);
}

/* To all connections, and then the replies of all. */
static void ask_of_all(struct flood *f, const char *request)
{
	char reply[1 << 16];

	for (int i = 0; i < CONNECTIONS; i++)
		if (!put(f->connections[i], request, strlen(request), f->fd))
			die("a request cannot be sent");
	for (int i = 0; i < CONNECTIONS; i++)
		if (take(f->connections[i], reply, sizeof(reply)) <= 0)
			die("no reply");
}

static void list_tasks(struct flood *f)
{
	ask_of_all(f, "{\"op\": \"task-list\"}");
}

/* Some leave a request behind that is never read, others nothing. */
static void come_and_go(struct flood *f)
{
	static const char request[] = "{\"op\": \"hello\"}";
	int fd = try_to_connect(f->path);

	if (fd < 0)
		die(f->path);
	if (f->rounds % 2)
		put(fd, request, sizeof(request) - 1, -1);
	close(fd);
}

static void begin_fences(struct flood *f)
{
	connect_all(f);
	f->fd = sealed_page();
	for (int i = 0; i < CONNECTIONS; i++)
		ask(f->connections[i], "{\"op\": \"open\"}", -1);
}

static void send_fences(struct flood *f)
{
	ask_of_all(f, "{\"op\": \"fence\", \"lane\": 0, \"offset\": 0}");
}

/* One socket under many numbers in many sets, each of which is a waiter that every packet wakes. */
static void watch_it(struct flood *f)
{
	enum { SETS = 50, NUMBERS = 2000 };
	static int numbers[NUMBERS];

	f->connections[0] = connect_to(f->path);
	for (int i = 0; i < NUMBERS; i++)
		numbers[i] = dup(f->connections[0]);
	for (int s = 0; s < SETS; s++) {
		int set = epoll_create1(EPOLL_CLOEXEC);

		for (int i = 0; i < NUMBERS; i++) {
			struct epoll_event event = { .events = EPOLLIN | EPOLLOUT };

			if (epoll_ctl(set, EPOLL_CTL_ADD, numbers[i], &event))
				die("a waiter");
		}
	}
}

static void ask_plainly(struct flood *f)
{
	ask(f->connections[0], "{\"op\": \"hello\"}", -1);
}

/*
 * Three stages of sets: to change the last one the kernel walks through all that it leads to, with
 * a lock of the whole machine.
 */
static void nest_sets(struct flood *f)
{
	enum { SETS = 50, FILES = 12000 };
	static int files[FILES];
	struct epoll_event event = { .events = EPOLLIN };
	int inner = epoll_create1(EPOLL_CLOEXEC);

	for (int i = 0; i < FILES; i++)
		files[i] = eventfd(0, EFD_CLOEXEC);
	for (int s = 0; s < SETS; s++) {
		int middle = epoll_create1(EPOLL_CLOEXEC);

		for (int i = 0; i < FILES; i++)
			if (epoll_ctl(middle, EPOLL_CTL_ADD, files[i], &event))
				die("a set");
		if (epoll_ctl(inner, EPOLL_CTL_ADD, middle, &event))
			die("a set of sets");
	}
	f->connections[0] = inner;
	f->fd = epoll_create1(EPOLL_CLOEXEC);
}

static void change_sets(struct flood *f)
{
	struct epoll_event event = { .events = EPOLLIN };

	if (epoll_ctl(f->fd, EPOLL_CTL_ADD, f->connections[0], &event) ||
	    epoll_ctl(f->fd, EPOLL_CTL_DEL, f->connections[0], NULL))
		die("a set of sets of sets");
}

static const struct flood_kind {
	const char *name;
	void (*begin)(struct flood *f);
	void (*round)(struct flood *f);
} flood_kinds[] = {
	{ "task-set", open_tasks, set_tasks },
	{ "lists", open_tasks, list_tasks },
	{ "connections", NULL, come_and_go },
	{ "descriptors", begin_fences, send_fences },
	{ "waiters", watch_it, ask_plainly },
	{ "sets", nest_sets, change_sets },
	{ 0 },
};

static int flood(const char *name, const char *path)
{
	struct flood f = { .path = path, .fd = -1 };
	const struct flood_kind *kind = flood_kinds;

	while (kind->name && strcmp(kind->name, name))
		kind++;
	if (!kind->name) {
		fprintf(stderr, "requester: there is no flood \"%s\"\n", name);
		return 2;
	}
	if (kind->begin)
		kind->begin(&f);
	puts("begins");
	fflush(stdout);
	if (getchar() != '\n')
		return 1;
	/* One at least: who asks meanwhile is to be beside something. */
	do {
		kind->round(&f);
		f.rounds++;
	} while (!stop);
	printf("%llu\n", (unsigned long long)f.rounds);
	return 0;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_stop };
	struct rlimit files;

	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (argc == 3 && !strcmp(argv[1], "answer")) {
		answer(argv[2]);
		return 0;
	}
	sigaction(SIGTERM, &action, NULL);
	if (argc == 4 && !strcmp(argv[1], "flood"))
		return flood(argv[2], argv[3]);
	if (argc >= 7 && argc <= 6 + SOCKETS_MOST && !strcmp(argv[1], "ask") &&
	    (!strcmp(argv[2], "plain") || !strcmp(argv[2], "descriptor")) && number(argv[4])) {
		ask_all(!strcmp(argv[2], "descriptor"), number(argv[3]), number(argv[4]),
			(useconds_t)number(argv[5]), argv + 6, argc - 6);
		return 0;
	}
	fputs("Usage: requester answer SOCKET\n"
	      "       requester ask plain|descriptor TIMES BLOCK PAUSE-US SOCKET...\n"
	      "       requester flood KIND SOCKET\n",
	      stderr);
	return 2;
}
