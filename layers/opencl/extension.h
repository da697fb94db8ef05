/* SPDX-License-Identifier: MIT */
/*
 * extension.h - calls of extensions, which programs ask their platform for.
 */
#ifndef RTXG_OPENCL_EXTENSION_H
#define RTXG_OPENCL_EXTENSION_H

#include "queue.h"

typedef cl_command_queue(CL_API_CALL *layer_next_create_queue)(cl_context, cl_device_id,
							       const cl_queue_properties *,
							       cl_int *);
/* Makes a queue by that function of the platform's, and makes it known to the layer. */
typedef cl_command_queue (*layer_create_queue)(layer_next_create_queue, cl_context, cl_device_id,
					       const cl_queue_properties *, cl_int *);

void layer_extension_init(layer_create_queue create);

/* What a program is given that asks for a function: the platform's, or the wrapper of it. */
void *layer_extension(cl_platform_id platform, const char *name, void *function);

/* In a forked child. */
void layer_extension_after_fork(void);

#endif
