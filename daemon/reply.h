/* SPDX-License-Identifier: MIT */
/* reply.h - what goes out to a client: see reply.c. */
#ifndef RTXGD_REPLY_H
#define RTXGD_REPLY_H

#include <stdio.h>

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
/*
 * A reply with lists that may be long. Each row becomes text at once: to make the text of a
 * thousand rows takes longer than others may wait.
 */
struct reply_rows {
	FILE *out;
	char *text;
	size_t size;
	uint32_t count; /* rows of the list so far */
	bool listing;	/* a list has begun, and can have more rows */
	bool bad;
};
/* 0 or a negative errno. */
int reply_rows_begin(struct reply_rows *rows, const struct request *r);
/* Another member of the reply, which is stolen. It ends the list before it, as a list does. */
void reply_rows_put(struct reply_rows *rows, const char *name, json_t *value);
void reply_rows_list(struct reply_rows *rows, const char *name);
/* The row is stolen. */
void reply_rows_add(struct reply_rows *rows, json_t *row);
/* Once, after the last member. */
void reply_rows_send(struct connection *c, struct reply_rows *rows);
/* Frees what is left, whether the reply was sent or not. */
void reply_rows_drop(struct reply_rows *rows);
/* Sends a refusal. Returns `error`. */
int reply_error(struct connection *c, const char *op, int error, const char *why,
		const struct rtxg_refusal *refusal);
#endif
