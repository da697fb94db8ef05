// SPDX-License-Identifier: MIT
/*
 * control.c - administration: one request, one reply. May not touch a page.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "errors.h"
#include "locate.h"
#include "message.h"
#include "rtxg.h"
#include "sys.h"
#include "transport.h"

#define GOOD "{\"ok\":true,"

int rtx_control(const char *request, char **reply)
{
	int fds[2] = { -1, -1 };
	char path[108];
	json_error_t why;
	json_t *json;
	int fd, ret;

	rtx_lib_forget_error();
	if (!request || !reply)
		return rtx_lib_failed(-EINVAL, "a request and a place for the reply are needed");
	*reply = NULL;
	fd = rtx_lib_connect(path);
	if (fd == -ECONNREFUSED && rtx_lib_module_hosts())
		return rtx_lib_no_daemon_speaks();
	if (fd < 0)
		return fd;
	ret = rtx_lib_message_send(fd, request, strlen(request), -1);
	/* One that turns us away says why before it closes: that can still be read. */
	if (!ret || ret == -EPIPE) {
		uint64_t until = rtxg_now_ns() + REPLY_PATIENCE_NS;

		do
			ret = rtx_lib_message_receive(fd, reply, fds, until);
		while (ret == -EINTR);
	}
	rtx_lib_close_fds(fds);
	close(fd);
	if (ret)
		return ret;
	/* A daemon puts this first. The caller reads the rest, which may be long. */
	if (!strncmp(*reply, GOOD, sizeof(GOOD) - 1))
		return 0;
	json = json_loads(*reply, JSON_REJECT_DUPLICATES, &why);
	if (!json) {
		free(*reply);
		*reply = NULL;
		return rtx_lib_failed(-EPROTO, "the rtxg daemon's reply is not JSON: %s", why.text);
	}
	if (!json_is_true(json_object_get(json, "ok"))) {
		json_int_t error = json_integer_value(json_object_get(json, "errno"));
		const char *message = json_string_value(json_object_get(json, "message"));

		ret = rtx_lib_failed(error > 0 && error < 4096 ? -(int)error : -EPROTO, "%s",
				     message ? message : "the rtxg daemon refused");
	}
	json_decref(json);
	return ret;
}

int rtx_gpu_device_advice(const char *pool, char *name, size_t size)
{
	json_t *request, *json;
	const char *gpu;
	char *text, *reply = NULL;
	int ret;

	rtx_lib_forget_error();
	if (!name || !size)
		return rtx_lib_failed(-EINVAL, "there is no room for the device's name");
	if (rtx_lib_module_hosts())
		return rtx_lib_module_advice(pool, name, size);
	request = pool ? json_pack("{s:s, s:s}", "op", "advice", "pool", pool)
		       : json_pack("{s:s}", "op", "advice");
	text = request ? json_dumps(request, JSON_COMPACT) : NULL;
	json_decref(request);
	if (!text)
		return rtx_lib_failed(-EINVAL, "the pool's name is not UTF-8");
	ret = rtx_control(text, &reply);
	free(text);
	if (ret) {
		free(reply);
		return ret;
	}
	json = json_loads(reply, 0, NULL);
	free(reply);
	gpu = json_string_value(json_object_get(json, "gpu"));
	if (!gpu)
		ret = rtx_lib_failed(-ENODEV, "there is no GPU");
	else if (strlen(gpu) >= size)
		ret = rtx_lib_failed(-ENOSPC, "the device's name has %zu bytes, the room is %zu",
				     strlen(gpu) + 1, size);
	else
		strcpy(name, gpu);
	json_decref(json);
	return ret;
}
