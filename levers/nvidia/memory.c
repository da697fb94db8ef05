// SPDX-License-Identifier: MIT
/*
 * memory.c - how much GPU memory each process has in use, by the driver's own books: the question
 * that NVIDIA's management library asks as well. It is asked through the lever's own client, so
 * that no second client and no library of unknown speed comes into the thread that schedules. May
 * not: keep anything; the answer is true only for the moment.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "state.h"

/* Enters those of the list that are on this GPU, from *next on, and moves *next behind them. */
static void ask_for(struct nv_pid_info *ask, uint32_t gpu, const struct lever_nvidia_process *list,
		    int count, int *next)
{
	memset(ask, 0, sizeof(*ask));
	for (; *next < count && ask->count < NV_PID_INFO_ENTRIES; ++*next)
		if (list[*next].gpu == gpu && list[*next].channels)
			ask->entry[ask->count++] =
				(struct nv_pid_info_entry){ .pid = list[*next].pid,
							    .index = NV_PID_INFO_MEMORY };
}

static void take_answer(const struct nv_pid_info *answer, uint32_t gpu,
			struct lever_nvidia_process *list, int first, int next)
{
	uint32_t k = 0;

	for (int i = first; i < next && k < answer->count; i++) {
		const struct nv_pid_info_entry *e = &answer->entry[k];

		if (list[i].gpu != gpu || list[i].pid != e->pid || !list[i].channels)
			continue;
		k++;
		if (e->result == NV_STATUS_OK)
			list[i].memory_bytes = e->memory + e->shared;
	}
}

int lever_nvidia_memory(struct lever_nvidia *l, struct lever_nvidia_process *list, int count)
{
	struct nv_pid_info *info = malloc(sizeof(*info));
	int first_error = 0;

	if (!info)
		return -ENOMEM;
	for (int i = 0; i < count; i++)
		list[i].memory_bytes = LEVER_NVIDIA_NOT_KNOWN;
	for (uint32_t k = 0; k < l->gpus; k++) {
		struct nv_rm_gpu *rm = &l->gpu[k].rm;
		int err = l->gpu[k].lost ? -ENODEV : 0;

		for (int next = 0, first = 0; next < count && !err; first = next) {
			ask_for(info, k, list, count, &next);
			if (!info->count)
				break;
			err = nv_rm_control(&l->rm, rm->subdevice, NV2080_GPU_GET_PID_INFO, info,
					    sizeof(*info));
			if (!err)
				take_answer(info, k, list, first, next);
		}
		if (!first_error)
			first_error = err;
	}
	free(info);
	return first_error;
}
