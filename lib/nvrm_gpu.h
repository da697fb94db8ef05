/* SPDX-License-Identifier: MIT */
/*
 * nvrm_gpu.h - one client of the NVIDIA driver's resource manager with channels of its own on a
 * copy engine. It knows what to tell the GPU, not when. Not installed.
 */
#ifndef RTX_LIB_NVRM_GPU_H
#define RTX_LIB_NVRM_GPU_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "rm.h"

#define NVRM_CHANNELS 16u
/* Places in a channel's ring; one less can be in use. A power of two. */
#define NVRM_ENTRIES	 256u
#define NVRM_PLACE_WORDS 16u /* of what the GPU is told at a place */

/* Where the GPU writes that it has passed an acquire. */
struct nvrm_fence {
	uint64_t payload, stamp;
};

struct nvrm_channel {
	uint32_t handle, event_handle, token;
	uint32_t put;	/* next place of the ring */
	uint32_t given; /* places that have been used, NVRM_ENTRIES at most */
	volatile uint32_t *ring, *userd, *push;
	volatile struct nvrm_fence *fences; /* one for each place */
	uint64_t push_at, fences_at;	    /* for the GPU */
	int event;			    /* becomes readable by interrupts; -1: not open */
};

/* Pages that the GPU was given at once; handle 0: not as yet. */
struct nvrm_piece {
	uint32_t handle;
	uint64_t at; /* for the GPU */
};

/*
 * What the channels of one handle lie in: whole pages of this process, which children do not get.
 */
struct nvrm_memory {
	uint8_t *pages;		       /* words that streams write, then each channel's */
	struct nvrm_piece first, rest; /* the words and channel 0; the other channels */
	int words_fd;		       /* memfd; -1: none */
	bool words_stay; /* CUDA does not forget them: nothing else may come to their address */
	/*
	 * for the host of the program's tasks: interrupts are another's if they wake us; -1: none
	 */
	int host_event;
	uint32_t host_event_handle;
};

struct nvrm_gpu {
	pthread_mutex_t lock; /* of the driver's calls, once it is open */
	struct nv_rm rm;
	const struct nv_sys *sys;
	char name[24]; /* PCI address */
	uint32_t id;
	int device_fd, minor; /* minor: N of /dev/nvidiaN */
	uint32_t device, subdevice, space, addresses, group;
	uint32_t engine, channel_class;
	bool binds;	    /* channels are bound to the engine by a call of their own */
	bool channel_moved; /* its parameters are those since NV_CHANNEL_MOVED */
	/* In the group. Once its last one has gone the driver lets it have no others. */
	unsigned int channels;
	bool spent;
	volatile uint32_t *doorbell;
	void *doorbell_page;
	unsigned int users; /* handles that have it: nvrm_clients.c's */
	struct nvrm_gpu *later;
};

/* How the calls are made; tests put another driver in place. */
extern const struct nv_sys *rtx_lib_nvrm_sys;

/*
 * Opens that GPU (see rtx_nvrm_init) and finds a copy engine that serves us: the first channel is
 * opened with it, in a first memory. On an error, which is in words, nothing is left.
 */
int rtx_lib_nvrm_open(struct nvrm_gpu *gpu, const char *device, struct nvrm_memory *memory,
		      struct nvrm_channel *first);
/* Is it what that device names? */
bool rtx_lib_nvrm_is(const struct nvrm_gpu *gpu, const char *device);
/* The driver frees all that belonged to the client; memory: the last that is open. */
void rtx_lib_nvrm_close(struct nvrm_gpu *gpu, struct nvrm_memory *memory);
/* What is open is another process's: lets go of the descriptors, tells the driver nothing. */
void rtx_lib_nvrm_abandon(struct nvrm_gpu *gpu);

/* More memory, for the channels of another handle; on an error nothing is left. */
int rtx_lib_nvrm_memory(struct nvrm_gpu *gpu, struct nvrm_memory *memory);
/* All channels in it are closed. */
void rtx_lib_nvrm_memory_close(struct nvrm_gpu *gpu, struct nvrm_memory *memory);
/* used: what runs in this process may still look at it, and finds zeros. */
void rtx_lib_nvrm_memory_abandon(struct nvrm_memory *memory, bool used);

/* number: 0 to NVRM_CHANNELS - 1; two that are open at once in one memory have different ones. */
int rtx_lib_nvrm_channel(struct nvrm_gpu *gpu, struct nvrm_memory *memory, unsigned int number,
			 struct nvrm_channel *channel);
void rtx_lib_nvrm_channel_close(struct nvrm_gpu *gpu, struct nvrm_channel *channel);

/* Opens host_event, if it is not open. */
int rtx_lib_nvrm_host_event(struct nvrm_gpu *gpu, struct nvrm_memory *memory);
/* Opens the channel's event, if it is not open. Not twice at one time. */
int rtx_lib_nvrm_event(struct nvrm_gpu *gpu, struct nvrm_channel *channel);

/* Gives the GPU a way to the page in which that word of this process lies. */
int rtx_lib_nvrm_import(struct nvrm_gpu *gpu, volatile uint32_t *word, uint32_t *handle,
			uint64_t *at);
void rtx_lib_nvrm_forget(struct nvrm_gpu *gpu, uint32_t handle);

/*
 * Puts into the channel: wait until the word has reached value, then raise an interrupt if it is
 * asked for, then write the fence of this place with a time stamp. Returns the place, or -EAGAIN
 * when the ring is full. word_at 0: there is nothing to wait for.
 */
int rtx_lib_nvrm_submit(struct nvrm_gpu *gpu, struct nvrm_channel *channel, uint64_t word_at,
			uint32_t value, uint64_t payload, bool interrupt);

/* 0, or -ENODEV when the driver says that the GPU is lost. */
int rtx_lib_nvrm_alive(struct nvrm_gpu *gpu);

#endif
