// SPDX-License-Identifier: MIT
/*
 * gpumem.c - rtxg-gpumem: limits how much memory of a GPU the programs of a cgroup may have, by the
 * driver's own mechanism: NVIDIA's management library (NVML, which has functions for it from driver
 * 615 on, over the kernel's controllers dmem or misc), or the kernel's controller dmem for drivers
 * that keep their books there. What is possible is found by trying. rtxgd starts it, so that
 * neither that library nor a slow file runs in the thread that schedules.
 *
 *   rtxg-gpumem [ROOT]     lines on standard input, an answer for each on standard output
 *
 * May not: decide a limit; write a file of dmem's for an NVIDIA GPU, whose library keeps more books
 * than that file; load anything into a program.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOT	"/sys/fs/cgroup"
#define UNIFIED "/sys/fs/cgroup/unified" /* where version 1 has the other */
#define NONE	UINT64_MAX		 /* no limit, as the library writes it, too */
#define DEPTH	8			 /* systemd's units stand no deeper */
/* Limits are rounded to pages, of the GPU at most. */
#define ROUNDED (2u << 20)

/* As nvml.h has them. */
#define NVML_SUCCESS	   0
#define NVML_NOT_SUPPORTED 3
#define NVML_NO_PERMISSION 4
#define NVML_NOT_FOUND	   6

struct nvml_limits {
	const char *folder;
	unsigned long long soft, hard, used; /* used: of the function that reads only */
};

static struct {
	int (*init)(void);
	int (*shutdown)(void);
	const char *(*words)(int error);
	int (*device)(const char *pci, void **device);
	int (*set)(void *device, struct nvml_limits *limits);
	int (*get)(void *device, struct nvml_limits *limits);
	bool open;
	char why_not[300];
} nvml;

static const char *root;

/* --- answers ---------------------------------------------------------------------------------- */

/*
 * kind: ok (by what, and the cgroup's folder if one was named), gone (there is no such cgroup now),
 * no (and why).
 */
static void answer(const char *kind, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void answer(const char *kind, const char *format, ...)
{
	va_list list;

	printf("%s ", kind);
	va_start(list, format);
	vprintf(format, list);
	va_end(list);
	putchar('\n');
}

/* --- cgroups ---------------------------------------------------------------------------------- */

static struct {
	const char *name;
	char path[PATH_MAX];
} sought;

static int look(const char *path, const struct stat *st, int type, struct FTW *at)
{
	if (type != FTW_D)
		return FTW_CONTINUE;
	/* A user may give a cgroup of its own the name of the system's unit. */
	if (st->st_uid != 0 && st->st_uid != geteuid())
		return FTW_SKIP_SUBTREE;
	if (!strcmp(path + at->base, sought.name) && strlen(path) < sizeof(sought.path)) {
		strcpy(sought.path, path);
		return FTW_STOP;
	}
	return at->level < DEPTH ? FTW_CONTINUE : FTW_SKIP_SUBTREE;
}

/* The folder of a cgroup by its path, or by the name of a systemd unit. */
static bool find(const char *name, char folder[PATH_MAX])
{
	struct stat st;

	if (*name == '/')
		return snprintf(folder, PATH_MAX, "%s%s", root, name) < PATH_MAX &&
		       !stat(folder, &st) && S_ISDIR(st.st_mode);
	sought.name = name;
	*sought.path = 0;
	if (strchr(name, '/') || nftw(root, look, 16, FTW_PHYS | FTW_ACTIONRETVAL) < 0)
		return false;
	strcpy(folder, sought.path);
	return *folder;
}

/* The cgroup of this process, which is the daemon's. */
static bool find_own(char folder[PATH_MAX])
{
	char line[PATH_MAX];
	FILE *f = fopen("/proc/self/cgroup", "re");
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		found = !strncmp(line, "0::/", 4) && find(line + 3, folder);
	}
	if (f)
		fclose(f);
	return found;
}

/* --- NVIDIA's library ------------------------------------------------------------------------- */

static void open_nvml(void)
{
	struct {
		void *to;
		const char *name;
	} const functions[] = { { &nvml.init, "nvmlInit_v2" },
				{ &nvml.shutdown, "nvmlShutdown" },
				{ &nvml.words, "nvmlErrorString" },
				{ &nvml.device, "nvmlDeviceGetHandleByPciBusId_v2" },
				{ &nvml.set, "nvmlDeviceSetMemoryLimits_v1" },
				{ &nvml.get, "nvmlDeviceGetMemoryLimits_v1" } };
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	int error;

	if (!library) {
		snprintf(nvml.why_not, sizeof(nvml.why_not),
			 "NVIDIA's management library is not there: %s", dlerror());
		return;
	}
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		*(void **)functions[i].to = dlsym(library, functions[i].name);
		if (*(void **)functions[i].to)
			continue;
		snprintf(nvml.why_not, sizeof(nvml.why_not),
			 "NVIDIA's management library has no %s; drivers have it from 615 on",
			 functions[i].name);
		return;
	}
	error = nvml.init();
	if (error)
		snprintf(nvml.why_not, sizeof(nvml.why_not),
			 "NVIDIA's management library does not start: %s", nvml.words(error));
	nvml.open = !error;
}

static void say_nvml(int error)
{
	if (error == NVML_NOT_SUPPORTED)
		answer("no",
		       "NVML: %s: the GPU is in MIG mode, or the driver keeps no books by "
		       "cgroup (its RmMemacctMode, and the kernel's controllers dmem and misc)",
		       nvml.words(error));
	else if (error == NVML_NOT_FOUND)
		answer("no",
		       "NVML: %s: the cgroup has no dmem files; write +dmem into "
		       "cgroup.subtree_control of each cgroup above it",
		       nvml.words(error));
	else if (error == NVML_NO_PERMISSION)
		answer("no", "NVML: %s: it needs root with CAP_SYS_ADMIN", nvml.words(error));
	else
		answer("no", "NVML: %s (%d)", nvml.words(error), error);
}

static void limit_by_nvml(void *device, const char *folder, uint64_t bytes)
{
	struct nvml_limits limits = { .folder = folder, .hard = bytes }, now = { .folder = folder };
	int error = nvml.set(device, &limits);

	if (error) {
		say_nvml(error);
		return;
	}
	error = nvml.get(device, &now);
	/* Without a limit there may be nothing to read. */
	if (error && bytes != NONE)
		say_nvml(error);
	else if (!error && bytes != NONE &&
		 (now.hard > bytes + ROUNDED || now.hard + ROUNDED < bytes))
		answer("no", "NVML took %" PRIu64 " bytes and has set %llu", bytes, now.hard);
	else
		answer("ok", "nvml %s", folder);
}

/* Sets what is set already: that shows whether limits can be set, and changes none. */
static void try_nvml(void *device)
{
	char folder[PATH_MAX];
	struct nvml_limits now = { .folder = folder }, same = { .folder = folder, .hard = NONE };
	int error;

	if (!find_own(folder)) {
		answer("no", "there is no cgroup of version 2 below %s", root);
		return;
	}
	if (!nvml.get(device, &now)) {
		same.soft = now.soft;
		same.hard = now.hard;
	}
	error = nvml.set(device, &same);
	/* The function works; the daemon's own cgroup is none of those that are to be limited. */
	if (!error || error == NVML_NOT_FOUND)
		answer("ok", "nvml");
	else
		say_nvml(error);
}

/* --- the kernel's controller ------------------------------------------------------------------ */

/* Does the line name video memory of this GPU? "drm/0000:03:00.0/vram0 8589934592" */
static bool is_region(const char *line, const char *pci, char key[256])
{
	size_t length = strcspn(line, " \n");
	const char *last;

	if (!length || length >= 256)
		return false;
	memcpy(key, line, length);
	key[length] = 0;
	last = strrchr(key, '/');
	return last && strstr(key, pci) && !strncmp(last, "/vram", 5);
}

static bool read_limit(const char *folder, const char *key, char value[64])
{
	char path[PATH_MAX + 16], line[512];
	size_t length = strlen(key);
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "%s/dmem.max", folder);
	f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f))
		found = !strncmp(line, key, length) && line[length] == ' ' &&
			sscanf(line + length, " %63s", value) == 1;
	if (f)
		fclose(f);
	return found;
}

/* 0 or an errno. The file takes a line for each region. */
static int write_limit(const char *folder, const char *key, uint64_t bytes)
{
	char path[PATH_MAX + 16], line[320];
	int fd, length, error = 0;

	if (bytes == NONE)
		length = snprintf(line, sizeof(line), "%s max\n", key);
	else
		length = snprintf(line, sizeof(line), "%s %" PRIu64 "\n", key, bytes);
	snprintf(path, sizeof(path), "%s/dmem.max", folder);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return errno;
	if (write(fd, line, (size_t)length) != length)
		error = errno ? errno : EIO;
	close(fd);
	return error;
}

/* Regions of the GPU's memory that the kernel keeps books of; the first one's name. */
static unsigned int find_regions(const char *pci, char key[256])
{
	char path[PATH_MAX], line[512], one[256];
	unsigned int count = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/dmem.capacity", root);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (is_region(line, pci, one) && !count++)
			strcpy(key, one);
	if (f)
		fclose(f);
	return count;
}

static void limit_by_dmem(const char *key, const char *folder, uint64_t bytes)
{
	char value[64];
	int error = write_limit(folder, key, bytes);

	if (error == ENOENT)
		answer("no", "the cgroup has no dmem.max; write +dmem into cgroup.subtree_control "
			     "of each cgroup above it");
	else if (error == EROFS || error == EACCES || error == EPERM)
		answer("no",
		       "dmem.max: %s: rtxgd needs root and ProtectControlGroups=no in its "
		       "unit",
		       strerror(error));
	else if (error)
		answer("no", "dmem.max: %s", strerror(error));
	else if (bytes != NONE && (!read_limit(folder, key, value) ||
				   strtoull(value, NULL, 10) > bytes || !strcmp(value, "max")))
		answer("no", "dmem.max took %" PRIu64 " bytes of %s and has not set them", bytes,
		       key);
	else
		answer("ok", "dmem %s", folder);
}

/* --- requests --------------------------------------------------------------------------------- */

static bool is_nvidia(const char *pci)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "/proc/driver/nvidia/gpus/%s", pci);
	return !access(path, F_OK);
}

/* bytes: 0 = only try. */
static void serve(const char *pci, uint64_t bytes, const char *cgroup)
{
	char folder[PATH_MAX], key[256];
	void *device = NULL;
	unsigned int regions;
	int error = 0;

	if (bytes && !find(cgroup, folder)) {
		answer("gone", "there is no cgroup %s now", cgroup);
		return;
	}
	if (nvml.open)
		error = nvml.device(pci, &device);
	if (device && !error) {
		if (bytes)
			limit_by_nvml(device, folder, bytes);
		else
			try_nvml(device);
		return;
	}
	if (is_nvidia(pci)) {
		answer("no", "%s", nvml.open ? nvml.words(error) : nvml.why_not);
		return;
	}
	regions = find_regions(pci, key);
	if (regions > 1)
		answer("no",
		       "GPU %s has %u regions of memory; a limit for all of them together "
		       "cannot be said to the kernel",
		       pci, regions);
	else if (regions && bytes)
		limit_by_dmem(key, folder, bytes);
	else if (regions)
		answer("ok", "dmem");
	else
		answer("no",
		       "the kernel keeps no books of this GPU's memory by cgroup: no line of "
		       "%s/dmem.capacity names %s (drivers amdgpu and xe have one from Linux 6.14 "
		       "on)%s%s",
		       root, pci, nvml.why_not[0] ? "; " : "", nvml.why_not);
}

static void serve_line(char *line)
{
	char pci[64], amount[32];
	uint64_t bytes = 0;
	int at = 0;

	line[strcspn(line, "\n")] = 0;
	if (sscanf(line, "%63s %31s%n", pci, amount, &at) != 2) {
		answer("no", "the line is not a request");
		return;
	}
	if (!strcmp(amount, "max"))
		bytes = NONE;
	else if (strcmp(amount, "try") != 0)
		bytes = strtoull(amount, NULL, 10);
	at += line[at] == ' ';
	if (bytes || !strcmp(amount, "try"))
		serve(pci, bytes, line + at);
	else
		answer("no", "'%s' is no number of bytes", amount);
}

int main(int argc, char **argv)
{
	char *line = NULL;
	size_t size = 0;

	if (argc > 2) {
		fputs("Usage: rtxg-gpumem [ROOT]; rtxgd(8) starts it\n", stderr);
		return 2;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* What is done is said, also if a driver hangs at what follows. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	root = argc > 1 ? argv[1] : access(UNIFIED "/cgroup.procs", F_OK) ? ROOT : UNIFIED;
	open_nvml();
	while (getline(&line, &size, stdin) > 0)
		serve_line(line);
	free(line);
	if (nvml.open)
		nvml.shutdown();
	return fflush(stdout) ? 1 : 0;
}
