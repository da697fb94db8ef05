/* SPDX-License-Identifier: MIT */
/* metrics_serve.h - connections of clients that ask for metrics: see metrics_serve.c. */
#ifndef RTXG_CLI_METRICS_SERVE_H
#define RTXG_CLI_METRICS_SERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "metrics_out.h"

/* What comes next on a connection. */
enum metrics_step {
	METRICS_MORE,	/* more is needed of the request */
	METRICS_PAGE,	/* a page is needed, and metrics_protocol.page called with it */
	METRICS_ANSWER, /* `out` is to be sent, and then the next request read */
	METRICS_LAST,	/* `out` is to be sent, and then the connection ends */
};

struct metrics_client {
	char *in; /* what came and was not taken: `held` bytes, and a zero behind them */
	size_t held;
	struct metrics_out out; /* the answer */
	bool open;		/* the page is wanted as OpenMetrics */
	bool list, head;	/* what a protocol has to remember of the request */
	/* of metrics_serve.c */
	int fd;
	int state;
	uint64_t since, end, asked;
	size_t sent;
	bool last, again;
};

/* What is said on a connection. None of it waits. */
struct metrics_protocol {
	size_t request_max; /* bytes */
	uint64_t take_ns;   /* for the client to take an answer */
	/* Something came. ended: nothing more will. */
	enum metrics_step (*read)(struct metrics_client *c, bool ended);
	/* Its time for a request is over. */
	enum metrics_step (*late)(struct metrics_client *c);
	/* The page; not terminated. */
	enum metrics_step (*page)(struct metrics_client *c, const char *text, size_t size);
};

/* Of metrics_http.c and metrics_varlink.c. */
extern const struct metrics_protocol metrics_http;
extern const struct metrics_protocol metrics_varlink;

/*
 * Serves at the socket that the service manager has passed, until none has come for some time. The
 * exit status. option: as the user knows it.
 */
int metrics_serve(const char *option, const struct metrics_protocol *protocol, const char *proc);

#endif
