// SPDX-License-Identifier: MIT
/*
 * flood.c - a great many messages to a daemon: requests that are right, wrong, cut, twisted and
 * random, from several connections, of which some end in the middle. Each reply must be JSON of the
 * protocol. It says at the end how many messages and replies there were, how many requests were
 * granted, and the longest time between a message and its reply.
 *
 * flood SOCKET MESSAGES [SEED]
 */
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "rtxg_clock.h"

#define CONNECTIONS 32

static uint64_t state;

/* xorshift64*, S. Vigna */
static uint32_t draw(uint32_t below)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (uint32_t)((state * 0x2545f4914f6cdd1dull >> 32) % below);
}

static const char *const ops[] = {
	"hello",       "open",	      "close",	     "set",	     "task-list", "vgpu-list",
	"vgpu-create", "vgpu-set",    "vgpu-remove", "gpu-list",     "gpu-set",	  "pool-list",
	"pool-create", "pool-remove", "advice",	     "pool-release", "stats",	  "place",
	"limits",      "history",     "check",	     "doctor",	     "no-such",
};
static const char *const members[] = {
	"vgpu",	       "gpu",	     "pool",	 "priority", "min_ppm",	  "max_ppm", "weight",
	"period_ns",   "policy",     "think_ns", "task",     "pid",	  "since",   "tasks",
	"deadline_ns", "runtime_ns", "page",	 "began",    "transient", "gpus",    "overrun",
	"takeover",    "latency_ns", "uid",	 "thread",   "window_ns", "cgroup",  "force",
};
static const char *const values[] = {
	"\"a\"",       "\"b\"",	      "\"default\"",
	"0",	       "1",	      "99",
	"500000",      "1000000",     "-1",
	"1e300",       "true",	      "false",
	"null",	       "[]",	      "[\"g\"]",
	"{}",	       "\"cbs\"",     "\"fifo\"",
	"\"\\u202e\"", "\"\\u0000\"", "18446744073709551616",
	"30000000",    "\"fp\"",      "\"0\"",
};
#define PICK(list) list[draw(sizeof(list) / sizeof(list[0]))]

/* A message; its length. */
static size_t make(char *text, size_t size)
{
	size_t n = (size_t)snprintf(text, size, "{\"op\": \"%s\"", PICK(ops));
	uint32_t kind = draw(16), fields = draw(5);

	for (uint32_t i = 0; i < fields; i++)
		n += (size_t)snprintf(text + n, size - n, ", \"%s\": %s", PICK(members),
				      PICK(values));
	n += (size_t)snprintf(text + n, size - n, "}");
	switch (kind) {
	case 0: /* cut */
		return draw((uint32_t)n + 1);
	case 1: /* twisted */
		for (uint32_t i = 0; i < 3; i++)
			text[draw((uint32_t)n)] = (char)draw(256);
		return n;
	case 2: /* random */
		n = draw((uint32_t)size);
		for (size_t i = 0; i < n; i++)
			text[i] = (char)draw(256);
		return n;
	default:
		return n;
	}
}

static int connect_to(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval patience = { .tv_sec = 60 };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		fprintf(stderr, "flood: %s: %s\n", path, strerror(errno));
		exit(1);
	}
	return fd;
}

static uint64_t granted, longest;

/* Takes the reply. False: the connection has ended. */
static bool take(int fd, uint64_t sent)
{
	static char text[1 << 18];
	char control[256];
	struct iovec io = { .iov_base = text, .iov_len = sizeof(text) };
	struct msghdr m = { .msg_iov = &io,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
	uint64_t took = rtxg_now_ns() - sent;
	json_t *reply, *ok;

	if (n < 0 && errno == EAGAIN) {
		fprintf(stderr, "flood: no reply in a minute\n");
		exit(1);
	}
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); n > 0 && h; h = CMSG_NXTHDR(&m, h))
		for (size_t i = 0; i < (h->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			int got;

			memcpy(&got, CMSG_DATA(h) + i * sizeof(int), sizeof(int));
			close(got);
		}
	if (n <= 0)
		return false;
	if (took > longest)
		longest = took;
	reply = json_loadb(text, (size_t)n, 0, NULL);
	ok = json_object_get(reply, "ok");
	if (!json_is_boolean(ok)) {
		fprintf(stderr, "flood: a reply is not of the protocol: %.*s\n", (int)n, text);
		exit(1);
	}
	granted += json_is_true(ok);
	json_decref(reply);
	return true;
}

int main(int argc, char **argv)
{
	uint64_t messages, replies = 0, ended = 0, began = rtxg_now_ns();
	int fds[CONNECTIONS];
	char text[600];

	if (argc < 3) {
		fprintf(stderr, "Usage: flood SOCKET MESSAGES [SEED]\n");
		return 2;
	}
	messages = strtoull(argv[2], NULL, 10);
	state = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
	state = state * 0x9e3779b97f4a7c15ull + 1;
	for (int i = 0; i < CONNECTIONS; i++)
		fds[i] = connect_to(argv[1]);
	for (uint64_t i = 0; i < messages; i++) {
		int at = (int)draw(CONNECTIONS);
		size_t n = make(text, sizeof(text));
		uint64_t sent = rtxg_now_ns();
		bool there = send(fds[at], text, n, MSG_NOSIGNAL) == (ssize_t)n;

		/* Now and then the sender does not wait for the answer. */
		if (there && draw(1000))
			there = n ? take(fds[at], sent) : true;
		else
			there = false;
		replies += there;
		if (!there) {
			close(fds[at]);
			fds[at] = connect_to(argv[1]);
			ended++;
		}
	}
	printf("%llu messages, %llu replies, %llu granted, %llu connections ended, longest %.1f "
	       "ms, "
	       "%.0f messages/s\n",
	       (unsigned long long)messages, (unsigned long long)replies,
	       (unsigned long long)granted, (unsigned long long)ended, (double)longest / 1e6,
	       (double)messages / ((double)(rtxg_now_ns() - began) / 1e9));
	return 0;
}
