// SPDX-License-Identifier: MIT
/*
 * nvrm_clients.c - see nvrm_clients.h. May not: speak to the driver (nvrm_gpu.c does), or know what
 * a timeline is.
 */
#include <stdlib.h>

#include "errors.h"
#include "nvrm_clients.h"

/* Of both lists, and of all that opens and closes: a second one waits for the first. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nvrm_gpu *open_now;
/* Closed ones, for those that are opened next. */
static struct nvrm_gpu *spare;

static struct nvrm_gpu *find(const char *device)
{
	for (struct nvrm_gpu *gpu = open_now; gpu; gpu = gpu->later)
		if (rtx_lib_nvrm_is(gpu, device))
			return gpu;
	return NULL;
}

static struct nvrm_gpu *take_spare(void)
{
	struct nvrm_gpu *gpu = spare;

	if (gpu)
		spare = gpu->later;
	return gpu ? gpu : calloc(1, sizeof(*gpu));
}

static void put(struct nvrm_gpu **list, struct nvrm_gpu *gpu)
{
	gpu->later = *list;
	*list = gpu;
}

static int open_new(const char *device, struct nvrm_gpu **gpu, struct nvrm_memory *memory,
		    struct nvrm_channel *first)
{
	struct nvrm_gpu *g = take_spare();
	int err;

	if (!g)
		return rtx_lib_failed(-ENOMEM, "there is no memory for a GPU's channels");
	err = rtx_lib_nvrm_open(g, device, memory, first);
	put(err ? &spare : &open_now, g);
	*gpu = g;
	return err;
}

int rtx_lib_nvrm_take(const char *device, struct nvrm_gpu **gpu, struct nvrm_memory *memory,
		      struct nvrm_channel *first)
{
	int err;

	pthread_mutex_lock(&lock);
	*gpu = find(device);
	err = *gpu ? rtx_lib_nvrm_memory(*gpu, memory) : open_new(device, gpu, memory, first);
	if (!err)
		(*gpu)->users++;
	pthread_mutex_unlock(&lock);
	return err;
}

static void close_last(struct nvrm_gpu *gpu, struct nvrm_memory *memory)
{
	for (struct nvrm_gpu **p = &open_now; *p; p = &(*p)->later)
		if (*p == gpu) {
			*p = gpu->later;
			break;
		}
	rtx_lib_nvrm_close(gpu, memory);
	put(&spare, gpu);
}

void rtx_lib_nvrm_give(struct nvrm_gpu *gpu, struct nvrm_memory *memory)
{
	pthread_mutex_lock(&lock);
	if (--gpu->users)
		rtx_lib_nvrm_memory_close(gpu, memory);
	else
		close_last(gpu, memory);
	pthread_mutex_unlock(&lock);
}

void rtx_lib_nvrm_fork_prepare(void)
{
	pthread_mutex_lock(&lock);
	for (struct nvrm_gpu *gpu = open_now; gpu; gpu = gpu->later)
		pthread_mutex_lock(&gpu->lock);
}

void rtx_lib_nvrm_fork_parent(void)
{
	for (struct nvrm_gpu *gpu = open_now; gpu; gpu = gpu->later)
		pthread_mutex_unlock(&gpu->lock);
	pthread_mutex_unlock(&lock);
}

void rtx_lib_nvrm_fork_child(void)
{
	while (open_now) {
		struct nvrm_gpu *gpu = open_now;

		open_now = gpu->later;
		rtx_lib_nvrm_abandon(gpu);
		put(&spare, gpu);
	}
	pthread_mutex_init(&lock, NULL);
}
