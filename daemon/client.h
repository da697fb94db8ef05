/* SPDX-License-Identifier: MIT */
/* client.h - connections: see client.c. */
#ifndef RTXGD_CLIENT_H
#define RTXGD_CLIENT_H

#include "daemon.h"

/*
 * Accepts connections at the listening socket fd. Each packet goes to `handle`, with the descriptor
 * that came with it or -1.
 */
int client_listen(struct daemon *d, int fd,
		  void (*handle)(struct connection *c, const char *text, size_t size, int fd));
/* Ends a connection and its task. */
void client_drop(struct connection *c);

#endif
