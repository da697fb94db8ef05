// SPDX-License-Identifier: MIT
/*
 * doctor.c - `rtxg doctor`: what works on this machine, found by trying each thing and never by
 * version numbers, with what to do where it does not.
 */
#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <rtxg.h>

#include "commands.h"
#include "control.h"
#include "cpu_kernel.h"
#include "cpu_policy.h"
#include "layer.h"
#include "list.h"
#include "message.h"
#include "reply.h"

static const struct option options[] = { LIST_OPTIONS, { 0 } };

static const struct column columns[] = {
	{ "CHECK", "check", COLUMN_DEFAULT, "what was tried" },
	{ "RESULT", "result", COLUMN_DEFAULT,
	  "ok, no, advice: works and could be better, or absent: not on this machine and not "
	  "needed" },
	{ "DETAIL", "detail", COLUMN_DEFAULT, "what was found" },
	{ "REMEDY", "remedy", COLUMN_DEFAULT, "what to do" },
	{ 0 },
};

enum result { RESULT_OK, RESULT_NO, RESULT_ADVICE, RESULT_ABSENT };

struct report {
	struct list *list; /* NULL: for people */
	unsigned int wrong;
};

static void tell(struct report *report, const char *check, enum result result, const char *detail,
		 const char *remedy)
{
	static const char *const words[] = { "ok", "no", "advice", "absent" };
	static const char *const colours[] = { "\033[32m", "\033[31m", "\033[33m", "\033[2m" };
	bool colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");

	report->wrong += result == RESULT_NO;
	if (report->list) {
		list_row(report->list);
		list_text(report->list, "CHECK", check);
		list_text(report->list, "RESULT", words[result]);
		list_text(report->list, "DETAIL", detail);
		list_text(report->list, "REMEDY", remedy);
		return;
	}
	printf("%s%-7s%s %-18s %s\n", colour ? colours[result] : "", words[result],
	       colour ? "\033[0m" : "", check, detail);
	if (remedy[0])
		printf("%27s> %s\n", "", remedy);
}

static void check_host(struct report *report)
{
	char detail[512];
	json_t *reply, *check;
	const char *text;
	size_t index;
	int error = rtx_host_start();

	if (error) {
		tell(report, "host", RESULT_NO,
		     rtx_strerror()[0] ? rtx_strerror() : strerror(-error),
		     "start it by hand to see why: rtxgd --help; or set RTXG_SOCKET to one that "
		     "runs");
		return;
	}
	reply = control_try(json_pack("{s:s}", "op", "hello"), &error, &text);
	if (!reply) {
		tell(report, "host", RESULT_NO, text, "rtxg host stop -f, and try again");
		return;
	}
	snprintf(detail, sizeof(detail), "%s %s, pid %.0f, %s; if it dies, programs %s",
		 reply_string(reply, "scope"), reply_string(reply, "host"),
		 reply_number(reply, "pid"), reply_string(reply, "socket"),
		 strcmp(reply_string(reply, "fail_policy"), "closed") == 0 ? "wait"
		 : strcmp(reply_string(reply, "fail_policy"), "managed") == 0
			 ? "go on as if nothing had happened"
			 : "go on unmanaged");
	tell(report, "host", RESULT_OK, detail, "");
	json_decref(reply);

	reply = control_try(json_pack("{s:s}", "op", "doctor"), &error, &text);
	if (!reply)
		tell(report, "host's own checks", RESULT_NO, text, "");
	json_array_foreach (json_object_get(reply, "checks"), index, check) {
		const char *name = reply_string(check, "check");

		if (strcmp(name, "module") == 0)
			continue; /* found below, by our own look */
		snprintf(detail, sizeof(detail), "host: %s", name);
		/*
		 * Without real-time scheduling the daemon decides as well, only later on a busy
		 * CPU.
		 */
		tell(report, detail,
		     reply_bool(check, "ok")	      ? RESULT_OK
		     : strcmp(name, "real-time") == 0 ? RESULT_ADVICE
						      : RESULT_NO,
		     reply_string(check, "detail"), reply_string(check, "remedy"));
	}
	json_decref(reply);
}

/* Is a file mapped into this process? */
static bool is_mapped(const char *path)
{
	char *line = NULL;
	size_t room = 0;
	bool found = false;
	FILE *file = fopen("/proc/self/maps", "re");

	while (file && !found && getline(&line, &room, file) > 0)
		found = strstr(line, path) != NULL;
	free(line);
	if (file)
		fclose(file);
	return found;
}

/*
 * In a child of its own: a driver that crashes must not take the doctor along. One line to out:
 * "LAYER DEVICES\n" and names.
 */
static void try_opencl(const char *layer, FILE *out)
{
	cl_platform_id platforms[16];
	cl_uint platform_count = 0, devices = 0;
	void *loader;
	cl_int (*get_platforms)(cl_uint, cl_platform_id *, cl_uint *);
	cl_int (*get_devices)(cl_platform_id, cl_device_type, cl_uint, cl_device_id *, cl_uint *);
	cl_int (*get_info)(cl_device_id, cl_device_info, size_t, void *, size_t *);
	char names[400] = "";

	if (layer)
		setenv("OPENCL_LAYERS", layer, 1);
	setenv("RTXG_FAIL", "open", 1);
	loader = dlopen("libOpenCL.so.1", RTLD_NOW);
	if (!loader) {
		fprintf(out, "no-loader 0 %s\n", dlerror());
		return;
	}
	*(void **)&get_platforms = dlsym(loader, "clGetPlatformIDs");
	*(void **)&get_devices = dlsym(loader, "clGetDeviceIDs");
	*(void **)&get_info = dlsym(loader, "clGetDeviceInfo");
	if (get_platforms && get_devices && get_info)
		get_platforms(16, platforms, &platform_count);
	for (cl_uint i = 0; i < platform_count && i < 16; i++) {
		cl_device_id list[16];
		cl_uint count = 0;

		if (get_devices(platforms[i], CL_DEVICE_TYPE_ALL, 16, list, &count))
			continue;
		for (cl_uint j = 0; j < count && j < 16; j++) {
			char name[128] = "?";
			size_t used = strlen(names);

			get_info(list[j], CL_DEVICE_NAME, sizeof(name), name, NULL);
			snprintf(names + used, sizeof(names) - used, "%s%s", used ? ", " : "",
				 name);
			devices++;
		}
	}
	fprintf(out, "%s %u %s\n", layer && is_mapped(layer) ? "layer" : "no-layer", devices,
		names);
}

static void check_opencl(struct report *report)
{
	char layer[PATH_MAX], line[512] = "", state[16] = "", *names = line, detail[PATH_MAX + 64];
	bool have_layer = layer_find(LAYER_OPENCL, layer, sizeof(layer)) == 0;
	unsigned int devices = 0;
	int ends[2], status = 0, offset = 0;
	pid_t child;
	FILE *in;

	fflush(stdout);
	if (pipe(ends) || (child = fork()) < 0) {
		tell(report, "opencl", RESULT_NO, strerror(errno), "");
		return;
	}
	if (child == 0) {
		FILE *out = fdopen(ends[1], "w");

		close(ends[0]);
		try_opencl(have_layer ? layer : NULL, out);
		fflush(out);
		_exit(0); /* a driver's exit handlers are not this check's matter */
	}
	close(ends[1]);
	in = fdopen(ends[0], "r");
	if (!in || !fgets(line, sizeof(line), in))
		line[0] = '\0';
	if (in)
		fclose(in);
	waitpid(child, &status, 0);
	line[strcspn(line, "\n")] = '\0';
	if (sscanf(line, "%15s %u %n", state, &devices, &offset) >= 2)
		names = line + offset;

	if (WIFSIGNALED(status)) {
		snprintf(detail, sizeof(detail), "looking for devices ended by signal %d (%s)",
			 WTERMSIG(status), strsignal(WTERMSIG(status)));
		tell(report, "opencl", RESULT_NO, detail,
		     "try 'clinfo'; if that fails too, it is the OpenCL driver");
		return;
	}
	if (strcmp(state, "no-loader") == 0) {
		tell(report, "opencl", RESULT_ABSENT, names, "apt-get install ocl-icd-libopencl1");
		return;
	}
	if (devices)
		tell(report, "opencl", RESULT_OK, names, "");
	else
		tell(report, "opencl", RESULT_ABSENT, "the loader is there and finds no device",
		     "install your GPU's OpenCL driver; or apt-get install pocl-opencl-icd to "
		     "compute on the CPU");
	if (!have_layer)
		snprintf(detail, sizeof(detail), "%s is missing: OpenCL programs run UNMANAGED",
			 layer);
	else if (strcmp(state, "layer") == 0)
		snprintf(detail, sizeof(detail), "%s is loaded", layer);
	else
		snprintf(detail, sizeof(detail),
			 "%s was not loaded by libOpenCL.so.1: OpenCL programs run UNMANAGED",
			 layer);
	tell(report, "opencl layer",
	     have_layer && strcmp(state, "layer") == 0 ? RESULT_OK : RESULT_NO, detail,
	     !have_layer ? "build or reinstall rtxg, or set RTXG_OPENCL_LAYER"
	     : strcmp(state, "layer") == 0
		     ? ""
		     : "use a loader that knows OPENCL_LAYERS: ocl-icd 2.3 or the Khronos loader");
}

static void check_cpu(struct report *report)
{
	static const int policies[] = { SCHED_FIFO, SCHED_RR, 6 /* SCHED_DEADLINE */ };
	char why[512], name[32];

	for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
		int ret = cpu_kernel_probe(policies[i], why, sizeof(why));

		snprintf(name, sizeof(name), "cpu %s", cpu_policy_name(policies[i]));
		if (ret == 0)
			tell(report, name, RESULT_OK, "permitted", "");
		else
			/* GPUs are shared without it */
			tell(report, name, RESULT_ADVICE, strerror(-ret), why);
	}
}

static void first_line(const char *path, char *line, size_t size)
{
	FILE *file = fopen(path, "re");

	line[0] = '\0';
	if (file && fgets(line, (int)size, file))
		line[strcspn(line, "\n")] = '\0';
	if (file)
		fclose(file);
}

/* A clock that follows the load makes the first work after an idle time slow. */
static void check_clock(struct report *report)
{
	char governor[64], detail[128];

	first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", governor,
		   sizeof(governor));
	snprintf(detail, sizeof(detail), "governor %s", governor);
	if (!governor[0])
		tell(report, "cpu clock", RESULT_ABSENT,
		     "no cpufreq: the host or the firmware sets it", "");
	else if (!strcmp(governor, "performance"))
		tell(report, "cpu clock", RESULT_OK, detail, "");
	else
		tell(report, "cpu clock", RESULT_ADVICE, detail,
		     "for one measurement: rtxg latency --governor performance; for good: "
		     "cpupower frequency-set -g performance");
}

/* Whose priority has the kernel's own work for interrupts? The module says which it serves. */
static void check_interrupts(struct report *report)
{
	char line[256], detail[300];

	first_line("/sys/module/rtxg/parameters/irq_threads", line, sizeof(line));
	snprintf(detail, sizeof(detail), "the module serves %s", line);
	tell(report, "interrupts", line[0] ? RESULT_OK : RESULT_ABSENT,
	     line[0] ? detail : "served as the kernel does, none at its owner's priority",
	     line[0] ? "" : "rtxg irq -M MAP -g GPU -o owner, with the kernel module");
}

static void check_devices(struct report *report)
{
	char line[256];

	if (access("/dev/nvidiactl", F_OK) == 0) {
		first_line("/proc/driver/nvidia/version", line, sizeof(line));
		if (access("/dev/nvidiactl", R_OK | W_OK) == 0)
			tell(report, "nvidia", RESULT_OK,
			     line[0] ? line : "/dev/nvidiactl can be opened", "");
		else
			tell(report, "nvidia", RESULT_NO, "/dev/nvidiactl: permission denied",
			     "join the group that owns it: ls -l /dev/nvidiactl");
	} else {
		tell(report, "nvidia", RESULT_ABSENT, "no /dev/nvidiactl", "");
	}
	if (access("/dev/rtxg", F_OK) == 0)
		tell(report, "kernel module",
		     access("/dev/rtxg", R_OK | W_OK) == 0 ? RESULT_OK : RESULT_NO, "/dev/rtxg",
		     access("/dev/rtxg", R_OK | W_OK) == 0 ? "" : "join the group rtxg");
	else
		tell(report, "kernel module", RESULT_ABSENT,
		     "rtxg.ko is not loaded; the daemon does without",
		     "to use it: make kmod, insmod build/kmod/kmod/rtxg.ko");
	check_interrupts(report);
}

int cmd_doctor(int argc, char **argv)
{
	struct list_options list_options = { 0 };
	struct report report = { 0 };
	bool as_list = false;
	int letter, status = EXIT_OK;

	while ((letter = getopt_long(argc, argv, LIST_LETTERS, options, NULL)) != -1) {
		if (letter == 'h') {
			fputs("Usage: rtxg doctor [OPTION...]\n\n"
			      "Tries what rtxg needs on this machine and says what works, and what "
			      "to do where it does "
			      "not.\n"
			      "Exit status: 0 if everything is ok, advised or absent; 1 if "
			      "something does not "
			      "work.\n\n" LIST_HELP,
			      stdout);
			list_help(columns);
			return EXIT_OK;
		}
		if (!list_option(&list_options, letter))
			return message_try_help();
		as_list = true;
	}
	if (optind < argc)
		return message_usage("'%s': no argument is accepted", argv[optind]);
	if (as_list) {
		report.list = list_new("checks", columns, &list_options);
		if (!report.list)
			return EXIT_USAGE;
	}
	check_host(&report);
	check_opencl(&report);
	check_cpu(&report);
	check_clock(&report);
	check_devices(&report);
	if (report.list)
		status = list_print(report.list);
	return status || report.wrong ? EXIT_FAILED : EXIT_OK;
}
