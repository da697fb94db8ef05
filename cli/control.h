/* SPDX-License-Identifier: MIT */
/*
 * control.h - requests to the host, as JSON.
 */
#ifndef RTXG_CLI_CONTROL_H
#define RTXG_CLI_CONTROL_H

#include <jansson.h>
#include <stdbool.h>

/*
 * Sends a request, which is stolen. Returns the reply's object (to be freed with json_decref), or
 * NULL after complaining; *error, if not NULL, receives the negative errno.
 */
json_t *control_ask(json_t *request, int *error);
/*
 * As control_ask, without a word, for a caller that explains the error better. text receives the
 * host's words (static).
 */
json_t *control_try(json_t *request, int *error, const char **text);

/* Complains that no host answers, in its words, and says what would start one. */
void control_no_host(const char *text);
/* Says what the host warns of in its reply, if it does. */
void control_warn(const json_t *reply);
/*
 * A limit on a vGPU's memory is the driver's to keep: waits until it was asked, and says what
 * became of it where it is not kept. True: it is, or there is none, or it waits for a cgroup to
 * come.
 */
bool control_settle(const char *vgpu);
/* Starts a host if none answers. Negative errno after complaining. */
int control_start_host(void);
/*
 * Sends a request for each name (null-terminated), which becomes the member. A refusal does not
 * stop the others. Returns the exit status.
 */
int control_remove(const char *op, const char *member, char *const *names);

#endif
