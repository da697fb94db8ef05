/* SPDX-License-Identifier: MIT */
/* metrics_ask.h - a thread that asks the host for its counters: see metrics_ask.c. */
#ifndef RTXG_CLI_METRICS_ASK_H
#define RTXG_CLI_METRICS_ASK_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* 0, or a negative errno. The thread has the signals that are blocked now. */
int metrics_ask_start(void);
/* Readable when there is an answer. */
int metrics_ask_fd(void);
/*
 * The host is to be asked, if that does not wait already. The number of the question, which an
 * answer to this or a later one answers.
 */
uint64_t metrics_ask(void);
/*
 * The answer, to be given back; NULL: there is no host. upto: the questions that it answers. False:
 * there is none as yet.
 */
bool metrics_answer(json_t **reply, uint64_t *upto);

#endif
