/* SPDX-License-Identifier: MIT */
/* reply.h - what goes out to a client: see reply.c. */
#ifndef RTXGD_REPLY_H
#define RTXGD_REPLY_H

#include "daemon.h"

/*
 * Sends and forgets the reply. An error means that the connection is of no more use; the connection
 * is marked so.
 */
int reply_send(struct connection *c, json_t *reply, const int *fds, unsigned int fds_count);
/* Answers a request; takes over content, which may be NULL. */
void reply_ok(struct connection *c, const struct request *r, json_t *content);
/* "there is no KIND NAME; REMEDY" */
void reply_no_such(struct connection *c, const struct request *r, const char *kind,
		   const char *name, const char *remedy);
/* Sends a refusal. Returns `error`. */
int reply_error(struct connection *c, const char *op, int error, const char *why,
		const struct rtxg_refusal *refusal);
#endif
