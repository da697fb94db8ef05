// SPDX-License-Identifier: MIT
/*
 * device.c - the GPU of rtxg that an OpenCL device is, opened once for the process.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"
#include "device_name.h"

static struct layer_gpu *gpus;
static char ungated[64]; /* by which call commands pass without permits; "": by none */
static bool ungated_said;
static atomic_bool in_part; /* that is so */
/*
 * Held while a GPU is opened, which may start a daemon; never while the monitor's lock is wanted by
 * a command.
 */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

/* A host was there, and said no to what was asked for. */
static bool is_refusal(int error)
{
	return error == -EACCES || error == -EPERM || error == -ENOENT || error == -ENODEV ||
	       error == -EINVAL;
}

/* Without a host programs run, unless it was said that they do not; who is refused does not run. */
static bool fail_closed(int error)
{
	const char *policy = secure_getenv("RTXG_FAIL");

	if (!policy || !*policy)
		return is_refusal(error);
	if (!strcmp(policy, "open"))
		return false;
	if (strcmp(policy, "closed"))
		fprintf(stderr,
			"rtxg: RTXG_FAIL=%s: \"open\" or \"closed\" expected; taken as closed\n",
			policy);
	return true;
}

/* Under the lock. A program that is not managed at all has been told that. */
static void say_ungated(void)
{
	bool managed = false;

	for (struct layer_gpu *gpu = gpus; gpu && ungated[0]; gpu = gpu->next)
		if (gpu->handle)
			managed |= !rtx_gpu_ungated(gpu->handle);
	if (managed && !ungated_said)
		fprintf(stderr,
			"rtxg: %s: managed in part: what it enqueues by %s passes ungated\n",
			program_invocation_short_name, ungated);
	ungated_said |= managed;
}

bool layer_device_in_part(void)
{
	return atomic_load_explicit(&in_part, memory_order_relaxed);
}

void layer_device_ungated(const char *call)
{
	pthread_mutex_lock(&open_lock);
	atomic_store(&in_part, true);
	if (!ungated[0])
		snprintf(ungated, sizeof(ungated), "%s", call);
	say_ungated();
	pthread_mutex_unlock(&open_lock);
}

struct layer_gpu *layer_device_gpu(cl_device_id device)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	char name[256];
	struct layer_gpu *gpu;
	int err;

	if (rtx_lib_device_name(&layer_next, device, name, sizeof(name)))
		snprintf(name, sizeof(name), "opencl:unknown");
	pthread_mutex_lock(&open_lock);
	for (gpu = gpus; gpu; gpu = gpu->next)
		if (!strcmp(gpu->name, name))
			goto out;
	gpu = calloc(1, sizeof(*gpu));
	if (!gpu)
		goto out;
	snprintf(gpu->name, sizeof(gpu->name), "%s", name);
	for (int e = 0; e < LAYER_ENGINES; e++) {
		gpu->lanes[e].gpu = gpu;
		gpu->lanes[e].engine = (enum rtx_engine)e;
	}
	options.device = gpu->name;
	err = rtx_gpu_open(&gpu->handle, &options);
	if (err) {
		bool closed = fail_closed(err);
		const char *why = rtx_strerror();

		gpu->handle = NULL;
		gpu->refused = closed;
		fprintf(stderr, "rtxg: %s: cannot manage %s: %s; %s\n",
			program_invocation_short_name, name, why && *why ? why : strerror(-err),
			closed && is_refusal(err)
				? "its queues are refused (RTXG_FAIL=open would run UNMANAGED)"
			: closed	  ? "its queues are refused (RTXG_FAIL=closed)"
			: is_refusal(err) ? "running UNMANAGED because refused (RTXG_FAIL=open)"
					  : "running UNMANAGED (RTXG_FAIL=closed would refuse)");
	}
	gpu->next = gpus;
	gpus = gpu;
	say_ungated();
out:
	pthread_mutex_unlock(&open_lock);
	return gpu;
}

/* In a forked child: the parent's handles are not ours. */
void layer_device_after_fork(void)
{
	pthread_mutex_init(&open_lock, NULL);
	gpus = NULL;
}
