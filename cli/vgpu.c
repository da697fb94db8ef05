// SPDX-License-Identifier: MIT
/*
 * vgpu.c - `rtxg vgpu`: create, list, change and remove virtual GPUs. The host judges and explains;
 * here values are only read.
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

#include <rtxg.h>

#include "command.h"
#include "commands.h"
#include "control.h"
#include "gpu_name.h"
#include "list.h"
#include "list_command.h"
#include "message.h"
#include "reply.h"
#include "value.h"

enum {
	OPT_MIN = 256,
	OPT_MAX,
	OPT_WEIGHT,
	OPT_PERIOD,
	OPT_POLICY,
	OPT_TASK_PRIORITY,
	OPT_LATENCY,
	OPT_QUANTUM,
	OPT_MEMORY,
	OPT_PERSIST,
	OPT_CGROUP,
	OPT_NO_CGROUP,
	OPT_NEW
};

/* The first ones are create's alone. */
#define CREATE_OPTIONS 2
static const struct option set_options[] = {
	{ "gpu", required_argument, NULL, 'g' },
	{ "new", no_argument, NULL, OPT_NEW },
	{ "min", required_argument, NULL, OPT_MIN },
	{ "max", required_argument, NULL, OPT_MAX },
	{ "weight", required_argument, NULL, OPT_WEIGHT },
	{ "priority", required_argument, NULL, 'p' },
	{ "period", required_argument, NULL, OPT_PERIOD },
	{ "policy", required_argument, NULL, OPT_POLICY },
	{ "task-priority", required_argument, NULL, OPT_TASK_PRIORITY },
	{ "latency", required_argument, NULL, OPT_LATENCY },
	{ "quantum", required_argument, NULL, OPT_QUANTUM },
	{ "memory", required_argument, NULL, OPT_MEMORY },
	{ "persist", no_argument, NULL, OPT_PERSIST },
	{ "cgroup", required_argument, NULL, OPT_CGROUP },
	{ "no-cgroup", required_argument, NULL, OPT_NO_CGROUP },
	COMMON_OPTIONS,
	{ 0 },
};

static const char values_help[] =
	"     --min SHARE        reserve that share of each engine, as 40% (default 0)\n"
	"     --max SHARE        never use more: 'max' (default), 60% or 6ms/10ms, which "
	"sets the "
	"period too;\n"
	"                        equal to --min: exactly that share, also when the GPU would be "
	"idle\n"
	"     --weight N         part of what is left over, 1..10000, or 'default' (100;\n"
	"                        on an NVIDIA GPU under the lever, in proportion to --min)\n"
	" -p, --priority N       rank in what is left over, 1..99 (default 1)\n"
	"     --period TIME      over which the share is kept, 100us..10s (default 30ms)\n"
	"     --policy NAME      order of the tasks inside: fifo (default), fp or edf\n"
	"     --task-priority N  priority of a task that asks for none, 1..99 (default 1)\n"
	"     --latency TIME     its work waits no longer than that for the GPU, 100us..10s, or "
	"'default' (no bound);\n"
	"                        on GPUs whose lever can stop what runs\n"
	"     --quantum TIME     length of its turns among batch work, 1ms..1s, or 'default' (as "
	"rtxg finds best)\n"
	"     --memory SIZE      programs in each of its cgroups have no more of a GPU's memory, "
	"1M..1024T, or 'default' (no limit);\n"
	"                        where the GPU's driver can limit it\n"
	"     --cgroup PATH      what runs in that cgroup or below it belongs to the vGPU, as "
	"/robot.slice\n"
	"                        or camera.service; may be given several times\n"
	"     --no-cgroup PATH   it does so no longer\n"
	"     --persist          write it into the configuration too, so that it outlives a "
	"reboot\n";

static const struct column columns[] = {
	{ "VGPU", "vgpu", COLUMN_DEFAULT, "name" },
	{ "GPU", "gpu", COLUMN_DEFAULT, "the GPU it is on; all if it has its share on each" },
	{ "MIN", "min", COLUMN_DEFAULT | COLUMN_RIGHT, "share reserved (JSON: 0..1)" },
	{ "MAX", "max", COLUMN_DEFAULT | COLUMN_RIGHT, "cap (JSON: 0..1)" },
	{ "WEIGHT", "weight", COLUMN_DEFAULT | COLUMN_RIGHT,
	  "part of what is left over; - if none was given (JSON: null)" },
	{ "PRIO", "priority", COLUMN_DEFAULT | COLUMN_RIGHT, "rank in what is left over" },
	{ "PERIOD", "period_seconds", COLUMN_DEFAULT | COLUMN_RIGHT,
	  "over which the share is kept (JSON: seconds)" },
	{ "LATENCY", "latency_seconds", COLUMN_DEFAULT | COLUMN_RIGHT,
	  "its work waits no longer for the GPU; - if no bound was given (JSON: seconds)" },
	{ "QUANTUM", "quantum_seconds", COLUMN_RIGHT,
	  "length of its turns among batch work; - as rtxg finds best (JSON: seconds)" },
	{ "MEMORY", "memory_limit_bytes", COLUMN_RIGHT,
	  "limit on GPU memory; - if none was given (JSON: bytes)" },
	{ "MEMKEPT", "memory_limit_state", 0,
	  "held, trying, waiting (for a cgroup to come) or refused; - without a limit" },
	{ "MEMUSED", "memory_used_bytes", COLUMN_RIGHT,
	  "GPU memory in use; - where the host cannot see it (JSON: bytes)" },
	{ "POLICY", "policy", COLUMN_DEFAULT, "order of its tasks" },
	{ "CONSERVING", "work_conserving", COLUMN_DEFAULT | COLUMN_BOOL,
	  "may use, beyond MIN, what others leave" },
	{ "TASKS", "tasks", COLUMN_DEFAULT | COLUMN_RIGHT, "tasks in it" },
	{ "TASKPRIO", "task_priority", COLUMN_RIGHT, "priority of a task that asks for none" },
	{ "ORIGIN", "origin", 0,
	  "builtin, config, runtime or transient (goes with the process that made it)" },
	{ "SOURCE", "source", 0,
	  "where it stands: file and line that configure it, or the file of what was made at run "
	  "time" },
	{ "PERSISTENT", "persistent", COLUMN_BOOL, "whether --persist has written it" },
	{ "USERS", "users", 0, "users that may use it; empty: all users" },
	{ "CGROUPS", "cgroups", 0, "cgroups whose programs belong to it" },
	{ 0 },
};

/* "default": as if it had never been given. */
static bool take_default(json_t *request, const char *member)
{
	if (strcmp(optarg, "default") != 0)
		return false;
	json_object_set_new(request, member, json_null());
	return true;
}

static int take_or_default(json_t *request, const char *member, const char *option,
			   int (*value)(const char *option, const char *text, uint64_t *number))
{
	uint64_t number;

	if (take_default(request, member))
		return 0;
	if (value(option, optarg, &number))
		return -EINVAL;
	json_object_set_new(request, member, json_integer((json_int_t)number));
	return 0;
}

static int take_value(json_t *request, int letter)
{
	uint64_t ns = 0;
	uint32_t ppm;
	long number;

	switch (letter) {
	case 'g':
		json_object_set_new(request, "gpu", json_string(optarg));
		return 0;
	case OPT_MIN:
		if (value_share("--min", optarg, &ppm))
			return -EINVAL;
		json_object_set_new(request, "min_ppm", json_integer(ppm));
		return 0;
	case OPT_MAX:
		if (take_default(request, "max_ppm"))
			return 0;
		if (value_quota("--max", optarg, &ppm, &ns))
			return -EINVAL;
		json_object_set_new(request, "max_ppm", json_integer(ppm));
		if (ns)
			json_object_set_new(request, "period_ns", json_integer((json_int_t)ns));
		return 0;
	case OPT_WEIGHT:
		if (take_default(request, "weight"))
			return 0;
		if (value_number("--weight", optarg, 1, 10000, &number))
			return -EINVAL;
		json_object_set_new(request, "weight", json_integer(number));
		return 0;
	case 'p':
		if (value_number("--priority", optarg, 1, 99, &number))
			return -EINVAL;
		json_object_set_new(request, "priority", json_integer(number));
		return 0;
	case OPT_PERIOD:
		if (value_duration("--period", optarg, &ns))
			return -EINVAL;
		if (ns < 100000 || ns > 10000000000ull) {
			message_error("--period: '%s' is not accepted; accepted: 100us to 10s",
				      optarg);
			return -EINVAL;
		}
		json_object_set_new(request, "period_ns", json_integer((json_int_t)ns));
		return 0;
	case OPT_POLICY:
		json_object_set_new(request, "policy", json_string(optarg));
		return 0;
	case OPT_LATENCY:
		return take_or_default(request, "latency_ns", "--latency", value_latency);
	case OPT_QUANTUM:
		return take_or_default(request, "quantum_ns", "--quantum", value_quantum);
	case OPT_MEMORY:
		return take_or_default(request, "memory_bytes", "--memory", value_bytes);
	case OPT_PERSIST:
		json_object_set_new(request, "persist", json_true());
		return 0;
	case OPT_TASK_PRIORITY:
		if (value_number("--task-priority", optarg, 1, 99, &number))
			return -EINVAL;
		json_object_set_new(request, "task_priority", json_integer(number));
		return 0;
	}
	return -EINVAL;
}

/* Cgroups as they were given, in their order: {"op", "cgroup"}. False: another option. */
static bool take_cgroup(json_t *cgroups, int letter)
{
	if (letter != OPT_CGROUP && letter != OPT_NO_CGROUP)
		return false;
	json_array_append_new(cgroups,
			      json_pack("{s:s, s:s}", "op",
					letter == OPT_CGROUP ? "cgroup-bind" : "cgroup-unbind",
					"cgroup", optarg));
	return true;
}

/* Steals the list. 0, or a negative errno after complaining. */
static int send_cgroups(json_t *cgroups, const char *name)
{
	json_t *request, *reply;
	int error = 0;
	size_t i;

	json_array_foreach (cgroups, i, request) {
		json_object_set_new(request, "vgpu", json_string(name));
		reply = control_ask(json_incref(request), &error);
		control_warn(reply);
		json_decref(reply);
		if (error)
			break;
	}
	json_decref(cgroups);
	return error;
}

/*
 * The vGPU is made first and gets its cgroups then; so it is written into the configuration last.
 * Steals both. Returns the exit status.
 */
static int create_with(json_t *request, json_t *cgroups, const char *name)
{
	bool persist = json_object_get(request, "persist") != NULL;
	json_t *reply;
	int error;

	json_object_del(request, "persist");
	reply = control_ask(request, &error);
	json_decref(reply);
	if (error == -EEXIST)
		message_error("change it with 'rtxg vgpu set %s'", name);
	if (!reply) {
		json_decref(cgroups);
		return EXIT_FAILED;
	}
	error = send_cgroups(cgroups, name);
	if (!error && persist) {
		reply = control_ask(json_pack("{s:s, s:s, s:b}", "op", "vgpu-set", "vgpu", name,
					      "persist", true),
				    &error);
		control_warn(reply);
		json_decref(reply);
	}
	if (error)
		json_decref(control_ask(json_pack("{s:s, s:s}", "op", "vgpu-remove", "vgpu", name),
					NULL));
	if (!error)
		control_settle(name);
	return error ? EXIT_FAILED : EXIT_OK;
}

/* create and set differ in the request's name, in --gpu, and in whether a host is started. */
static int create_or_set(int argc, char **argv, bool create)
{
	json_t *request = json_pack("{s:s}", "op", create ? "vgpu-create" : "vgpu-set"), *reply,
	       *cgroups = json_array();
	int letter, error, values = 0, others = 0;
	bool new_accepted = false;
	const char *gpu;

	while ((letter = getopt_long(argc, argv, create ? "g:p:h" : "p:h",
				     create ? set_options : set_options + CREATE_OPTIONS, NULL)) !=
	       -1) {
		if (letter == 'h') {
			printf("Usage: rtxg vgpu %s [OPTION...] NAME\n\n%s\n",
			       create ? "create" : "set",
			       create ? "Makes a virtual GPU: a share of each engine of a GPU, "
					"under a name."
				      : "Changes a virtual GPU, at once, also while programs run "
					"in it. A value "
					"that is not given stays.");
			if (create)
				fputs(" -g, --gpu NAME         on this GPU (default: its share on "
				      "each GPU)\n"
				      "     --new              the GPU may be one that no program "
				      "has "
				      "opened yet\n",
				      stdout);
			printf("%s -h, --help             this text\n", values_help);
			json_decref(request);
			json_decref(cgroups);
			return EXIT_OK;
		}
		values++;
		if (take_cgroup(cgroups, letter))
			continue;
		others++;
		if (letter == OPT_NEW) {
			new_accepted = true;
			continue;
		}
		if (letter == '?' || take_value(request, letter)) {
			json_decref(request);
			json_decref(cgroups);
			return letter == '?' ? message_try_help() : EXIT_USAGE;
		}
	}
	if (optind + 1 != argc || (!create && values == 0)) {
		json_decref(request);
		json_decref(cgroups);
		if (optind == argc)
			return message_usage("missing name; say which vGPU (see 'rtxg vgpu ls')");
		if (optind + 1 < argc)
			return message_usage("'%s': one name is accepted, this is the second",
					     argv[optind + 1]);
		return message_usage("nothing to change: say --min, --max, --weight, --priority, "
				     "--period, --policy, --memory, --cgroup or --persist");
	}
	json_object_set_new(request, "vgpu", json_string(argv[optind]));
	gpu = json_string_value(json_object_get(request, "gpu"));
	if (create && (control_start_host() ||
		       (gpu && !new_accepted && !gpu_name_known("--gpu", gpu, true)))) {
		json_decref(request);
		json_decref(cgroups);
		return EXIT_FAILED;
	}
	if (create && json_array_size(cgroups))
		return create_with(request, cgroups, argv[optind]);
	error = send_cgroups(cgroups, argv[optind]);
	if (error || (!create && !others)) {
		json_decref(request);
		if (!error)
			control_settle(argv[optind]);
		return error ? EXIT_FAILED : EXIT_OK;
	}
	reply = control_ask(request, &error);
	if (error == -EEXIST)
		message_error("change it with 'rtxg vgpu set %s'", argv[optind]);
	control_warn(reply);
	if (json_object_get(json_object_get(reply, "vgpu"), "memory_limit"))
		control_settle(argv[optind]);
	json_decref(reply);
	return reply ? EXIT_OK : EXIT_FAILED;
}

static int create(int argc, char **argv)
{
	return create_or_set(argc, argv, true);
}

static int set(int argc, char **argv)
{
	return create_or_set(argc, argv, false);
}

static void fill_memory(struct list *list, const json_t *vgpu)
{
	const char *state = reply_string(json_object_get(vgpu, "memory_limit"), "state");

	if (reply_u64(vgpu, "memory_bytes"))
		list_bytes(list, "MEMORY", reply_u64(vgpu, "memory_bytes"));
	else
		list_none(list, "MEMORY");
	if (*state)
		list_text(list, "MEMKEPT", state);
	else
		list_none(list, "MEMKEPT");
	if (json_is_integer(json_object_get(vgpu, "memory_used")))
		list_bytes(list, "MEMUSED", reply_u64(vgpu, "memory_used"));
	else
		list_none(list, "MEMUSED");
}

static void fill(struct list *list, const json_t *vgpu, bool json)
{
	list_text(list, "VGPU", reply_string(vgpu, "vgpu"));
	list_text(list, "GPU", reply_string(vgpu, "gpu")[0] ? reply_string(vgpu, "gpu") : "all");
	list_share(list, "MIN", reply_number(vgpu, "min_ppm") / 1e6);
	if (reply_u64(vgpu, "max_ppm") >= 1000000 && !json)
		list_text(list, "MAX", "max");
	else
		list_share(list, "MAX", reply_number(vgpu, "max_ppm") / 1e6);
	if (json_object_get(vgpu, "weight"))
		list_format(list, "WEIGHT", "%.0f", reply_number(vgpu, "weight"));
	else if (!json)
		list_text(list, "WEIGHT", "-");
	list_format(list, "PRIO", "%.0f", reply_number(vgpu, "priority"));
	list_duration(list, "PERIOD", reply_u64(vgpu, "period_ns"));
	if (reply_u64(vgpu, "latency_ns"))
		list_duration(list, "LATENCY", reply_u64(vgpu, "latency_ns"));
	else
		list_none(list, "LATENCY");
	if (reply_u64(vgpu, "quantum_ns"))
		list_duration(list, "QUANTUM", reply_u64(vgpu, "quantum_ns"));
	else
		list_none(list, "QUANTUM");
	fill_memory(list, vgpu);
	list_text(list, "POLICY", reply_string(vgpu, "policy"));
	list_bool(list, "CONSERVING", reply_bool(vgpu, "work_conserving"));
	list_format(list, "TASKS", "%.0f", reply_number(vgpu, "tasks"));
	list_format(list, "TASKPRIO", "%.0f", reply_number(vgpu, "task_priority"));
	list_text(list, "ORIGIN", reply_string(vgpu, "origin"));
	list_text(list, "SOURCE", reply_string(vgpu, "source"));
	list_bool(list, "PERSISTENT", reply_bool(vgpu, "persistent"));
	list_words(list, "USERS", reply_words(vgpu, "users"));
	list_words(list, "CGROUPS", reply_words(vgpu, "cgroups"));
}

static const struct list_command listing = {
	.help = "Usage: rtxg vgpu ls [OPTION...] [NAME]\n\nLists virtual GPUs.",
	.op = "vgpu-list",
	.argument = "vgpu",
	.objects = "vgpus",
	.name = "vgpus",
	.columns = columns,
	.fill = fill,
};

static int ls(int argc, char **argv)
{
	return list_command(argc, argv, &listing);
}

static int rm(int argc, char **argv)
{
	int ret = command_words(
		argc, argv, "Usage: rtxg vgpu rm NAME...\n\nRemoves virtual GPUs without tasks.", 1,
		INT_MAX, "missing name; say which vGPU (see 'rtxg vgpu ls')");

	return ret < 0 ? control_remove("vgpu-remove", "vgpu", argv + optind) : ret;
}

static const struct command commands[] = {
	{ "create", create, "make one: rtxg vgpu create camera --min 40%" },
	{ "ls", ls, "list them" },
	{ "set", set, "change one, at once: rtxg vgpu set camera --min 50%" },
	{ "rm", rm, "remove one that no task is in" },
	{ NULL, NULL, NULL },
};

int cmd_vgpu(int argc, char **argv)
{
	return command_dispatch("vgpu", "Virtual GPUs: names for shares of a GPU.", commands, argc,
				argv);
}
