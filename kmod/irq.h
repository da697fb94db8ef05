/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * irq.h - interrupts of devices: who waits for them, and what they cost.
 */
#ifndef RTXG_KMOD_IRQ_H
#define RTXG_KMOD_IRQ_H

struct rtxg_file;

long rtxg_irq_ioctl(struct rtxg_file *file, unsigned int command, void __user *argument);
void rtxg_irq_release(struct rtxg_file *file);
int rtxg_irq_init(void);
void rtxg_irq_exit(void);

#endif
