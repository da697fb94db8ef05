// SPDX-License-Identifier: GPL-2.0-only
/*
 * freed.c - hears of interrupts that their drivers free.
 *
 * A driver that asks for its interrupt again gets the same memory for it, with another handler
 * perhaps: looking at that memory afterwards, one cannot tell this from a second interceptor. So
 * the call that frees is seen by itself, by the kernel's function tracer, which is patched into
 * that one function when it is first needed and stays until the module goes. A kernel without it,
 * or with kernel.ftrace_enabled=0, tells nothing. May not: know what a freed interrupt means.
 */
#include <linux/errno.h>
#include <linux/ftrace.h>
#include <linux/mutex.h>

#include "freed.h"

#ifdef CONFIG_DYNAMIC_FTRACE_WITH_REGS

static DEFINE_MUTEX(lock);
static bool active;
static void (*tell)(unsigned int irq, void *dev_id);

static void about_to_free(unsigned long ip, unsigned long parent, struct ftrace_ops *ops,
			  struct ftrace_regs *fregs)
{
	struct pt_regs *regs = ftrace_get_regs(fregs);

	if (regs)
		tell(regs_get_kernel_argument(regs, 0), (void *)regs_get_kernel_argument(regs, 1));
}

static struct ftrace_ops ops = {
	.func = about_to_free,
	.flags = FTRACE_OPS_FL_SAVE_REGS,
};

int rtxg_freed_need(void (*told)(unsigned int irq, void *dev_id))
{
	static char name[] = "free_irq";
	int err = 0;

	mutex_lock(&lock);
	if (!active) {
		tell = told;
		err = ftrace_set_filter(&ops, (unsigned char *)name, sizeof(name) - 1, 1);
		if (!err)
			err = register_ftrace_function(&ops);
		active = !err;
	}
	mutex_unlock(&lock);
	return err;
}

void rtxg_freed_exit(void)
{
	if (active)
		unregister_ftrace_function(&ops);
	ftrace_free_filter(&ops);
}

#else

int rtxg_freed_need(void (*told)(unsigned int irq, void *dev_id))
{
	return -EOPNOTSUPP;
}

void rtxg_freed_exit(void)
{
}

#endif
