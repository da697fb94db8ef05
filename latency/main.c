// SPDX-License-Identifier: MIT
/*
 * main.c - `rtxg latency`: starts the measuring threads, waits for the end of the run, shows what
 * was found.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <rtxg_clock.h>

#include "../cli/message.h"
#include "machine.h"
#include "explain.h"
#include "gpu.h"
#include "kernel.h"
#include "probe.h"
#include "recorder.h"
#include "settings.h"
#include "show.h"
#include "tune.h"
#include "undo.h"

#define BREAK_STATUS 2

struct run {
	struct settings settings;
	struct probe *probes;
	int count;
	uint64_t begin_ns;
	time_t began;
	uint64_t stolen_ns; /* of the machine so far at the begin, by the run at the end */
	uint64_t cpu_ns;    /* the same of this program's CPU time */
	bool live;	    /* lines are redrawn on a terminal */
	FILE *json;
	struct kernel *kernel;	   /* NULL: only the threads measure */
	struct recorder *recorder; /* with it */
	struct gpu *gpu;	   /* NULL: wake-ups are measured */
	struct histogram *before;  /* for --each: counts at the last line */
	uint64_t line_ns;	   /* when that was */
};

static json_t *not_done; /* what could not be done, in words */

static void said(const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	json_array_append_new(not_done, json_string(text));
	message_error("%s", text);
}

static bool open_probes(struct run *run)
{
	const struct settings *s = &run->settings;
	int cpu = -1;

	run->count = (int)s->threads;
	run->probes = calloc((size_t)run->count, sizeof(*run->probes));
	run->before = calloc((size_t)run->count, sizeof(*run->before));
	if (!run->probes || !run->before)
		return false;
	for (int i = 0; i < run->count; i++) {
		struct probe *p = &run->probes[i];

		/* the next CPU of the set, round and round */
		do
			cpu = (cpu + 1) % CPU_SETSIZE;
		while (!CPU_ISSET(cpu, &s->cpus));
		p->number = i;
		p->cpu = s->bound ? cpu : -1;
		p->policy = s->policy;
		p->priority = (int)s->priority;
		p->interval_ns = s->interval_ns + (uint64_t)i * s->distance_ns;
		p->loops = s->loops;
		p->break_ns = s->break_ns;
		if (histogram_open(&p->observed, s->bins) ||
		    histogram_open(&p->corrected, s->bins) ||
		    histogram_open(&run->before[i], s->bins))
			return false;
	}
	return true;
}

/* That of all its threads. */
static uint64_t cpu_ns(void)
{
	struct timespec now;

	return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now)
		       ? 0
		       : (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* The kernel's side, where it is allowed. */
static void open_kernel(struct run *run)
{
	const struct settings *s = &run->settings;
	bool by_timers = !s->every_task && !s->gpu;
	struct kernel_wants wants = { .threads = run->count,
				      .bins = s->bins,
				      .every_task = s->every_task,
				      .by_timers = by_timers,
				      .real_time = s->policy == SCHED_FIFO || s->policy == SCHED_RR,
				      .alone = by_timers && s->bound &&
					       run->count <= CPU_COUNT(&s->cpus),
				      .break_ns = s->break_ns,
				      .cpus = s->cpus };
	const char *reason;

	if (s->user_only)
		return;
	run->kernel = kernel_open(&wants, &reason);
	if (run->kernel)
		run->recorder = recorder_open(run->kernel, run->probes, run->count,
					      s->every_task || s->gpu);
	if (!run->recorder)
		said("no measurement in the kernel, and no culprit: %s",
		     run->kernel ? "out of memory" : reason);
}

static struct recorder *ready_recorder;

static void ready(struct probe *probes, int count)
{
	if (ready_recorder)
		recorder_threads(ready_recorder);
}

/* For --each: what was counted since the last line. */
static int print_line(struct run *run)
{
	json_t *threads = json_array(), *root, *worst, *launch;
	struct histogram now;
	uint64_t at = rtxg_now_ns();
	char began[40];
	struct tm parts;
	time_t when = time(NULL);
	int ret;

	if (run->recorder)
		recorder_collect(run->recorder);
	if (run->gpu)
		gpu_collect(run->gpu);
	for (int i = 0; i < run->count; i++) {
		struct probe *p = &run->probes[i];
		uint64_t most = __atomic_exchange_n(&p->recent_ns, 0, __ATOMIC_RELAXED);

		if (histogram_open(&now, p->observed.bins))
			break;
		histogram_since(&now, &p->observed, &run->before[i], most);
		json_array_append_new(threads,
				      json_pack("{s:i, s:o, s:i, s:I, s:o}", "thread", i, "cpu",
						p->cpu < 0 ? json_null() : json_integer(p->cpu),
						"priority", p->refused ? 0 : p->priority,
						"interval_us", (json_int_t)(p->interval_ns / 1000),
						"observed", show_histogram_json(&now)));
		histogram_close(&now);
	}
	worst = run->recorder ? recorder_worst_json(run->recorder)
		: run->gpu    ? json_pack("{s:[], s:[]}", "own", "others")
			      : json_null();
	if (run->gpu) {
		launch = gpu_line_json(run->gpu);
		if (launch)
			json_array_append_new(json_object_get(worst, "own"), launch);
	}
	strftime(began, sizeof(began), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&when, &parts));
	root = json_pack("{s:i, s:s, s:I, s:f, s:o, s:o}", "format", 1, "ended", began, "ended_s",
			 (json_int_t)when, "seconds", (double)(at - run->line_ns) / 1e9, "threads",
			 threads, "worst", worst);
	run->line_ns = at;
	if (run->recorder)
		recorder_forget(run->recorder);
	ret = json_dumpf(root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9)) ||
	      putchar('\n') == EOF || fflush(stdout);
	json_decref(root);
	return ret;
}

static void refusals(const struct run *run)
{
	/*
	 * Root is refused where the kernel gives each cgroup a real-time budget, and ours has none.
	 */
	const char *remedy = geteuid() ? "CAP_SYS_NICE or a larger 'ulimit -r' is needed"
				       : "CAP_SYS_NICE, or a cgroup with a real-time budget such "
					 "as the root one, is needed";

	for (int i = 0; i < run->count; i++)
		if (run->probes[i].refused) {
			said("policy %s with priority %d: %s; measured with the policy other; %s",
			     show_policy(run->probes[i].policy), run->probes[i].priority,
			     strerror(run->probes[i].refused), remedy);
			return;
		}
}

/* Redraws the lines of the threads, as cyclictest does. */
static void draw(const struct run *run, bool first)
{
	double load[3] = { 0 };

	if (!first)
		printf("\033[%dA", run->count + 2);
	if (getloadavg(load, 3) < 0)
		load[0] = 0;
	printf("policy: %s: loadavg: %.2f %.2f %.2f\033[K\n\n", show_policy(run->settings.policy),
	       load[0], load[1], load[2]);
	show_threads(stdout, run->probes, run->count);
	fflush(stdout);
}

/*
 * Until a signal, the end of all threads, a threshold or the end of the duration.
 */
static void wait_for_end(struct run *run, int signals)
{
	const struct settings *s = &run->settings;
	struct pollfd fds[] = {
		{ .fd = signals, .events = POLLIN },
		{ .fd = probe_end_fd(), .events = POLLIN },
		{ .fd = run->recorder ? recorder_fd(run->recorder) : -1, .events = POLLIN },
	};
	struct signalfd_siginfo info;
	bool first = true;

	for (;;) {
		uint64_t now = rtxg_now_ns(), end = run->begin_ns + s->duration_ns;
		int timeout = -1, alive = 0;

		if (s->duration_ns) {
			if (now >= end)
				return;
			timeout = end - now > 1000000000000ull ? 1000000
							       : (int)((end - now) / 1000000 + 1);
		}
		if (run->gpu) {
			gpu_collect(run->gpu);
			if (timeout < 0 || timeout > 100)
				timeout = 100;
		}
		if (s->report_ns) {
			uint64_t next = run->line_ns + s->report_ns;

			if (now >= next && print_line(run)) {
				message_error("standard output: %s", strerror(errno));
				return;
			}
			next = run->line_ns + s->report_ns;
			if (timeout < 0 || next - now < (uint64_t)timeout * 1000000)
				timeout = next > now ? (int)((next - now) / 1000000 + 1) : 0;
		}
		if (run->live) {
			draw(run, first);
			first = false;
			if (timeout < 0 || timeout > 100)
				timeout = 100;
		}
		if (poll(fds, 3, timeout) < 0 && errno != EINTR)
			return;
		if (fds[0].revents && read(signals, &info, sizeof(info)) == sizeof(info))
			return;
		if (fds[2].revents & POLLIN)
			recorder_collect(run->recorder);
		if (!(fds[1].revents & POLLIN))
			continue;
		for (int i = 0; i < run->count; i++) {
			if (run->probes[i].broke)
				return;
			alive += !run->probes[i].ended;
		}
		if (!alive)
			return;
		/* each end is one count: read until there are no more */
		if (read(fds[1].fd, &now, sizeof(now)) < 0)
			continue; /* another reader was first */
	}
}

static json_t *settings_json(const struct settings *s)
{
	return json_pack("{s:s, s:i, s:I, s:b, s:I, s:o, s:o, s:b}", "policy",
			 show_policy(s->policy), "priority", (int)s->priority, "interval_us",
			 (json_int_t)(s->interval_ns / 1000), "bound", s->bound, "threads",
			 (json_int_t)s->threads, "break_us",
			 s->break_ns ? json_integer((json_int_t)(s->break_ns / 1000)) : json_null(),
			 "pm_qos_us", s->pm_qos_us < 0 ? json_null() : json_integer(s->pm_qos_us),
			 "locked", s->lock_memory);
}

static json_t *result(const struct run *run, double seconds, bool broke)
{
	char began[40];
	struct tm parts;

	strftime(began, sizeof(began), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&run->began, &parts));
	return json_pack("{s:i, s:s, s:f, s:b, s:o, s:o, s:O, s:f, s:f, s:o}", "format", 1, "began",
			 began, "seconds", seconds, "broke", broke, "machine", machine_record(),
			 "settings", settings_json(&run->settings), "not_done", not_done,
			 "stolen_us", (double)run->stolen_ns / 1e3, "cpu_us",
			 (double)run->cpu_ns / 1e3, "threads",
			 show_threads_json(run->probes, run->count));
}

/* A disk that is full is found when the file is closed. */
static int write_json(FILE *out, const char *path, json_t *root, bool close)
{
	int failed = json_dumpf(root, out, JSON_COMPACT | JSON_REAL_PRECISION(9)) ||
		     fputc('\n', out) == EOF || fflush(out) || ferror(out);
	int err = errno;

	if (close && fclose(out) && !failed) {
		failed = 1;
		err = errno;
	}
	if (failed)
		message_error("%s: %s", path, strerror(err));
	return failed;
}

static int finish(struct run *run)
{
	const struct settings *s = &run->settings;
	double seconds = (double)(rtxg_now_ns() - run->begin_ns) / 1e9;
	bool broke = false, to_stdout = s->report_ns || (s->json && !strcmp(s->json, "-"));
	uint64_t stolen_ns;
	int failed = 0;

	stolen_ns = machine_stolen_ns();
	run->stolen_ns = stolen_ns > run->stolen_ns ? stolen_ns - run->stolen_ns : 0;
	for (int i = 0; i < run->count; i++)
		broke |= run->probes[i].broke;
	if (run->live)
		draw(run, false);
	else if (!to_stdout)
		show_threads(stdout, run->probes, run->count);
	if (run->gpu && !to_stdout)
		gpu_show(run->gpu, stdout);
	else if (run->recorder && !to_stdout)
		recorder_show(run->recorder, stdout);
	if (run->stolen_ns && !to_stdout)
		printf("# The host of this virtual machine took %.0f ms of its CPUs' time "
		       "meanwhile\n",
		       (double)run->stolen_ns / 1e6);
	if (s->show_histogram && !to_stdout)
		show_histogram(stdout, run->probes, run->count);
	if (s->report_ns)
		failed = print_line(run);
	if (s->json) {
		json_t *root = result(run, seconds, broke);

		if (run->gpu)
			json_object_set_new(root, "gpu", gpu_json(run->gpu));
		if (run->recorder) {
			json_object_set_new(root, "kernel", recorder_kernel_json(run->recorder));
			json_object_set_new(root, "worst", recorder_worst_json(run->recorder));
		}

		failed = write_json(run->json, to_stdout ? "standard output" : s->json, root,
				    !to_stdout);
		json_decref(root);
	}
	if (fflush(stdout) || ferror(stdout)) {
		message_error("standard output: %s", strerror(errno));
		failed = 1;
	}
	return failed ? EXIT_FAILED : broke ? BREAK_STATUS : EXIT_OK;
}

static int measure(int argc, char **argv)
{
	struct run run = { .began = time(NULL) };
	sigset_t signals;
	int status, fd, ret;

	status = settings_read(&run.settings, argc, argv);
	if (status >= 0)
		return status;
	not_done = json_array();
	/* before the run, so that a run of days does not end with nothing to write to */
	if (run.settings.json) {
		run.json = strcmp(run.settings.json, "-") ? fopen(run.settings.json, "we") : stdout;
		if (!run.json) {
			message_error("--json: %s: %s", run.settings.json, strerror(errno));
			return EXIT_FAILED;
		}
	}
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	fd = signalfd(-1, &signals, SFD_CLOEXEC);
	if (!open_probes(&run)) {
		message_error("out of memory");
		return EXIT_FAILED;
	}
	if (run.settings.gpu) {
		const char *reason;

		run.gpu = gpu_open(run.settings.gpu_by, said, &reason);
		if (!run.gpu) {
			message_error("--gpu: %s", reason);
			return EXIT_FAILED;
		}
	}
	if (tune_machine(&run.settings, said)) {
		undo_all();
		return EXIT_FAILED;
	}
	run.live = !run.settings.quiet && !run.settings.report_ns && isatty(STDOUT_FILENO) &&
		   run.json != stdout;
	run.stolen_ns = machine_stolen_ns();
	open_kernel(&run);
	ready_recorder = run.recorder;
	if (run.gpu)
		gpu_attach(run.gpu, &run.probes[0], run.kernel);
	ret = probe_start(run.probes, run.count, ready);
	if (ret) {
		message_error("%d threads cannot be started: %s", run.count, strerror(-ret));
		undo_all();
		return EXIT_FAILED;
	}
	refusals(&run);
	run.begin_ns = rtxg_now_ns();
	run.line_ns = run.begin_ns;
	run.cpu_ns = cpu_ns();
	wait_for_end(&run, fd);
	probe_stop(run.probes, run.count);
	run.cpu_ns = cpu_ns() - run.cpu_ns;
	if (run.recorder) {
		kernel_detach(run.kernel);
		recorder_collect(run.recorder);
	}
	if (run.gpu)
		gpu_collect(run.gpu);
	if (undo_all())
		message_error("not everything is as before; the lines above say what is not");
	status = finish(&run);
	if (run.gpu && run.probes[0].failed) {
		message_error("--gpu: a launch failed; the GPU's driver says more in its log");
		status = EXIT_FAILED;
	}
	gpu_close(run.gpu);
	if (run.recorder)
		recorder_close(run.recorder);
	kernel_close(run.kernel);
	return status;
}

/*
 * table, record and report are in the Python package: rtxg-latency-lab, beside this program, in a
 * build tree's environment, or in PATH.
 */
static int run_lab(char **argv)
{
	static const char *const beside[] = { "", "/../../venv/bin" };
	char self[PATH_MAX], path[PATH_MAX + 64];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	self[n > 0 ? n : 0] = 0;
	slash = strrchr(self, '/');
	if (slash) {
		*slash = 0;
		setenv("RTXG_LATENCY_PROGRAMS", self, 0);
		for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]); i++) {
			snprintf(path, sizeof(path), "%s%s/rtxg-latency-lab", self, beside[i]);
			execv(path, argv);
		}
	}
	execvp("rtxg-latency-lab", argv);
	message_error("%s is in the Python package: 'pip install .' in rtxg's source tree installs "
		      "it as rtxg-latency-lab, which has to be in PATH",
		      argv[1]);
	return EXIT_FAILED;
}

int main(int argc, char **argv)
{
	static const char *const lab[] = { "table", "record", "report" };

	message_name("rtxg latency");
	if (argc > 1 && !strcmp(argv[1], "explain"))
		return explain_run(argc - 1, argv + 1);
	for (size_t i = 0; argc > 1 && i < sizeof(lab) / sizeof(lab[0]); i++)
		if (!strcmp(argv[1], lab[i]))
			return run_lab(argv);
	argv[0] = (char *)"rtxg latency"; /* what getopt calls us */
	return measure(argc, argv);
}
