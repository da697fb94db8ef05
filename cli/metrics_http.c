// SPDX-License-Identifier: MIT
/*
 * metrics_http.c - the exporter: answers GET /metrics at a socket that the service manager listens
 * at, one connection after the other, and ends when none has come for a while. As much of HTTP/1.1
 * as a scrape needs: a request of a few kilobytes, one answer, the end of the connection. May not
 * wait for a slow client longer than a second, and may not read a file that a request names.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <rtxg.h>
#include <rtxg_clock.h>

#include "message.h"
#include "metrics.h"

#define REQUEST_MAX 8192
#define CLIENT_NS   1000000000ull
#define IDLE_EXIT_S (10 * 60)

#define TEXT_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define OPEN_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

/*
 * Waits until the client has sent or taken something. False: its time is over. A client that needs
 * no waiting is served all the same: this process may have been the slow one.
 */
static bool ready(int fd, short events, uint64_t end)
{
	struct pollfd p = { .fd = fd, .events = events };
	uint64_t now = rtxg_now_ns();

	return poll(&p, 1, now < end ? (int)((end - now) / 1000000) + 1 : 0) > 0;
}

/* Up to the empty line. 0, or the status that says what is wrong. */
static int read_request(int fd, char text[REQUEST_MAX + 1], uint64_t end)
{
	size_t size = 0;

	for (;;) {
		ssize_t n;

		if (!ready(fd, POLLIN, end))
			return 408;
		n = recv(fd, text + size, REQUEST_MAX - size, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n <= 0)
			return 400;
		size += (size_t)n;
		text[size] = 0;
		if (strlen(text) != size)
			return 400;
		if (strstr(text, "\r\n\r\n") || strstr(text, "\n\n"))
			return 0;
		if (size == REQUEST_MAX)
			return 431;
	}
}

static void send_all(int fd, const char *text, size_t size, uint64_t end)
{
	while (size) {
		ssize_t n;

		if (!ready(fd, POLLOUT, end))
			return;
		n = send(fd, text, size, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return;
		if (n > 0) {
			text += n;
			size -= (size_t)n;
		}
	}
}

static void answer(int fd, int status, const char *type, const char *body, size_t size, bool head,
		   uint64_t end)
{
	const char *words = status == 200   ? "OK"
			    : status == 400 ? "Bad Request"
			    : status == 404 ? "Not Found"
			    : status == 405 ? "Method Not Allowed"
			    : status == 408 ? "Request Timeout"
			    : status == 431 ? "Request Header Fields Too Large"
					    : "Internal Server Error";
	char text[512];
	int n = snprintf(text, sizeof(text),
			 "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s"
			 "Connection: close\r\n\r\n",
			 status, words, type, size, status == 405 ? "Allow: GET, HEAD\r\n" : "");

	send_all(fd, text, (size_t)n, end);
	if (!head)
		send_all(fd, body, size, end);
}

static void refuse(int fd, int status, uint64_t end)
{
	static const char text[] = "rtxg metrics: GET /metrics is accepted\n";

	answer(fd, status, "text/plain", text, sizeof(text) - 1, false, end);
}

static void serve(int fd, const char *proc, struct metrics_out *out)
{
	uint64_t end = rtxg_now_ns() + CLIENT_NS;
	char request[REQUEST_MAX + 1], method[8], path[256];
	int status = read_request(fd, request, end);
	bool open;

	if (!status && sscanf(request, "%7s %255s HTTP/1.", method, path) != 2)
		status = 400;
	if (!status && strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		status = 405;
	if (!status)
		path[strcspn(path, "?")] = 0;
	if (!status && strcmp(path, "/metrics") != 0 && strcmp(path, "/") != 0)
		status = 404;
	end = rtxg_now_ns() + CLIENT_NS;
	if (status) {
		refuse(fd, status, end);
		return;
	}
	open = strstr(request, "application/openmetrics-text") != NULL;
	out->size = 0;
	out->failed = false;
	metrics_collect(out, proc, open);
	if (out->failed)
		refuse(fd, 500, rtxg_now_ns() + CLIENT_NS);
	else
		answer(fd, 200, open ? OPEN_TYPE : TEXT_TYPE, out->text, out->size,
		       strcmp(method, "HEAD") == 0, rtxg_now_ns() + CLIENT_NS);
}

int metrics_serve(const char *proc)
{
	struct pollfd p = { .fd = SD_LISTEN_FDS_START, .events = POLLIN };
	int n = sd_listen_fds(1);
	struct metrics_out out = { 0 };
	sigset_t stop, before, pending;

	if (n != 1 || sd_is_socket(p.fd, AF_UNSPEC, SOCK_STREAM, 1) <= 0) {
		message_error("--http: the service manager passed %d sockets that listen; one is "
			      "accepted: 'systemctl start rtxg-metrics.socket', or "
			      "'systemd-socket-activate -l 127.0.0.1:9835 rtxg metrics --http'",
			      n < 0 ? 0 : n);
		return EXIT_FAILED;
	}
	/* A restart ends it between two answers, never within one; what waits is for the next. */
	sigemptyset(&stop);
	sigaddset(&stop, SIGTERM);
	sigprocmask(SIG_BLOCK, &stop, &before);
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
		while (ready(fd, POLLIN, rtxg_now_ns() + CLIENT_NS / 10)) {
			char rest[512];

			if (recv(fd, rest, sizeof(rest), MSG_DONTWAIT) <= 0)
				break;
		}
		close(fd);
	}
}
