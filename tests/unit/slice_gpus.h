/* SPDX-License-Identifier: MIT */
/*
 * slice_gpus.h - several model GPUs (slice_model.h) that run at the same time, and training on them
 * whose ranks wait for each other on the GPU. Each has a core of its own; a tenant is coupled while
 * it has programs on two or more, as levers/nvidia tells it.
 */
#ifndef RTXG_TESTS_SLICE_GPUS_H
#define RTXG_TESTS_SLICE_GPUS_H

#include "slice_model.h"

#define MODEL_GPUS	  4
#define MODEL_COLLECTIVES 4

struct model_gpus;

struct model_gpus *model_gpus_open(uint32_t gpus, uint32_t can, uint64_t seed);
void model_gpus_close(struct model_gpus *all);
/* Its tenants are not told that they are on several. */
void model_gpus_uncouple(struct model_gpus *all);
/* As model_tenant() and model_program(), on one of them. */
void model_gpus_tenant(struct model_gpus *all, uint32_t gpu, uint32_t id,
		       struct rtxg_slice_tenant params);
uint32_t model_gpus_program(struct model_gpus *all, uint32_t gpu, struct model_program program);
/* For model_program.with of as many programs as it has ranks. */
struct model_collective *model_gpus_collective(struct model_gpus *all, uint32_t ranks);
/* A rank of a training on several GPUs: short steps, with a collective after each kernel. */
struct model_program model_training(uint32_t tenant, struct model_collective *with, uint32_t rank);
void model_gpus_run(struct model_gpus *all, uint64_t until_ns);

struct model *model_gpu(struct model_gpus *all, uint32_t gpu);
/* For how long one rank at least was on its engine, and for how long all were. */
uint64_t model_gpus_any_ns(const struct model_collective *with);
uint64_t model_gpus_all_ns(const struct model_collective *with);
/* What a core found wrong; NULL: nothing. */
const char *model_gpus_wrong(struct model_gpus *all);

#endif
