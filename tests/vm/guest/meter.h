/* SPDX-License-Identifier: MIT */
/*
 * meter.h - threads that compute for a known time, and rtxg-irq -i beside them, for programs that
 * run with counted instructions.
 */
#ifndef RTXG_VM_METER_H
#define RTXG_VM_METER_H

#include "gpu.h"

#define PROGRAM "/tests/w_rtxg_irq"

static struct {
	pid_t pid;
	char text[1 << 18];
} meter;

static inline void as_fifo(int priority)
{
	struct sched_param param = { .sched_priority = priority };

	pthread_setschedparam(pthread_self(), priority ? SCHED_FIFO : SCHED_OTHER, &param);
}

/*
 * Computes for so long where nothing interrupts it. A thread's clock counts softirqs as its own
 * time.
 */
static inline void compute(uint64_t loops)
{
	for (volatile uint64_t i = 0; i < loops; i++)
		;
}

static inline uint64_t loops_of(uint64_t ns)
{
	static uint64_t per_ms;
	uint64_t start;

	if (!per_ms) {
		start = rtxg_now_ns();
		compute(1000000);
		per_ms = 1000000ull * MS / (rtxg_now_ns() - start);
	}
	return per_ms * ns / MS;
}

/* owner 0: as their work tells. False: it did not begin. */
static inline bool begin_meter(pid_t owner)
{
	char number[16], path[64], target[64];

	snprintf(number, sizeof(number), "%d", owner);
	fflush(NULL);
	meter.pid = fork();
	if (!meter.pid) {
		if (!freopen("/tmp/meter.json", "w", stdout))
			_exit(126);
		if (owner)
			execl(PROGRAM, PROGRAM, "-i", "-J", "-d", "0", "-p", number, "rtxg_edu0",
			      (char *)NULL);
		execl(PROGRAM, PROGRAM, "-i", "-J", "-d", "0", "rtxg_edu", (char *)NULL);
		_exit(127);
	}
	for (int i = 0; i < 3000; i++) {
		int links = 0;

		for (int fd = 3; fd < 40; fd++) {
			ssize_t n;

			snprintf(path, sizeof(path), "/proc/%d/fd/%d", meter.pid, fd);
			n = readlink(path, target, sizeof(target) - 1);
			target[n > 0 ? n : 0] = 0;
			links += strstr(target, "bpf_link") || strstr(target, "bpf-raw-tracepoint");
		}
		/* all its programs; then it looks */
		if (links >= 10) {
			sleep_ns(50 * MS);
			return true;
		}
		if (waitpid(meter.pid, NULL, WNOHANG) == meter.pid)
			break;
		sleep_ns(10 * MS);
	}
	return check(false, "rtxg-irq did not begin");
}

/* What it found is in meter.text then. */
static inline void end_meter(void)
{
	FILE *file;
	int status;

	kill(meter.pid, SIGINT);
	waitpid(meter.pid, &status, 0);
	file = fopen("/tmp/meter.json", "r");
	check(file && WIFEXITED(status) && !WEXITSTATUS(status), "rtxg-irq ended with %x", status);
	meter.text[fread(meter.text, 1, sizeof(meter.text) - 1, file)] = 0;
	fclose(file);
}

#endif
