// SPDX-License-Identifier: GPL-2.0-only
/*
 * main.c - loading and unloading of rtxg.ko.
 *
 * Loading changes nothing in the kernel: no handler is swapped, no probe registered and no task
 * touched until a program asks through /dev/rtxg. What it asked for pins the module through the
 * open file, so unloading finds only probes left to take out.
 */
#include <linux/init.h>
#include <linux/module.h>

#include "cpu/cpu.h"
#include "dev.h"
#include "host.h"
#include "irq.h"
#include "order.h"
#include "trace.h"

static int __init rtxg_init(void)
{
	int err;

	err = rtxg_irq_init();
	if (err)
		return err;
	err = rtxg_cpu_init();
	if (err)
		goto irq;
	err = rtxg_host_init();
	if (err)
		goto cpu;
	rtxg_order_module_init();
	err = rtxg_dev_init();
	if (err)
		goto host;
	return 0;
host:
	rtxg_host_exit();
cpu:
	rtxg_trace_exit();
	rtxg_cpu_exit();
irq:
	rtxg_irq_exit();
	return err;
}

static void __exit rtxg_exit(void)
{
	rtxg_dev_exit();
	rtxg_host_exit();
	rtxg_trace_exit();
	rtxg_cpu_exit();
	rtxg_irq_exit();
}

module_init(rtxg_init);
module_exit(rtxg_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("real-time management of GPU work and the CPU time that drives it");
MODULE_VERSION("0.1.0");
