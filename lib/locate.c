// SPDX-License-Identifier: MIT
/*
 * locate.c - where the daemon's socket is, and starting the user's own daemon when none runs. May
 * not trust a folder that others can write to, and leaves no child behind that the program would
 * have to wait for.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "errors.h"
#include "locate.h"
#include "rtxg.h"
#include "rtxg/control.h"
#include "sys.h"

#ifndef RTXGD_PATH
#define RTXGD_PATH "/usr/bin/rtxgd"
#endif

#define START_PATIENCE_MS 10000

extern char **environ;

const char *rtx_lib_host_wanted(void)
{
	const char *host = secure_getenv("RTXG_HOST");

	return host && *host ? host : "auto";
}

/* Whether programs of this environment go to the module. */
bool rtx_lib_module_hosts(void)
{
	const char *wanted = rtx_lib_host_wanted(), *socket = secure_getenv("RTXG_SOCKET");

	if (strcmp(wanted, "auto"))
		return !strcmp(wanted, "module");
	return !(socket && *socket) && !access(RTXG_MODULE_DEVICE, F_OK);
}

/* Programs run, and are managed; only people get no answer. */
int rtx_lib_no_daemon_speaks(void)
{
	return rtx_lib_failed(-EHOSTDOWN,
			      "the kernel module hosts GPU tasks here, and no rtxgd speaks for "
			      "it; start it as root: systemctl start rtxgd, "
			      "or rtxgd --system");
}

int rtx_lib_connect_path(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd;

	if (strlen(path) >= sizeof(address.sun_path))
		return rtx_lib_failed(
			-ENAMETOOLONG,
			"the socket's path \"%s\" is too long; at most %zu bytes are accepted",
			path, sizeof(address.sun_path) - 1);
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return rtx_lib_failed(-errno, "no socket can be made: %s",
				      rtx_lib_error_name(errno));
	for (;;) {
		int error;

		if (!connect(fd, (struct sockaddr *)&address, sizeof(address)))
			return fd;
		if (errno == EINTR)
			continue;
		error = errno;
		close(fd);
		if (error == ENOENT || error == ECONNREFUSED || error == ENOTDIR)
			return rtx_lib_failed(-ECONNREFUSED, "no rtxgd listens at %s", path);
		return rtx_lib_failed(-error, "no connection to %s: %s", path,
				      rtx_lib_error_name(error));
	}
}

/* The folder of the user's own daemon. With make, makes it. */
static int own_folder(char folder[108], bool make)
{
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
	struct stat st;
	int n;

	if (runtime && *runtime == '/' && !stat(runtime, &st) && S_ISDIR(st.st_mode) &&
	    st.st_uid == geteuid())
		n = snprintf(folder, 108, "%s/" RTXG_SOCKET_DIR, runtime);
	else
		n = snprintf(folder, 108, "/tmp/rtxg-%u", geteuid());
	if (n + 1 + (int)sizeof(RTXG_SOCKET_NAME) > 108)
		return rtx_lib_failed(-ENAMETOOLONG,
				      "XDG_RUNTIME_DIR is too long for a socket's path: \"%s\"",
				      runtime);
	if (make && mkdir(folder, 0700) && errno != EEXIST)
		return rtx_lib_failed(-errno, "%s cannot be made: %s", folder,
				      rtx_lib_error_name(errno));
	if (lstat(folder, &st)) {
		if (errno == ENOENT)
			return rtx_lib_failed(-ECONNREFUSED, "no rtxgd listens in %s", folder);
		return rtx_lib_failed(-errno, "%s: %s", folder, rtx_lib_error_name(errno));
	}
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
		return rtx_lib_failed(
			-EACCES,
			"%s must be a folder of user %u that is closed to others (mode "
			"0700); it is owned by %u, "
			"mode %04o. Remove it, or set XDG_RUNTIME_DIR to a folder of your own",
			folder, geteuid(), st.st_uid, st.st_mode & 07777);
	return 0;
}

int rtx_lib_connect(char path[108])
{
	const char *given = secure_getenv("RTXG_SOCKET");
	char folder[108];
	int fd, ret;

	if (given && *given) {
		if (strlen(given) >= 108)
			return rtx_lib_failed(
				-ENAMETOOLONG,
				"RTXG_SOCKET is too long; at most 107 bytes are accepted: \"%s\"",
				given);
		strcpy(path, given);
		return rtx_lib_connect_path(path);
	}
	strcpy(path, RTXG_SYSTEM_SOCKET);
	fd = rtx_lib_connect_path(path);
	if (fd >= 0 || fd != -ECONNREFUSED)
		return fd;
	ret = own_folder(folder, false);
	if (ret)
		return ret;
	if (snprintf(path, 108, "%s/" RTXG_SOCKET_NAME, folder) >= 108)
		return rtx_lib_failed(-ENAMETOOLONG, "the path of the socket is too long: %s",
				      folder);
	return rtx_lib_connect_path(path);
}

/*
 * Which program to start: $RTXG_DAEMON, beside this library (a build tree, or a prefix that was
 * moved), as installed.
 */
static int find_daemon(char program[PATH_MAX])
{
	static const char *const beside[] = { "%s/../daemon/rtxgd", "%s/../bin/rtxgd",
					      "%s/../../bin/rtxgd" };
	const char *given = secure_getenv("RTXG_DAEMON");
	char self[PATH_MAX], *slash;
	Dl_info info;

	if (given && *given) {
		/*
		 * It is started from the root folder, so a relative name must be made whole first.
		 */
		if (strlen(given) >= PATH_MAX || access(given, X_OK) || !realpath(given, program))
			return rtx_lib_failed(
				-ENOENT, "RTXG_DAEMON names no program that can be run: \"%.200s\"",
				given);
		return 0;
	}
	if (!access(RTXGD_PATH, X_OK)) {
		strcpy(program, RTXGD_PATH);
		return 0;
	}
	if (dladdr((void *)&rtx_lib_connect, &info) && info.dli_fname &&
	    realpath(info.dli_fname, self)) {
		slash = strrchr(self, '/');
		if (slash)
			*slash = 0;
		for (size_t i = 0; i < sizeof(beside) / sizeof(*beside); i++) {
			struct stat st;
			int n = snprintf(program, PATH_MAX, beside[i], self);

			/* Only one that the user or root put there. */
			if (n < PATH_MAX && !access(program, X_OK) && !stat(program, &st) &&
			    (st.st_uid == 0 || st.st_uid == geteuid()) && !(st.st_mode & 022))
				return 0;
		}
	}
	return rtx_lib_failed(-ENOENT,
			      "no rtxgd is installed (%s); install it, or name it in RTXG_DAEMON",
			      RTXGD_PATH);
}

/*
 * Starts the program so that it is no child of this process: an intermediate process that sends no
 * SIGCHLD when it ends, and is waited for at once, starts the real one. *ready_fd gets a byte when
 * the daemon listens, or EOF when it could not.
 */
static int spawn(const char *program, int ready_fd)
{
	static const char *const dropped[] = { "LD_PRELOAD=", "OPENCL_LAYERS=", "NOTIFY_SOCKET=",
					       "LISTEN_", "WATCHDOG_" };
	char ready[16];
	char *argv[] = { (char *)program, "--user", "--ready-fd", ready, NULL };
	char **env;
	sigset_t all, before;
	size_t count = 0, kept = 0;
	long middle;
	int status = 0;

	for (char **e = environ; *e; e++)
		count++;
	env = calloc(count + 1, sizeof(*env));
	if (!env)
		return rtx_lib_failed(-ENOMEM, "there is no memory to start rtxgd");
	for (char **e = environ; *e; e++) {
		bool drop = false;

		for (size_t i = 0; i < sizeof(dropped) / sizeof(*dropped); i++)
			drop |= !strncmp(*e, dropped[i], strlen(dropped[i]));
		if (!drop)
			env[kept++] = *e;
	}
	snprintf(ready, sizeof(ready), "%d", ready_fd);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	middle = syscall(SYS_clone, 0ul, NULL, NULL, NULL, 0ul);
	if (!middle) {
		/*
		 * Only async-signal-safe calls from here on: other threads may have held any lock.
		 */
		struct sched_param normal = { 0 };
		int null;

		setsid();
		if (syscall(SYS_clone, 0ul, NULL, NULL, NULL, 0ul))
			_exit(0);
		/* The program's own real-time policy is not the daemon's. */
		sched_setscheduler(0, SCHED_OTHER, &normal);
		null = open("/dev/null", O_RDWR);
		if (null >= 0) {
			dup2(null, 0);
			dup2(null, 1);
			dup2(null, 2);
		}
		if (ready_fd > 3)
			syscall(SYS_close_range, 3u, (unsigned int)ready_fd - 1, 0u);
		syscall(SYS_close_range, (unsigned int)ready_fd + 1, ~0u, 0u);
		fcntl(ready_fd, F_SETFD, 0);
		if (chdir("/"))
			_exit(126);
		for (int sig = 1; sig < NSIG; sig++)
			signal(sig, SIG_DFL);
		sigemptyset(&all);
		sigprocmask(SIG_SETMASK, &all, NULL);
		execve(program, argv, env);
		_exit(127);
	}
	if (middle > 0)
		while (waitpid((pid_t)middle, &status, __WALL) < 0 && errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	free(env);
	if (middle < 0)
		return rtx_lib_failed(-errno, "no process can be started for rtxgd: %s",
				      rtx_lib_error_name(errno));
	return 0;
}

/*
 * Connects to the user's own daemon, starting it if no other program just did. Takes the time that
 * starting takes.
 */
int rtx_lib_connect_or_start(char path[108])
{
	char folder[108], lock_path[140], program[PATH_MAX];
	struct pollfd p;
	int lock, fd, ret, ready[2];
	char byte;

	fd = rtx_lib_connect(path);
	if (fd >= 0 || fd != -ECONNREFUSED)
		return fd;
	if (secure_getenv("RTXG_SOCKET") && *secure_getenv("RTXG_SOCKET"))
		return fd; /* a place was named: what runs there was decided by the user */
	/*
	 * A program that runs with more rights than its caller (set-user-ID) would hand the
	 * caller's environment to a daemon with those rights, which looks there for its
	 * configuration.
	 */
	if (getauxval(AT_SECURE))
		return rtx_lib_failed(-ECONNREFUSED,
				      "no rtxgd listens at %s, and a set-user-ID program does not "
				      "start one; start it first: rtxg host start",
				      path);
	/*
	 * A daemon of an ordinary user could not speak for the module, and must not host beside it.
	 */
	if (geteuid() && rtx_lib_module_hosts())
		return rtx_lib_no_daemon_speaks();
	ret = own_folder(folder, true);
	if (ret)
		return ret;
	ret = find_daemon(program);
	if (ret)
		return ret == -ENOENT ? -ECONNREFUSED : ret;
	snprintf(lock_path, sizeof(lock_path), "%s/" RTXG_LOCK_NAME, folder);
	lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (lock < 0)
		return rtx_lib_failed(-errno, "%s cannot be opened: %s", lock_path,
				      rtx_lib_error_name(errno));
	while (flock(lock, LOCK_EX))
		if (errno != EINTR) {
			ret = rtx_lib_failed(-errno, "%s cannot be locked: %s", lock_path,
					     rtx_lib_error_name(errno));
			close(lock);
			return ret;
		}
	/* The former holder of the lock may have started it. */
	fd = rtx_lib_connect(path);
	if (fd >= 0 || fd != -ECONNREFUSED)
		goto out;
	if (pipe2(ready, O_CLOEXEC)) {
		fd = rtx_lib_failed(-errno, "no pipe can be made: %s", rtx_lib_error_name(errno));
		goto out;
	}
	ret = spawn(program, ready[1]);
	close(ready[1]);
	if (!ret) {
		uint64_t until = rtxg_now_ns() + START_PATIENCE_MS * NS_PER_MS;

		p = (struct pollfd){ .fd = ready[0], .events = POLLIN };
		do {
			uint64_t now = rtxg_now_ns();

			ret = now < until ? poll(&p, 1, (int)((until - now) / NS_PER_MS) + 1) : 0;
		} while (ret < 0 && errno == EINTR);
		if (ret <= 0)
			ret = rtx_lib_failed(-ETIMEDOUT, "%s did not get ready within %d s",
					     program, START_PATIENCE_MS / 1000);
		else if (read(ready[0], &byte, 1) != 1)
			ret = rtx_lib_failed(-ECONNREFUSED,
					     "%s could not start; run \"%s --user\" to see why",
					     program, program);
		else
			ret = 0;
	}
	close(ready[0]);
	fd = ret ? ret : rtx_lib_connect(path);
out:
	close(lock);
	return fd;
}

int rtx_host_start(void)
{
	char path[108];
	int fd;

	rtx_lib_forget_error();
	fd = rtx_lib_connect_or_start(path);
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}
