// SPDX-License-Identifier: MIT
/*
 * needs.c - see needs.h. Controls of channels and groups are not asked: the lever has none of its
 * own. May not: use the answer to decide what is governed; the probes try that.
 */
#include <errno.h>
#include <stddef.h>
#include "needs.h"

/* Of which object a control is. */
enum of { OF_CLIENT, OF_SUBDEVICE, OF_LOG };

#define NEED(of, command, name, what_for)       \
	{                                       \
		of,                             \
		{                               \
			command, name, what_for \
		}                               \
	}

static const struct {
	enum of of;
	struct nv_need need;
} needs[] = {
	NEED(OF_CLIENT, NV0000_GPU_GET_ATTACHED_IDS, "NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS",
	     "open"),
	NEED(OF_CLIENT, NV0000_GPU_GET_ID_INFO_V2, "NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2", "open"),
	NEED(OF_CLIENT, NV0000_GPU_GET_PCI_INFO, "NV0000_CTRL_CMD_GPU_GET_PCI_INFO", "open"),
	NEED(OF_CLIENT, NV0000_CLIENT_GET_HANDLE_INFO, "NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO",
	     "adoption, queues"),
	NEED(OF_CLIENT, NV0000_CLIENT_GET_CHILD_HANDLE, "NV0000_CTRL_CMD_CLIENT_GET_CHILD_HANDLE",
	     "adoption"),
	NEED(OF_CLIENT, NV0000_CLIENT_GET_ACCESS_RIGHTS, "NV0000_CTRL_CMD_CLIENT_GET_ACCESS_RIGHTS",
	     "adoption"),
	NEED(OF_SUBDEVICE, NV2080_FIFO_DISABLE_CHANNELS, "NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS",
	     "stop, resume"),
	NEED(OF_SUBDEVICE, NV2080_FIFO_GET_GROUP_UID,
	     "NV2080_CTRL_CMD_FIFO_GET_CHANNEL_GROUP_UNIQUE_ID_INFO", "adoption, MPS"),
	NEED(OF_SUBDEVICE, NV2080_GR_FECS_BIND_EVTBUF_V2,
	     "NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID_V2", "log"),
	NEED(OF_SUBDEVICE, NV2080_TIMER_GET_GPU_CPU_TIME,
	     "NV2080_CTRL_CMD_TIMER_GET_GPU_CPU_TIME_CORRELATION_INFO", "log"),
	NEED(OF_SUBDEVICE, NV2080_GPU_GET_INFO, "NV2080_CTRL_CMD_GPU_GET_INFO", "MIG"),
	NEED(OF_SUBDEVICE, NV2080_GPU_GET_ID, "NV2080_CTRL_CMD_GPU_GET_ID", "adoption"),
	NEED(OF_SUBDEVICE, NV2080_GPU_GET_PID_INFO, "NV2080_CTRL_CMD_GPU_GET_PID_INFO",
	     "memory in use"),
	NEED(OF_LOG, NV90CD_ENABLE_EVENTS, "NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS", "log"),
	NEED(OF_LOG, NV90CD_UPDATE_GET, "NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET", "log"),
	NEED(OF_LOG, NV90CD_FLUSH, "NV_EVENT_BUFFER_CTRL_CMD_FLUSH", "log"),
};

int nv_needs_ask(struct nv_rm_gpu *gpu, const struct nv_fecs *fecs, nv_needs_fn fn, void *ctx,
		 unsigned int *asked)
{
	_Alignas(8) uint8_t nothing[NV_NEEDS_SIZE] = { 0 };
	struct nv_rm *rm = gpu->rm;
	unsigned int count = 0;
	int lacking = 0;

	for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++) {
		uint32_t of[] = { [OF_CLIENT] = rm->client,
				  [OF_SUBDEVICE] = gpu->subdevice,
				  [OF_LOG] = fecs ? fecs->h_buffer : 0 };
		int err;

		if (!of[needs[i].of])
			continue;
		err = nv_rm_control(rm, of[needs[i].of], needs[i].need.command, nothing,
				    sizeof(nothing));
		if (err && !rm->status)
			return err; /* it was not the driver's answer */
		count++;
		if (rm->status != NV_STATUS_NOT_SUPPORTED &&
		    rm->status != NV_STATUS_INVALID_COMMAND)
			continue;
		lacking++;
		fn(ctx, &needs[i].need);
	}
	if (asked)
		*asked = count;
	return lacking;
}

int nv_needs_number(struct nv_rm_gpu *gpu, const struct nv_process *process, uint32_t *seen,
		    uint32_t *said)
{
	for (unsigned int i = 0; i < process->group_count; i++) {
		const struct nv_group *group = &process->groups[i];

		if (group->device != gpu->device_instance)
			continue;
		for (unsigned int c = 0; c < group->count; c++) {
			struct nv_group_uid uid = { .client = group->client,
						    .object = group->channels[c].handle };

			if (nv_rm_control(gpu->rm, gpu->subdevice, NV2080_FIFO_GET_GROUP_UID, &uid,
					  sizeof(uid)) ||
			    uid.count != 1)
				continue;
			*seen = group->channels[c].cid;
			*said = uid.cid[0];
			return *seen == *said ? 0 : -EPROTO;
		}
	}
	return -ENOENT;
}
