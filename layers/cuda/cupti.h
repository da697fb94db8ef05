/* SPDX-License-Identifier: MIT */
/*
 * cupti.h - the part of CUPTI's binary interface that waits.c uses: callbacks around calls of
 * CUDA's driver API. The numbers are those of cupti_callbacks.h and cupti_driver_cbid.h; in CUPTI
 * 11.8, 12.9 and 13.5 they are the same.
 */
#ifndef RTXG_CUDA_CUPTI_H
#define RTXG_CUDA_CUPTI_H

#include <stdint.h>

#define CUPTI_DRIVER_API 1u /* a domain of callbacks */
#define CUPTI_ENTER	 0u /* the site ahead of the call */

/* Calls, by number. Those of the second line take a stream of NULL for the thread's own. */
#define CUPTI_CTX_SYNCHRONIZE	   17u
#define CUPTI_STREAM_SYNCHRONIZE   126u
#define CUPTI_MEMCPY_D_TO_H	   278u
#define CUPTI_STREAM_SYNCHRONIZE_T 440u
#define CUPTI_MEMCPY_D_TO_H_T	   398u

struct cupti_call {
	uint32_t site;
	const char *function;
	const void *parameters; /* a struct of the call's arguments, in their order */
	void *result;
	const char *symbol;
	void *context; /* the calling thread's; NULL: none */
	uint32_t context_number;
	uint64_t *data;
	uint32_t correlation;
};

typedef void (*cupti_callback)(void *user, uint32_t domain, uint32_t number,
			       const struct cupti_call *call);

#endif
