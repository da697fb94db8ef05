// SPDX-License-Identifier: MIT
/*
 * fake_cupti.c - the two functions of CUPTI that librtxg-cuda.so calls, and a call of CUDA's that
 * it is told of. Never installed.
 */
#include <stddef.h>
#include <stdbool.h>

#include "fake_cupti.h"

struct fake_cupti fake_cupti;

static cupti_callback callback;
static void *its_user;
static bool enabled[1000];

int cuptiSubscribe(void **subscriber, cupti_callback function, void *user)
{
	if (fake_cupti.refuses)
		return 39; /* CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED */
	callback = function;
	its_user = user;
	*subscriber = &callback;
	return 0;
}

int cuptiEnableCallback(uint32_t enable, void *subscriber, uint32_t domain, uint32_t number)
{
	if (subscriber != &callback || domain != CUPTI_DRIVER_API || number >= 1000)
		return 1; /* CUPTI_ERROR_INVALID_PARAMETER */
	enabled[number] = enable;
	return 0;
}

bool fake_cupti_tell(uint32_t number, const void *parameters, void *context)
{
	struct cupti_call call = { .site = CUPTI_ENTER,
				   .parameters = parameters,
				   .context = context };

	if (!callback || number >= 1000 || !enabled[number])
		return false;
	callback(its_user, CUPTI_DRIVER_API, number, &call);
	call.site = !CUPTI_ENTER;
	callback(its_user, CUPTI_DRIVER_API, number, &call);
	return true;
}
