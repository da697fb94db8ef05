/* SPDX-License-Identifier: MIT */
/*
 * rtxg_vm.h - what the guest programs share: opening devices, finding PCI devices and interrupts,
 * provoking interrupts.
 */
#ifndef RTXG_VM_H
#define RTXG_VM_H

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ktap.h"
#include "rtxg_clock.h"
#include "rtxg_edu.h"

static inline uint64_t thread_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static inline void sleep_ns(uint64_t ns)
{
	struct timespec t = { ns / 1000000000ull, ns % 1000000000ull };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

/* A process that does nothing until it is killed. */
static inline pid_t idle_child(void)
{
	fflush(NULL);
	pid_t child = fork();

	if (!child)
		for (;;)
			pause();
	return child;
}

static inline void end_child(pid_t child)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

/* ioctl that gives a negative errno. */
static inline int call(int fd, unsigned long command, void *argument)
{
	return ioctl(fd, command, argument) < 0 ? -errno : 0;
}

/* Runs a shell command of the guest; its exit status. */
static inline int shell(const char *command)
{
	fflush(NULL);
	int status = system(command);

	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Loads the module, or ends the program: nothing can be tested without. */
static inline void load_module(void)
{
	if (access("/sys/module/rtxg", F_OK) && shell("insmod /modules/rtxg.ko")) {
		printf("    1..1\n    not ok 1 insmod rtxg.ko\n");
		exit(1);
	}
}

/*
 * True on a kernel with checks (lockdep, KASAN): what something costs there says nothing, only that
 * it works.
 */
static inline bool kernel_with_checks(void)
{
	static int known = -1;

	if (known < 0)
		known = host_said("rtxg.checks=1");
	return known;
}

/*
 * False: the module cannot see which interrupts are freed and which tasklets are queued, so that
 * what rests on that cannot be tested.
 */
static inline bool function_tracer(void)
{
	return !access("/sys/kernel/tracing/available_filter_functions", F_OK);
}

#define NO_FUNCTION_TRACER "this kernel has no function tracer"

static inline int open_rtxg(void)
{
	return open("/dev/rtxg", O_RDWR | O_CLOEXEC);
}

static inline int open_edu(int number)
{
	char path[32];

	snprintf(path, sizeof(path), "/dev/rtxg_edu%d", number);
	return open(path, O_RDWR | O_CLOEXEC);
}

static inline bool read_text(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "r");
	size_t length;

	if (!file)
		return false;
	length = fread(text, 1, size - 1, file);
	text[length] = 0;
	fclose(file);
	text[strcspn(text, "\n")] = 0;
	return true;
}

/*
 * Bus and devfn (domain 0) of the index-th PCI device with this vendor and device number; false if
 * there is none.
 */
static inline bool find_pci(unsigned int vendor, unsigned int device, int index, unsigned int *bus,
			    unsigned int *devfn)
{
	for (unsigned int b = 0; b < 8; b++)
		for (unsigned int d = 0; d < 32; d++)
			for (unsigned int f = 0; f < 8; f++) {
				char path[96], text[32];

				snprintf(path, sizeof(path),
					 "/sys/bus/pci/devices/0000:%02x:%02x.%u/vendor", b, d, f);
				if (!read_text(path, text, sizeof(text)) ||
				    strtoul(text, NULL, 16) != vendor)
					continue;
				snprintf(path, sizeof(path),
					 "/sys/bus/pci/devices/0000:%02x:%02x.%u/device", b, d, f);
				if (!read_text(path, text, sizeof(text)) ||
				    strtoul(text, NULL, 16) != device || index--)
					continue;
				*bus = b;
				*devfn = d << 3 | f;
				return true;
			}
	return false;
}

/* Sum over CPUs of an interrupt's count in /proc/interrupts, -1 if it is not there. */
static inline long long interrupt_count(unsigned int irq)
{
	char line[512];
	FILE *file = fopen("/proc/interrupts", "r");
	long long sum = -1;

	while (file && fgets(line, sizeof(line), file)) {
		char *at;
		unsigned long number = strtoul(line, &at, 10);

		if (at == line || *at != ':' || number != irq)
			continue;
		at++;
		sum = 0;
		for (;;) {
			char *end;
			unsigned long long n = strtoull(at, &end, 10);

			if (end == at)
				break;
			sum += n;
			at = end;
		}
	}
	if (file)
		fclose(file);
	return sum;
}

static inline uint64_t edu_launch(int fd, uint64_t duration_ns)
{
	struct rtxg_edu_launch launch = { .duration_ns = duration_ns };

	return call(fd, RTXG_EDU_LAUNCH, &launch) ? 0 : launch.sequence;
}

static inline int edu_sync(int fd, uint64_t sequence)
{
	return call(fd, RTXG_EDU_SYNC, &sequence);
}

#endif
