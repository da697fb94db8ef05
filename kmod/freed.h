/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * freed.h - hears of interrupts that their drivers free: see freed.c.
 */
#ifndef RTXG_KMOD_FREED_H
#define RTXG_KMOD_FREED_H

/*
 * told is called from now on for each interrupt that is about to be freed, by the driver that frees
 * it. It may not sleep. In process context; negative errno: nothing will be heard.
 */
int rtxg_freed_need(void (*told)(unsigned int irq, void *dev_id));
void rtxg_freed_exit(void);

#endif
