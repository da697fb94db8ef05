/* SPDX-License-Identifier: MIT */
/*
 * rm.h - one client of NVIDIA's resource manager: allocate, control, free, map. It knows how to
 * ask, not what for.
 *
 * Every system call goes through struct nv_sys, so that tests put a recorded driver in its place.
 */
#ifndef RTXG_RM_H
#define RTXG_RM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "rm_abi.h"

/* The system calls on the driver and its clients. All return a negative errno on failure. */
struct nv_sys {
	int (*open)(void *ctx, const char *path);
	int (*close)(void *ctx, int fd);
	int (*ioctl)(void *ctx, int fd, uint32_t request, void *arg);
	int (*mmap)(void *ctx, int fd, size_t length, void **address); /* read-only, shared */
	int (*mmap_writable)(void *ctx, int fd, size_t length, void **address); /* shared */
	int (*munmap)(void *ctx, void *address, size_t length);
	/* 1: an event has come in time; -ENODEV: none will come, for the GPU is lost */
	int (*poll)(void *ctx, int fd, uint64_t timeout_ns);
	int (*pidfd_open)(void *ctx, int pid);
	int (*pidfd_getfd)(void *ctx, int pidfd, int fd);
	/* descriptors of /dev/nvidiactl that a process has; how many */
	int (*ctl_fds)(void *ctx, int pid, int *fds, int cap);
	int (*alive)(void *ctx, int pid); /* 0: there is no such process */
	/* the user whose process it is; 0 where there is no such process */
	uint32_t (*owner)(void *ctx, int pid);
	uint64_t (*now_ns)(void *ctx); /* CLOCK_MONOTONIC */
	void *ctx;
};

extern const struct nv_sys nv_sys_linux;

#define RM_GPUS_MAX 32
/* Bytes that the parameters of an object may have in a release that is not known here. */
#define RM_PARAMETERS_MAX 1024u

struct nv_rm {
	const struct nv_sys *sys;
	int ctl;	      /* /dev/nvidiactl */
	uint32_t client;      /* our root */
	uint32_t next_handle; /* handles that we choose ourselves */
	/* what the driver answered last, OK where the kernel did; and to which command or class */
	uint32_t status, command;
	uint32_t release;  /* of the driver: 580 of "580.159.04"; 0: it does not say */
	uint64_t calls;	   /* of the driver, so far, */
	uint64_t calls_ns; /* and how long they took, ns */
	uint64_t *alive;   /* gets the time at which each of them ends, ns; NULL: is not kept */
	/* the longest of all calls, ns, and what it asked for: a control's command, or an escape */
	uint64_t longest_ns;
	uint32_t longest;
	/* called before each of them and after it, in the thread that makes it; NULL: is not */
	void (*in_call)(void *ctx, bool begins);
	void *in_call_ctx;
};

struct nv_rm_gpu {
	struct nv_rm *rm;
	int fd;	   /* one of /dev/nvidiaN: keeps the GPUs attached */
	int minor; /* N of its own /dev/nvidiaN */
	uint32_t gpu_id, device_instance, device, subdevice;
	uint32_t pci_domain, pci_bus, pci_slot;
	int mig; /* 1: in MIG mode; 0: not; -1: the driver does not say */
	/* a slice counts from the moment it is set; false: from the next restart of the runlist */
	bool slice_at_once;
};

/* Opens the control device and allocates a client. -ENODEV: no driver; -EACCES: no permission. */
int nv_rm_open(struct nv_rm *rm, const struct nv_sys *sys);
/* Frees the client and with it everything that it allocated. Safe on a zeroed or closed one. */
void nv_rm_close(struct nv_rm *rm);

/*
 * Opens every GPU there is, at most cap, in the order of the PCI bus. Returns how many, or a
 * negative errno.
 */
int nv_rm_gpus_open(struct nv_rm *rm, struct nv_rm_gpu *gpus, int cap);
void nv_rm_gpu_close(struct nv_rm_gpu *gpu);

/* A number for an object of ours that no other has. */
uint32_t nv_rm_handle(struct nv_rm *rm);
/* Keeps the driver's answer to a command (or class, or escape): 0, or as a negative errno. */
int nv_rm_answer(struct nv_rm *rm, uint32_t command, uint32_t status);

/*
 * Chooses the handle if *object is 0. size: of params, at most RM_PARAMETERS_MAX (else -EINVAL). A
 * driver whose own parameters are longer sees zeros behind them.
 */
int nv_rm_alloc(struct nv_rm *rm, uint32_t parent, uint32_t *object, uint32_t class_id,
		void *params, uint32_t size);
int nv_rm_free(struct nv_rm *rm, uint32_t parent, uint32_t object);
int nv_rm_control(struct nv_rm *rm, uint32_t object, uint32_t command, void *params, uint32_t size);
/* A control on another client's object, through a duplicate of that client's own descriptor. */
int nv_rm_control_foreign(struct nv_rm *rm, int fd, uint32_t client, uint32_t object,
			  uint32_t command, void *params, uint32_t size);
/* Maps a memory object of the system read-only. */
int nv_rm_map(struct nv_rm *rm, uint32_t device, uint32_t memory, size_t length, void **address,
	      int *map_fd);
/*
 * Maps a part of a memory object read-only, wherever the memory is: of the GPU or of the system.
 * offset: of a page; whole pages are mapped. Nothing but the mapping stays open.
 */
int nv_rm_map_part(struct nv_rm_gpu *gpu, uint32_t memory, uint64_t offset, size_t length,
		   void **address);
/*
 * A second handle, in our own client, to another client's object; fd: a duplicate of the descriptor
 * of that client. What it names stays alive for as long as our handle does: nv_rm_free().
 */
int nv_rm_dup(struct nv_rm_gpu *gpu, int fd, uint32_t client, uint32_t object, uint32_t *handle);

/*
 * What an error of one of these calls says about the next attempt. A context that is being built or
 * torn down, and a driver that is short of something, refuse what they will do a little later.
 */
enum nv_rm_refusal {
	NV_RM_PASSES,	/* the same call may succeed later */
	NV_RM_DOUBTFUL, /* not known to pass, not known to be final */
	NV_RM_FINAL,	/* it will not succeed: wrong rights, wrong question */
};
enum nv_rm_refusal nv_rm_refusal(int err);

/* Says an error of a question about an object that there is none such for who asks? */
bool nv_rm_denies(int err);

/* The name of a driver's status, for people. */
const char *nv_rm_status_name(uint32_t status);

#endif
