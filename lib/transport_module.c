// SPDX-License-Identifier: MIT
/*
 * transport_module.c - a task hosted by rtxg.ko through /dev/rtxg. The module that hosts the scheduler is not there yet (the one that is there
 * intercepts interrupts), so opening says -ENOTSUP and the library goes on to the daemon. May not wait for anything but the permit.
 */
#include "internal.h"

static int module_open(struct rtx_gpu *h)
{
	return failed(-ENOTSUP, "this librtxg cannot be hosted by the kernel module; set RTXG_HOST=daemon");
}

const struct transport transport_module = {
	.name = "module",
	.open = module_open,
};
