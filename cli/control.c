// SPDX-License-Identifier: MIT
/*
 * control.c - requests to the host over librtxg's control connection, as JSON. The protocol is in
 * rtxg-protocol(7).
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rtxg.h>

#include "control.h"
#include "message.h"
#include "reply.h"

json_t *control_try(json_t *request, int *error, const char **text)
{
	static char said[1024];
	json_error_t why;
	char *line, *answer = NULL;
	json_t *reply;
	int ret;

	said[0] = '\0';
	if (text)
		*text = said;
	line = request ? json_dumps(request, JSON_COMPACT) : NULL;
	json_decref(request);
	if (!line) {
		*error = -ENOMEM;
		snprintf(said, sizeof(said), "out of memory");
		return NULL;
	}
	ret = rtx_control(line, &answer);
	free(line);
	if (ret < 0 && !answer) {
		*error = ret;
		snprintf(said, sizeof(said), "%s",
			 rtx_strerror()[0] ? rtx_strerror() : strerror(-ret));
		return NULL;
	}
	reply = json_loads(answer, 0, &why);
	free(answer);
	if (!json_is_object(reply)) {
		json_decref(reply);
		*error = -EPROTO;
		snprintf(said, sizeof(said),
			 "the host's answer is not JSON (%s); are rtxg and rtxgd of one version?",
			 why.text);
		return NULL;
	}
	if (!reply_bool(reply, "ok")) {
		*error = json_integer_value(json_object_get(reply, "errno")) > 0
				 ? -(int)reply_u64(reply, "errno")
				 : -EPROTO;
		snprintf(said, sizeof(said), "%s", reply_string(reply, "message"));
		json_decref(reply);
		return NULL;
	}
	*error = 0;
	return reply;
}

void control_no_host(const char *text)
{
	const char *named = getenv("RTXG_SOCKET");

	/*
	 * At a place that was named no command starts one: librtxg takes it for the user's choice.
	 */
	message_error("no host of rtxg is running: %s; %s", text,
		      named && *named ? "rtxgd --socket starts one there, and without RTXG_SOCKET "
					"'rtxg run' and 'rtxg vgpu create' do"
				      : "'rtxg run' and 'rtxg vgpu create' start one");
}

json_t *control_ask(json_t *request, int *error)
{
	const char *text;
	int ret;
	json_t *reply = control_try(request, &ret, &text);

	if (ret == -ECONNREFUSED)
		control_no_host(text);
	else if (!reply)
		message_error("%s", text);
	if (error)
		*error = ret;
	return reply;
}

void control_warn(const json_t *reply)
{
	if (reply_string(reply, "warning")[0])
		message_error("warning: %s", reply_string(reply, "warning"));
}

bool control_settle(const char *vgpu)
{
	for (;;) {
		json_t *reply =
			control_ask(json_pack("{s:s, s:s}", "op", "vgpu-list", "vgpu", vgpu), NULL);
		const json_t *limit = json_object_get(
			json_array_get(json_object_get(reply, "vgpus"), 0), "memory_limit");
		const char *state = reply_string(limit, "state");
		bool trying = strcmp(state, "trying") == 0, refused = strcmp(state, "refused") == 0;

		if (refused)
			message_error("warning: memory of vGPU '%s' is not limited: %s", vgpu,
				      reply_string(limit, "why"));
		json_decref(reply);
		if (!trying)
			return reply && !refused;
		/* The host gives up by itself after a minute. */
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	}
}

int control_start_host(void)
{
	int ret = rtx_host_start();

	if (ret)
		message_error("no host: %s", rtx_strerror()[0] ? rtx_strerror() : strerror(-ret));
	return ret;
}

int control_remove(const char *op, const char *member, char *const *names)
{
	int status = EXIT_OK;

	for (; *names; names++) {
		json_t *reply =
			control_ask(json_pack("{s:s, s:s}", "op", op, member, *names), NULL);

		if (!reply)
			status = EXIT_FAILED;
		json_decref(reply);
	}
	return status;
}
