// SPDX-License-Identifier: MIT
/*
 * metrics_collect.c - asks the host for its counters and writes them, for the command and for the
 * exporter alike. May not know where they go.
 */
#include "control.h"
#include "metrics.h"

int metrics_collect(FILE *out, const char *proc, bool open)
{
	const char *text;
	int error;
	json_t *reply = control_try(json_pack("{s:s}", "op", "metrics"), &error, &text);

	metrics_write(out, reply, proc, open);
	json_decref(reply);
	return reply ? 0 : error;
}
