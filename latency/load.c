// SPDX-License-Identifier: MIT
/*
 * load.c - rtxg-latency-load: reads and writes memory without pause, and prints the rate. A load for
 * `rtxg latency table`: whether random data fit into the last cache or not decides whether the
 * memory bus is busy.
 *
 * rtxg-latency-load BYTES    copies one half of so much memory to the other until SIGTERM or SIGINT,
 *                            then prints the MB copied a second (10^6 bytes, each counted once)
 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rtxg_clock.h>

#define LEAST 65536ull
#define CHUNK 65536ull /* looks so often whether it is to end */

static volatile sig_atomic_t ended;

static void end(int number)
{
	(void)number;
	ended = 1;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = end };
	unsigned long long bytes, half, copied = 0, at = 0;
	uint64_t x = 88172645463325252ull, begin;
	char *text, *memory;

	if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		puts("Usage: rtxg-latency-load BYTES\n\nCopies one half of BYTES of memory to the "
		     "other until SIGTERM, and prints the\nrate in MB/s. A load for 'rtxg latency "
		     "table'.");
		return 0;
	}
	errno = 0;
	bytes = argc == 2 ? strtoull(argv[1], &text, 10) : 0;
	if (argc != 2 || errno || *text || bytes < LEAST) {
		fprintf(stderr,
			"rtxg-latency-load: one argument is accepted: bytes, %llu or more\n",
			LEAST);
		return 2;
	}
	half = bytes / 2 / CHUNK * CHUNK;
	half = half ? half : CHUNK / 2;
	memory = malloc(half * 2);
	if (!memory) {
		fprintf(stderr, "rtxg-latency-load: %llu bytes: %s\n", bytes, strerror(errno));
		return 1;
	}
	/* random: neither the kernel nor the hardware can take two pages for one */
	for (unsigned long long i = 0; i < half * 2 / sizeof(x); i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		((uint64_t *)memory)[i] = x;
	}
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	begin = rtxg_now_ns();
	while (!ended) {
		unsigned long long n = half < CHUNK ? half : CHUNK;

		memcpy(memory + half + at, memory + at, n);
		copied += n;
		at = at + n < half ? at + n : 0;
	}
	printf("%.0f MB/s\n", (double)copied / ((double)(rtxg_now_ns() - begin) / 1e9) / 1e6);
	free(memory);
	return 0;
}
