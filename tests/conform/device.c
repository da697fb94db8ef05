// SPDX-License-Identifier: MIT
/*
 * device.c - a stand-in for a GPU program: uses an engine for a given time, over and over, through
 * librtxg alone. A launch occupies the engine for the time asked by spinning or by sleeping, so
 * tests and measurements have no GPU's noise in them. Prints one line of JSON when done.
 *
 * device [-g GPU] [-v VGPU] [-u USEC] [-n LAUNCHES | -d SECONDS] [-p PAUSE_USEC] [-e ENGINE] [-s]
 *        [-l LOG] [-q] [-k]
 *
 *   -u      time of one launch (default 1000)
 *   -n, -d  stop after so many launches, or so long
 *   -p      pause between launches
 *   -s      sleep instead of spinning: many at once cost no processor
 *   -l      append "START END" (ns) of each launch
 *   -k      the next launch goes out before the last is complete, while the permit lasts
 *   -q      say "ready" when opened, and wait for a line on standard input
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rtxg.h"
#include "rtxg_clock.h"

static void occupy(uint64_t until, bool sleeps)
{
	if (sleeps) {
		struct timespec t = { .tv_sec = (time_t)(until / 1000000000ull),
				      .tv_nsec = (long)(until % 1000000000ull) };

		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL))
			;
	} else {
		while (rtxg_now_ns() < until)
			;
	}
}

static int check(int ret, const char *what)
{
	if (ret < 0) {
		fprintf(stderr, "device: %s: %s\n", what, rtx_strerror());
		exit(1);
	}
	return ret;
}

int main(int argc, char **argv)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	struct rtx_gpu_stats stats = RTX_INIT(struct rtx_gpu_stats);
	uint64_t usec = 1000, launches = UINT64_MAX, pause_usec = 0, done = 0, begin,
		 end = UINT64_MAX;
	enum rtx_engine engine = RTX_COMPUTE;
	bool sleeps = false, waits = false, keeps = false, ahead = false;
	double seconds = 0;
	FILE *log = NULL;
	rtx_gpu_t gpu;
	char line[16];
	int option;

	while ((option = getopt(argc, argv, "g:v:u:n:d:p:e:sl:qkP:")) != -1) {
		switch (option) {
		case 'g':
			options.device = optarg;
			break;
		case 'v':
			options.vgpu = optarg;
			break;
		case 'u':
			usec = strtoull(optarg, NULL, 10);
			break;
		case 'n':
			launches = strtoull(optarg, NULL, 10);
			break;
		case 'd':
			seconds = strtod(optarg, NULL);
			break;
		case 'p':
			pause_usec = strtoull(optarg, NULL, 10);
			break;
		case 'P':
			options.priority = (unsigned int)strtoul(optarg, NULL, 10);
			break;
		case 'e':
			engine = (enum rtx_engine)strtoul(optarg, NULL, 10);
			break;
		case 's':
			sleeps = true;
			break;
		case 'k':
			keeps = true;
			break;
		case 'q':
			waits = true;
			break;
		case 'l':
			log = fopen(optarg, "ae");
			if (!log) {
				perror(optarg);
				return 1;
			}
			break;
		default:
			return 2;
		}
	}
	check(rtx_gpu_open(&gpu, &options), "open");
	if (waits) {
		puts("ready");
		fflush(stdout);
		if (!fgets(line, sizeof(line), stdin))
			return 1;
	}
	begin = rtxg_now_ns();
	if (seconds > 0)
		end = begin + (uint64_t)(seconds * 1e9);
	while (done < launches && rtxg_now_ns() < end) {
		uint64_t start;

		if (!ahead)
			check(rtx_gpu_launch(gpu, engine), "launch");
		/* A time that has passed: never waits with something of its own in flight. */
		ahead = keeps && !rtx_gpu_revoked(gpu, engine) &&
			!rtx_gpu_launch_until(gpu, engine, 1);
		start = rtxg_now_ns();
		occupy(start + usec * 1000, sleeps);
		if (log)
			fprintf(log, "%llu %llu\n", (unsigned long long)start,
				(unsigned long long)rtxg_now_ns());
		check(rtx_gpu_complete(gpu, engine, usec * 1000), "complete");
		done++;
		if (pause_usec)
			occupy(rtxg_now_ns() + pause_usec * 1000, true);
	}
	end = rtxg_now_ns();
	if (ahead)
		check(rtx_gpu_complete(gpu, engine, 0), "complete");
	check(rtx_gpu_stats(gpu, engine, &stats), "stats");
	printf("{\"launches\": %llu, \"begin_ns\": %llu, \"end_ns\": %llu, \"busy_ns\": %llu, "
	       "\"waits\": %llu, "
	       "\"wait_ns\": %llu}\n",
	       (unsigned long long)done, (unsigned long long)begin, (unsigned long long)end,
	       (unsigned long long)stats.busy_ns, (unsigned long long)stats.waits,
	       (unsigned long long)stats.wait_ns);
	if (log)
		fclose(log);
	check(rtx_gpu_close(gpu), "close");
	return 0;
}
