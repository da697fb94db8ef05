// SPDX-License-Identifier: MIT
/*
 * devices.c - which names of GPUs are of OpenCL's devices here. OpenCL's devices are known to their
 * drivers alone, and drivers are libraries that take as long as they like. So a process of this
 * program's asks them (devices_list.c): as a harmless user, with an environment of its own, so that
 * what it says is true of the machine and not of a user. It is asked when a name comes that is not
 * known, and not again before AGAIN_NS, however many such names come.
 *
 * May not: wait for that process; load a driver.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "devices.h"
#include "message.h"
#include "program.h"

#define DEVICES_MAX 64
#define AGAIN_NS    (10 * NS_PER_S)
#define PATIENCE_NS (RTXG_ANSWER_SECONDS * NS_PER_S)

static struct {
	char names[DEVICES_MAX][RTXG_NAME_MAX + 1];
	uint32_t count;
	uint32_t listed; /* how often they were */
	bool whole;	 /* the last list was */
	uint64_t asked_ns;
	int pidfd; /* of the process that was asked last; below 0: none is left */
	int pipe;  /* -1: no list is on its way */
	struct daemon *daemon;
	struct watch output, end;
	sd_event_source *patience;
	char text[DEVICES_MAX * (RTXG_NAME_MAX + 2)];
	size_t size;
} devices = { .pipe = -1, .pidfd = -1 };

bool devices_has(const char *name)
{
	for (uint32_t i = 0; i < devices.count; i++)
		if (!strcmp(devices.names[i], name))
			return true;
	return false;
}

/* A list that breaks off says nothing of what has gone: then what was known stays. */
static void take_list(void)
{
	static const char end[] = "\n" DEVICES_END "\n";
	size_t tail = strlen(end);
	char *save = NULL;

	devices.text[devices.size] = 0;
	devices.whole = !strcmp(devices.text, end + 1) ||
			(devices.size >= tail && !strcmp(devices.text + devices.size - tail, end));
	if (!devices.whole)
		return;
	devices.count = 0;
	for (char *at = strtok_r(devices.text, "\n", &save);
	     at && strcmp(at, DEVICES_END) && devices.count < DEVICES_MAX;
	     at = strtok_r(NULL, "\n", &save))
		if (!message_name_wrong(at, strlen(at), false))
			strcpy(devices.names[devices.count++], at);
}

static void finish(struct daemon *d)
{
	take_list();
	watch_off(d, &devices.output);
	sd_event_source_set_enabled(devices.patience, SD_EVENT_OFF);
	close(devices.pipe);
	devices.pipe = -1;
	devices.listed++;
	devices.asked_ns = rtxg_now_ns();
	d->again(d);
}

static void on_output(struct daemon *d, struct watch *watch, uint32_t events)
{
	size_t left = sizeof(devices.text) - 1 - devices.size;
	ssize_t n = read(devices.pipe, devices.text + devices.size, left);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0)
		devices.size += (size_t)n;
	else
		finish(d);
}

/* A driver that does not answer; the process ends itself (devices_list.c). */
static int on_patience(sd_event_source *s, uint64_t usec, void *data)
{
	finish(data);
	return 0;
}

/* True: it has ended, or there is none. */
static bool reap(void)
{
	if (devices.pidfd < 0)
		return true;
	if (!program_ended(devices.pidfd))
		return false;
	watch_off(devices.daemon, &devices.end);
	close(devices.pidfd);
	devices.pidfd = -1;
	return true;
}

static void on_end(struct daemon *d, struct watch *watch, uint32_t events)
{
	reap();
}

/* Starts the process; its output comes from `pipe`. 0 or a negative errno. */
static int start(int output)
{
	const struct program list = {
		.path = "/proc/self/exe",
		.words = { "rtxgd", DEVICES_LIST },
		.environment = { "PATH=/usr/bin:/bin", "HOME=/", "LC_ALL=C" },
		.files = { { -1, STDIN_FILENO }, { output, STDOUT_FILENO }, { -1, STDERR_FILENO } },
		.count = 3,
		.group = true,
	};

	devices.pidfd = program_start(&list, NULL);
	return devices.pidfd < 0 ? devices.pidfd : 0;
}

int devices_start(struct daemon *d)
{
	int ret = sd_event_add_time_relative(d->event, &devices.patience, CLOCK_MONOTONIC, 0, 0,
					     on_patience, d);

	devices.daemon = d;
	devices.output.ready = on_output;
	devices.end.ready = on_end;
	return ret < 0 ? ret : sd_event_source_set_enabled(devices.patience, SD_EVENT_OFF);
}

bool devices_look(struct daemon *d)
{
	uint64_t now = rtxg_now_ns();
	int ends[2], error;

	if (devices.pipe >= 0)
		return true;
	if (!devices.patience)
		return false;
	if (devices.asked_ns && now - devices.asked_ns < AGAIN_NS)
		return false;
	/* One that hangs in its driver is not joined by a second. */
	if (!reap())
		return false;
	devices.asked_ns = now;
	devices.size = 0;
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return false;
	error = start(ends[1]);
	close(ends[1]);
	if (!error && watch_on(d, &devices.output, ends[0], EPOLLIN))
		error = -ENOMEM;
	if (error) {
		fprintf(stderr, "rtxgd: the devices of OpenCL cannot be listed: %s\n",
			strerror(-error));
		devices.whole = false;
		close(ends[0]);
		return false;
	}
	devices.pipe = ends[0];
	watch_on(d, &devices.end, devices.pidfd, EPOLLIN);
	sd_event_source_set_time_relative(devices.patience, PATIENCE_NS / 1000);
	sd_event_source_set_enabled(devices.patience, SD_EVENT_ONESHOT);
	return true;
}

void devices_known(char *text, size_t size)
{
	size_t at;

	if (!devices.whole) {
		snprintf(text, size, "the devices of OpenCL could not be listed");
		return;
	}
	snprintf(text, size, "the devices of OpenCL here are:");
	for (uint32_t i = 0; i < devices.count; i++) {
		at = strlen(text);
		snprintf(text + at, size - at, "%s %s", i ? "," : "", devices.names[i]);
	}
	if (!devices.count)
		snprintf(text, size, "OpenCL has no device here");
}

json_t *devices_report(void)
{
	json_t *names = json_array();

	for (uint32_t i = 0; i < devices.count; i++)
		json_array_append_new(names, json_string(devices.names[i]));
	return json_pack("{s:o, s:I, s:b}", "names", names, "listed", (json_int_t)devices.listed,
			 "whole", devices.whole);
}
