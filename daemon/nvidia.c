// SPDX-License-Identifier: MIT
/*
 * nvidia.c - the open lever, and which of its numbers stands for which vGPU. May not act on the
 * driver: the lever does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvidia.h"

struct nvidia nvidia = { .why_not = "there is no NVIDIA GPU here" };

int nvidia_number(const struct vgpu *vgpu)
{
	for (int i = 0; i < (int)LEVER_NVIDIA_VGPUS; i++)
		if (nvidia.slots[i] == vgpu)
			return i;
	return -1;
}

const char *nvidia_vgpu_name(uint32_t number)
{
	return number < LEVER_NVIDIA_VGPUS && nvidia.slots[number] ? nvidia.slots[number]->name
								   : "default";
}

int nvidia_gpu(const char *name)
{
	char own[32];

	for (uint32_t g = 0; nvidia.lever && g < lever_nvidia_gpus(nvidia.lever); g++) {
		snprintf(own, sizeof(own), "nvidia%u", g);
		if (!strcmp(own, name))
			return (int)g;
	}
	return -1;
}

bool nvidia_applies(const struct vgpu *vgpu, uint32_t gpu)
{
	return !vgpu->gpu[0] || nvidia_gpu(vgpu->gpu) == (int)gpu;
}

struct rtxg_slice_tenant nvidia_tenant(const struct vgpu *vgpu, uint64_t period_ns)
{
	return (struct rtxg_slice_tenant){
		.min_ppm = vgpu->params.min_ppm,
		.max_ppm = vgpu->params.max_ppm,
		.weight = vgpu->params.weight,
		.priority = vgpu->params.priority,
		.period_ns = period_ns,
		.latency_ns = vgpu->latency_ns,
		.quantum_ns = vgpu->quantum_ns,
	};
}

int nvidia_tell(uint32_t number)
{
	const struct vgpu *vgpu = nvidia.slots[number];
	struct rtxg_slice_tenant t = nvidia_tenant(vgpu, nvidia.periods[number]);
	int ret = 0;

	for (uint32_t g = 0; g < lever_nvidia_gpus(nvidia.lever) && !ret; g++)
		if (nvidia_applies(vgpu, g))
			ret = lever_nvidia_vgpu_set(nvidia.lever, g, number, &t);
	if (ret)
		fprintf(stderr, "rtxgd: nvidia: vGPU %s: %s\n", vgpu->name, strerror(-ret));
	return ret;
}

struct lever_nvidia_process *nvidia_processes(int *count)
{
	int room = 64, n;
	struct lever_nvidia_process *list = NULL;

	*count = 0;
	if (!nvidia.lever)
		return NULL;
	for (;;) {
		struct lever_nvidia_process *more = realloc(list, (size_t)room * sizeof(*more));

		if (!more) {
			free(list);
			return NULL;
		}
		list = more;
		n = lever_nvidia_processes(nvidia.lever, list, room);
		if (n <= room)
			break;
		room = n + 16;
	}
	*count = n;
	return list;
}

struct lever_nvidia_process *nvidia_processes_memory(int *count)
{
	struct lever_nvidia_process *list = nvidia_processes(count);

	if (*count)
		lever_nvidia_memory(nvidia.lever, list, *count);
	return list;
}

bool nvidia_busy(const struct daemon *d)
{
	for (uint32_t g = 0; nvidia.lever && g < lever_nvidia_gpus(nvidia.lever); g++) {
		struct lever_nvidia_gpu view;

		if (!lever_nvidia_gpu(nvidia.lever, g, &view) && view.contexts)
			return true;
	}
	return false;
}

bool nvidia_counters(uint32_t gpu, uint32_t number, struct nvidia_sample *s,
		     struct rtxg_slice_view *view)
{
	if (lever_nvidia_vgpu_view(nvidia.lever, gpu, number, view))
		return false;
	*s = (struct nvidia_sample){ .busy_ns = view->work_ns,
				     .device_ns = view->stay_ns,
				     .wanted_ns = view->wanted_ns,
				     .stays = view->stays };
	return true;
}
