// SPDX-License-Identifier: MIT
/*
 * strict.c - `rtxg run --strict`: stays beside the program, and says at its end which promises to
 * its vGPU were broken meanwhile. The host measures them; here its counts before and after are
 * compared. May not: judge a promise.
 */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"
#include "control.h"
#include "message.h"
#include "reply.h"
#include "strict.h"
#include "value.h"

static volatile sig_atomic_t child;

static void pass_on(int number)
{
	if (child > 0)
		kill((pid_t)child, number);
}

/* What the host counts of the vGPU, by GPU: {"0": {"share": NS, ...}}; to be freed. */
static json_t *count(const char *name)
{
	json_t *counts = json_object(), *reply, *gpu, *vgpu;
	const char *text;
	size_t index, at;
	int error;

	reply = control_try(json_pack("{s:s}", "op", "stats"), &error, &text);
	if (!reply) {
		message_error("what was promised cannot be asked for: %s", text);
		json_decref(counts);
		return NULL;
	}
	json_array_foreach (json_object_get(reply, "gpus"), index, gpu)
		json_array_foreach (json_object_get(gpu, "vgpus"), at, vgpu)
			if (strcmp(reply_string(vgpu, "vgpu"), name) == 0)
				json_object_set(counts, reply_string(gpu, "gpu"),
						json_object_get(vgpu, "broken_ns"));
	json_decref(reply);
	return counts;
}

/* Names what grew. A host that was started again meanwhile counts from zero. */
static bool report(const char *vgpu, json_t *before, json_t *after)
{
	const char *gpu, *promise;
	json_t *counts, *ns;
	bool broken = false;
	char text[32];

	json_object_foreach (after, gpu, counts)
		json_object_foreach (counts, promise, ns) {
			uint64_t then = reply_u64(json_object_get(before, gpu), promise),
				 now = (uint64_t)json_integer_value(ns);

			now -= now >= then ? then : 0;
			if (!now)
				continue;
			broken = true;
			value_format_duration(now, text, sizeof(text));
			if (strcmp(promise, "ungoverned") == 0)
				message_error(
					"vGPU %s on GPU %s: for %s a program of it could not be "
					"governed (rtxg ps -u, rtxg doctor)",
					vgpu, gpu, text);
			else
				message_error("vGPU %s on GPU %s: its %s was not kept for %s (rtxg "
					      "doctor)",
					      vgpu, gpu, promise, text);
		}
	return broken;
}

static int wait_for_child(void)
{
	int status;

	while (waitpid((pid_t)child, &status, 0) < 0)
		if (errno != EINTR)
			return W_EXITCODE(EXIT_RUN_FAILED, 0);
	return status;
}

/* As the program ended. */
static void end_as(int status)
{
	const struct rlimit none = { 0 };

	if (WIFSIGNALED(status)) {
		setrlimit(RLIMIT_CORE, &none);
		signal(WTERMSIG(status), SIG_DFL);
		raise(WTERMSIG(status));
		exit(128 + WTERMSIG(status));
	}
	exit(WEXITSTATUS(status));
}

int strict_fork(const char *vgpu)
{
	static const int passed[] = { SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 };
	struct sigaction action = { .sa_handler = pass_on, .sa_flags = SA_RESTART };
	json_t *before = count(vgpu), *after;
	sigset_t all, old;
	bool broken;
	int status;

	if (!before)
		return -EPROTO;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &old);
	child = fork();
	if (child <= 0) {
		status = child ? -errno : 0;
		sigprocmask(SIG_SETMASK, &old, NULL);
		json_decref(before);
		if (status)
			message_error("no process can be made: %s", strerror(-status));
		return status;
	}
	for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++)
		sigaction(passed[i], &action, NULL);
	/* The terminal sends these to the program too. */
	signal(SIGINT, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	sigprocmask(SIG_SETMASK, &old, NULL);
	status = wait_for_child();
	after = count(vgpu);
	broken = !after || report(vgpu, before, after);
	json_decref(before);
	json_decref(after);
	if (broken && status == 0)
		exit(EXIT_RUN_BROKEN);
	end_as(status);
	return 0;
}
