// SPDX-License-Identifier: MIT
/*
 * metrics_collect.c - asks the host for its counters and writes them, for the command; the exporter
 * asks in a thread. May not know where they go.
 */
#include <errno.h>
#include <stdlib.h>

#include <rtxg.h>

#include "metrics.h"

json_t *metrics_reply(int *error)
{
	json_t *reply = NULL;
	char *answer = NULL;
	int ret = rtx_control("{\"op\": \"metrics\"}", &answer);

	if (!ret)
		reply = json_loads(answer, 0, NULL);
	free(answer);
	if (!ret && !json_is_object(reply)) {
		json_decref(reply);
		reply = NULL;
		ret = -EPROTO;
	}
	if (error)
		*error = ret;
	return reply;
}

int metrics_collect(struct metrics_out *out, const char *proc, bool open)
{
	int error;
	json_t *reply = metrics_reply(&error);

	metrics_write(out, reply, proc, open);
	json_decref(reply);
	return error;
}
