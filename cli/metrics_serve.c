// SPDX-License-Identifier: MIT
/*
 * metrics_serve.c - serves connections at a socket that the service manager listens at, one after
 * the other, and ends when none has come for a while. May not know what is said on them.
 */
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <rtxg_clock.h>

#include "command.h"
#include "message.h"
#include "metrics_serve.h"

#define IDLE_EXIT_S (10 * 60)
#define KEPT	    (16 << 20)

bool metrics_ready(int fd, short events, uint64_t end)
{
	struct pollfd p = { .fd = fd, .events = events };
	uint64_t now = rtxg_now_ns();

	return poll(&p, 1, now < end ? (int)((end - now) / 1000000) + 1 : 0) > 0;
}

bool metrics_send(int fd, const char *text, size_t size, uint64_t end)
{
	while (size) {
		ssize_t n;

		if (!metrics_ready(fd, POLLOUT, end))
			return false;
		n = send(fd, text, size, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return false;
		if (n > 0) {
			text += n;
			size -= (size_t)n;
		}
	}
	return true;
}

int metrics_serve(const char *option, metrics_server *serve, const char *proc)
{
	struct pollfd p = { .fd = SD_LISTEN_FDS_START, .events = POLLIN };
	int n = sd_listen_fds(1);
	struct metrics_out out = { 0 };
	sigset_t stop, before, pending;

	if (n != 1 || sd_is_socket(p.fd, AF_UNSPEC, SOCK_STREAM, 1) <= 0) {
		message_error("%s: the service manager passed %d sockets that listen; one is "
			      "accepted: 'systemctl start rtxg-metrics.socket' (--http) or "
			      "'rtxg-report.socket' (--varlink), or "
			      "'systemd-socket-activate -l 127.0.0.1:9835 rtxg metrics --http'",
			      option, n < 0 ? 0 : n);
		return EXIT_FAILED;
	}
	/* A restart ends it between two answers, never within one; what waits is for the next. */
	sigemptyset(&stop);
	sigaddset(&stop, SIGTERM);
	sigprocmask(SIG_BLOCK, &stop, &before);
	/* The memory of a page stays for the next one: to take it from the kernel costs as much. */
	mallopt(M_MMAP_THRESHOLD, KEPT);
	mallopt(M_TRIM_THRESHOLD, KEPT);
	for (;;) {
		const struct timespec idle = { .tv_sec = IDLE_EXIT_S };
		int ready_count, fd;

		if (!sigpending(&pending) && sigismember(&pending, SIGTERM))
			return EXIT_OK;
		ready_count = ppoll(&p, 1, &idle, &before);
		if (ready_count < 0 && errno == EINTR)
			continue;
		if (ready_count <= 0)
			return ready_count ? EXIT_FAILED : EXIT_OK;
		fd = accept4(p.fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			continue;
		serve(fd, proc, &out);
		/* What was not read would reset the connection before the answer is taken. */
		shutdown(fd, SHUT_WR);
		while (metrics_ready(fd, POLLIN, rtxg_now_ns() + METRICS_CLIENT_NS / 10)) {
			char rest[512];

			if (recv(fd, rest, sizeof(rest), MSG_DONTWAIT) <= 0)
				break;
		}
		close(fd);
	}
}
