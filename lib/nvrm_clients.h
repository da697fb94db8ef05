/* SPDX-License-Identifier: MIT */
/*
 * nvrm_clients.h - the GPUs that this process has open for waits: one client of the driver for
 * each, however many handles there are. Not installed.
 */
#ifndef RTX_LIB_NVRM_CLIENTS_H
#define RTX_LIB_NVRM_CLIENTS_H

#include "nvrm_gpu.h"

/*
 * Opens that GPU, or shares what is open of it; memory of the handle's own either way. first: the
 * channel that was opened with the GPU; its handle is 0 where another opened the GPU.
 */
int rtx_lib_nvrm_take(const char *device, struct nvrm_gpu **gpu, struct nvrm_memory *memory,
		      struct nvrm_channel *first);
/* The handle's channels are closed. The last one closes the GPU. */
void rtx_lib_nvrm_give(struct nvrm_gpu *gpu, struct nvrm_memory *memory);

/* Around a fork; between them no descriptor of the driver's is opened or closed. */
void rtx_lib_nvrm_fork_prepare(void);
void rtx_lib_nvrm_fork_parent(void);
/* The child has none of the GPUs. */
void rtx_lib_nvrm_fork_child(void);

#endif
