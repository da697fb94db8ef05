// SPDX-License-Identifier: MIT
/*
 * slice_pauses.c - core/slice on a model GPU (tests/unit/slice_model.h) with a program that
 * launches one kernel, waits for it and pauses, beside programs that always have work: how far each
 * gets with kernels and pauses of many lengths, shares and numbers of others. Each row shows the
 * stock driver and the core. All times are the model's, so the table is the same on each run and
 * machine.
 *
 * Usage: slice_pauses. Exit status 2 for wrong usage.
 * May not: hold a policy, or measure time.
 */
#include <stdio.h>
#include <stdlib.h>
#include "slice_model.h"

#define US	  MODEL_US
#define MS	  MODEL_MS
#define S	  MODEL_S
#define LOG_ALONE (RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND)
#define ALL	  (LOG_ALONE | RTXG_SLICE_CAN_LEAVE | RTXG_SLICE_CAN_DEMAND)
#define LENGTH	  (8 * S)

struct row {
	uint64_t kernel, pause; /* us */
	uint32_t hogs, share;	/* percent, of the one that pauses; the others have the rest */
	bool unseen;		/* queues cannot be looked into */
};

struct result {
	double rate;  /* percent of the time that the one that pauses works */
	double hogs;  /* the same of all others */
	double least; /* of the one that has least against its share, that against it, percent */
	double idle, cpu, acts;
	double wait;
};

static struct result measure(const struct row *row, uint32_t can, bool alone)
{
	struct model *m = model_open(can, NULL, 1);
	struct model_program small = { .kernel_ns = row->kernel * US, .cpu_ns = row->pause * US };
	struct model_program hog = { .kernel_ns = 2 * MS, .launches = 1000000, .depth = 8 };
	struct result r = { .least = 1e9 };
	const struct model_stats *stats;
	uint32_t each = (100 - row->share) / row->hogs;

	model_tenant(m, 0, (struct rtxg_slice_tenant){ .min_ppm = row->share * 10000 });
	model_program(m, small);
	for (uint32_t i = 1; i <= row->hogs && !alone; i++) {
		hog.tenant = i;
		model_tenant(m, i, (struct rtxg_slice_tenant){ .min_ppm = each * 10000 });
		model_program(m, hog);
	}
	model_run(m, LENGTH);
	if (model_wrong(m)) {
		fprintf(stderr, "slice_pauses: %s: this is a bug of the core or of the model\n",
			model_wrong(m));
		exit(1);
	}
	r.rate = 100 * (double)model_stats(m, 0)->work_ns / LENGTH;
	for (uint32_t i = 1; i <= row->hogs && !alone; i++) {
		double got = 100 * (double)model_stats(m, i)->work_ns / LENGTH;

		r.hogs += got;
		r.least = 100 * got / each < r.least ? 100 * got / each : r.least;
	}
	stats = model_stats(m, 0);
	r.wait = (double)model_quantile(stats->waits, stats->wait_count, 20, 0.99) / 1e6;
	r.idle = 100 * (double)model_idle_ns(m) / LENGTH;
	r.cpu = 100 * (double)model_host(m)->busy_ns / LENGTH;
	r.acts = (double)(model_host(m)->stops + model_host(m)->resumes + model_host(m)->sets) /
		 (LENGTH / S);
	model_close(m);
	return r;
}

static void show(const struct row *row)
{
	struct result alone = measure(row, 0, true), stock = measure(row, 0, false);
	struct result r = measure(row, row->unseen ? LOG_ALONE : ALL, false);

	printf("%5.2f %5.2f %4u %5u %-6s | %6.1f %6.1f | %6.1f %6.1f %6.1f %6.2f %6.2f %6.1f "
	       "%6.1f\n",
	       (double)row->kernel / 1e3, (double)row->pause / 1e3, row->hogs, row->share,
	       row->unseen ? "unseen" : "seen", 100 * stock.rate / alone.rate, stock.hogs,
	       100 * r.rate / alone.rate, r.hogs, r.least, r.idle, r.wait, r.cpu, r.acts);
}

int main(int argc, char **argv)
{
	static const uint64_t pauses[] = { 200, 500, 1000, 2000, 5000 };
	static const uint64_t kernels[] = { 20, 50, 200, 1000, 5000 };
	static const uint32_t shares[] = { 20, 50, 80 };

	(void)argv;
	if (argc != 1) {
		fprintf(stderr, "slice_pauses: no arguments are taken\n");
		return 2;
	}
	printf("%5s %5s %4s %5s %-6s | %6s %6s | %6s %6s %6s %6s %6s %6s %6s\n", "kernel", "pause",
	       "hogs", "share", "queues", "stock", "hogs", "rate", "hogs", "least", "idle",
	       "wait99", "cpu", "acts");
	for (uint32_t k = 0; k < 5; k++)
		for (uint32_t p = 0; p < 5; p++)
			show(&(struct row){ kernels[k], pauses[p], 1, 50, false });
	for (uint32_t k = 0; k < 3; k++)
		for (uint32_t p = 0; p < 5; p++)
			show(&(struct row){ 50, pauses[p], k + 1, shares[k], false });
	for (uint32_t n = 1; n <= 3; n++)
		for (uint32_t k = 0; k < 3; k++)
			for (int unseen = 0; unseen < 2; unseen++)
				show(&(struct row){ 50, 1000, n, shares[k], unseen });
	for (uint32_t n = 1; n <= 3; n++)
		for (uint32_t k = 0; k < 3; k++)
			for (int unseen = 0; unseen < 2; unseen++)
				show(&(struct row){ 1000, 1000, n, shares[k], unseen });
	return 0;
}
