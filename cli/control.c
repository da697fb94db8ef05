// SPDX-License-Identifier: MIT
/*
 * control.c - requests to the host over librtxg's control connection, as JSON. The protocol is in
 * rtxg-protocol(7).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rtxg.h>

#include "cli.h"

json_t *control_quiet(json_t *request, int *error, const char **text)
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
	if (!get_bool(reply, "ok")) {
		*error = json_integer_value(json_object_get(reply, "errno")) > 0
				 ? -(int)get_u64(reply, "errno")
				 : -EPROTO;
		snprintf(said, sizeof(said), "%s", get_string(reply, "message"));
		json_decref(reply);
		return NULL;
	}
	*error = 0;
	return reply;
}

json_t *control(json_t *request, int *error)
{
	const char *text;
	int ret;
	json_t *reply = control_quiet(request, &ret, &text);

	if (ret == -ECONNREFUSED)
		complain("no host of rtxg is running: %s; 'rtxg run' and 'rtxg vgpu create' start "
			 "one",
			 text);
	else if (!reply)
		complain("%s", text);
	if (error)
		*error = ret;
	return reply;
}

uint64_t get_u64(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_integer(value) && json_integer_value(value) > 0
		       ? (uint64_t)json_integer_value(value)
		       : 0;
}

double get_number(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

const char *get_string(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

bool get_bool(const json_t *object, const char *key)
{
	return json_is_true(json_object_get(object, key));
}
