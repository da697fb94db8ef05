/* SPDX-License-Identifier: MIT */
/*
 * rm_abi.h - the part of the NVIDIA driver's ioctl interface ("RM") that the lever, librtxg's
 * channels and `rtxg latency` speak: numbers and structures, each with its size asserted. Facts of
 * the interface only; no code. A driver that answers otherwise is refused by the lever's probes.
 */
#ifndef RTXG_RM_ABI_H
#define RTXG_RM_ABI_H

#include <stdint.h>

/* ioctl numbers: _IOWR('F', escape, size) */
#define RM_IOC(nr, type) (0xc0000000u | ((uint32_t)sizeof(type) << 16) | ('F' << 8) | (nr))

#define NV_STATUS_OK			   0x00u
#define NV_STATUS_BUSY_RETRY		   0x03u
#define NV_STATUS_GPU_IS_LOST		   0x0fu
#define NV_STATUS_IN_FULLCHIP_RESET	   0x10u
#define NV_STATUS_NOT_FULL_POWER	   0x11u
#define NV_STATUS_IN_USE		   0x17u
#define NV_STATUS_INSUFFICIENT_RESOURCES   0x1au
#define NV_STATUS_INSUFFICIENT_PERMISSIONS 0x1bu
#define NV_STATUS_INVALID_ADDRESS	   0x1eu
#define NV_STATUS_INVALID_ARGUMENT	   0x1fu
#define NV_STATUS_INVALID_BASE		   0x20u
#define NV_STATUS_INVALID_CHANNEL	   0x21u
#define NV_STATUS_INVALID_CLASS		   0x22u
#define NV_STATUS_INVALID_CLIENT	   0x23u
#define NV_STATUS_INVALID_COMMAND	   0x24u
#define NV_STATUS_INVALID_LIMIT		   0x2eu
#define NV_STATUS_INVALID_OBJECT	   0x31u
#define NV_STATUS_INVALID_OBJECT_HANDLE	   0x33u
#define NV_STATUS_INVALID_PARAM_STRUCT	   0x3au
#define NV_STATUS_INVALID_STATE		   0x40u
#define NV_STATUS_NO_MEMORY		   0x51u
#define NV_STATUS_NOT_READY		   0x55u
#define NV_STATUS_NOT_SUPPORTED		   0x56u
#define NV_STATUS_OBJECT_NOT_FOUND	   0x57u
#define NV_STATUS_STATE_IN_USE		   0x63u
#define NV_STATUS_SIGNAL_PENDING	   0x64u
#define NV_STATUS_TIMEOUT		   0x65u
#define NV_STATUS_TIMEOUT_RETRY		   0x66u
#define NV_STATUS_GENERIC		   0xffffu

#define NV_ESC_RM_FREE	     0x29
#define NV_ESC_RM_CONTROL    0x2a
#define NV_ESC_RM_ALLOC	     0x2b
#define NV_ESC_RM_DUP_OBJECT 0x34
#define NV_ESC_RM_SHARE	     0x35
#define NV_ESC_RM_MAP_MEMORY 0x4e
#define NV_ESC_CARD_INFO     200
#define NV_ESC_REGISTER_FD   201
#define NV_ESC_CHECK_VERSION 210

/* Classes */
#define NV_CLASS_ROOT_CLIENT	   0x0041u
#define NV_CLASS_DEVICE		   0x0080u
#define NV_CLASS_SUBDEVICE	   0x2080u
#define NV_CLASS_MEMORY_SYSTEM	   0x003eu
#define NV_CLASS_MEMORY_LOCAL	   0x0040u
#define NV_CLASS_CHANNEL_GROUP	   0xa06cu
#define NV_CLASS_EVENT_BUFFER	   0x90cdu
#define NV_CLASS_MEMORY_DEVICELESS 0x90ceu

/* Controls */
#define NV0000_GPU_GET_ATTACHED_IDS	       0x201u
#define NV0000_GPU_GET_ID_INFO_V2	       0x205u
#define NV0000_GPU_GET_PCI_INFO		       0x21bu
#define NV0000_CLIENT_GET_HANDLE_INFO	       0xd02u
#define NV0000_CLIENT_GET_ACCESS_RIGHTS	       0xd03u
#define NV0000_CLIENT_GET_CHILD_HANDLE	       0xd05u
#define NV0000_SYSTEM_GET_CLIENT_DATABASE_INFO 0x13du
#define NV2080_GPU_GET_INFO		       0x20800101u
#define NV2080_GPU_GET_ID		       0x20800142u
#define NV2080_GPU_GET_PID_INFO		       0x2080018eu
#define NV2080_TIMER_GET_GPU_CPU_TIME	       0x20800406u
#define NV2080_FIFO_DISABLE_CHANNELS	       0x2080110bu
#define NV2080_GR_GET_CTXSW_STATS	       0x20801215u
#define NV2080_GR_FECS_BIND_EVTBUF_V2	       0x20801238u
#define NV2080_FIFO_GET_GROUP_UID	       0x20801123u
#define NVA06C_SET_TIMESLICE		       0xa06c0103u
#define NVA06C_GET_TIMESLICE		       0xa06c0104u
#define NVA06C_PREEMPT			       0xa06c0105u
#define NVA06F_RESTART_RUNLIST		       0xa06f0111u
#define NV90CD_ENABLE_EVENTS		       0x90cd0101u
#define NV90CD_UPDATE_GET		       0x90cd0102u
#define NV90CD_FLUSH			       0x90cd0104u

#define NV_ENGINE_TYPE_GR0   1u
#define NV_ENGINE_TYPE_GR7   8u
#define NV_ENGINE_TYPE_COPY0 9u

#define NV_DISABLE_CHANNELS_MAX 64u

/* The first release whose parameters of a channel have a field more, before USERD's. */
#define NV_CHANNEL_MOVED 610u

struct nvos00 { /* RM_FREE */
	uint32_t root, parent, object, status;
};
struct nvos54 { /* RM_CONTROL */
	uint32_t client, object, cmd, flags;
	uint64_t params;
	uint32_t params_size, status;
};
struct nvos64 { /* RM_ALLOC */
	uint32_t root, parent, object, class_id;
	uint64_t params, rights;
	uint32_t params_size, flags, status, pad;
};
struct nvos55 { /* RM_DUP_OBJECT */
	uint32_t client, parent, object, source_client, source_object, flags, status;
};
struct nvos57 { /* RM_SHARE */
	uint32_t client, object;
	uint32_t target, rights; /* RS_SHARE_POLICY */
	uint16_t type;
	uint8_t action, pad;
	uint32_t status;
};
#define NV_SHARE_RIGHT_DUP	 1u /* bit 0 of the rights */
#define NV_SHARE_TYPE_CLIENT	 3u
#define NV_SHARE_ACTION_ADD	 4u /* to what is there */
#define NV_SHARE_ACTION_TAKE_OFF 5u
struct nvos33_fd { /* RM_MAP_MEMORY */
	uint32_t client, device, memory, pad0;
	uint64_t offset, length, address;
	uint32_t status, flags;
	int32_t fd;
	uint32_t pad1;
};
struct nv_register_fd {
	int32_t ctl_fd;
};
struct nv_version { /* of CHECK_VERSION */
	uint32_t command, reply;
	char text[64]; /* as "580.159.04" */
};
#define NV_VERSION_QUERY '2'
struct nv_card_info { /* of CARD_INFO: one for each GPU */
	uint8_t valid, pad0[3];
	uint32_t domain;
	uint8_t bus, slot, function, pad1;
	uint16_t vendor, device;
	uint32_t gpu_id;
	uint16_t interrupt_line, pad2;
	uint64_t registers, registers_size, memory, memory_size;
	uint32_t minor; /* N of /dev/nvidiaN */
	uint8_t name[12];
};
/* USERD, the words through which a program and a channel talk: volatile 32-bit numbers at */
#define NV_USERD_GP_GET 0x88u
#define NV_USERD_GP_PUT 0x8cu
#define NV_USERD_END	0x90u
struct nv_device_alloc {
	uint32_t device_id, client_share, target_client, target_device, flags, pad;
	uint64_t va_size, va_start, va_limit;
	uint32_t va_mode, pad1;
};
struct nv_subdevice_alloc {
	uint32_t subdevice_id;
};
struct nv_memory_alloc {
	uint32_t owner, type, flags, width, height;
	int32_t pitch;
	uint32_t attr, attr2, format, compr_covg, zcull_covg, pad0;
	uint64_t range_lo, range_hi, size, alignment, offset, limit, address;
	uint32_t ctag_offset, va_space, internal_flags, tag;
	int32_t numa_node;
	uint32_t pad1;
};
#define NV_ATTR_LOCATION_PCI	 (1u << 25)
#define NV_ATTR_COHERENCY_CACHED (1u << 29)
#define NV_ATTR2_USER_READ_ONLY	 (1u << 22)
#define NV_MAP_ACCESS_READ_ONLY	 1u
#define NV_MAP_CACHING_DEFAULT	 (6u << 23)

struct nv_event_buffer_alloc {
	uint64_t header, records;
	uint32_t record_size, record_count;
	uint64_t vardata;
	uint32_t vardata_size, records_free_threshold;
	uint64_t notification;
	uint32_t vardata_free_threshold, subdevice, flags, h_header, h_records, h_vardata;
};
struct nv_event_buffer_header {
	uint32_t get, put;
	uint64_t count, dropped, vardata_dropped;
};
struct nv_fecs_record { /* version 2, behind the general record header */
	uint16_t type, subtype;
	uint32_t vardata;
	uint8_t tag, vmid;
	uint16_t seqno;
	uint32_t context_id, pid;
	uint16_t reserved;
	uint8_t mig_gpu, mig_compute;
	uint64_t timestamp;
};
#define NV_FECS_CONTEXT_START 0x05
#define NV_FECS_SAVE_END      0x03
#define NV_FECS_SIMPLE_START  0x06
#define NV_FECS_SIMPLE_END    0x07
#define NV_FECS_ENGINE_RESET  0xfe
#define NV_FECS_LOD_FULL      0u
#define NV_FECS_LOD_SIMPLE    1u
#define NV_FECS_KERNEL_PID    0xffffffffu

struct nv_fecs_bind {
	uint32_t buffer, record_size, level, filter;
	uint8_t all_users, pad[3];
	uint32_t reason;
};
struct nv_enable_events {
	uint8_t enable, pad[3];
	uint32_t flags;
};
#define NV_EVENTS_KEEP_OLDEST 1u
#define NV_EVENTS_KEEP_NEWEST 2u
struct nv_update_get {
	uint32_t record_get, vardata_get;
};
struct nv_disable_channels {
	uint8_t disable, pad0[3];
	uint32_t count;
	uint8_t only_scheduling, rewind, pad1[6];
	uint64_t preempt_event;
	uint32_t client[NV_DISABLE_CHANNELS_MAX], channel[NV_DISABLE_CHANNELS_MAX];
};
struct nv_timeslice {
	uint64_t us;
};
struct nv_preempt {
	uint8_t wait, manual_timeout, pad[2];
	uint32_t timeout_us;
};
struct nv_restart_runlist {
	uint8_t force, bypass_wait;
};
struct nv_id_info {
	uint32_t gpu_id, flags, device_instance, subdevice_instance, sli, board, gpu_instance;
	int32_t numa;
};
struct nv_attached_ids {
	uint32_t id[32];
};
struct nv_pci_info {
	uint32_t gpu_id, domain;
	uint16_t bus, slot;
};
struct nv_gpu_info { /* list: address of struct nv_gpu_info_entry[count] */
	uint32_t count, pad;
	uint64_t list;
};
struct nv_gpu_info_entry {
	uint32_t index, data;
};
#define NV_GPU_INFO_MIG_MODE 0x2au
#define NV_GPU_INFO_MIG_ON   1u
struct nv_gpu_id {
	uint32_t gpu_id;
};
struct nv_gpu_cpu_time {
	uint8_t clock, count, pad[6];
	struct {
		uint64_t cpu, gpu;
	} sample[16];
};
#define NV_CPU_CLOCK_OSTIME 1u
struct nv_ctxsw_stats {
	uint32_t channel, flags, save, restore, wfi_save, cta_save, cilp_save, gfxp_save;
};
struct nv_handle_info {
	uint32_t object, index;
	uint64_t result;
};
#define NV_HANDLE_INFO_PARENT 1u
#define NV_HANDLE_INFO_CLASS  2u
struct nv_group_uid { /* of one channel, or of all channels of a group */
	uint32_t client, object, group, count;
	uint32_t cid[128], address_space[128], veid[128];
};
struct nv_access_rights {
	uint32_t object, client, mask;
};
#define NV_PID_INFO_MEMORY 0u
struct nv_pid_info_entry {
	uint32_t pid, index; /* index: NV_PID_INFO_MEMORY */
	uint32_t result, pad;
	/* bytes: of the process alone, shared and made by it, shared and made by another process */
	uint64_t memory, shared, foreign;
	uint64_t protected_memory, protected_shared, protected_foreign; /* of the former */
	uint32_t compute_instance, gpu_instance;
};
#define NV_PID_INFO_ENTRIES 200u
struct nv_pid_info {
	uint32_t count, pad;
	struct nv_pid_info_entry entry[NV_PID_INFO_ENTRIES];
};
struct nv_client_database_info {
	uint32_t clients, pad;
	uint64_t resources;
};

_Static_assert(sizeof(struct nvos00) == 16, "NVOS00");
_Static_assert(sizeof(struct nvos54) == 32, "NVOS54");
_Static_assert(sizeof(struct nvos64) == 48, "NVOS64");
_Static_assert(sizeof(struct nvos55) == 28, "NVOS55");
_Static_assert(sizeof(struct nvos57) == 24, "NVOS57");
_Static_assert(sizeof(struct nv_card_info) == 72, "card info");
_Static_assert(sizeof(struct nv_version) == 72, "version");
_Static_assert(sizeof(struct nvos33_fd) == 56, "NVOS33 with descriptor");
_Static_assert(sizeof(struct nv_device_alloc) == 56, "NV0080 alloc");
_Static_assert(sizeof(struct nv_memory_alloc) == 128, "memory alloc");
_Static_assert(sizeof(struct nv_event_buffer_alloc) == 72, "event buffer alloc");
_Static_assert(sizeof(struct nv_event_buffer_header) == 32, "event buffer header");
_Static_assert(sizeof(struct nv_fecs_record) == 32, "FECS record");
_Static_assert(sizeof(struct nv_fecs_bind) == 24, "FECS bind");
_Static_assert(sizeof(struct nv_enable_events) == 8, "enable events");
_Static_assert(sizeof(struct nv_disable_channels) == 536, "disable channels");
_Static_assert(sizeof(struct nv_timeslice) == 8, "timeslice");
_Static_assert(sizeof(struct nv_preempt) == 8, "preempt");
_Static_assert(sizeof(struct nv_restart_runlist) == 2, "restart runlist");
_Static_assert(sizeof(struct nv_id_info) == 32, "id info");
_Static_assert(sizeof(struct nv_attached_ids) == 128, "attached ids");
_Static_assert(sizeof(struct nv_pci_info) == 12, "pci info");
_Static_assert(sizeof(struct nv_gpu_info) == 16, "gpu info");
_Static_assert(sizeof(struct nv_gpu_cpu_time) == 264, "gpu cpu time");
_Static_assert(sizeof(struct nv_ctxsw_stats) == 32, "ctxsw stats");
_Static_assert(sizeof(struct nv_handle_info) == 16, "handle info");
_Static_assert(sizeof(struct nv_access_rights) == 12, "access rights");
_Static_assert(sizeof(struct nv_group_uid) == 1552, "group uid");
_Static_assert(sizeof(struct nv_pid_info_entry) == 72, "pid info entry");
_Static_assert(sizeof(struct nv_pid_info) == 14408, "pid info");
_Static_assert(sizeof(struct nv_client_database_info) == 16, "client database");

#endif
