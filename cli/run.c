// SPDX-License-Identifier: MIT
/*
 * run.c - `rtxg run`: prepares the environment and the CPU side, then becomes the program. Nothing
 * of rtxg stays behind as a process, unless --strict asks for it: signals, exit status and terminal
 * are the program's own.
 */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rtxg.h>

#include "cgroup.h"
#include "command.h"
#include "commands.h"
#include "control.h"
#include "cpu_undo.h"
#include "layer.h"
#include "message.h"
#include "reply.h"
#include "strict.h"
#include "task.h"
#include "value.h"
#include "words.h"

enum {
	OPT_MIN = 256,
	OPT_MAX,
	OPT_WEIGHT,
	OPT_VGPU_PRIORITY,
	OPT_POLICY,
	OPT_LATENCY,
	OPT_QUANTUM,
	OPT_MEMORY,
	OPT_FAIL,
	OPT_NO_LAYER,
	OPT_WAITS,
	OPT_STRICT,
	OPT_CGROUP,
};

static const struct option options[] = {
	{ "vgpu", required_argument, NULL, 'v' },
	{ "gpu", required_argument, NULL, 'g' },
	TASK_OPTIONS,
	{ "min", required_argument, NULL, OPT_MIN },
	{ "max", required_argument, NULL, OPT_MAX },
	{ "weight", required_argument, NULL, OPT_WEIGHT },
	{ "vgpu-priority", required_argument, NULL, OPT_VGPU_PRIORITY },
	{ "policy", required_argument, NULL, OPT_POLICY },
	{ "latency", required_argument, NULL, OPT_LATENCY },
	{ "quantum", required_argument, NULL, OPT_QUANTUM },
	{ "memory", required_argument, NULL, OPT_MEMORY },
	{ "fail", required_argument, NULL, OPT_FAIL },
	{ "no-layer", no_argument, NULL, OPT_NO_LAYER },
	{ "waits", required_argument, NULL, OPT_WAITS },
	{ "strict", no_argument, NULL, OPT_STRICT },
	{ "cgroup", required_argument, NULL, OPT_CGROUP },
	COMMON_OPTIONS,
	{ 0 },
};

static void print_help(void)
{
	fputs("Usage: rtxg run [OPTION...] [--] COMMAND [ARGUMENT...]\n\n"
	      "Starts a program whose GPU work is managed. The program needs no change. Its exit "
	      "status is kept.\n\n"
	      "GPU:\n"
	      " -v, --vgpu NAME        the vGPU it runs in (default: by the host's match rules, "
	      "else 'default')\n"
	      " -p, --priority N       priority among the tasks of that vGPU, 1..99\n"
	      " -T, --runtime TIME     GPU time that a job needs, as 3ms\n"
	      " -D, --deadline TIME    relative deadline of a job (default: the period)\n"
	      " -P, --period TIME      period of the jobs\n"
	      "     --fail open|closed without a host: run unmanaged (open, default) or refuse;\n"
	      "                        refused by the host: run unmanaged (open) or refuse "
	      "(default)\n"
	      "     --no-layer         leave OPENCL_LAYERS alone: for programs that use librtxg "
	      "themselves\n"
	      "     --waits notify|fence\n"
	      "                        a CUDA program's waits for its stream sleep until an "
	      "interrupt (notify),\n"
	      "                        or look at a word of memory (fence), in place of CUDA's "
	      "own\n"
	      "     --strict           stay, and end with status 123 if a promise to the vGPU was "
	      "broken "
	      "while it ran\n"
	      "     --cgroup PATH      start it in that cgroup; with a vGPU all that runs there "
	      "or below\n"
	      "                        belongs to that vGPU, however it is started\n\n"
	      "A vGPU for this run only, gone when the program has ended:\n"
	      "     --min SHARE        reserve that share, as 40%\n"
	      "     --max SHARE        never use more; 'max', 60% or 6ms/10ms\n"
	      "     --weight N         part of what is left over, 1..10000 (default 100;\n"
	      "                        on an NVIDIA GPU under the lever, in proportion to --min)\n"
	      "     --vgpu-priority N  who comes first in what is left over, 1..99\n"
	      "     --latency TIME     its work waits no longer than that for the GPU, "
	      "100us..10s;\n"
	      "                        on GPUs whose lever can stop what runs\n"
	      "     --quantum TIME     length of its turns among batch work, 1ms..1s\n"
	      "     --memory SIZE      most GPU memory of all that runs in the cgroup, as 4G, "
	      "where the\n"
	      "                        driver can limit it; with --cgroup\n"
	      "     --policy NAME      order of its tasks: fifo, fp or edf\n"
	      " -g, --gpu NAME         reserve on this GPU only\n\n" TASK_HELP_CPU
	      " -h, --help             this text\n\n"
	      "Exit status: the program's; with --strict 123 if that is 0 and a promise was "
	      "broken; "
	      "125 if rtxg failed, 126 if the program cannot be "
	      "executed, 127 if it was "
	      "not found.\n",
	      stdout);
}

/* Refused is not ungoverned, unless that was said. */
#define REFUSED "rtxg run: going on, UNMANAGED because refused (--fail open)\n"

struct run {
	const char *vgpu, *gpu, *policy, *fail, *cgroup, *waits;
	long weight, vgpu_priority;
	uint64_t server_period_ns; /* of the vGPU, from a quota */
	uint64_t latency_ns, quantum_ns, memory_bytes;
	uint32_t min_ppm, max_ppm;
	bool transient, has_max, no_layer, strict;
	struct task_settings task;
	char made[64]; /* name of the vGPU made for this run */
};

/* 0, or a negative errno after complaining. */
static int take_option(struct run *run, int letter)
{
	int ret = task_option(&run->task, letter);

	if (ret <= 0)
		return ret;
	switch (letter) {
	case 'v':
		run->vgpu = optarg;
		return 0;
	case 'g':
		run->gpu = optarg;
		return 0;
	case OPT_MIN:
		run->transient = true;
		return value_share("--min", optarg, &run->min_ppm);
	case OPT_MAX:
		run->transient = run->has_max = true;
		return value_quota("--max", optarg, &run->max_ppm, &run->server_period_ns);
	case OPT_WEIGHT:
		run->transient = true;
		return value_number("--weight", optarg, 1, 10000, &run->weight);
	case OPT_VGPU_PRIORITY:
		run->transient = true;
		return value_number("--vgpu-priority", optarg, 1, 99, &run->vgpu_priority);
	case OPT_POLICY:
		run->transient = true;
		run->policy = optarg;
		return 0;
	case OPT_LATENCY:
		run->transient = true;
		return value_latency("--latency", optarg, &run->latency_ns);
	case OPT_QUANTUM:
		run->transient = true;
		return value_quantum("--quantum", optarg, &run->quantum_ns);
	case OPT_MEMORY:
		run->transient = true;
		return value_bytes("--memory", optarg, &run->memory_bytes);
	case OPT_FAIL:
		run->fail = optarg;
		if (strcmp(optarg, "open") == 0 || strcmp(optarg, "closed") == 0)
			return 0;
		message_error("--fail: '%s' is not accepted; accepted: open, closed", optarg);
		return -EINVAL;
	case OPT_NO_LAYER:
		run->no_layer = true;
		return 0;
	case OPT_WAITS:
		run->waits = optarg;
		if (strcmp(optarg, "notify") == 0 || strcmp(optarg, "fence") == 0)
			return 0;
		message_error("--waits: '%s' is not accepted; accepted: notify, fence", optarg);
		return -EINVAL;
	case OPT_STRICT:
		run->strict = true;
		return 0;
	case OPT_CGROUP:
		run->cgroup = optarg;
		return 0;
	}
	return -EINVAL;
}

/*
 * The vGPU must be there before the program starts: later, its error would be lost in the program's
 * output.
 */
static int find_vgpu(const struct run *run)
{
	json_t *reply, *vgpus, *vgpu;
	const char *text, *guess;
	size_t index, count = 0;
	char *accepted;
	int error;

	reply = control_try(json_pack("{s:s}", "op", "vgpu-list"), &error, &text);
	if (!reply) {
		message_error("%s", text);
		return error;
	}
	vgpus = json_object_get(reply, "vgpus");
	const char **names = calloc(json_array_size(vgpus) + 1, sizeof(*names));

	if (!names) {
		json_decref(reply);
		return -ENOMEM;
	}
	error = -ENOENT;
	json_array_foreach (vgpus, index, vgpu) {
		names[count] = reply_string(vgpu, "vgpu");
		if (strcmp(names[count], run->vgpu) == 0)
			error = 0;
		count++;
	}
	if (error) {
		guess = words_nearest(run->vgpu, names);
		accepted = words_join(names);
		message_error(
			"--vgpu: there is no vGPU '%s'%s%s%s; accepted: %s; or make it: rtxg vgpu "
			"create '%s' --min "
			"40%%",
			run->vgpu, guess ? ", did you mean '" : "", guess ? guess : "",
			guess ? "'?" : "", accepted ? accepted : "", run->vgpu);
		free(accepted);
	}
	free(names);
	json_decref(reply);
	return error;
}

static int make_vgpu(struct run *run)
{
	json_t *request, *reply;
	int error;

	if (!run->vgpu) {
		snprintf(run->made, sizeof(run->made), "run-%d", (int)getpid());
		run->vgpu = run->made;
	}
	request = json_pack("{s:s, s:s, s:b}", "op", "vgpu-create", "vgpu", run->vgpu, "transient",
			    true);
	if (!request)
		return -ENOMEM;
	if (run->gpu)
		json_object_set_new(request, "gpu", json_string(run->gpu));
	if (run->min_ppm)
		json_object_set_new(request, "min_ppm", json_integer(run->min_ppm));
	if (run->has_max)
		json_object_set_new(request, "max_ppm", json_integer(run->max_ppm));
	if (run->weight)
		json_object_set_new(request, "weight", json_integer(run->weight));
	if (run->vgpu_priority)
		json_object_set_new(request, "priority", json_integer(run->vgpu_priority));
	if (run->server_period_ns)
		json_object_set_new(request, "period_ns",
				    json_integer((json_int_t)run->server_period_ns));
	if (run->latency_ns)
		json_object_set_new(request, "latency_ns",
				    json_integer((json_int_t)run->latency_ns));
	if (run->quantum_ns)
		json_object_set_new(request, "quantum_ns",
				    json_integer((json_int_t)run->quantum_ns));
	if (run->memory_bytes)
		json_object_set_new(request, "memory_bytes",
				    json_integer((json_int_t)run->memory_bytes));
	if (run->policy)
		json_object_set_new(request, "policy", json_string(run->policy));
	reply = control_ask(request, &error);
	if (error == -EEXIST)
		message_error(
			"change it with 'rtxg vgpu set %s', or run in it as it is, without --min, "
			"--max, --weight and --latency",
			run->vgpu);
	json_decref(reply);
	return error;
}

/*
 * Our layer stands first: it must see what the program asks for, not what another layer made of it.
 */
static int set_layers(void)
{
	const char *present = getenv("OPENCL_LAYERS");
	char path[PATH_MAX], *all;
	int ret;

	if (layer_find(LAYER_OPENCL, path, sizeof(path))) {
		message_error(
			"the OpenCL layer is missing (looked for %s): an OpenCL program would run "
			"UNMANAGED; "
			"reinstall rtxg, or say --no-layer if the program uses librtxg itself",
			path);
		return -ENOENT;
	}
	if (present && strstr(present, path))
		return 0; /* `rtxg run` inside of `rtxg run` */
	if (asprintf(&all, "%s%s%s", path, present && *present ? ":" : "", present ? present : "") <
	    0)
		return -ENOMEM;
	ret = setenv("OPENCL_LAYERS", all, 1) ? -errno : 0;
	free(all);
	return ret;
}

/* CUDA's driver library loads one library into a program, at its first call. */
static int set_waits(const char *waits)
{
	const char *present = getenv("CUDA_INJECTION64_PATH");
	char path[PATH_MAX];

	if (layer_find(LAYER_CUDA, path, sizeof(path))) {
		message_error("--waits: the library for CUDA programs is missing (looked for %s); "
			      "install rtxg-nvidia",
			      path);
		return -ENOENT;
	}
	if (present && *present && strcmp(present, path) != 0) {
		message_error("--waits: CUDA_INJECTION64_PATH is '%s' already, and CUDA loads one "
			      "library only; unset it",
			      present);
		return -EBUSY;
	}
	return setenv("CUDA_INJECTION64_PATH", path, 1) || setenv("RTXG_WAITS", waits, 1) ? -errno
											  : 0;
}

/* Would the host refuse the program's task? Then not even a command that fails is to run. */
static int ask_place(const struct run *run)
{
	json_t *request = json_pack("{s:s}", "op", "place"), *reply;
	const char *text;
	int error;

	if (!request)
		return -ENOMEM;
	if (run->vgpu)
		json_object_set_new(request, "vgpu", json_string(run->vgpu));
	if (run->task.priority)
		json_object_set_new(request, "priority", json_integer(run->task.priority));
	reply = control_try(request, &error, &text);
	if (!reply)
		message_error("%s", text);
	json_decref(reply);
	return error;
}

static int set_number(const char *name, uint64_t value)
{
	char text[24];

	if (!value)
		/* what an outer `rtxg run` set is not this program's */
		return unsetenv(name) ? -errno : 0;
	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return setenv(name, text, 1) ? -errno : 0;
}

static int set_environment(const struct run *run)
{
	int ret = run->vgpu ? (setenv("RTXG_VGPU", run->vgpu, 1) ? -errno : 0) : 0;

	if (!ret)
		ret = set_number("RTXG_PRIORITY", (uint64_t)run->task.priority);
	if (!ret)
		ret = set_number("RTXG_RUNTIME_NS", run->task.runtime_ns);
	if (!ret)
		ret = set_number("RTXG_DEADLINE_NS", run->task.deadline_ns);
	if (!ret)
		ret = set_number("RTXG_PERIOD_NS", run->task.period_ns);
	if (!ret && run->fail)
		ret = setenv("RTXG_FAIL", run->fail, 1) ? -errno : 0;
	if (!ret && !run->no_layer)
		return set_layers();
	if (ret)
		message_error("setting the environment: %s", strerror(-ret));
	return ret;
}

/*
 * CUDA programs carry nothing of ours, so they cannot say where they belong: said here, for this
 * process and its children. Where no lever wants to know it, that is no error; nor where rtxgd has
 * other numbers for processes than this one, which is in a container. A period that the user may
 * not set is one: the program would run otherwise than was asked for.
 */
static int enrol(const struct run *run)
{
	json_t *request = json_pack("{s:s, s:I, s:s}", "op", "task-set", "pid",
				    (json_int_t)getpid(), "vgpu", run->vgpu);
	const char *text;
	int error;

	if (!request)
		return -ENOMEM;
	if (run->task.period_ns)
		json_object_set_new(request, "period_ns",
				    json_integer((json_int_t)run->task.period_ns));
	json_decref(control_try(request, &error, &text));
	if (error != -EUSERS)
		return 0;
	message_error("%s", text);
	return error;
}

int cmd_run(int argc, char **argv)
{
	struct run run = { 0 };
	bool closed, open;
	int letter, ret;

	/*
	 * "+": stop at the first word that is no option: it is the command, what follows is its
	 * own.
	 */
	while ((letter = getopt_long(argc, argv, "+v:g:p:h" TASK_LETTERS, options, NULL)) != -1) {
		if (letter == 'h') {
			print_help();
			return EXIT_OK;
		}
		if (letter == '?') {
			fprintf(stderr, "Try 'rtxg run --help'.\n");
			return EXIT_RUN_FAILED;
		}
		if (take_option(&run, letter))
			return EXIT_RUN_FAILED;
	}
	if (optind == argc) {
		message_usage("which program? As in 'rtxg run -v NAME -- PROGRAM'");
		return EXIT_RUN_FAILED;
	}
	if (run.gpu && !run.transient) {
		message_error("--gpu goes with --min, --max, --weight or --latency; which GPU the "
			      "program uses is "
			      "its own choice");
		return EXIT_RUN_FAILED;
	}
	if (run.memory_bytes && !run.cgroup) {
		message_error("--memory goes with --cgroup: a driver limits the memory of a "
			      "cgroup, and of nothing smaller");
		return EXIT_RUN_FAILED;
	}
	if (run.strict && !run.vgpu && !run.transient) {
		message_error(
			"--strict goes with -v, or with --min, --max or --latency: without a vGPU "
			"nothing is promised to the program");
		return EXIT_RUN_FAILED;
	}
	if (task_check(&run.task) || (run.waits && set_waits(run.waits)) ||
	    (run.cgroup && cgroup_enter(run.cgroup)))
		return EXIT_RUN_FAILED;

	closed = run.fail && strcmp(run.fail, "closed") == 0;
	open = run.fail && strcmp(run.fail, "open") == 0;
	ret = control_start_host();
	if (ret) {
		/*
		 * A vGPU that was asked for by name or share is a promise; without a host nobody
		 * can keep it.
		 */
		if (closed || run.vgpu || run.transient)
			return EXIT_RUN_FAILED;
		fprintf(stderr,
			"rtxg run: going on, UNMANAGED ('--fail closed' would stop here)\n");
	} else if ((run.transient ? make_vgpu(&run)
		    : run.vgpu	  ? find_vgpu(&run)
				  : 0) ||
		   (run.cgroup && run.vgpu && cgroup_bind_own(run.vgpu)) ||
		   (run.memory_bytes && !control_settle(run.vgpu)) || ask_place(&run)) {
		if (!open)
			return EXIT_RUN_FAILED;
		fputs(REFUSED, stderr);
		ret = -EACCES;
	}
	/* What is promised is the host's to keep and to measure. */
	if (run.strict && !run.fail)
		run.fail = "closed";
	if (run.strict && strict_fork(run.vgpu))
		return EXIT_RUN_FAILED;
	if (!ret && run.vgpu && enrol(&run)) {
		if (!open)
			return EXIT_RUN_FAILED;
		fputs(REFUSED, stderr);
	}
	if (set_environment(&run) || cpu_apply(0, &run.task.cpu))
		return EXIT_RUN_FAILED;

	execvp(argv[optind], argv + optind);
	ret = errno;
	message_error("%s: %s", argv[optind], strerror(ret));
	return ret == ENOENT ? EXIT_RUN_NOENT : EXIT_RUN_NOEXEC;
}
