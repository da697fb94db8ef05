// SPDX-License-Identifier: MIT
/*
 * main.c - start, the loop, signals, the service manager. The loop waits in one place for
 * doorbells, the core's timer and everything else: doorbells are in an epoll set of their own, in
 * which the event loop of libsystemd is but one member, so that a hand-over costs one return from
 * epoll and no more.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "backend.h"
#include "ceiling.h"
#include "client.h"
#include "closer.h"
#include "config_apply.h"
#include "control.h"
#include "critical.h"
#include "devices.h"
#include "history.h"
#include "holes.h"
#include "host.h"
#include "inherit.h"
#include "interrupts.h"
#include "keep.h"
#include "memory.h"
#include "module.h"
#include "names.h"
#include "objects.h"
#include "patience.h"
#include "place.h"
#include "program.h"
#include "raised.h"
#include "ready.h"
#include "task.h"

#define BATCH	     64
#define SLOW_MOST    16u /* other events between two looks at the doorbells */
#define IDLE_EXIT_NS (60 * NS_PER_S)
#define QUIET_NS     NS_PER_S /* of little work, before it is urgent again */
#define NAMES_MS     2000     /* for users' names, at the start */

static const char help[] =
	"Usage: rtxgd [--user | --system] [OPTION]...\n"
	"Shares GPUs among programs: grants and takes back the permits under which they launch.\n"
	"\n"
	"      --user           the calling user's own daemon (default)\n"
	"      --system         the system's daemon: /run/rtxg/rtxgd.sock, open to all users\n"
	"      --socket PATH    listen there instead\n"
	"      --host WHERE     auto (default): the kernel module if it is loaded, else the daemon "
	"itself; or module, daemon\n"
	"      --config-root DIR  read DIR/etc/rtxg, DIR/run/rtxg, DIR/usr/lib/rtxg instead of "
	"those below /\n"
	"      --check-config   read the configuration, say what is wrong with it, and end\n"
	"      --idle-exit SEC  end after so long without tasks and connections; 0 = never "
	"(default: 60 for --user, 0 "
	"for --system)\n"
	"      --ready-fd FD    write a byte there once listening (for the program that starts "
	"it)\n"
	"  -h, --help\n"
	"      --version\n";

/* --- sockets ---------------------------------------------------------------------------------- */

static int fail(const char *what, const char *which, int error)
{
	fprintf(stderr, "rtxgd: %s%s%s: %s\n", what, which ? " " : "", which ? which : "",
		strerrordesc_np(error));
	return -error;
}

/* The user's own folder, as librtxg looks for it. */
static int own_path(char path[108])
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	char folder[90];
	struct stat st;
	int n;

	if (runtime && *runtime == '/' && !stat(runtime, &st) && S_ISDIR(st.st_mode) &&
	    st.st_uid == geteuid())
		n = snprintf(folder, sizeof(folder), "%s/" RTXG_SOCKET_DIR, runtime);
	else
		n = snprintf(folder, sizeof(folder), "/tmp/rtxg-%u", geteuid());
	if (n >= (int)sizeof(folder))
		return fail("XDG_RUNTIME_DIR is too long:", runtime, ENAMETOOLONG);
	if (mkdir(folder, 0700) && errno != EEXIST)
		return fail("cannot make", folder, errno);
	if (lstat(folder, &st))
		return fail("cannot look at", folder, errno);
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077)) {
		fprintf(stderr,
			"rtxgd: %s must be a folder of user %u that is closed to others (mode "
			"0700); it is owned by %u, mode %04o. Remove it, or set XDG_RUNTIME_DIR to "
			"a folder of your own\n",
			folder, geteuid(), st.st_uid, st.st_mode & 07777);
		return -EACCES;
	}
	snprintf(path, 108, "%s/" RTXG_SOCKET_NAME, folder);
	return 0;
}

static bool is_listening(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool yes;

	if (fd < 0)
		return false;
	yes = !connect(fd, (const struct sockaddr *)address, sizeof(*address)) || errno == EAGAIN;
	close(fd);
	return yes;
}

/* Removes the socket of a daemon that was killed, and nothing else that may be at that path. */
static int clear_path(const char *path)
{
	struct stat st;

	if (lstat(path, &st))
		return errno == ENOENT ? 0 : fail("cannot look at", path, errno);
	if (!S_ISSOCK(st.st_mode)) {
		fprintf(stderr,
			"rtxgd: %s exists and is not a socket; remove it, or name another path "
			"(--socket)\n",
			path);
		return -EEXIST;
	}
	return unlink(path) ? fail("cannot remove", path, errno) : 0;
}

static struct stat own_socket; /* as bind() made it */

/* At the end: the path may lead to a successor's socket by now. */
static void remove_socket(const struct daemon *d)
{
	struct stat st;

	if (own_socket.st_ino && !lstat(d->socket_path, &st) && st.st_ino == own_socket.st_ino &&
	    st.st_dev == own_socket.st_dev)
		unlink(d->socket_path);
}

static int make_socket(struct daemon *d)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd, error;

	strcpy(address.sun_path, d->socket_path);
	if (d->system && !strcmp(d->socket_path, RTXG_SYSTEM_SOCKET) && mkdir("/run/rtxg", 0755) &&
	    errno != EEXIST)
		return fail("cannot make", "/run/rtxg", errno);
	if (is_listening(&address)) {
		fprintf(stderr, "rtxgd: another rtxgd listens at %s already\n", d->socket_path);
		return -EADDRINUSE;
	}
	error = clear_path(d->socket_path);
	if (error)
		return error;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return fail("cannot make a socket", NULL, errno);
	umask(d->system ? 0111 : 0177);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 1024)) {
		error = errno;
		close(fd);
		return fail("cannot listen at", d->socket_path, error);
	}
	umask(022);
	lstat(d->socket_path, &own_socket);
	return fd;
}

static int get_socket(struct daemon *d)
{
	int n = sd_listen_fds(1);

	if (n > 1) {
		fprintf(stderr, "rtxgd: %d sockets were passed in; one is expected\n", n);
		return -EINVAL;
	}
	if (n == 1) {
		struct sockaddr_un address;
		socklen_t size = sizeof(address);

		if (sd_is_socket(SD_LISTEN_FDS_START, AF_UNIX, SOCK_SEQPACKET, 1) <= 0) {
			fprintf(stderr, "rtxgd: the socket passed in is not a listening AF_UNIX "
					"SOCK_SEQPACKET one\n");
			return -EINVAL;
		}
		memset(&address, 0, sizeof(address));
		if (!getsockname(SD_LISTEN_FDS_START, (struct sockaddr *)&address, &size))
			snprintf(d->socket_path, sizeof(d->socket_path), "%.107s",
				 address.sun_path);
		fcntl(SD_LISTEN_FDS_START, F_SETFL, O_NONBLOCK);
		return SD_LISTEN_FDS_START;
	}
	return make_socket(d);
}

/* --- the daemon's own processor time ---------------------------------------------------------- */

/*
 * A task that waits for a permit waits for this thread: it runs before what it serves, where it
 * may. While the NVIDIA lever governs a process it also has to run before the real-time threads of
 * programs, or it stops and resumes too late. But it must not be made to take the machine over by a
 * client that rings without end: a daemon that uses half a processor for a whole sample, the
 * lever's own work aside, falls back to the common policy until that is over.
 */
static void set_urgent(struct daemon *d, bool calm)
{
	static int now = -1, base;
	struct sched_param param = { 0 };
	int want, urgency;

	if (now < 0) { /* under a service manager the unit says what it may */
		if (!getenv("NOTIFY_SOCKET"))
			base = 1;
		else if ((sched_getscheduler(0) & ~SCHED_RESET_ON_FORK) == SCHED_FIFO &&
			 !sched_getparam(0, &param))
			base = param.sched_priority;
		if (!d->host->here) /* hand-overs happen in the kernel */
			base = 0;
	}
	urgency = backend_urgency(d);
	want = !calm ? 0 : urgency ? urgency : base;
	if (want == now)
		return;
	now = want;
	param.sched_priority = want;
	if (want && !sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param))
		return;
	param.sched_priority = 0;
	sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &param);
	setpriority(PRIO_PROCESS, 0, want && want == urgency ? -20 : want ? -11 : 0);
}

static struct {
	uint64_t wall_ns, own_ns; /* when it was looked at last */
	uint64_t quiet_since;
	bool busy;
} watched;

/* In every state, also with no task open: whatever keeps the loop busy passes here. */
static void watch_own_time(struct daemon *d, uint64_t wall)
{
	struct timespec t;
	uint64_t own;

	if (wall - watched.wall_ns < SLOT_NS)
		return;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	own = (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec - backend_own_ns(d);
	if (own - watched.own_ns > (wall - watched.wall_ns) / 2)
		watched.busy = true;
	if (own - watched.own_ns > (wall - watched.wall_ns) / 4)
		watched.quiet_since = wall;
	/* Under the common policy a flood leaves it less: a pause of a sample says nothing. */
	if (wall - watched.quiet_since >= QUIET_NS)
		watched.busy = false;
	set_urgent(d, !watched.busy);
	watched.own_ns = own;
	watched.wall_ns = wall;
}

/* --- the loop --------------------------------------------------------------------------------- */

static uint64_t next_time(struct daemon *d)
{
	uint64_t at = d->armed_ns < d->sample_ns ? d->armed_ns : d->sample_ns;
	uint64_t request = d->told ? 0 : client_next(d);

	if (request < at)
		at = request;
	/* When all is quiet again, no other event says so. */
	if (watched.busy && watched.wall_ns + SLOT_NS < at)
		at = watched.wall_ns + SLOT_NS;
	return at;
}

/*
 * epoll with a time that is exact to the nanosecond where the kernel can, else to the millisecond.
 */
static int wait_for(struct daemon *d, struct epoll_event *events)
{
	static bool coarse;
	uint64_t at, now, left = 0;
	struct timespec t;
	int n = ready_wait(d, events, BATCH, next_time(d));

	if (n)
		return n;
	at = next_time(d);
	if (at != RTXG_TIME_NEVER) {
		now = rtxg_now_ns();
		left = at > now ? at - now : 0;
	}
	if (!coarse) {
		t = (struct timespec){ .tv_sec = (time_t)(left / NS_PER_S),
				       .tv_nsec = (long)(left % NS_PER_S) };
		n = epoll_pwait2(d->fast, events, BATCH, at == RTXG_TIME_NEVER ? NULL : &t, NULL);
		if (n >= 0 || (errno != ENOSYS && errno != EPERM))
			return n;
		coarse = true;
	}
	left = (left + NS_PER_MS - 1) / NS_PER_MS;
	return epoll_wait(d->fast, events, BATCH,
			  at == RTXG_TIME_NEVER ? -1
			  : left > 1000000	? 1000000
						: (int)left);
}

/*
 * Everything that is not a doorbell or the core's timer: connections, deaths, signals, the
 * watchdog, the NVIDIA lever. The event loop is prepared, and its descriptor says that there is
 * something.
 */
static int slow_events(struct daemon *d, bool *prepared)
{
	int ret = sd_event_wait(d->event, 0);

	*prepared = false;
	/* Bounded, so that a flood of connections cannot keep hand-overs waiting. */
	for (unsigned int i = 0; i < SLOW_MOST && !d->stop; i++) {
		if (i || !ret) {
			ret = sd_event_prepare(d->event);
			*prepared = ret == 0;
			/* Nothing more is pending: the descriptor tells when something is. */
			if (ret <= 0)
				return ret;
		}
		if (ret < 0)
			return ret;
		ret = sd_event_dispatch(d->event);
		if (ret <= 0) {
			d->stop = true;
			return ret;
		}
	}
	return 0;
}

static bool may_leave(const struct daemon *d)
{
	if (d->connections_count || backend_busy(d))
		return false;
	if (!d->host->here)
		return true;
	/* What was made at run time would be lost. */
	for (uint32_t i = 0; i < VGPUS_MAX; i++)
		if (d->vgpus[i].used && (d->vgpus[i].origin == ORIGIN_RUNTIME ||
					 d->vgpus[i].origin == ORIGIN_TRANSIENT))
			return false;
	for (uint32_t i = 0; i < GPUS_MAX; i++)
		if (d->gpus[i].used && d->gpus[i].origin == ORIGIN_RUNTIME)
			return false;
	return true;
}

static int on_idle_check(sd_event_source *s, uint64_t usec, void *data)
{
	struct daemon *d = data;

	if (may_leave(d) && rtxg_now_ns() - d->idle_since >= d->idle_exit_ns) {
		d->stop = true;
		return 0;
	}
	sd_event_source_set_time_relative(s, d->idle_exit_ns / 2000 + 1);
	sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
	return 0;
}

static void on_sample(struct daemon *d)
{
	history_sample(d);
	place_next(d);
	memory_next(d);
	if (d->host->here && (ceiling_wanted() || interrupts_wanted()))
		critical_next(d);
	ceiling_next(d);
	interrupts_next(d);
	inherit_next(d);
}

static int run(struct daemon *d)
{
	struct epoll_event events[BATCH];
	bool prepared = false;
	uint64_t now;
	int ret, n;

	for (;;) {
		bool slow = !prepared, dealt;

		if (slow) {
			ret = sd_event_prepare(d->event);
			if (ret < 0)
				return ret;
			prepared = ret == 0;
			slow = ret > 0;
		}
		if (d->stop)
			return 0;
		if (slow) {
			/* Something is due at once. */
			ret = sd_event_dispatch(d->event);
			if (ret <= 0)
				return ret;
			continue;
		}
		n = wait_for(d, events);
		if (n < 0 && errno != EINTR)
			return -errno;
		for (int i = 0; i < n; i++) {
			struct watch *watch = watch_marked(events[i].data.ptr);

			if (watch)
				watch_tell(d, watch, events[i].events);
			else if (events[i].data.ptr)
				host_event(d, events[i].data.ptr);
			else
				slow = true;
		}
		now = rtxg_now_ns();
		if (d->armed_ns <= now)
			host_timer(d);
		if (d->sample_ns <= now)
			on_sample(d);
		watch_own_time(d, now);
		if (slow) {
			ret = slow_events(d, &prepared);
			if (ret < 0)
				return ret;
		}
		dealt = d->told != NULL;
		watch_deal(d, SLOW_MOST);
		/* One request, and then the doorbells again. */
		if (client_serve(d))
			dealt = true;
		if (d->stop)
			return 0;
		/* What they have asked of the event loop begins when that is prepared again. */
		if (dealt && prepared) {
			ret = slow_events(d, &prepared);
			if (ret < 0)
				return ret;
		}
	}
}

/* --- start ------------------------------------------------------------------------------------ */

static int on_signal(sd_event_source *s, const struct signalfd_siginfo *info, void *data)
{
	struct daemon *d = data;

	if (info->ssi_signo == SIGHUP) {
		sd_notify(0, "RELOADING=1");
		config_load(d, NULL, NULL);
		keep_save(d);
		sd_notify(0, "READY=1");
		return 0;
	}
	d->stop = true;
	return 0;
}

/*
 * A daemon that a program has started serves others after it. It takes what it may have, not what
 * was enough for that program. A task needs three descriptors, and one more for each fence. What is
 * too long for a file, be it memory that has a descriptor, is an error, and not our end.
 */
static void raise_limits(void)
{
	static const int limits[] = { RLIMIT_NOFILE, RLIMIT_FSIZE, RLIMIT_CPU, RLIMIT_DATA,
				      RLIMIT_AS };
	struct rlimit limit;

	signal(SIGXFSZ, SIG_IGN);
	for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++)
		if (!getrlimit((__rlimit_resource_t)limits[i], &limit)) {
			limit.rlim_cur = limit.rlim_max;
			setrlimit((__rlimit_resource_t)limits[i], &limit);
		}
}

static int prepare(struct daemon *d)
{
	struct group *group = getgrnam("rtxg");
	sigset_t signals;
	struct epoll_event loop = { .events = EPOLLIN };
	uint64_t random = 0;
	int ret;

	d->group = group ? group->gr_gid : (gid_t)-1;
	d->started_ns = rtxg_now_ns();
	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		random = d->started_ns;
	d->generation = (random & INT64_MAX) | 1;
	raise_limits();
	prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul);
	prctl(PR_SET_DUMPABLE, 1ul, 0ul, 0ul, 0ul);
	ret = holes_begin();
	if (ret)
		return fail("cannot make a blank page", NULL, -ret);
	objects_gpu_defaults(d);
	d->backends = backends;
	ret = host_init(d, &task_news);
	if (ret)
		return fail("cannot set up the scheduler", NULL, -ret);
	ret = sd_event_new(&d->event);
	if (ret < 0)
		return fail("cannot make an event loop", NULL, -ret);
	d->fast = epoll_create1(EPOLL_CLOEXEC);
	if (d->fast < 0 || epoll_ctl(d->fast, EPOLL_CTL_ADD, sd_event_get_fd(d->event), &loop))
		return fail("cannot make an epoll set", NULL, errno);
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);
	sd_event_add_signal(d->event, NULL, SIGTERM, on_signal, d);
	sd_event_add_signal(d->event, NULL, SIGINT, on_signal, d);
	sd_event_add_signal(d->event, NULL, SIGHUP, on_signal, d);
	return 0;
}

static int parse_number(const char *option, const char *text, unsigned long max,
			unsigned long *value)
{
	char *end;

	errno = 0;
	*value = strtoul(text, &end, 10);
	if (errno || !*text || *end || *text == '-' || *value > max) {
		fprintf(stderr, "rtxgd: %s is \"%s\"; a number from 0 to %lu is accepted\n", option,
			text, max);
		return -EINVAL;
	}
	return 0;
}

/* What the command line said, beside the daemon's own members. */
struct options {
	const char *host; /* auto, module, daemon */
	bool check_only, idle_given;
	int ready_fd; /* -1: none */
};

/* 0, or the exit status of a command line that is wrong. */
static int read_options(struct daemon *d, int argc, char **argv, struct options *options)
{
	enum {
		USER = 256,
		SYSTEM,
		SOCKET,
		HOST,
		CONFIG_ROOT,
		CHECK_CONFIG,
		IDLE_EXIT,
		READY_FD,
		VERSION
	};
	static const struct option list[] = {
		{ "user", no_argument, NULL, USER },
		{ "system", no_argument, NULL, SYSTEM },
		{ "socket", required_argument, NULL, SOCKET },
		{ "host", required_argument, NULL, HOST },
		{ "config-root", required_argument, NULL, CONFIG_ROOT },
		{ "check-config", no_argument, NULL, CHECK_CONFIG },
		{ "idle-exit", required_argument, NULL, IDLE_EXIT },
		{ "ready-fd", required_argument, NULL, READY_FD },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, VERSION },
		{ 0 },
	};
	unsigned long number;
	int option;

	while ((option = getopt_long(argc, argv, "h", list, NULL)) != -1) {
		switch (option) {
		case USER:
			d->system = false;
			break;
		case SYSTEM:
			d->system = true;
			break;
		case SOCKET:
			if (!*optarg || strlen(optarg) >= sizeof(d->socket_path)) {
				fprintf(stderr,
					"rtxgd: --socket \"%s\": 1 to %zu bytes are accepted\n",
					optarg, sizeof(d->socket_path) - 1);
				return 2;
			}
			strcpy(d->socket_path, optarg);
			break;
		case HOST:
			options->host = optarg;
			break;
		case CONFIG_ROOT:
			d->config_root = optarg;
			break;
		case CHECK_CONFIG:
			options->check_only = true;
			break;
		case IDLE_EXIT:
			if (parse_number("--idle-exit", optarg, 1000000, &number))
				return 2;
			d->idle_exit_ns = number * NS_PER_S;
			options->idle_given = true;
			break;
		case READY_FD:
			if (parse_number("--ready-fd", optarg, 1 << 20, &number))
				return 2;
			options->ready_fd = (int)number;
			break;
		case 'h':
			fputs(help, stdout);
			exit(0);
		case VERSION:
			puts("rtxgd " RTXG_VERSION);
			exit(0);
		default:
			fputs("Try \"rtxgd --help\".\n", stderr);
			return 2;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "rtxgd: \"%s\" is not an option\nTry \"rtxgd --help\".\n",
			argv[optind]);
		return 2;
	}
	if (strcmp(options->host, "auto") && strcmp(options->host, "module") &&
	    strcmp(options->host, "daemon")) {
		fprintf(stderr,
			"rtxgd: --host (or RTXG_HOST) is \"%s\"; auto, module and daemon are "
			"accepted\n",
			options->host);
		return 2;
	}
	return 0;
}

/* The socket's path and the time to stay, where the command line did not say them. */
static int set_defaults(struct daemon *d, const struct options *options, bool socket_activated)
{
	if (!options->idle_given)
		d->idle_exit_ns = d->system ? 0 : IDLE_EXIT_NS;
	if (d->socket_path[0] || socket_activated || options->check_only)
		return 0;
	if (!d->system)
		return own_path(d->socket_path);
	strcpy(d->socket_path, RTXG_SYSTEM_SOCKET);
	return 0;
}

/* From the socket to READY=1. */
static int start(struct daemon *d, const struct options *options)
{
	int ret, listener;

	/*
	 * The socket before the module: a daemon that finds another rtxgd at its socket must not
	 * have spoken for the module.
	 */
	listener = get_socket(d);
	if (listener < 0)
		return listener;
	ret = program_start_starter();
	if (ret)
		fail("cannot start the process that starts programs", NULL, ret);
	rtx_lib_patience_begin();
	raised_start(d->socket_path);
	if (strcmp(options->host, "daemon")) {
		ret = module_start(d, !strcmp(options->host, "module"));
		if (ret)
			return ret;
	}
	config_load(d, NULL, NULL);
	keep_restore(d);
	names_settle(NAMES_MS);
	ret = d->system ? closer_start() : 0;
	if (ret)
		fail("cannot start the process that closes connections", NULL, ret);
	ret = devices_start(d);
	if (ret >= 0)
		ret = client_listen(d, listener, control_packet);
	if (ret < 0)
		return fail("cannot listen", NULL, -ret);
	backend_start(d);
	config_tell_bounds(d);
	memory_start(d);
	module_watch(d);
	d->idle_since = rtxg_now_ns();
	if (d->idle_exit_ns)
		sd_event_add_time_relative(d->event, NULL, CLOCK_MONOTONIC,
					   d->idle_exit_ns / 2000 + 1, 0, on_idle_check, d);
	if (options->ready_fd >= 0) {
		if (write(options->ready_fd, "", 1) != 1)
			fprintf(stderr, "rtxgd: no process reads descriptor %d (--ready-fd)\n",
				options->ready_fd);
		close(options->ready_fd);
	}
	sd_notifyf(0, "READY=1\nSTATUS=Listening at %s", d->socket_path);
	sd_event_set_watchdog(d->event, true);
	set_urgent(d, true);
	return 0;
}

/* What is opened later must not stand where messages are written and programs have their own. */
static void need_standard_files(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

int main(int argc, char **argv)
{
	static struct daemon daemon = { .spare = -1 };
	struct daemon *d = &daemon;
	/* What a program insists on holds for the daemon that it starts, too. */
	const char *host = getenv("RTXG_HOST");
	struct options options = { .host = host && *host ? host : "auto", .ready_fd = -1 };
	bool socket_activated = getenv("LISTEN_FDS") != NULL;
	int ret;

	need_standard_files();
	if (argc == 3 && !strcmp(argv[1], RAISED_GUARD))
		return raised_guard(argv[2]);
	if (argc == 2 && !strcmp(argv[1], PROGRAM_STARTER))
		return program_starter();
	if (argc == 2 && !strcmp(argv[1], CLOSER))
		return closer();
	if (argc == 2 && !strcmp(argv[1], DEVICES_LIST))
		return devices_list();
	ret = read_options(d, argc, argv, &options);
	if (ret)
		return ret;
	d->host_given = strcmp(options.host, "auto") != 0;
	if (options.ready_fd >= 0)
		fcntl(options.ready_fd, F_SETFD, FD_CLOEXEC);
	if (set_defaults(d, &options, socket_activated) || prepare(d))
		return 1;
	if (options.check_only)
		return config_load(d, NULL, NULL) ? 1 : 0;
	ret = start(d, &options);
	if (!ret) {
		ret = run(d);
		if (ret < 0)
			fail("the event loop failed", NULL, -ret);
		/* before the journal goes with what is inherited */
		ceiling_stop();
		interrupts_stop(d);
		inherit_stop(d);
		memory_stop();
		backend_stop(d);
		module_stop();
		sd_notify(0, "STOPPING=1");
	}
	remove_socket(d);
	return ret ? 1 : 0;
}
