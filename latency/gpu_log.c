// SPDX-License-Identifier: MIT
/*
 * gpu_log.c - see gpu_log.h. May not: know what CUDA is, or interpret the log.
 */
#include <errno.h>
#include <stdio.h>

#include "gpu_log.h"

#define LOG_RECORDS 65536

static struct nv_rm_gpu *of_address(struct gpu_log *log, const char *pci)
{
	unsigned int domain, bus, slot;

	if (sscanf(pci, "%x:%x:%x", &domain, &bus, &slot) != 3)
		return NULL;
	for (int i = 0; i < log->count; i++)
		if (log->devices[i].pci_domain == domain && log->devices[i].pci_bus == bus &&
		    log->devices[i].pci_slot == slot)
			return &log->devices[i];
	return NULL;
}

static int open_of(struct gpu_log *log, const char *pci)
{
	struct nv_rm_gpu *gpu = log->devices;

	if (!pci && log->count > 1)
		return -ENOTUNIQ;
	if (pci)
		gpu = of_address(log, pci);
	return gpu ? nv_fecs_open(&log->fecs, gpu, LOG_RECORDS) : -ENODEV;
}

static void close_gpus(struct gpu_log *log)
{
	for (int i = 0; i < log->count; i++)
		nv_rm_gpu_close(&log->devices[i]);
	nv_rm_close(&log->rm);
}

int gpu_log_open(struct gpu_log *log, const struct nv_sys *sys, const char *pci)
{
	int err = nv_rm_open(&log->rm, sys);

	if (err)
		return err;
	log->count = 0;
	err = nv_rm_gpus_open(&log->rm, log->devices, RM_GPUS_MAX);
	if (err > 0) {
		log->count = err;
		err = open_of(log, pci);
	}
	if (err)
		close_gpus(log);
	return err;
}

void gpu_log_close(struct gpu_log *log)
{
	nv_fecs_close(&log->fecs);
	close_gpus(log);
}
