/* SPDX-License-Identifier: MIT */
/*
 * nvrm_abi.h - the part of the NVIDIA driver's interface that a channel of one's own needs, beside
 * nvidia/rm_abi.h: numbers and structures, each with its size asserted. Facts of the interface
 * only, as the driver's public headers give them; levers/nvidia/needs.csv says of which releases.
 * Not installed.
 */
#ifndef RTX_LIB_NVRM_ABI_H
#define RTX_LIB_NVRM_ABI_H

#include "rm_abi.h"

/* Earlier ones have other structures for what channels of one's own need. */
#define NVRM_RELEASE_OLDEST 580u

#define NV_ESC_RM_ALLOC_MEMORY 0x27
#define NV_ESC_RM_MAP_DMA      0x57
#define NV_ESC_ALLOC_OS_EVENT  206

#define NV_CLASS_VIRTUAL_SPACE	0x90f1u
#define NV_CLASS_MEMORY_VIRTUAL 0x0070u /* all addresses of a space, to map memory at */
#define NV_CLASS_OS_DESCRIPTOR	0x0071u /* pages of the calling process */
#define NV_CLASS_OS_EVENT	0x0079u
/* doorbells */
#define NV_CLASS_USERMODE_BLACKWELL 0xc761u
#define NV_CLASS_USERMODE_HOPPER    0xc661u
#define NV_CLASS_USERMODE_AMPERE    0xc561u
#define NV_CLASS_USERMODE_TURING    0xc461u
/* channels. The one of Ampere knows the interrupt, and Hopper has it, too */
#define NV_CLASS_CHANNEL_AMPERE	     0xc56fu
#define NV_CLASS_CHANNEL_HOPPER	     0xc86fu
#define NV_CLASS_CHANNEL_BLACKWELL   0xc96fu
#define NV_CLASS_CHANNEL_BLACKWELL_B 0xca6fu

#define NVA06C_GPFIFO_SCHEDULE	     0xa06c0101u
#define NVA06F_BIND		     0xa06f0104u
#define NVA06F_GPFIFO_SCHEDULE	     0xa06f0103u
#define NVC36F_GET_WORK_SUBMIT_TOKEN 0xc36f0108u
#define NV_USERMODE_BYTES	     0x10000u
#define NV_USERMODE_DOORBELL	     0x90u
#define NV_NOTIFIER_CE0		     23u
#define NV_NOTIFIER_CE_LAST	     9u /* copy engines with a notifier in that row */
#define NV_EVENT_NONSTALL	     0x08000000u
#define NV_EVENT_WITHOUT_DATA	     0x10000000u
#define NV_DEVICE_MULTIPLE_SPACES    2u
#define NV_OS_DESCRIPTOR_SCATTERED   (1u << 4)
#define NV_OS_DESCRIPTOR_CACHED	     (1u << 12)
#define NV_OS_DESCRIPTOR_NO_MAP	     (1u << 30)
#define NV_MAP_DMA_SNOOP	     (1u << 4)
#define NV_MAP_WRITABLE		     0u

/* What Host, the part of the GPU that reads channels, is told: methods and their arguments. */
#define NV_METHODS(first, count) (1u << 29 | (uint32_t)(count) << 16 | (first) >> 2)
#define NV_NON_STALL_INTERRUPT	 0x20u
#define NV_SEM_ADDR_LO		 0x5cu /* then: address high, payload low and high, execute */
#define NV_SEM_RELEASE		 1u
#define NV_SEM_ACQUIRE_CIRCULAR	 3u	    /* goes on when (int)(word - payload) >= 0 */
#define NV_SEM_SWITCH		 (1u << 12) /* others of the group may run meanwhile */
#define NV_SEM_64_BIT		 (1u << 24)
#define NV_SEM_TIME_STAMP	 (1u << 25)

struct nvrm_memory_of_process { /* NVOS02, with a descriptor */
	uint32_t root, parent, object, class_id, flags, pad0;
	uint64_t address, limit;
	uint32_t status, pad1;
	int32_t fd;
	uint32_t pad2;
};
struct nvrm_map_dma { /* NVOS46 */
	uint32_t client, device, space, memory;
	uint64_t offset, length;
	uint32_t flags, flags2, kind, pad0;
	uint64_t address;
	uint32_t status, pad1;
};
struct nvrm_os_event {
	uint32_t client, device, fd, status;
};
struct nvrm_event_alloc {
	uint32_t client, source, class_id, index;
	uint64_t fd;
};
struct nvrm_space_alloc {
	uint32_t index, flags;
	uint64_t size, start, limit;
	uint32_t big_page, pad0;
	uint64_t base;
	uint32_t pasid, pad1;
};
struct nvrm_addresses_alloc {
	uint64_t offset, limit;
	uint32_t space, pad;
};
struct nvrm_group_alloc {
	uint32_t error, ecc_error, space, engine;
	uint8_t plugin, pad[3];
};
struct nvrm_channel_alloc { /* until NV_CHANNEL_MOVED */
	uint32_t error, buffer;
	uint64_t ring;
	uint32_t entries, flags, context_share, space;
	uint32_t userd[8];
	uint64_t userd_offset[8];
	uint32_t engine, cid, subdevice, ecc_error;
	uint8_t reserved[224];
};
struct nvrm_channel_alloc_moved {
	uint32_t error, buffer;
	uint64_t ring;
	uint32_t entries, flags, context_share, space, handle_space;
	uint32_t userd[8], pad;
	uint64_t userd_offset[8];
	uint32_t engine, cid, subdevice, ecc_error;
	uint8_t reserved[224];
};
struct nvrm_usermode_alloc {
	uint8_t bar1, privileged;
};
struct nvrm_schedule {
	uint8_t enable, skip_submit, skip_enable;
};
struct nvrm_token {
	uint32_t token;
};

_Static_assert(sizeof(struct nvrm_memory_of_process) == 56, "NVOS02 with descriptor");
_Static_assert(sizeof(struct nvrm_map_dma) == 64, "NVOS46");
_Static_assert(sizeof(struct nvrm_os_event) == 16, "OS event");
_Static_assert(sizeof(struct nvrm_event_alloc) == 24, "NV0005 alloc");
_Static_assert(sizeof(struct nvrm_space_alloc) == 56, "virtual space alloc");
_Static_assert(sizeof(struct nvrm_addresses_alloc) == 24, "virtual memory alloc");
_Static_assert(sizeof(struct nvrm_group_alloc) == 20, "channel group alloc");
_Static_assert(sizeof(struct nvrm_channel_alloc) == 368, "channel alloc");
_Static_assert(sizeof(struct nvrm_channel_alloc_moved) == 376, "channel alloc, moved");

#endif
