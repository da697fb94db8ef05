// SPDX-License-Identifier: MIT
/*
 * w_fences.c - a graphics load for the guest: gives virtio-gpu work without pause, and sleeps until
 * each fence is signalled by the device's interrupt. Ends on SIGTERM, and prints the rate.
 */
#include "virtgpu.h"

static volatile sig_atomic_t ended;

static void end(int number)
{
	ended = 1;
}

int main(void)
{
	struct sigaction action = { .sa_handler = end };
	unsigned long long count = 0;
	int gpu = virtgpu_open();
	uint64_t begin;

	if (gpu < 0) {
		fprintf(stderr, "w_fences: no virtio-gpu\n");
		return 1;
	}
	sigaction(SIGTERM, &action, NULL);
	begin = rtxg_now_ns();
	while (!ended)
		count += virtgpu_work(gpu);
	printf("%.0f fences/s\n", (double)count / ((double)(rtxg_now_ns() - begin) / 1e9));
	return 0;
}
