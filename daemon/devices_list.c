// SPDX-License-Identifier: MIT
/*
 * devices_list.c - the process that asks the drivers of OpenCL for their devices. It loads what
 * /etc/OpenCL names, so it gives up first what the daemon may: it is nobody, in the groups that
 * device files are for. A driver may hang: it ends then. It ends in any case after some seconds.
 *
 * May not: run in the daemon's own process.
 */
#include <CL/cl_icd.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "devices.h"
#include "rtxg_device_name.h"

#define NOBODY	      65534
#define SECONDS	      15
#define PLATFORMS_MAX 32
#define OF_ONE_MAX    64

/* Whatever started it, it is an ordinary process, and the first to go where memory is short. */
static void be_modest(void)
{
	const struct rlimit no_core = { 0, 0 }, processor = { SECONDS, SECONDS };
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
	setpriority(PRIO_PROCESS, 0, 10);
	alarm(SECONDS);
}

static int become_nobody(void)
{
	static const char *const names[] = { "render", "video" };
	gid_t groups[2];
	size_t count = 0;

	if (geteuid() != 0)
		return 0;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const struct group *group = getgrnam(names[i]);

		if (group)
			groups[count++] = group->gr_gid;
	}
	return setgroups(count, groups) || setresgid(NOBODY, NOBODY, NOBODY) ||
	       setresuid(NOBODY, NOBODY, NOBODY) || prctl(PR_SET_NO_NEW_PRIVS, 1l, 0l, 0l, 0l);
}

static int remove_one(const char *path, const struct stat *st, int what, struct FTW *place)
{
	return remove(path);
}

/* Without the library there are no devices: an empty list is the truth. */
static void list_devices(FILE *output)
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
			char name[256];

			if (!layer_device_name(&next, list[i], name, sizeof(name)))
				fprintf(output, "%s\n", name);
		}
	}
}

int devices_list(void)
{
	/* PoCL wants a folder for what it compiles, even if it compiles nothing. */
	char folder[] = "/tmp/rtxg-devices-XXXXXX";
	bool made;
	FILE *output;
	int fd;

	be_modest();
	if (become_nobody()) {
		perror("rtxgd: " DEVICES_LIST);
		return 1;
	}
	/* A driver that prints something does not print a name. */
	fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	output = fd >= 0 ? fdopen(fd, "w") : NULL;
	if (!output || !freopen("/dev/null", "w", stdout))
		return 1;
	made = mkdtemp(folder) != NULL;
	if (made)
		setenv("POCL_CACHE_DIR", folder, 1);
	list_devices(output);
	fputs(DEVICES_END "\n", output);
	fflush(output);
	if (made)
		nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	/* Not exit(): what drivers do at their end may take long, too. */
	_exit(0);
}
