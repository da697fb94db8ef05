// SPDX-License-Identifier: MIT
/*
 * hook.c - rtxg-cdi-hook: a container runtime calls it before the container's first program runs.
 * It reads the OCI state of the container on standard input, and has the host bind the container's
 * cgroup to a vGPU: all that runs in the container belongs there, also what an exec starts later.
 * The vGPU is there, or is made for as long as the container lives.
 *
 * May not: change the container; believe that the state is well formed; be unsafe to call twice.
 */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rtxg.h>

#include "../cli/control.h"
#include "../cli/message.h"
#include "../cli/reply.h"
#include "../cli/text.h"
#include "../cli/value.h"

#define STATE_MAX  (1u << 20)
#define ANNOTATION "io.rtxg.vgpu"

enum { OPT_MIN = 256, OPT_MAX, OPT_LATENCY, OPT_FAIL, OPT_SPEC };

static const struct option options[] = {
	{ "vgpu", required_argument, NULL, 'v' },
	{ "min", required_argument, NULL, OPT_MIN },
	{ "max", required_argument, NULL, OPT_MAX },
	{ "latency", required_argument, NULL, OPT_LATENCY },
	{ "gpu", required_argument, NULL, 'g' },
	{ "fail", required_argument, NULL, OPT_FAIL },
	{ "print-spec", no_argument, NULL, OPT_SPEC },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

struct hook {
	const char *vgpu, *gpu;
	uint32_t min_ppm, max_ppm;
	uint64_t latency_ns;
	bool make, open, spec;
};

static void print_help(void)
{
	fputs("Usage: rtxg-cdi-hook [OPTION...] < STATE\n\n"
	      "Puts a container into a vGPU: an OCI hook (createRuntime), which a container "
	      "runtime "
	      "calls with the\n"
	      "container's state on standard input. All that runs in the container's cgroup "
	      "belongs "
	      "to the vGPU.\n\n"
	      " -v, --vgpu NAME        the vGPU (default: the container's annotation " ANNOTATION
	      ")\n"
	      "     --fail open|closed if it cannot be done: start the container all the same "
	      "(open), or not\n"
	      "                        (closed, default)\n"
	      "     --print-spec       print a CDI specification with a device for each vGPU that "
	      "is "
	      "there, and end\n"
	      " -h, --help             this text\n\n"
	      "With one of these the vGPU is made if it is not there, and goes when the container "
	      "ends:\n"
	      "     --min SHARE        reserve that share, as 40%\n"
	      "     --max SHARE        never use more\n"
	      "     --latency TIME     its work waits no longer than that for the GPU, 100us..10s\n"
	      " -g, --gpu NAME         on this GPU only\n",
	      stdout);
}

/* --- what the runtime says -------------------------------------------------------------------- */

struct container {
	char id[256];
	char vgpu[64]; /* by its annotation; "" */
	long pid;      /* 0: it has ended */
};

static json_t *read_state(void)
{
	char *text = malloc(STATE_MAX + 1);
	json_t *state = NULL;
	json_error_t error;
	size_t size;

	if (!text)
		return NULL;
	size = fread(text, 1, STATE_MAX + 1, stdin);
	if (size > STATE_MAX) {
		message_error("the state on standard input is longer than %u bytes, which is the "
			      "most",
			      STATE_MAX);
	} else if (!size) {
		message_error("nothing came on standard input; a container runtime writes the OCI "
			      "state there, as {\"ociVersion\": \"1.0.2\", \"id\": \"x\", "
			      "\"status\": \"creating\", \"pid\": 4242}");
	} else {
		state = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
		if (!state) {
			text[size < 20 ? size : 20] = 0;
			message_error("the state on standard input is not JSON: %s (byte %d, after "
				      "\"%s\")",
				      text_clean(error.text), error.position, text_clean(text));
		}
	}
	free(text);
	return state;
}

/* A member that must be a string of at most so many bytes; NULL after complaining. */
static const char *text_of(const json_t *state, const char *name, size_t most)
{
	const json_t *value = json_object_get(state, name);
	char *shown;

	if (json_is_string(value) && json_string_length(value) &&
	    json_string_length(value) <= most &&
	    strlen(json_string_value(value)) == json_string_length(value))
		return json_string_value(value);
	shown = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
	message_error("the state's \"%s\" is %.80s; a string of 1 to %zu bytes is accepted", name,
		      shown ? shown : "missing", most);
	free(shown);
	return NULL;
}

static int read_container(const json_t *state, struct container *c)
{
	static const char *const statuses[] = { "creating", "created", "running", "stopped" };
	const char *version, *id, *status, *annotation;
	const json_t *pid = json_object_get(state, "pid");
	size_t i;

	if (!json_is_object(state)) {
		message_error("the state on standard input is JSON and no object");
		return -EINVAL;
	}
	version = text_of(state, "ociVersion", 64);
	id = version ? text_of(state, "id", sizeof(c->id) - 1) : NULL;
	status = id ? text_of(state, "status", 32) : NULL;
	if (!status)
		return -EINVAL;
	strcpy(c->id, id);
	for (i = 0; i < 4 && strcmp(statuses[i], status) != 0; i++)
		;
	if (i == 4) {
		message_error(
			"container %.80s: the state's \"status\" is \"%s\"; creating, created, "
			"running and stopped are accepted",
			id, status);
		return -EINVAL;
	}
	c->pid = 0;
	if (i < 3) {
		c->pid = (long)json_integer_value(pid);
		if (!json_is_integer(pid) || json_integer_value(pid) < 1 ||
		    json_integer_value(pid) > 4194304) {
			char *shown = pid ? json_dumps(pid, JSON_ENCODE_ANY) : NULL;

			message_error(
				"container %.80s: the state's \"pid\" is %.80s; the number of "
				"its first process is accepted, 1 to 4194304",
				id, shown ? shown : "missing");
			free(shown);
			return -EINVAL;
		}
	}
	annotation = reply_string(json_object_get(state, "annotations"), ANNOTATION);
	if (strlen(annotation) >= sizeof(c->vgpu)) {
		message_error("container %.80s: its annotation " ANNOTATION " is longer than 63 "
			      "bytes: %.80s",
			      id, annotation);
		return -EINVAL;
	}
	strcpy(c->vgpu, annotation);
	return 0;
}

/* --- what the host is told -------------------------------------------------------------------- */

static int make_vgpu(const struct hook *hook, const char *name, const struct container *c)
{
	json_t *request = json_pack("{s:s, s:s, s:b, s:I}", "op", "vgpu-create", "vgpu", name,
				    "transient", true, "pid", (json_int_t)c->pid);
	const char *text;
	int error;

	if (hook->gpu)
		json_object_set_new(request, "gpu", json_string(hook->gpu));
	if (hook->min_ppm)
		json_object_set_new(request, "min_ppm", json_integer(hook->min_ppm));
	if (hook->max_ppm)
		json_object_set_new(request, "max_ppm", json_integer(hook->max_ppm));
	if (hook->latency_ns)
		json_object_set_new(request, "latency_ns",
				    json_integer((json_int_t)hook->latency_ns));
	json_decref(control_try(request, &error, &text));
	/* It is there: this hook was called twice, or the container joins another one's vGPU. */
	if (error == -EEXIST)
		error = 0;
	if (error)
		message_error("container %.80s: vGPU '%s' cannot be made: %s", c->id, name, text);
	return error;
}

static int bind(const char *name, const struct container *c)
{
	const char *text;
	json_t *reply;
	int error;

	reply = control_try(json_pack("{s:s, s:s, s:I, s:b}", "op", "cgroup-bind", "vgpu", name,
				      "pid", (json_int_t)c->pid, "transient", true),
			    &error, &text);
	/* The container's program starts when this one has ended: with its limit. */
	if (!error && json_object_get(json_object_get(reply, "vgpu"), "memory_limit") &&
	    !control_settle(name)) {
		message_error("container %.80s: vGPU '%s' is to have a limit on memory", c->id,
			      name);
		error = -EOPNOTSUPP;
	}
	json_decref(reply);
	if (error && error != -EOPNOTSUPP)
		message_error("container %.80s, process %ld: it cannot be put into vGPU '%s': %s",
			      c->id, c->pid, name, text);
	return error;
}

static int put_in(const struct hook *hook)
{
	json_t *state = read_state();
	struct container c = { .id = "" };
	const char *name;
	int error = state ? read_container(state, &c) : -EINVAL;

	json_decref(state);
	/* After its end nothing is left to do: the host lets go by itself. */
	if (error || !c.pid)
		return error;
	name = hook->vgpu ? hook->vgpu : c.vgpu;
	if (!*name) {
		message_error("container %.80s: no vGPU is named; say --vgpu NAME in the hook, or "
			      "give the container the annotation " ANNOTATION,
			      c.id);
		return -EINVAL;
	}
	if (hook->make)
		error = make_vgpu(hook, name, &c);
	return error ? error : bind(name, &c);
}

/* --- the specification ------------------------------------------------------------------------ */

/* CDI's names of devices: they begin with a letter or a digit. */
static bool is_device_name(const char *name)
{
	return strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-") ==
		       strlen(name) &&
	       !strchr("._:-", *name);
}

static int print_spec(const char *hook)
{
	json_t *reply = control_ask(json_pack("{s:s}", "op", "vgpu-list"), NULL), *vgpu, *spec,
	       *devices = json_array();
	size_t i;
	int ret;

	if (!reply)
		return EXIT_FAILED;
	json_array_foreach (json_object_get(reply, "vgpus"), i, vgpu) {
		const char *name = reply_string(vgpu, "vgpu");

		if (!is_device_name(name)) {
			message_error(
				"vGPU '%s' is left out: CDI accepts letters, digits and . _ : "
				"- in the names of devices",
				name);
			continue;
		}
		json_array_append_new(devices, json_pack("{s:s, s:{s:[{s:s, s:s, s:[s, s, s]}]}}",
							 "name", name, "containerEdits", "hooks",
							 "hookName", "createRuntime", "path", hook,
							 "args", "rtxg-cdi-hook", "--vgpu", name));
	}
	/* The oldest version that has all of this, names that begin with a digit too: Debian 12's
	 * podman knows no newer one. */
	spec = json_pack("{s:s, s:s, s:o}", "cdiVersion", "0.5.0", "kind", "rtxg.io/vgpu",
			 "devices", devices);
	ret = json_dumpf(spec, stdout, JSON_INDENT(2)) || putchar('\n') == EOF || fflush(stdout);
	json_decref(spec);
	json_decref(reply);
	return ret ? EXIT_FAILED : EXIT_OK;
}

/* 0, or a negative errno after complaining. */
static int take_option(struct hook *hook, int letter)
{
	uint64_t period;

	switch (letter) {
	case 'v':
		hook->vgpu = optarg;
		return 0;
	case 'g':
		hook->gpu = optarg;
		hook->make = true;
		return 0;
	case OPT_MIN:
		hook->make = true;
		return value_share("--min", optarg, &hook->min_ppm);
	case OPT_MAX:
		hook->make = true;
		return value_quota("--max", optarg, &hook->max_ppm, &period);
	case OPT_LATENCY:
		hook->make = true;
		return value_latency("--latency", optarg, &hook->latency_ns);
	case OPT_FAIL:
		hook->open = strcmp(optarg, "open") == 0;
		if (hook->open || strcmp(optarg, "closed") == 0)
			return 0;
		message_error("--fail: '%s' is not accepted; accepted: open, closed", optarg);
		return -EINVAL;
	case OPT_SPEC:
		hook->spec = true;
		return 0;
	}
	return -EINVAL;
}

int main(int argc, char **argv)
{
	struct hook hook = { 0 };
	char *self;
	int letter, status;

	message_name("rtxg-cdi-hook");
	while ((letter = getopt_long(argc, argv, "v:g:h", options, NULL)) != -1) {
		if (letter == 'h') {
			print_help();
			return EXIT_OK;
		}
		if (letter == '?')
			return message_try_help();
		if (take_option(&hook, letter))
			return EXIT_USAGE;
	}
	if (optind < argc)
		return message_usage("'%s': no argument is accepted", argv[optind]);
	if (hook.spec) {
		self = realpath("/proc/self/exe", NULL);
		status = self ? print_spec(self) : EXIT_FAILED;
		free(self);
		return status;
	}
	if (!put_in(&hook))
		return EXIT_OK;
	if (hook.open)
		message_error("going on, UNMANAGED (--fail open)");
	return hook.open ? EXIT_OK : EXIT_FAILED;
}
