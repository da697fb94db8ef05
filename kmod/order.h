/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * order.h - threads that follow an order of their shared accesses: the six prototypes of
 * kernel-IRS.
 */
#ifndef RTXG_KMOD_ORDER_H
#define RTXG_KMOD_ORDER_H

void rtxg_order_module_init(void);
/* RTXG_IOC_ORDER_LOAD: a new descriptor, or a negative errno. */
long rtxg_order_load_ioctl(unsigned int command, void __user *user);

#endif
