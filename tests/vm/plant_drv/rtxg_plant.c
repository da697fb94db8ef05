// SPDX-License-Identifier: GPL-2.0-only
/*
 * rtxg_plant.c - plants in the kernel what a test needs to find there: a delay of a known kind and
 * length, for `rtxg latency` (a word and microseconds written to
 * /sys/module/rtxg_plant/parameters/delay, as "irqs 5000"), and an interrupt that is nested in
 * another's thread, as those of I2C devices are ("rtxg_nested"). For a guest that is thrown away;
 * it has nothing to do with rtxg.
 */
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/irq_work.h>
#include <linux/irqflags.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/string.h>

#define MOST_US 100000u

static u64 plant_ns;

static void plant_busy(void)
{
	u64 end = ktime_get_ns() + READ_ONCE(plant_ns);

	while (ktime_get_ns() < end)
		cpu_relax();
}

static noinline void plant_irqs_off(void)
{
	unsigned long flags;

	local_irq_save(flags);
	plant_busy();
	local_irq_restore(flags);
}

static noinline void plant_preempt_off(void)
{
	preempt_disable();
	plant_busy();
	preempt_enable();
}

static void plant_tasklet(struct tasklet_struct *tasklet)
{
	plant_busy();
}

static void plant_work(struct irq_work *work)
{
	plant_busy();
}

static DECLARE_TASKLET(tasklet, plant_tasklet);
static struct irq_work work = IRQ_WORK_INIT_HARD(plant_work);

static int plant_set(const char *text, const struct kernel_param *param)
{
	char word[16];
	unsigned int us;

	if (sscanf(text, "%15s %u", word, &us) != 2 || us > MOST_US)
		return -EINVAL;
	WRITE_ONCE(plant_ns, us * 1000ull);
	if (!strcmp(word, "irqs"))
		plant_irqs_off();
	else if (!strcmp(word, "preemption"))
		plant_preempt_off();
	else if (!strcmp(word, "softirq"))
		tasklet_schedule(&tasklet);
	else if (!strcmp(word, "interrupt"))
		irq_work_queue(&work);
	else
		return -EINVAL;
	return 0;
}

static const struct kernel_param_ops plant_ops = { .set = plant_set };
module_param_cb(delay, &plant_ops, NULL, 0200);
MODULE_PARM_DESC(delay, "KIND US: irqs, preemption, softirq, interrupt");

/* The handler of the outer interrupt would call it, in that one's thread. There is none. */
static irqreturn_t plant_nested(int irq, void *dev_id)
{
	return IRQ_HANDLED;
}

static int nested_irq;

static int __init plant_init(void)
{
	int err;

	/* of no module: asking for one's own would keep this one loaded */
	nested_irq = __irq_alloc_descs(-1, 0, 1, NUMA_NO_NODE, NULL, NULL);
	if (nested_irq < 0)
		return nested_irq;
	irq_set_chip_and_handler(nested_irq, &dummy_irq_chip, handle_simple_irq);
	irq_set_nested_thread(nested_irq, true);
	err = request_threaded_irq(nested_irq, NULL, plant_nested, IRQF_ONESHOT, "rtxg_nested",
				   &nested_irq);
	if (err)
		irq_free_desc(nested_irq);
	return err;
}

static void __exit plant_exit(void)
{
	free_irq(nested_irq, &nested_irq);
	irq_free_desc(nested_irq);
	irq_work_sync(&work);
	tasklet_kill(&tasklet);
}

module_init(plant_init);
module_exit(plant_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("delays of a known kind and length, and a nested interrupt, for tests");
