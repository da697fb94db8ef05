// SPDX-License-Identifier: GPL-2.0-only
/*
 * rtxg_window.c - holds a task switch of rtxg.ko in the moment between finding a thread in its
 * table and taking the lock of that thread's task. Unaided that moment is some nanoseconds long,
 * and no test meets it.
 *
 * A thread that exits with the only descriptor of /dev/rtxg_window sleeps in its release, which is
 * after the kernel has told that it exits, until it is switched to in that moment. The switch goes
 * on when the parameter "go" is written. "state" says: idle, exits, held, let go, or expired, where
 * it was held for too long. For a guest that is thrown away.
 */
#include <linux/fs.h>
#include <linux/kprobes.h>
#include <linux/ktime.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#ifdef CONFIG_KPROBES

#define PROBED	"rtxg_cpu_probe_switch"
#define SITES	4
#define HELD_NS (5 * NSEC_PER_SEC)
/* Ticks that the thread waits for, one after the other. */
#define TICKS 3000

enum { IDLE, EXITS, HELD, LET_GO, EXPIRED };
static const char *const words[] = { "idle", "exits", "held", "let go", "expired" };

static struct task_struct *victim; /* it sleeps in release */
static int state;

/* Interrupts are off and a run queue's lock is held: nothing here may sleep or wake. */
static int before_lock(struct kprobe *probe, struct pt_regs *regs)
{
	u64 end;

	/* the lock of the thread that leaves the CPU is none that is waited at */
	if (READ_ONCE(state) != EXITS || current == READ_ONCE(victim) ||
	    task_cpu(victim) != raw_smp_processor_id())
		return 0;
	WRITE_ONCE(state, HELD);
	end = ktime_get_mono_fast_ns() + HELD_NS;
	while (READ_ONCE(state) == HELD) {
		if (ktime_get_mono_fast_ns() > end)
			cmpxchg(&state, HELD, EXPIRED);
		cpu_relax();
	}
	return 0;
}

static struct kprobe probes[SITES];
static int probes_count;

static int window_release(struct inode *inode, struct file *file)
{
	if (!(current->flags & PF_EXITING))
		return 0;
	WRITE_ONCE(victim, current);
	smp_store_release(&state, EXITS);
	for (int i = 0; i < TICKS && READ_ONCE(state) == EXITS; i++)
		schedule_timeout_uninterruptible(1);
	cmpxchg(&state, EXITS, EXPIRED);
	return 0;
}

static int window_open(struct inode *inode, struct file *file)
{
	WRITE_ONCE(state, IDLE);
	return 0;
}

static const struct file_operations window_fops = { .owner = THIS_MODULE,
						    .open = window_open,
						    .release = window_release };
static struct miscdevice window_device = { .minor = MISC_DYNAMIC_MINOR,
					   .name = "rtxg_window",
					   .fops = &window_fops };

static int go_set(const char *text, const struct kernel_param *param)
{
	if (cmpxchg(&state, HELD, LET_GO) != HELD)
		WRITE_ONCE(state, IDLE);
	return 0;
}

static const struct kernel_param_ops go_ops = { .set = go_set };
module_param_cb(go, &go_ops, NULL, 0200);
MODULE_PARM_DESC(go, "anything: the switch goes on; if none is held, the state is idle again");

static int state_get(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%s\n", words[READ_ONCE(state)]);
}

static const struct kernel_param_ops state_ops = { .get = state_get };
module_param_cb(state, &state_ops, NULL, 0400);
MODULE_PARM_DESC(state, "idle, exits, held, let go, expired");

/*
 * Where the probed function calls _raw_spin_lock(): from its first byte that is not the symbol's.
 */
static int find_sites(void)
{
	struct kprobe entry = { .symbol_name = PROBED };
	unsigned long at, offset, size;
	char text[KSYM_SYMBOL_LEN], *end;
	int count = 0, err;

	err = register_kprobe(&entry);
	if (err)
		return err;
	at = (unsigned long)entry.addr;
	unregister_kprobe(&entry);
	sprint_symbol(text, at);
	end = strchr(text, '+');
	if (!end || sscanf(end, "+0x%lx/0x%lx", &offset, &size) != 2)
		return -ENOENT;
	for (at -= offset, offset = 0; offset + 5 <= size && count < SITES; offset++) {
		const u8 *code = (const u8 *)(at + offset);
		s32 distance;

		memcpy(&distance, code + 1, sizeof(distance));
		if (*code != 0xe8 ||
		    at + offset + 5 + (long)distance != (unsigned long)_raw_spin_lock)
			continue;
		probes[count++] = (struct kprobe){ .symbol_name = PROBED,
						   .offset = offset,
						   .pre_handler = before_lock };
	}
	return count;
}

static int __init window_init(void)
{
	int count = find_sites(), err = count ? 0 : -ENOENT;

	if (count < 0)
		return count;
	while (!err && probes_count < count) {
		err = register_kprobe(&probes[probes_count]);
		probes_count += !err;
	}
	if (!err)
		err = misc_register(&window_device);
	while (err && probes_count)
		unregister_kprobe(&probes[--probes_count]);
	return err;
}

static void __exit window_exit(void)
{
	misc_deregister(&window_device);
	while (probes_count)
		unregister_kprobe(&probes[--probes_count]);
}

#else

static int __init window_init(void)
{
	return -EOPNOTSUPP;
}

static void __exit window_exit(void)
{
}

#endif

module_init(window_init);
module_exit(window_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("holds a task switch of rtxg.ko where a thread was found and is not yet locked");
