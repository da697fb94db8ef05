// SPDX-License-Identifier: MIT
/*
 * rtxg-nvgov - the NVIDIA lever in a program of its own, for measurements and for machines where
 * only GPU time is to be governed. It hosts the lever exactly as rtxgd does and holds no policy.
 *
 * rtxg-nvgov serve [--socket PATH] [--no-probe] [--set NAME=NS]... [--timeline FILE]
 *                  [--releases FILE]
 * rtxg-nvgov run VGPU [--socket PATH] -- COMMAND...
 *     puts itself into the vGPU, then becomes COMMAND
 * rtxg-nvgov ctl [--socket PATH] COMMAND...
 *     vgpu ID [gpu=N] [min=P] [max=P] [weight=N] [critical] [period=US] | remove ID |
 *     assign PID ID | on | off | list | stats | probes | timeline FILE|off | quit
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "lever_nvidia.h"
#include "rtxg/releases.h"
#include "rtxg_clock.h"

#define DEFAULT_SOCKET "/run/rtxg-nvgov.sock"

static FILE *timeline;
static struct lever_nvidia *lever;
static int verbose;

static void on_log(void *ctx, enum lever_nvidia_log level, const char *line)
{
	static const char *const names[] = { "error", "warning", "info", "debug" };

	if (level <= LEVER_NVIDIA_INFO || verbose)
		fprintf(stderr, "rtxg-nvgov: %s: %s\n", names[level], line);
}

static void on_context(void *ctx, uint32_t gpu, uint32_t pid, const char *comm, uint32_t vgpu,
		       bool alive)
{
	if (verbose)
		fprintf(stderr, "rtxg-nvgov: pid %u (%s) %s gpu %u, vgpu %u\n", pid, comm,
			alive ? "works on" : "has left", gpu, vgpu);
	if (timeline)
		fprintf(timeline, "C %u %u %u %d %llu %s\n", gpu, pid, vgpu, alive,
			(unsigned long long)rtxg_now_ns(), comm);
}

static void on_stay(void *ctx, uint32_t gpu, uint32_t pid, uint32_t vgpu, uint64_t start_ns,
		    uint64_t end_ns)
{
	if (timeline)
		fprintf(timeline, "S %u %u %u %llu %llu\n", gpu, pid, vgpu,
			(unsigned long long)start_ns, (unsigned long long)end_ns);
}

static void on_acted(void *ctx, uint32_t gpu, uint32_t pid, uint64_t at_ns, uint64_t took_ns,
		     uint64_t what)
{
	if (timeline)
		fprintf(timeline, "A %u %u %llu %llu %s %llu\n", gpu, pid,
			(unsigned long long)at_ns, (unsigned long long)took_ns,
			!what		     ? "stop"
			: what == UINT64_MAX ? "resume"
					     : "slice",
			(unsigned long long)(what == UINT64_MAX ? 0 : what));
}

static void list(FILE *out)
{
	struct lever_nvidia_process p[256];
	int n = lever_nvidia_processes(lever, p, 256);

	n = n < 256 ? n : 256;
	lever_nvidia_memory(lever, p, n);
	for (int i = 0; i < n; i++) {
		fprintf(out, "%u %s gpu=%u vgpu=%u channels=%u slice_us=%llu", p[i].pid,
			p[i].comm[0] ? p[i].comm : "-", p[i].gpu, p[i].vgpu, p[i].channels,
			(unsigned long long)p[i].slice_ns / 1000);
		if (p[i].memory_bytes != LEVER_NVIDIA_NOT_KNOWN)
			fprintf(out, " memory_mib=%.1f", (double)p[i].memory_bytes / (1 << 20));
		fprintf(out, "%s%s%s%s%s%s\n", p[i].managed ? "" : " UNMANAGED",
			p[i].mps ? " mps" : "", p[i].adopted ? " adopted" : "",
			p[i].stopped ? " stopped" : "", p[i].warms ? " warms" : "",
			p[i].managed  ? ""
			: p[i].remedy ? p[i].remedy
				      : "");
	}
}

static void stats(FILE *out)
{
	struct lever_nvidia_stats s;

	lever_nvidia_stats(lever, &s);
	fprintf(out,
		"{\"suspends\": %llu, \"suspend_us\": %.1f, \"resumes\": %llu, \"resume_us\": "
		"%.1f, \"slices\": %llu, "
		"\"slice_us\": %.1f, \"failures\": %llu, \"log_lost\": %llu, \"refused\": %llu, "
		"\"xids\": %llu, \"slices_lost\": %llu, \"final\": %llu, \"loads\": %llu, "
		"\"wakes\": %llu, \"timers\": %llu, \"driver_calls\": %llu, \"flushes\": %llu, "
		"\"looks\": %llu, \"reads\": %llu, \"blind\": %llu, \"rests\": %llu, "
		"\"vgpus\": [",
		(unsigned long long)s.suspends, s.suspends ? s.suspend_ns / 1e3 / s.suspends : 0.0,
		(unsigned long long)s.resumes, s.resumes ? s.resume_ns / 1e3 / s.resumes : 0.0,
		(unsigned long long)s.slices, s.slices ? s.slice_ns / 1e3 / s.slices : 0.0,
		(unsigned long long)s.failures, (unsigned long long)s.log_lost,
		(unsigned long long)s.refused_records, (unsigned long long)s.xids,
		(unsigned long long)s.slices_lost, (unsigned long long)s.final,
		(unsigned long long)s.loads, (unsigned long long)s.dispatches,
		(unsigned long long)s.arms, (unsigned long long)s.calls,
		(unsigned long long)s.flushes, (unsigned long long)s.looks,
		(unsigned long long)s.reads, (unsigned long long)s.blind,
		(unsigned long long)s.rests);
	for (uint32_t g = 0, first = 1; g < lever_nvidia_gpus(lever); g++)
		for (uint32_t v = 0; v < LEVER_NVIDIA_VGPUS; v++) {
			struct rtxg_slice_view w;

			if (lever_nvidia_vgpu_view(lever, g, v, &w))
				continue;
			fprintf(out,
				"%s{\"gpu\": %u, \"vgpu\": %u, \"work_ns\": %llu, \"stay_ns\": "
				"%llu, \"stays\": %llu, "
				"\"suspended\": %llu, \"lag_ns\": %lld, \"share_ppm\": %u, "
				"\"contexts\": %u, \"active\": %u, "
				"\"stopped\": %u}",
				first ? "" : ", ", g, v, (unsigned long long)w.work_ns,
				(unsigned long long)w.stay_ns, (unsigned long long)w.stays,
				(unsigned long long)w.suspended, (long long)w.lag_ns, w.share_ppm,
				w.contexts, w.active, w.stopped);
			first = 0;
		}
	fprintf(out, "]}\n");
}

static int set_vgpu(char **word, int n, FILE *out)
{
	struct rtxg_slice_tenant t = { 0 };
	uint32_t id = (uint32_t)atoi(word[1]), first = 0, last = lever_nvidia_gpus(lever);
	int err = 0;

	for (int i = 2; i < n; i++) {
		if (!strncmp(word[i], "gpu=", 4)) {
			first = (uint32_t)atoi(word[i] + 4);
			if (first >= lever_nvidia_gpus(lever)) {
				fprintf(out, "error: %s: there are GPUs 0 to %u\n", word[i],
					lever_nvidia_gpus(lever) - 1);
				return -ENODEV;
			}
			last = first + 1;
		} else if (!strncmp(word[i], "min=", 4))
			t.min_ppm = (uint32_t)(atof(word[i] + 4) * 10000);
		else if (!strncmp(word[i], "max=", 4)) {
			t.max_ppm = (uint32_t)(atof(word[i] + 4) * 10000);
			if (!t.max_ppm) {
				fprintf(out, "error: %s: 0.0001 to 100 (%%) are accepted\n",
					word[i]);
				return -EINVAL;
			}
		} else if (!strncmp(word[i], "weight=", 7))
			t.weight = (uint32_t)atoi(word[i] + 7);
		else if (!strcmp(word[i], "critical"))
			t.priority = RTXG_SLICE_CRITICAL_PRIORITY;
		else if (!strncmp(word[i], "period=", 7))
			t.period_ns = (uint64_t)(atof(word[i] + 7) * 1000);
		else {
			fprintf(out,
				"error: '%s' is none of gpu= min= max= weight= critical period=\n",
				word[i]);
			return -EINVAL;
		}
	}
	for (uint32_t g = first; g < last && !err; g++)
		err = lever_nvidia_vgpu_set(lever, g, id, &t);
	return err;
}

/* One line in, an answer out: empty or text; "error: ..." when refused. Returns 1 to end. */
static int command(char *line, FILE *out)
{
	char *word[16], *save = NULL, *w;
	int n = 0, err = 0;

	for (w = strtok_r(line, " \n", &save); w && n < 16; w = strtok_r(NULL, " \n", &save))
		word[n++] = w;
	if (!n)
		return 0;
	if (timeline) /* the program that asks may want to read it */
		fflush(timeline);
	if (!strcmp(word[0], "vgpu") && n >= 2)
		err = set_vgpu(word, n, out);
	else if (!strcmp(word[0], "remove") && n == 2)
		for (uint32_t g = 0; g < lever_nvidia_gpus(lever) && !err; g++)
			err = lever_nvidia_vgpu_remove(lever, g, (uint32_t)atoi(word[1]));
	else if (!strcmp(word[0], "assign") && n == 3)
		err = lever_nvidia_assign(lever, (uint32_t)atoi(word[1]), (uint32_t)atoi(word[2]));
	else if (!strcmp(word[0], "on") || !strcmp(word[0], "off"))
		err = lever_nvidia_enable(lever, !strcmp(word[0], "on"));
	else if (!strcmp(word[0], "list"))
		list(out);
	else if (!strcmp(word[0], "stats"))
		stats(out);
	else if (!strcmp(word[0], "probes")) {
		struct lever_nvidia_probe p[8];
		int k = lever_nvidia_probes(lever, p, 8);

		for (int i = 0; i < k; i++)
			fprintf(out, "%-10s %-4s %s\n", p[i].name, p[i].error ? "no" : "yes",
				p[i].detail);
	} else if (!strcmp(word[0], "timeline") && n == 2) {
		if (timeline)
			fclose(timeline);
		timeline = strcmp(word[1], "off") ? fopen(word[1], "we") : NULL;
		if (!timeline && strcmp(word[1], "off"))
			err = -errno;
	} else if (!strcmp(word[0], "quit"))
		return 1;
	else {
		fprintf(out, "error: unknown command '%s'\n", word[0]);
		return 0;
	}
	if (err)
		fprintf(out, "error: %s: %s\n", word[0], strerror(-err));
	return 0;
}

static int address(struct sockaddr_un *a, const char *path)
{
	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	if (strlen(path) >= sizeof(a->sun_path)) {
		fprintf(stderr, "rtxg-nvgov: socket path '%s' is too long\n", path);
		return -1;
	}
	strcpy(a->sun_path, path);
	return 0;
}

static int answer(int client)
{
	char line[1024], *text = NULL;
	size_t size = 0;
	ssize_t n = recv(client, line, sizeof(line) - 1, 0);
	int end = 0;
	FILE *out;

	if (n <= 0)
		return 0;
	line[n] = '\0';
	out = open_memstream(&text, &size);
	if (!out)
		return 0;
	end = command(line, out);
	fclose(out);
	if (send(client, text, size ? size : 0, MSG_NOSIGNAL) < 0)
		end = end ? 1 : 0;
	free(text);
	return end;
}

static const struct {
	const char *name;
	size_t at;
} parameters[] = {
	{ "slice_mean", offsetof(struct rtxg_slice_params, slice_mean_ns) },
	{ "slice_max", offsetof(struct rtxg_slice_params, slice_max_ns) },
	{ "slice_min", offsetof(struct rtxg_slice_params, slice_min_ns) },
	{ "slice_critical", offsetof(struct rtxg_slice_params, slice_critical_ns) },
	{ "slice_sole", offsetof(struct rtxg_slice_params, slice_sole_ns) },
	{ "lag", offsetof(struct rtxg_slice_params, lag_ns) },
	{ "tick", offsetof(struct rtxg_slice_params, tick_ns) },
	{ "turn", offsetof(struct rtxg_slice_params, turn_ns) },
	{ "idle", offsetof(struct rtxg_slice_params, idle_ns) },
	{ "lead", offsetof(struct rtxg_slice_params, lead_ns) },
	{ "hold", offsetof(struct rtxg_slice_params, hold_ns) },
	{ "save", offsetof(struct rtxg_slice_params, save_ns) },
	{ "quiet", offsetof(struct rtxg_slice_params, quiet_ns) },
};

/* NAME=VALUE of --set: a parameter of the slice policy. */
static bool set_parameter(struct rtxg_slice_params *params, const char *text)
{
	const char *value = strchr(text, '=');
	size_t length = value ? (size_t)(value - text) : 0;

	if (!value)
		return false;
	if (length == 3 && !strncmp(text, "can", 3)) {
		params->can = (uint32_t)atoi(value + 1);
		return true;
	}
	for (size_t k = 0; k < sizeof(parameters) / sizeof(parameters[0]); k++)
		if (strlen(parameters[k].name) == length &&
		    !strncmp(text, parameters[k].name, length)) {
			*(uint64_t *)((char *)params + parameters[k].at) =
				strtoull(value + 1, NULL, 0);
			return true;
		}
	return false;
}

struct serve {
	struct lever_nvidia_options options;
	const char *path; /* of the socket */
	struct sockaddr_un address;
	/* beside the socket: which process is in which vGPU, for the next rtxg-nvgov */
	char assigned[sizeof(((struct sockaddr_un *)0)->sun_path) + 16];
	int listener, signals;
};

static int serve_options(struct serve *s, int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		if (!strcmp(argv[i], "--socket") && i + 1 < argc) {
			s->path = argv[++i];
		} else if (!strcmp(argv[i], "--no-probe")) {
			s->options.probe = false;
		} else if (!strcmp(argv[i], "--verbose")) {
			verbose = 1;
		} else if (!strcmp(argv[i], "--timeline") && i + 1 < argc) {
			timeline = fopen(argv[++i], "we");
			if (!timeline) {
				fprintf(stderr, "rtxg-nvgov: --timeline %s: %s\n", argv[i],
					strerror(errno));
				return 2;
			}
		} else if (!strcmp(argv[i], "--releases") && i + 1 < argc) {
			s->options.releases = argv[++i];
		} else if (!strcmp(argv[i], "--set") && i + 1 < argc) {
			if (!set_parameter(&s->options.slice, argv[++i])) {
				fprintf(stderr, "rtxg-nvgov: --set '%s': no such parameter\n",
					argv[i]);
				return 2;
			}
		} else {
			fprintf(stderr, "rtxg-nvgov: unknown option '%s'\n", argv[i]);
			return 2;
		}
	}
	if (address(&s->address, s->path))
		return 2;
	snprintf(s->assigned, sizeof(s->assigned), "%s.assigned", s->path);
	s->options.assigned = s->assigned;
	return 0;
}

static int listen_at(struct serve *s)
{
	unlink(s->path);
	s->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (s->listener >= 0 &&
	    !bind(s->listener, (struct sockaddr *)&s->address, sizeof(s->address)) &&
	    !chmod(s->path, 0600) && !listen(s->listener, 64))
		return 0;
	fprintf(stderr, "rtxg-nvgov: cannot listen on %s: %s\n", s->path, strerror(errno));
	return 1;
}

/* Late decisions are wrong decisions. Without the privilege it does what it can. */
static void hurry(void)
{
	struct sched_param fifo = { .sched_priority = 40 };

	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		fprintf(stderr, "rtxg-nvgov: warning: memory is not locked (%s)\n",
			strerror(errno));
	if (!sched_setscheduler(0, SCHED_FIFO, &fifo))
		return;
	fprintf(stderr,
		"rtxg-nvgov: warning: no real-time priority (%s): is there real-time runtime in "
		"its cgroup?\n",
		strerror(errno));
	if (setpriority(PRIO_PROCESS, 0, -20))
		fprintf(stderr, "rtxg-nvgov: warning: no priority at all (%s)\n", strerror(errno));
}

/* Returns when it is told to end (0), or when the lever has let go (a negative errno). */
static int loop(const struct serve *s)
{
	struct pollfd p[] = {
		{ .fd = lever_nvidia_fd(lever), .events = POLLIN },
		{ .fd = s->signals, .events = POLLIN },
		{ .fd = s->listener, .events = POLLIN },
	};

	for (;;) {
		if (poll(p, 3, -1) < 0 && errno != EINTR)
			return 0;
		if (p[0].revents) {
			int err = lever_nvidia_dispatch(lever);

			if (err) {
				fprintf(stderr, "rtxg-nvgov: %s\n", strerror(-err));
				return err;
			}
		}
		if (p[1].revents)
			return 0;
		if (p[2].revents) {
			int client = accept4(p[2].fd, NULL, NULL, SOCK_CLOEXEC);
			int end = client >= 0 ? answer(client) : 0;

			if (client >= 0)
				close(client);
			if (end)
				return 0;
		}
	}
}

static int serve(int argc, char **argv)
{
	struct serve s = { .options = { .size = sizeof(s.options),
					.probe = true,
					.releases = NV_RELEASES_PATH },
			   .path = DEFAULT_SOCKET };
	struct lever_nvidia_ops ops = { .size = sizeof(ops),
					.log = on_log,
					.context = on_context,
					.stay = on_stay,
					.acted = on_acted };
	char reason[300];
	sigset_t set;
	int err = serve_options(&s, argc, argv);

	if (err)
		return err;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	s.signals = signalfd(-1, &set, SFD_CLOEXEC);
	if (!strcmp(s.options.releases, NV_RELEASES_PATH))
		/* as rtxgd's unit has it; without it programs are not told, and that is said */
		mkdir("/run/rtxg", 0755);
	if (lever_nvidia_open(&s.options, &ops, &lever, reason, sizeof(reason))) {
		fprintf(stderr, "rtxg-nvgov: %s\n", reason);
		return 1;
	}
	err = listen_at(&s);
	if (!err) {
		hurry();
		fprintf(stderr, "rtxg-nvgov: ready\n");
		err = loop(&s);
	}
	lever_nvidia_close(lever);
	if (timeline)
		fclose(timeline);
	unlink(s.path);
	return err != 0;
}

static int talk(const char *path, const char *line, int print)
{
	struct sockaddr_un a;
	static char text[65536];
	ssize_t n;
	int fd;

	if (address(&a, path))
		return 2;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) ||
	    send(fd, line, strlen(line), 0) < 0) {
		fprintf(stderr, "rtxg-nvgov: cannot reach %s: %s; is 'rtxg-nvgov serve' running?\n",
			path, strerror(errno));
		return 1;
	}
	n = recv(fd, text, sizeof(text) - 1, 0);
	close(fd);
	if (n < 0)
		n = 0;
	text[n] = '\0';
	if (print || !strncmp(text, "error", 5))
		fputs(text, !strncmp(text, "error", 5) ? stderr : stdout);
	return !strncmp(text, "error", 5);
}

/* --socket PATH in front of what else the command takes; returns how many words it took. */
static int socket_option(int argc, char **argv, const char **path)
{
	if (argc < 3 || strcmp(argv[0], "--socket"))
		return 0;
	*path = argv[1];
	return 2;
}

static int ctl(int argc, char **argv)
{
	const char *path = DEFAULT_SOCKET;
	char line[1024] = "";
	int i = socket_option(argc, argv, &path);

	for (; i < argc; i++) {
		if (strlen(line) + strlen(argv[i]) + 2 > sizeof(line)) {
			fprintf(stderr, "rtxg-nvgov: a command has at most %zu characters\n",
				sizeof(line) - 2);
			return 2;
		}
		strcat(line, argv[i]);
		strcat(line, " ");
	}
	return talk(path, line, 1);
}

/* VGPU [--socket PATH] -- COMMAND... */
static int run(int argc, char **argv)
{
	const char *path = DEFAULT_SOCKET;
	char line[1024];
	int i = 1 + socket_option(argc - 1, argv + 1, &path);

	if (i + 1 >= argc || strcmp(argv[i], "--")) {
		fprintf(stderr, "usage: rtxg-nvgov run VGPU [--socket PATH] -- COMMAND...\n");
		return 125;
	}
	snprintf(line, sizeof(line), "assign %d %s", getpid(), argv[0]);
	if (talk(path, line, 0))
		return 125;
	execvp(argv[i + 1], argv + i + 1);
	fprintf(stderr, "rtxg-nvgov: %s: %s\n", argv[i + 1], strerror(errno));
	return errno == ENOENT ? 127 : 126;
}

int main(int argc, char **argv)
{
	if (argc >= 2 && !strcmp(argv[1], "serve"))
		return serve(argc - 2, argv + 2);
	if (argc >= 3 && !strcmp(argv[1], "ctl"))
		return ctl(argc - 2, argv + 2);
	if (argc >= 5 && !strcmp(argv[1], "run"))
		return run(argc - 2, argv + 2);
	fprintf(stderr, "usage: rtxg-nvgov serve | run VGPU -- COMMAND... | ctl COMMAND...\n");
	return 2;
}
