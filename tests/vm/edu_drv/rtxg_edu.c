// SPDX-License-Identifier: GPL-2.0-only
/*
 * rtxg_edu.c - a small accelerator driver for QEMU's "edu" device, for the tests of rtxg.
 *
 * It plays the vendor's closed driver: it must not know rtxg, and rtxg gets no help from it. One
 * kernel at a time runs on the device, in order of launch; its end is an MSI, or an interrupt of a
 * line that other devices share (RTXG_EDU_F_LINE). How long a kernel takes is the device's doing:
 * edu computes a factorial in a separate thread, the larger the number the longer (mode=0). Under
 * instruction-counted emulation that thread does not follow the guest's time, so mode=1 lets a
 * timer tell the device when to raise the same interrupt.
 */
#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/irq.h>
#include <linux/irqdesc.h>
#include <linux/math64.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/rtmutex.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/timex.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <linux/wait.h>

#include "rtxg_edu.h"

#define EDU_REG_FACTORIAL	    0x08
#define EDU_STATUS_COMPUTING	    0x01
#define EDU_STATUS_IRQ_ON_FACTORIAL 0x80
#define EDU_REG_RAISE		    0x60
#define EDU_REG_ACK		    0x64
#define EDU_REG_COPY_FROM	    0x80
#define EDU_REG_COPY_TO		    0x88
#define EDU_REG_COPY_BYTES	    0x90
#define EDU_REG_COPY		    0x98
#define EDU_COPY_RUN		    0x01
#define EDU_COPY_INTERRUPT	    0x04
#define EDU_MEMORY		    0x40000 /* where the device's own memory begins for it */
#define EDU_COPY_LENGTH		    64

#define EDU_QUEUE	 256u
#define EDU_DURATION_MIN 1000ull
#define EDU_DURATION_MAX 2000000000ull

static int mode;
module_param(mode, int, 0444);
MODULE_PARM_DESC(mode, "what takes the time of a kernel: 0 the device's thread, 1 a timer (for "
		       "counted instructions)");

static int isr_reads;
module_param(isr_reads, int, 0644);
MODULE_PARM_DESC(isr_reads,
		 "further register reads in the top half, to give it the length of a vendor's");

static int bottom_us;
module_param(bottom_us, int, 0644);
MODULE_PARM_DESC(bottom_us, "how long the tasklet computes before it wakes who waits");

static bool chain;
module_param(chain, bool, 0644);
MODULE_PARM_DESC(chain, "the thread holds a lock between its runs, and who waits waits for it");

struct edu {
	struct pci_dev *pdev;
	void __iomem *mmio;
	struct miscdevice misc;
	char name[16];
	spinlock_t lock;
	wait_queue_head_t waiters;
	struct tasklet_struct bottom;
	struct hrtimer timer;
	u64 *fence;   /* one page: [0] last sequence completed, [1] last copy */
	void *memory; /* what is copied; NULL: none that the device can reach */
	dma_addr_t memory_at;
	u64 copies, copied;
	u64 loops_per_ms;
	u64 durations[EDU_QUEUE];
	u64 launched, started, completed;
	u64 start_ns;
	u64 interrupts, bottoms, served, busy_ns;
	u64 raised_cycles, identified_cycles, bottom_cycles;
	irq_handler_t below; /* the handler that the stacked one calls */
	u32 form;	     /* RTXG_EDU_F_* */
	bool joins;	     /* the device's kernel ends when the driver next looks */
	bool on_line;	     /* the interrupt is that of its pin, and not an MSI */
	u32 pending;	     /* THREADED: what the top half leaves to the thread */
	struct rt_mutex chain;
	bool holds; /* the thread holds it; the thread's own */
	struct mutex request;
};

static void edu_start_next(struct edu *edu)
{
	u64 duration;

	lockdep_assert_held(&edu->lock);
	if (edu->started != edu->completed || edu->started == edu->launched)
		return;
	duration = edu->durations[edu->started % EDU_QUEUE];
	edu->started++;
	edu->start_ns = ktime_get_ns();
	if (!duration)
		return;
	if (mode) {
		hrtimer_start(&edu->timer, ns_to_ktime(duration), HRTIMER_MODE_REL_HARD);
	} else {
		u64 loops = div_u64(duration * edu->loops_per_ms, NSEC_PER_MSEC);

		iowrite32(clamp_t(u64, loops, 1, U32_MAX), edu->mmio + EDU_REG_FACTORIAL);
	}
}

/* The device's part: first the fence, then the interrupt; mode=0's device writes no fence. */
static void edu_raise(struct edu *edu)
{
	if (mode)
		WRITE_ONCE(edu->fence[0], edu->started);
	edu->raised_cycles = get_cycles();
	iowrite32(RTXG_EDU_IRQ_COMPLETE, edu->mmio + EDU_REG_RAISE);
}

static enum hrtimer_restart edu_timer(struct hrtimer *timer)
{
	edu_raise(container_of(timer, struct edu, timer));
	return HRTIMER_NORESTART;
}

/* Reads and acknowledges what the device wants; 0: nothing. */
static u32 edu_identify(struct edu *edu)
{
	int reads = READ_ONCE(isr_reads);
	u32 status;

	if (unlikely(xchg(&edu->joins, false)))
		edu_raise(edu);
	status = ioread32(edu->mmio + RTXG_EDU_REG_IRQ_STATUS);
	edu->identified_cycles = get_cycles();
	if (!status)
		return 0;
	while (reads-- > 0)
		ioread32(edu->mmio + RTXG_EDU_REG_STATUS);
	return status;
}

static void edu_complete(struct edu *edu, u32 status)
{
	lockdep_assert_held(&edu->lock);
	if ((status & RTXG_EDU_IRQ_COMPLETE) && edu->started > edu->completed) {
		edu->busy_ns += ktime_get_ns() - edu->start_ns;
		edu->completed++;
		WRITE_ONCE(edu->fence[0], edu->completed);
		edu_start_next(edu);
	}
	if ((status & RTXG_EDU_IRQ_COPY) && edu->copies > edu->copied)
		WRITE_ONCE(edu->fence[1], ++edu->copied);
}

static irqreturn_t edu_top(int irq, void *data)
{
	struct edu *edu = data;
	u32 status = edu_identify(edu);

	if (!status)
		return IRQ_NONE;
	spin_lock(&edu->lock);
	iowrite32(status, edu->mmio + EDU_REG_ACK);
	edu->interrupts++;
	edu_complete(edu, status);
	/* under the lock: a run that counts this interrupt as served is the last that is due */
	tasklet_schedule(&edu->bottom);
	spin_unlock(&edu->lock);
	return IRQ_HANDLED;
}

static irqreturn_t edu_other(int irq, void *data)
{
	return edu_top(irq, data);
}

static irqreturn_t edu_ask(int irq, void *data)
{
	struct edu *edu = data;
	u32 status = edu_identify(edu);

	if (!status)
		return IRQ_NONE;
	spin_lock(&edu->lock);
	iowrite32(status, edu->mmio + EDU_REG_ACK);
	edu->interrupts++;
	edu->pending |= status;
	spin_unlock(&edu->lock);
	return IRQ_WAKE_THREAD;
}

/*
 * Lets through who waits, and holds the lock again: the kernel lends the thread what they have,
 * also before it runs. It must not end so, as the lock could not be given back then.
 */
static void edu_pass(struct edu *edu)
{
	if (edu->holds)
		rt_mutex_unlock(&edu->chain);
	edu->holds = READ_ONCE(chain);
	if (edu->holds)
		rt_mutex_lock(&edu->chain);
}

static long edu_sync(struct edu *edu, u64 sequence)
{
	while (READ_ONCE(chain) && READ_ONCE(edu->completed) < sequence) {
		if (rt_mutex_lock_interruptible(&edu->chain))
			return -ERESTARTSYS;
		rt_mutex_unlock(&edu->chain);
	}
	return wait_event_interruptible(edu->waiters, READ_ONCE(edu->completed) >= sequence);
}

static irqreturn_t edu_thread(int irq, void *data)
{
	struct edu *edu = data;

	/* long enough for a thread that was woken too early to be seen */
	usleep_range(500, 600);
	spin_lock_irq(&edu->lock);
	edu_complete(edu, xchg(&edu->pending, 0));
	edu->bottoms++;
	edu->served = edu->interrupts;
	spin_unlock_irq(&edu->lock);
	wake_up_all(&edu->waiters);
	edu_pass(edu);
	return IRQ_HANDLED;
}

/* Nothing is requested. An MSI is one driver's. A pin's line may be that of several devices. */
static int edu_choose(struct edu *edu, bool on_line)
{
	int vectors;

	if (edu->on_line == on_line)
		return 0;
	if (on_line) {
		pci_free_irq_vectors(edu->pdev);
	} else {
		vectors = pci_alloc_irq_vectors(edu->pdev, 1, 1, PCI_IRQ_MSI);
		if (vectors < 0)
			return vectors;
	}
	edu->on_line = on_line;
	return 0;
}

static int edu_request(struct edu *edu, u32 request)
{
	static const irq_handler_t handlers[] = { edu_top, edu_ask, edu_other };
	u32 form = request & ~RTXG_EDU_F_LINE;
	int err = 0;

	mutex_lock(&edu->request);
	if (edu->form != RTXG_EDU_F_FREE)
		free_irq(edu->pdev->irq, edu);
	edu->form = RTXG_EDU_F_FREE;
	if (form != RTXG_EDU_F_FREE) {
		err = edu_choose(edu, request & RTXG_EDU_F_LINE);
		if (!err)
			err = request_threaded_irq(edu->pdev->irq, handlers[form],
						   form == RTXG_EDU_F_THREADED ? edu_thread : NULL,
						   edu->on_line ? IRQF_SHARED : 0, edu->name, edu);
	}
	if (!err)
		edu->form = form;
	mutex_unlock(&edu->request);
	return err;
}

static void edu_bottom(struct tasklet_struct *tasklet)
{
	struct edu *edu = from_tasklet(edu, tasklet, bottom);
	unsigned long flags;
	u64 seen;

	spin_lock_irqsave(&edu->lock, flags);
	seen = edu->interrupts;
	spin_unlock_irqrestore(&edu->lock, flags);
	mdelay(READ_ONCE(bottom_us) / 1000);
	udelay(READ_ONCE(bottom_us) % 1000);
	edu->bottom_cycles = get_cycles();
	spin_lock_irqsave(&edu->lock, flags);
	edu->bottoms++;
	edu->served = seen;
	spin_unlock_irqrestore(&edu->lock, flags);
	wake_up_all(&edu->waiters);
}

static irqreturn_t edu_stacked(int irq, void *data)
{
	struct edu *edu = data;

	return edu->below(irq, data);
}

static int edu_stack(struct edu *edu, bool on)
{
	struct irq_desc *desc = irq_data_to_desc(irq_get_irq_data(edu->pdev->irq));
	unsigned long flags;
	int err = 0;

	raw_spin_lock_irqsave(&desc->lock, flags);
	if (on && desc->action->handler != edu_stacked) {
		edu->below = desc->action->handler;
		desc->action->handler = edu_stacked;
	} else if (!on && desc->action->handler == edu_stacked) {
		desc->action->handler = edu->below;
	} else {
		err = -EBUSY;
	}
	raw_spin_unlock_irqrestore(&desc->lock, flags);
	synchronize_irq(edu->pdev->irq);
	return err;
}

static int edu_open(struct inode *inode, struct file *file)
{
	file->private_data = container_of(file->private_data, struct edu, misc);
	return 0;
}

static long edu_launch(struct edu *edu, void __user *argument)
{
	struct rtxg_edu_launch launch;

	if (copy_from_user(&launch, argument, sizeof(launch)))
		return -EFAULT;
	if (launch.duration_ns &&
	    (launch.duration_ns < EDU_DURATION_MIN || launch.duration_ns > EDU_DURATION_MAX))
		return -EINVAL;
	spin_lock_irq(&edu->lock);
	if (edu->launched - edu->completed >= EDU_QUEUE) {
		spin_unlock_irq(&edu->lock);
		return -EAGAIN;
	}
	edu->durations[edu->launched % EDU_QUEUE] = launch.duration_ns;
	launch.sequence = ++edu->launched;
	edu_start_next(edu);
	spin_unlock_irq(&edu->lock);
	return copy_to_user(argument, &launch, sizeof(launch)) ? -EFAULT : 0;
}

/* Plays the device's part for a kernel that has no duration. */
static long edu_end(struct edu *edu, bool joins)
{
	bool held;

	spin_lock_irq(&edu->lock);
	held = edu->started != edu->completed && !edu->durations[(edu->started - 1) % EDU_QUEUE];
	/* a second call finds a duration, and ends nothing */
	if (held)
		edu->durations[(edu->started - 1) % EDU_QUEUE] = EDU_DURATION_MIN;
	if (held && joins)
		WRITE_ONCE(edu->joins, true);
	spin_unlock_irq(&edu->lock);
	if (!held)
		return -ENOENT;
	if (!joins)
		edu_raise(edu);
	return 0;
}

static long edu_copy(struct edu *edu, void __user *argument)
{
	u64 number = 0;

	if (!edu->memory)
		return -EOPNOTSUPP;
	spin_lock_irq(&edu->lock);
	if (edu->copies == edu->copied) {
		number = ++edu->copies;
		iowrite32(lower_32_bits(edu->memory_at), edu->mmio + EDU_REG_COPY_FROM);
		iowrite32(EDU_MEMORY, edu->mmio + EDU_REG_COPY_TO);
		iowrite32(EDU_COPY_LENGTH, edu->mmio + EDU_REG_COPY_BYTES);
		iowrite32(EDU_COPY_RUN | EDU_COPY_INTERRUPT, edu->mmio + EDU_REG_COPY);
	}
	spin_unlock_irq(&edu->lock);
	if (!number)
		return -EBUSY;
	return copy_to_user(argument, &number, sizeof(number)) ? -EFAULT : 0;
}

static long edu_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct edu *edu = file->private_data;
	void __user *user = (void __user *)argument;
	struct rtxg_edu_stats stats;
	u64 sequence;
	u32 count;

	switch (command) {
	case RTXG_EDU_LAUNCH:
		return edu_launch(edu, user);
	case RTXG_EDU_SYNC:
		if (copy_from_user(&sequence, user, sizeof(sequence)))
			return -EFAULT;
		if (sequence > READ_ONCE(edu->launched))
			return -EINVAL;
		return edu_sync(edu, sequence);
	case RTXG_EDU_STORM:
		if (copy_from_user(&count, user, sizeof(count)))
			return -EFAULT;
		while (count--) {
			edu->raised_cycles = get_cycles();
			iowrite32(RTXG_EDU_IRQ_STORM, edu->mmio + EDU_REG_RAISE);
			if (signal_pending(current))
				return -EINTR;
			cond_resched();
		}
		return 0;
	case RTXG_EDU_COPY:
		return edu_copy(edu, user);
	case RTXG_EDU_END:
	case RTXG_EDU_JOIN:
		return edu_end(edu, command == RTXG_EDU_JOIN);
	case RTXG_EDU_STACK:
		if (copy_from_user(&count, user, sizeof(count)))
			return -EFAULT;
		return edu_stack(edu, count);
	case RTXG_EDU_REQUEST:
		if (copy_from_user(&count, user, sizeof(count)))
			return -EFAULT;
		if ((count & ~RTXG_EDU_F_LINE) >= RTXG_EDU_FORMS)
			return -EINVAL;
		return edu_request(edu, count);
	case RTXG_EDU_STATS:
		spin_lock_irq(&edu->lock);
		stats = (struct rtxg_edu_stats){
			.launched = edu->launched,
			.completed = edu->completed,
			.interrupts = edu->interrupts,
			.bottom = edu->bottoms,
			.served = edu->served,
			.busy_ns = edu->busy_ns,
			.irq = edu->pdev->irq,
			.raised_cycles = edu->raised_cycles,
			.identified_cycles = edu->identified_cycles,
			.bottom_cycles = edu->bottom_cycles,
		};
		spin_unlock_irq(&edu->lock);
		return copy_to_user(user, &stats, sizeof(stats)) ? -EFAULT : 0;
	}
	return -ENOTTY;
}

static int edu_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct edu *edu = file->private_data;

	if (vma->vm_end - vma->vm_start != PAGE_SIZE || vma->vm_pgoff || (vma->vm_flags & VM_WRITE))
		return -EINVAL;
	return vm_insert_page(vma, vma->vm_start, virt_to_page(edu->fence));
}

static const struct file_operations edu_operations = {
	.owner = THIS_MODULE,
	.open = edu_open,
	.unlocked_ioctl = edu_ioctl,
	.mmap = edu_mmap,
};

/*
 * How many factorial steps the device does in a millisecond: the best of three, since the host may
 * be busy.
 */
static u64 edu_calibrate(struct edu *edu)
{
	const u32 loops = 1u << 21;
	u64 best = U64_MAX;

	for (int i = 0; i < 3; i++) {
		u64 start = ktime_get_ns();

		iowrite32(loops, edu->mmio + EDU_REG_FACTORIAL);
		while (ioread32(edu->mmio + RTXG_EDU_REG_STATUS) & EDU_STATUS_COMPUTING) {
			if (ktime_get_ns() - start > 2 * NSEC_PER_SEC)
				return 0;
			cpu_relax();
		}
		best = min(best, ktime_get_ns() - start);
	}
	return div64_u64((u64)loops * NSEC_PER_MSEC, max(best, 1ull));
}

static int edu_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	static atomic_t number = ATOMIC_INIT(0);
	struct edu *edu = devm_kzalloc(&pdev->dev, sizeof(*edu), GFP_KERNEL);
	int err;

	if (!edu)
		return -ENOMEM;
	edu->pdev = pdev;
	spin_lock_init(&edu->lock);
	init_waitqueue_head(&edu->waiters);
	rt_mutex_init(&edu->chain);
	tasklet_setup(&edu->bottom, edu_bottom);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup(&edu->timer, edu_timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
#else
	hrtimer_init(&edu->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
	edu->timer.function = edu_timer;
#endif
	edu->fence = (u64 *)get_zeroed_page(GFP_KERNEL);
	if (!edu->fence)
		return -ENOMEM;
	err = pci_enable_device(pdev);
	if (err)
		goto free_fence;
	err = -ENOMEM;
	edu->mmio = pci_iomap(pdev, 0, 0);
	if (!edu->mmio)
		goto disable;
	pci_set_master(pdev);
	/* QEMU's edu has 28 lines for addresses */
	if (!dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(28)))
		edu->memory = dmam_alloc_coherent(&pdev->dev, EDU_COPY_LENGTH, &edu->memory_at,
						  GFP_KERNEL);
	if (!mode) {
		edu->loops_per_ms = edu_calibrate(edu);
		err = -EIO;
		if (!edu->loops_per_ms)
			goto unmap;
		iowrite32(EDU_STATUS_IRQ_ON_FACTORIAL, edu->mmio + RTXG_EDU_REG_STATUS);
	}
	edu->on_line = true;
	err = edu_choose(edu, false);
	if (err)
		goto unmap;
	snprintf(edu->name, sizeof(edu->name), "rtxg_edu%d", atomic_fetch_inc(&number));
	edu->form = RTXG_EDU_F_FREE;
	mutex_init(&edu->request);
	err = edu_request(edu, RTXG_EDU_F_TOP);
	if (err)
		goto free_vectors;
	edu->misc = (struct miscdevice){ .minor = MISC_DYNAMIC_MINOR,
					 .name = edu->name,
					 .fops = &edu_operations };
	err = misc_register(&edu->misc);
	if (err)
		goto free_irq;
	pci_set_drvdata(pdev, edu);
	return 0;
free_irq:
	edu_request(edu, RTXG_EDU_F_FREE);
free_vectors:
	pci_free_irq_vectors(pdev);
unmap:
	pci_iounmap(pdev, edu->mmio);
disable:
	pci_disable_device(pdev);
free_fence:
	free_page((unsigned long)edu->fence);
	return err;
}

static void edu_remove(struct pci_dev *pdev)
{
	struct edu *edu = pci_get_drvdata(pdev);

	misc_deregister(&edu->misc);
	hrtimer_cancel(&edu->timer);
	iowrite32(0, edu->mmio + RTXG_EDU_REG_STATUS);
	edu_request(edu, RTXG_EDU_F_FREE);
	tasklet_kill(&edu->bottom);
	pci_free_irq_vectors(pdev);
	pci_iounmap(pdev, edu->mmio);
	pci_disable_device(pdev);
	free_page((unsigned long)edu->fence);
}

static const struct pci_device_id edu_ids[] = { { PCI_DEVICE(0x1234, 0x11e8) }, {} };
MODULE_DEVICE_TABLE(pci, edu_ids);

static struct pci_driver edu_driver = {
	.name = "rtxg_edu",
	.id_table = edu_ids,
	.probe = edu_probe,
	.remove = edu_remove,
	/* open files keep the module; unbinding alone would pull the device from under them */
	.driver.suppress_bind_attrs = true,
};
module_pci_driver(edu_driver);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("accelerator on QEMU's edu device, for the tests of rtxg");
