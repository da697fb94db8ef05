/* SPDX-License-Identifier: MIT */
/* metrics_serve.h - connections of clients that ask for metrics: see metrics_serve.c. */
#ifndef RTXG_CLI_METRICS_SERVE_H
#define RTXG_CLI_METRICS_SERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "metrics_out.h"

#define METRICS_CLIENT_NS 1000000000ull /* for a client to send, and to take */

/* Serves one connection; out: for a page, and used again. */
typedef void metrics_server(int fd, const char *proc, struct metrics_out *out);

/* Two of them, of metrics_http.c and metrics_varlink.c. */
void metrics_http(int fd, const char *proc, struct metrics_out *out);
void metrics_varlink(int fd, const char *proc, struct metrics_out *out);

/*
 * Waits until the client has sent or taken something. False: its time is over. A client that needs
 * no waiting is served all the same: this process may have been the slow one.
 */
bool metrics_ready(int fd, short events, uint64_t end);
/* False: the client did not take all of it. */
bool metrics_send(int fd, const char *text, size_t size, uint64_t end);
/*
 * Serves at the socket that the service manager has passed, until none has come for some time. The
 * exit status. option: as the user knows it.
 */
int metrics_serve(const char *option, metrics_server *serve, const char *proc);

#endif
