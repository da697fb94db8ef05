// SPDX-License-Identifier: MIT
/*
 * metrics_http.c - answers GET /metrics: as much of HTTP/1.1 as a scrape needs, a request of a few
 * kilobytes, one answer, the end of the connection. May not wait for a client, and may not read a
 * file that a request names.
 */
#include <stdio.h>
#include <string.h>

#include "metrics_serve.h"

#define REQUEST_MAX 8192
#define TAKE_NS	    1000000000ull

#define TEXT_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define OPEN_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

static enum metrics_step answer(struct metrics_client *c, int status, const char *type,
				const char *body, size_t size)
{
	const char *words = status == 200   ? "OK"
			    : status == 400 ? "Bad Request"
			    : status == 404 ? "Not Found"
			    : status == 405 ? "Method Not Allowed"
			    : status == 408 ? "Request Timeout"
					    : "Request Header Fields Too Large";

	metrics_out_format(&c->out,
			   "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s"
			   "Connection: close\r\n\r\n",
			   status, words, type, size, status == 405 ? "Allow: GET, HEAD\r\n" : "");
	if (!c->head)
		metrics_out_put(&c->out, body, size);
	return METRICS_LAST;
}

static enum metrics_step refuse(struct metrics_client *c, int status)
{
	static const char text[] = "rtxg metrics: GET /metrics is accepted\n";

	c->head = false;
	return answer(c, status, "text/plain", text, sizeof(text) - 1);
}

static enum metrics_step late(struct metrics_client *c)
{
	return refuse(c, 408);
}

/* Up to the empty line. */
static enum metrics_step read_request(struct metrics_client *c, bool ended)
{
	char method[8], path[256];

	if (strlen(c->in) != c->held)
		return refuse(c, 400);
	if (!strstr(c->in, "\r\n\r\n") && !strstr(c->in, "\n\n")) {
		if (c->held == REQUEST_MAX)
			return refuse(c, 431);
		return ended ? refuse(c, 400) : METRICS_MORE;
	}
	if (sscanf(c->in, "%7s %255s HTTP/1.", method, path) != 2)
		return refuse(c, 400);
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return refuse(c, 405);
	path[strcspn(path, "?")] = 0;
	if (strcmp(path, "/metrics") != 0 && strcmp(path, "/") != 0)
		return refuse(c, 404);
	c->open = strstr(c->in, "application/openmetrics-text") != NULL;
	c->head = strcmp(method, "HEAD") == 0;
	return METRICS_PAGE;
}

static enum metrics_step page(struct metrics_client *c, const char *text, size_t size)
{
	return answer(c, 200, c->open ? OPEN_TYPE : TEXT_TYPE, text, size);
}

const struct metrics_protocol metrics_http = {
	.request_max = REQUEST_MAX,
	.take_ns = TAKE_NS,
	.read = read_request,
	.late = late,
	.page = page,
};
