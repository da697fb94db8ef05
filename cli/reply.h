/* SPDX-License-Identifier: MIT */
/*
 * reply.h - members of a JSON object, with a value where one is absent.
 */
#ifndef RTXG_CLI_REPLY_H
#define RTXG_CLI_REPLY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

uint64_t reply_u64(const json_t *object, const char *key);	 /* 0 if absent */
double reply_number(const json_t *object, const char *key);	 /* 0 if absent */
const char *reply_string(const json_t *object, const char *key); /* "" if absent */
bool reply_bool(const json_t *object, const char *key);		 /* false if absent */

/* An array's strings with commas between, to be freed; NULL without memory. */
char *reply_words(const json_t *object, const char *key);

#endif
