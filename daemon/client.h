/* SPDX-License-Identifier: MIT */
/* client.h - connections: see client.c. */
#ifndef RTXGD_CLIENT_H
#define RTXGD_CLIENT_H

#include <sys/socket.h>

#include "daemon.h"

/*
 * Accepts connections at the listening socket fd. Each packet goes to `handle`, with the descriptor
 * that came with it or -1.
 */
int client_listen(struct daemon *d, int fd,
		  void (*handle)(struct connection *c, const char *text, size_t size, int fd));
/*
 * Serves one request: that of the user whose turn it is. False: none can be served now. A caller
 * looks after hand-overs between two calls.
 */
bool client_serve(struct daemon *d);
/* When the next request can be served: 0 = now; RTXG_TIME_NEVER: none waits. */
uint64_t client_next(struct daemon *d);
/* A connection to that process over the socket fd. pidfd: -1 = none. NULL: no memory. */
struct connection *client_add(struct daemon *d, int fd, int pidfd, const struct ucred *peer);
/* Ends a connection and its task. */
void client_drop(struct connection *c);

#endif
