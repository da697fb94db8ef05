// SPDX-License-Identifier: MIT
/*
 * metrics_http.c - answers GET /metrics: as much of HTTP/1.1 as a scrape needs, a request of a few
 * kilobytes, one answer, the end of the connection. May not wait for a slow client longer than a
 * second, and may not read a file that a request names.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <rtxg_clock.h>

#include "metrics.h"
#include "metrics_serve.h"

#define REQUEST_MAX 8192

#define TEXT_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define OPEN_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* Up to the empty line. 0, or the status that says what is wrong. */
static int read_request(int fd, char text[REQUEST_MAX + 1], uint64_t end)
{
	size_t size = 0;

	for (;;) {
		ssize_t n;

		if (!metrics_ready(fd, POLLIN, end))
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

	metrics_send(fd, text, (size_t)n, end);
	if (!head)
		metrics_send(fd, body, size, end);
}

static void refuse(int fd, int status, uint64_t end)
{
	static const char text[] = "rtxg metrics: GET /metrics is accepted\n";

	answer(fd, status, "text/plain", text, sizeof(text) - 1, false, end);
}

void metrics_http(int fd, const char *proc, struct metrics_out *out)
{
	uint64_t end = rtxg_now_ns() + METRICS_CLIENT_NS;
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
	end = rtxg_now_ns() + METRICS_CLIENT_NS;
	if (status) {
		refuse(fd, status, end);
		return;
	}
	open = strstr(request, "application/openmetrics-text") != NULL;
	out->size = 0;
	out->failed = false;
	metrics_collect(out, proc, open);
	if (out->failed)
		refuse(fd, 500, rtxg_now_ns() + METRICS_CLIENT_NS);
	else
		answer(fd, 200, open ? OPEN_TYPE : TEXT_TYPE, out->text, out->size,
		       strcmp(method, "HEAD") == 0, rtxg_now_ns() + METRICS_CLIENT_NS);
}
