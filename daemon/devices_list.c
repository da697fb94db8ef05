// SPDX-License-Identifier: MIT
/*
 * devices_list.c - the process that asks the drivers of OpenCL for their devices. It gives up first
 * what the daemon may: it is a user that nothing else is (nobody where there is none, and a process
 * of nobody's may end it), in the groups that device files are for. Drivers are
 * what /etc/OpenCL names. They may hang, crash, close what is not theirs, or leave processes
 * behind. So a child loads them, and this process waits for it no longer than some seconds, ends it
 * with all that it has started, and removes what it has written.
 *
 * May not: run in the daemon's own process; load a driver but in the child.
 */
#include <CL/cl_icd.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "devices.h"
#include "device_name.h"

#define NOBODY	      65534
#define OWN_USER      "rtxg-devices" /* of rtxg.sysusers.conf */
#define PLATFORMS_MAX 32
#define OF_ONE_MAX    64
#define TEXT_MAX      16384
#define LOOK_US	      10000 /* between two looks at what has not ended yet */

/* What the child says. Memory, for a driver may close any descriptor. */
struct list {
	size_t size;
	volatile bool whole;
	char text[TEXT_MAX];
};

/* Whatever started it, it is an ordinary process, and the first to go where memory is short. */
static void be_modest(void)
{
	const struct rlimit no_core = { 0, 0 }, processor = { DEVICES_SECONDS, DEVICES_SECONDS };
	const struct sched_param common = { 0 };
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0) {
		if (write(fd, "1000", 4) != 4)
			fputs("rtxgd: oom_score_adj stays\n", stderr);
		close(fd);
	}
	setrlimit(RLIMIT_CORE, &no_core);
	setrlimit(RLIMIT_CPU, &processor);
	sched_setscheduler(0, SCHED_OTHER, &common);
	setpriority(PRIO_PROCESS, 0, 0);
	alarm(DEVICES_SECONDS); /* for what looks up groups; drivers have a process of their own */
}

static int become_harmless(void)
{
	static const char *const names[] = { "render", "video" };
	const struct passwd *own;
	uid_t user = NOBODY;
	gid_t groups[2];
	size_t count = 0;

	if (geteuid() != 0)
		return 0;
	own = getpwnam(OWN_USER);
	if (own && own->pw_uid)
		user = own->pw_uid;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const struct group *group = getgrnam(names[i]);

		if (group)
			groups[count++] = group->gr_gid;
	}
	return setgroups(count, groups) || setresgid(NOBODY, NOBODY, NOBODY) ||
	       setresuid(user, user, user) || prctl(PR_SET_NO_NEW_PRIVS, 1l, 0l, 0l, 0l);
}

static int remove_one(const char *path, const struct stat *st, int what, struct FTW *place)
{
	return remove(path);
}

/* Without the library there are no devices: an empty list is the truth. */
static void list_devices(struct list *found)
{
	void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
	cl_icd_dispatch next = { 0 };
	cl_platform_id platforms[PLATFORMS_MAX];
	cl_uint platforms_count = 0;

	if (!library)
		return;
	*(void **)&next.clGetPlatformIDs = dlsym(library, "clGetPlatformIDs");
	*(void **)&next.clGetPlatformInfo = dlsym(library, "clGetPlatformInfo");
	*(void **)&next.clGetDeviceIDs = dlsym(library, "clGetDeviceIDs");
	*(void **)&next.clGetDeviceInfo = dlsym(library, "clGetDeviceInfo");
	if (!next.clGetPlatformIDs || !next.clGetPlatformInfo || !next.clGetDeviceIDs ||
	    !next.clGetDeviceInfo ||
	    next.clGetPlatformIDs(PLATFORMS_MAX, platforms, &platforms_count))
		return;
	for (cl_uint p = 0; p < platforms_count && p < PLATFORMS_MAX; p++) {
		cl_device_id list[OF_ONE_MAX];
		cl_uint count = 0;

		if (next.clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, OF_ONE_MAX, list, &count))
			continue;
		for (cl_uint i = 0; i < count && i < OF_ONE_MAX; i++) {
			size_t left = TEXT_MAX - found->size;
			char name[256];
			int size;

			if (rtx_lib_device_name(&next, list[i], name, sizeof(name)))
				continue;
			size = snprintf(found->text + found->size, left, "%s\n", name);
			if ((size_t)size < left)
				found->size += (size_t)size;
		}
	}
}

/* The child: what it is to say stands in memory, and what a driver prints is no name. */
static void ask_drivers(struct list *found, const char *folder, pid_t parent)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	prctl(PR_SET_PDEATHSIG, (long)SIGKILL, 0l, 0l, 0l);
	if (getppid() != parent || null < 0)
		_exit(1);
	setpgid(0, 0);
	dup2(null, STDOUT_FILENO);
	/* PoCL wants a folder for what it compiles, even if it compiles nothing. */
	if (*folder)
		setenv("POCL_CACHE_DIR", folder, 1);
	list_devices(found);
	found->whole = true;
	/* Not exit(): what drivers do at their end may take long, too. */
	_exit(0);
}

static void wait_for_end(pid_t child)
{
	struct pollfd end = { .fd = (int)syscall(SYS_pidfd_open, child, 0u), .events = POLLIN };

	poll(&end, 1, DEVICES_SECONDS * 1000);
	if (end.fd >= 0)
		close(end.fd);
}

/* False: the kernel does not say which they are. */
static bool kill_children(void)
{
	FILE *file = fopen("/proc/thread-self/children", "re");
	int child;

	while (file && fscanf(file, "%d", &child) == 1)
		kill(child, SIGKILL);
	if (file)
		fclose(file);
	return file;
}

/*
 * What a driver has started becomes a child of this process when its parent ends. One that hangs in
 * the kernel is waited for: as long as this process is there, the daemon starts no other.
 */
static void end_all(pid_t child)
{
	bool known, ended = false;
	pid_t pid;

	do {
		if (!ended)
			kill(-child, SIGKILL);
		known = kill_children();
		while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
			ended |= pid == child;
		if (!pid)
			usleep(LOOK_US);
	} while (!pid && (known || !ended));
}

static bool write_all(const char *text, size_t size)
{
	return write(STDOUT_FILENO, text, size) == (ssize_t)size;
}

int devices_list(void)
{
	char folder[] = "/tmp/rtxg-devices-XXXXXX";
	struct list *found = mmap(NULL, sizeof(*found), PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t own = getpid(), child;

	be_modest();
	/* All that a driver finds open is meant for it. */
	if (found == MAP_FAILED || close_range(STDERR_FILENO + 1, ~0u, 0) || become_harmless() ||
	    prctl(PR_SET_CHILD_SUBREAPER, 1l, 0l, 0l, 0l)) {
		perror("rtxgd: " DEVICES_LIST);
		return 1;
	}
	if (!mkdtemp(folder))
		folder[0] = 0;
	child = fork();
	if (!child)
		ask_drivers(found, folder, own);
	alarm(0);
	if (child > 0) {
		wait_for_end(child);
		/* The daemon has its answer, whatever is still to be done. */
		if (found->whole && write_all(found->text, found->size))
			write_all(DEVICES_END "\n", strlen(DEVICES_END "\n"));
		close(STDOUT_FILENO);
		end_all(child);
	}
	if (*folder)
		nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	return child < 0;
}
