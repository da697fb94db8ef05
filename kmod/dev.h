/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dev.h - the device /dev/rtxg.
 */
#ifndef RTXG_KMOD_DEV_H
#define RTXG_KMOD_DEV_H

int rtxg_dev_init(void);
void rtxg_dev_exit(void);

#endif
