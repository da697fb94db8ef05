// SPDX-License-Identifier: MIT
/*
 * metrics_collect.c - asks the host for its counters and writes them, for the command and for the
 * exporter alike. May not know where they go.
 */
#include <errno.h>
#include <stdlib.h>

#include <rtxg.h>

#include "metrics.h"

int metrics_collect(struct metrics_out *out, const char *proc, bool open)
{
	json_t *reply = NULL;
	char *answer = NULL;
	int error = rtx_control("{\"op\": \"metrics\"}", &answer);

	if (!error)
		reply = json_loads(answer, 0, NULL);
	free(answer);
	if (!error && !json_is_object(reply)) {
		json_decref(reply);
		reply = NULL;
		error = -EPROTO;
	}
	metrics_write(out, reply, proc, open);
	json_decref(reply);
	return error;
}
