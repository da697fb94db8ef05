// SPDX-License-Identifier: MIT
/*
 * load.c - rtxg-latency-load: works without pause, and prints the rate. Loads for `rtxg latency
 * table`: memory, where random data fit into the last cache or not, which decides whether the
 * memory bus is busy; and a GPU that raises an interrupt for each small kernel.
 *
 * rtxg-latency-load BYTES    fills so much memory, prints "filled", copies one half to the other
 *                            until SIGTERM or SIGINT, then prints the MB copied a second (10^6
 *                            bytes, each counted once) and of which time: since SIGCONT, if any
 * rtxg-latency-load cuda|opencl
 *                            launches small kernels one after the other until then, and prints how
 *                            many a second
 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rtxg_clock.h>

#include "launcher.h"

#define LEAST 65536ull
#define CHUNK 65536ull /* looks so often whether it is to end */

static volatile sig_atomic_t ended, continued;

static void end(int number)
{
	(void)number;
	ended = 1;
}

static void go_on(int number)
{
	(void)number;
	continued = 1;
}

static int launch(const char *which)
{
	struct launcher_times times;
	unsigned long long count = 0;
	struct launcher *l;
	const char *reason;
	uint64_t begin;

	l = launcher_open(which, &reason);
	if (!l) {
		fprintf(stderr, "rtxg-latency-load: %s: %s\n", which, reason);
		return 1;
	}
	printf("%s\n", launcher_name(l));
	fflush(stdout);
	begin = rtxg_now_ns();
	while (!ended) {
		if (launcher_run(l, &times)) {
			fprintf(stderr, "rtxg-latency-load: %s: a launch failed\n", which);
			return 1;
		}
		count++;
	}
	printf("%.0f launches/s\n", (double)count / ((double)(rtxg_now_ns() - begin) / 1e9));
	launcher_close(l);
	return 0;
}

static int copy(unsigned long long bytes)
{
	unsigned long long half, copied = 0, at = 0;
	uint64_t x = 88172645463325252ull, begin;
	double seconds;
	char *memory;

	half = bytes / 2 / CHUNK * CHUNK;
	half = half ? half : CHUNK / 2;
	memory = malloc(half * 2);
	if (!memory) {
		fprintf(stderr, "rtxg-latency-load: %llu bytes: %s\n", bytes, strerror(errno));
		return 1;
	}
	/* random: neither the kernel nor the hardware can take two pages for one */
	for (unsigned long long i = 0; i < half * 2 / sizeof(x) && !ended; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		((uint64_t *)memory)[i] = x;
	}
	if (!ended)
		puts("filled");
	fflush(stdout);
	begin = rtxg_now_ns();
	while (!ended) {
		unsigned long long n = half < CHUNK ? half : CHUNK;

		if (continued) {
			continued = 0;
			copied = 0;
			begin = rtxg_now_ns();
		}
		memcpy(memory + half + at, memory + at, n);
		copied += n;
		at = at + n < half ? at + n : 0;
	}
	seconds = (double)(rtxg_now_ns() - begin) / 1e9;
	if (copied) /* else nothing was measured, and 0 would be a rate */
		printf("%.0f MB/s in %.3f s\n", (double)copied / seconds / 1e6, seconds);
	free(memory);
	return 0;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = end }, again = { .sa_handler = go_on };
	unsigned long long bytes;
	char *text;

	if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		puts("Usage: rtxg-latency-load BYTES|cuda|opencl\n\n"
		     "Fills BYTES of memory, copies one half to the other until SIGTERM, or "
		     "launches\n"
		     "small kernels on a GPU, and prints the rate. Loads for 'rtxg latency "
		     "table'.");
		return 0;
	}
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGCONT, &again, NULL);
	if (argc == 2 && (!strcmp(argv[1], "cuda") || !strcmp(argv[1], "opencl")))
		return launch(argv[1]);
	errno = 0;
	bytes = argc == 2 && argv[1][0] != '-' ? strtoull(argv[1], &text, 10) : 0;
	if (!bytes || errno || *text || bytes < LEAST) {
		fprintf(stderr,
			"rtxg-latency-load: one argument is accepted: bytes, %llu or more, cuda or "
			"opencl\n",
			LEAST);
		return 2;
	}
	return copy(bytes);
}
