// SPDX-License-Identifier: MIT
/*
 * test_slice_places.c - vGPUs on two model GPUs (slice_gpus.h) that always have work and a bound,
 * beside others with a bound that do not stand still in their places: shares and bounds are kept.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "slice_gpus.h"

#define US MODEL_US
#define MS MODEL_MS
#define S  MODEL_S
#define ALL                                                                     \
	(RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND | RTXG_SLICE_CAN_LEAVE | \
	 RTXG_SLICE_CAN_DEMAND)
#define BEGINS	 (2 * S) /* all are there, and turns have settled */
#define ENDS	 (6 * S)
#define PROGRAMS 3u /* of a vGPU on a GPU, at most */
#define BOTH	 3u /* GPUs, as a mask */

enum kind { NONE_MORE, TRAINING, HOG, SHORT };

struct vgpu {
	enum kind kind;
	uint32_t tenant, min, on, programs; /* min: percent; on: a mask of GPUs */
	uint64_t bound;
	/* of its first program, if it works in bursts: the training's launches, rounds, pause */
	uint32_t launches, depth, burst;
	uint64_t pause_min, pause_max;
	int off; /* points that its share may be below its reservation; 0: it is not judged */
};

static struct model_program program_of(const struct vgpu *v, uint32_t number,
				       struct model_collective *with, uint32_t rank)
{
	struct model_program p = { .kernel_ns = 2 * MS, .launches = 1000000, .depth = 8 };

	if (v->kind == SHORT)
		p.kernel_ns = 100 * US;
	else if (v->kind == TRAINING && !number)
		p = model_training(v->tenant, with, rank);
	if (v->launches) {
		p.launches = v->launches;
		p.depth = v->depth;
	}
	if (v->burst) {
		p.burst = v->burst;
		p.pause_min_ns = v->pause_min;
		p.pause_max_ns = v->pause_max;
		p.cpu_ns = p.cpu_ns ? p.cpu_ns : 10 * US;
	}
	p.tenant = v->tenant;
	p.bound = v->bound > 0;
	return p;
}

/* The vGPUs end with one of no kind. Each one's programs start 7 ms after those before it. */
static void judge(const struct vgpu *vgpus)
{
	struct model_gpus *gpus = model_gpus_open(2, ALL, 1);
	uint32_t id[8][2][PROGRAMS], n = 0;
	uint64_t work[8][2] = { 0 }, all[2];

	for (; vgpus[n].kind; n++) {
		const struct vgpu *v = &vgpus[n];
		struct model_collective *with =
			v->kind == TRAINING ? model_gpus_collective(gpus, 2) : NULL;

		for (uint32_t g = 0; g < 2; g++) {
			model_gpus_tenant(gpus, g, v->tenant,
					  (struct rtxg_slice_tenant){ .min_ppm = v->min * 10000,
								      .latency_ns = v->bound });
			for (uint32_t i = 0; i < v->programs && v->on & 1u << g; i++) {
				struct model_program p = program_of(v, i, with, g);

				p.start_ns = n * 7 * MS;
				id[n][g][i] = model_gpus_program(gpus, g, p);
			}
		}
	}
	for (uint64_t at = BEGINS; at <= ENDS; at += ENDS - BEGINS) {
		model_gpus_run(gpus, at);
		for (uint32_t g = 0; g < 2; g++) {
			all[g] = model_work_ns(model_gpu(gpus, g)) - (at == ENDS ? all[g] : 0);
			for (uint32_t k = 0; k < n; k++) {
				uint64_t now = 0;

				for (uint32_t i = 0; i < vgpus[k].programs; i++)
					if (vgpus[k].on & 1u << g)
						now += model_stats(model_gpu(gpus, g), id[k][g][i])
							       ->work_ns;
				work[k][g] = now - work[k][g];
			}
		}
	}
	assert_null(model_gpus_wrong(gpus));
	for (uint32_t k = 0; k < n; k++)
		for (uint32_t g = 0; g < 2; g++) {
			const struct vgpu *v = &vgpus[k];
			double got = 100.0 * (double)work[k][g] / (double)all[g];
			uint64_t wait = 0;

			if (!(v->on & 1u << g))
				continue;
			for (uint32_t i = 0; i < v->programs; i++) {
				uint64_t one =
					model_stats(model_gpu(gpus, g), id[k][g][i])->bound_wait;

				wait = one > wait ? one : wait;
			}
			print_message("GPU %u: vGPU %u, %u %% reserved: got %.1f %%, longest wait "
				      "%.1f ms of %.1f\n",
				      g, v->tenant, v->min, got, (double)wait / 1e6,
				      (double)v->bound / 1e6);
			assert_true(!v->off || got >= (double)v->min - v->off);
			assert_true(!v->bound || wait <= v->bound);
		}
	model_gpus_close(gpus);
}

/* It stands still in the places of others, and they do not in its own. */
static void a_place_that_others_work_in_is_no_share(void **state)
{
	static const struct vgpu beside_training[] = {
		{ TRAINING, 12, 40, BOTH, 3, 20 * MS, .off = 4 },
		{ HOG, 13, 50, BOTH, 1, 100 * MS, .off = 4 },
		{ TRAINING, 14, 5, BOTH, 2, 15 * MS, 30, 20, 20, 20 * MS, 20 * MS },
		{ HOG, 0, 5, 1, 1 },
		{ HOG, 1, 5, 2, 1 },
		{ 0 },
	};
	static const struct vgpu beside_hogs[] = {
		{ HOG, 12, 40, BOTH, 3, 18 * MS, .off = 4 },
		{ HOG, 13, 50, BOTH, 1, 100 * MS, .off = 4 },
		{ HOG, 0, 5, 1, 1, .off = 1 },
		{ HOG, 1, 5, 2, 1, .off = 1 },
		{ 0 },
	};

	judge(beside_training);
	judge(beside_hogs);
	(void)state;
}

/* Beside so short a bound turns are not the clock's. */
static void in_turns_there_is_no_place_to_keep(void **state)
{
	static const struct vgpu vgpus[] = {
		{ TRAINING, 12, 75, BOTH, 1, 60 * MS, .off = 7 },
		{ SHORT, 4, 5, 1, 1, 760 * US, 1, 1, 1, 20 * MS, 60 * MS },
		{ HOG, 0, 20, 1, 1 },
		{ HOG, 1, 20, 2, 1 },
		{ 0 },
	};

	judge(vgpus);
	(void)state;
}

/* Its place is too short for all of its programs: the last ones would wait for the next places. */
static void many_programs_in_a_short_place_keep_their_bound(void **state)
{
	static const struct vgpu vgpus[] = {
		{ HOG, 12, 10, BOTH, 1, 24 * MS },
		{ HOG, 13, 20, BOTH, 1, 18 * MS },
		{ TRAINING, 14, 40, BOTH, 3, 30 * MS, 4, 20, 1, 20 * MS, 20 * MS },
		{ HOG, 0, 30, 1, 1 },
		{ HOG, 1, 30, 2, 3 },
		{ 0 },
	};

	judge(vgpus);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_place_that_others_work_in_is_no_share),
		cmocka_unit_test(in_turns_there_is_no_place_to_keep),
		cmocka_unit_test(many_programs_in_a_short_place_keep_their_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
