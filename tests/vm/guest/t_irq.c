// SPDX-License-Identifier: MIT
/*
 * t_irq.c - interception of interrupts: of the tests' accelerator, and of stock drivers.
 */
#include "rtxg_vm.h"

#include <rtxg/irq.h>

static struct rtxg_irq_attach by_name(const char *name)
{
	struct rtxg_irq_attach attach = { .size = sizeof(attach), .flags = RTXG_IRQ_F_BY_NAME };

	snprintf(attach.name, sizeof(attach.name), "%s", name);
	return attach;
}

/* The accelerator's interrupt, with its status register as the source. */
static struct rtxg_irq_attach edu_attach(uint64_t mask)
{
	struct rtxg_irq_attach attach = by_name("rtxg_edu0");
	unsigned int bus = 0, devfn = 0;

	check(find_pci(0x1234, 0x11e8, 0, &bus, &devfn), "no edu device");
	attach.flags |= RTXG_IRQ_F_SOURCE;
	attach.bus = bus;
	attach.devfn = devfn;
	attach.offset = RTXG_EDU_REG_IRQ_STATUS;
	attach.mask = mask;
	attach.width = 4;
	return attach;
}

static struct rtxg_irq_stats stats_of(int fd, uint32_t id)
{
	struct rtxg_irq_stats stats = { .size = sizeof(stats), .id = id };
	int err = call(fd, RTXG_IOC_IRQ_STATS, &stats);

	check(!err, "stats: %d", err);
	return stats;
}

/*
 * Waits until the number of exits has caught up with what the condition needs: an interrupt may
 * still be on its way.
 */
static struct rtxg_irq_stats stats_after(int fd, uint32_t id, uint64_t entries)
{
	struct rtxg_irq_stats stats = stats_of(fd, id);

	for (int i = 0; i < 60000 && (stats.entries < entries || stats.exits < stats.entries ||
				      stats.thread_exits < stats.thread_entries);
	     i++) {
		sleep_ns(1000000);
		stats = stats_of(fd, id);
	}
	return stats;
}

static void test_kernels_seen(void)
{
	struct rtxg_irq_attach attach = edu_attach(RTXG_EDU_IRQ_COMPLETE);
	int fd = open_rtxg(), edu = open_edu(0);
	struct rtxg_edu_stats before, after;
	struct rtxg_irq_stats stats;
	int err = call(fd, RTXG_IOC_IRQ_ATTACH, &attach);
	uint32_t storm = 7;

	if (!check(fd >= 0 && edu >= 0 && !err, "attach: %d (fd %d, edu %d)", err, fd, edu))
		return;
	call(edu, RTXG_EDU_STATS, &before);
	check(attach.irq == before.irq, "found irq %u, the driver has %" PRIu64, attach.irq,
	      (uint64_t)before.irq);
	for (int i = 0; i < 20; i++)
		check(!edu_sync(edu, edu_launch(edu, 100000)), "launch %d", i);
	check(!call(edu, RTXG_EDU_STORM, &storm), "storm");
	/* the 7 raised by hand may merge where the handler has not yet run: at least one more */
	stats_after(fd, attach.id, 21);
	call(edu, RTXG_EDU_STATS, &after);
	/* one more may come meanwhile: all that the driver has counted by now have been seen */
	stats = stats_after(fd, attach.id, after.interrupts - before.interrupts);
	check(after.completed - before.completed == 20, "the driver completed %" PRIu64,
	      (uint64_t)(after.completed - before.completed));
	check(stats.matched == 20, "20 kernels ended, %" PRIu64 " events matched",
	      (uint64_t)stats.matched);
	check(stats.entries >= 21 && stats.entries == stats.exits,
	      "entries %" PRIu64 " exits %" PRIu64, (uint64_t)stats.entries, (uint64_t)stats.exits);
	if (!attach.threaded)
		check(stats.handled >= after.interrupts - before.interrupts,
		      "the driver handled %" PRIu64 " interrupts, %" PRIu64 " seen as handled",
		      (uint64_t)(after.interrupts - before.interrupts), (uint64_t)stats.handled);
	else
		check(stats.thread_entries > 0 && stats.thread_entries == stats.thread_exits,
		      "thread entries %" PRIu64 " exits %" PRIu64, (uint64_t)stats.thread_entries,
		      (uint64_t)stats.thread_exits);
	check(!stats.gone, "gone");
	close(fd);
	close(edu);
}

struct waiting {
	int fd;
	uint32_t id;
	int priority;
	struct rtxg_irq_wait wait;
	int result;
	pid_t tid;
	uint64_t woke_ns;
};

static void *wait_thread(void *argument)
{
	struct waiting *w = argument;

	if (w->priority) {
		struct sched_param param = { .sched_priority = w->priority };

		pthread_setschedparam(pthread_self(), SCHED_FIFO, &param);
	}
	w->tid = gettid();
	w->wait = (struct rtxg_irq_wait){
		.size = sizeof(w->wait), .id = w->id, .seen = w->wait.seen, .until_ns = UINT64_MAX
	};
	w->result = call(w->fd, RTXG_IOC_IRQ_WAIT, &w->wait);
	w->woke_ns = rtxg_now_ns();
	return NULL;
}

static void wait_for_waiters(int fd, uint32_t id, unsigned int count)
{
	for (int i = 0; i < 60000 && stats_of(fd, id).waiters != count; i++)
		sleep_ns(1000000);
	check(stats_of(fd, id).waiters == count, "%u wait, expected %u", stats_of(fd, id).waiters,
	      count);
}

#define TRACING "/sys/kernel/tracing/"

/* Without a child process: its end would wake a thread, for the signal. */
static bool write_tracing(const char *file, const char *text)
{
	char path[96];
	int fd;
	bool good;

	snprintf(path, sizeof(path), TRACING "%s", file);
	fd = open(path, O_WRONLY | O_TRUNC);
	good = fd >= 0 && (!*text || write(fd, text, strlen(text)) > 0);
	if (fd >= 0)
		close(fd);
	return good;
}

/*
 * In which order the kernel says that these threads were woken: the place of each, -1 if it was not
 * seen.
 */
static void waking_order(const struct waiting *waiting, int count, int *place)
{
	FILE *trace = fopen(TRACING "trace", "r");
	char line[512];
	int next = 0;

	for (int i = 0; i < count; i++)
		place[i] = -1;
	while (trace && fgets(line, sizeof(line), trace)) {
		const char *at = strstr(line, "sched_waking:"),
			   *pid = at ? strstr(at, " pid=") : NULL;

		for (int i = 0; pid && i < count; i++)
			if (atoi(pid + 5) == waiting[i].tid && place[i] < 0)
				place[i] = next++;
	}
	if (trace)
		fclose(trace);
}

/*
 * The order of waking is read from the kernel's trace: on one CPU the order of running would be
 * that of priority anyway. The waiters come lowest first, then highest, then between, so that
 * neither first come nor last come gives the right order.
 */
static void test_waiters_woken_by_priority(void)
{
	static const int priorities[] = { 11, 15, 13, 10, 14, 12 };
	enum { COUNT = sizeof(priorities) / sizeof(priorities[0]) };
	struct rtxg_irq_attach attach = edu_attach(RTXG_EDU_IRQ_COMPLETE);
	int fd = open_rtxg(), edu = open_edu(0), place[COUNT];
	struct waiting waiting[COUNT] = {};
	pthread_t threads[COUNT];

	if (!check(!call(fd, RTXG_IOC_IRQ_ATTACH, &attach), "attach"))
		return;
	for (int i = 0; i < COUNT; i++) {
		waiting[i] =
			(struct waiting){ .fd = fd, .id = attach.id, .priority = priorities[i] };
		pthread_create(&threads[i], NULL, wait_thread, &waiting[i]);
		wait_for_waiters(fd, attach.id, i + 1);
	}
	check(write_tracing("trace", "") && write_tracing("events/sched/sched_waking/enable", "1"),
	      "no trace");
	check(!edu_sync(edu, edu_launch(edu, 200000)), "kernel");
	for (int i = 0; i < COUNT; i++)
		pthread_join(threads[i], NULL);
	check(write_tracing("events/sched/sched_waking/enable", "0"), "no trace");
	waking_order(waiting, COUNT, place);
	for (int i = 0; i < COUNT; i++) {
		check(!waiting[i].result && waiting[i].wait.seen == 1,
		      "waiter %d: %d, event %" PRIu64, i, waiting[i].result,
		      (uint64_t)waiting[i].wait.seen);
		check(waiting[i].wait.status & RTXG_EDU_IRQ_COMPLETE,
		      "waiter %d saw status %" PRIx64, i, (uint64_t)waiting[i].wait.status);
		check(waiting[i].wait.entry_ns <= waiting[i].woke_ns, "woken before the interrupt");
		check(place[i] == 15 - priorities[i], "priority %d was woken at place %d of %d",
		      priorities[i], place[i], COUNT);
	}
	check(stats_of(fd, attach.id).wakeups == COUNT, "%" PRIu64 " wakeups",
	      (uint64_t)stats_of(fd, attach.id).wakeups);
	close(fd);
	close(edu);
}

static void nothing(int signal)
{
}

static void test_waiting_ends(void)
{
	struct rtxg_irq_attach attach = edu_attach(RTXG_EDU_IRQ_COMPLETE);
	int fd = open_rtxg();
	struct waiting w = { .fd = fd };
	struct rtxg_irq_wait wait = { .size = sizeof(wait), .until_ns = rtxg_now_ns() + 3000000 };
	struct rtxg_irq_detach detach = { .size = sizeof(detach) };
	struct sigaction action = { .sa_handler = nothing };
	pthread_t thread;

	if (!check(!call(fd, RTXG_IOC_IRQ_ATTACH, &attach), "attach"))
		return;
	w.id = wait.id = detach.id = attach.id;
	check(call(fd, RTXG_IOC_IRQ_WAIT, &wait) == -ETIMEDOUT, "no timeout");
	wait.until_ns = 0;
	check(call(fd, RTXG_IOC_IRQ_WAIT, &wait) == -ETIMEDOUT, "no timeout of 0");
	sigaction(SIGUSR1, &action, NULL);
	pthread_create(&thread, NULL, wait_thread, &w);
	wait_for_waiters(fd, attach.id, 1);
	pthread_kill(thread, SIGUSR1);
	pthread_join(thread, NULL);
	check(w.result == -EINTR, "a signal gave %d", w.result);
	pthread_create(&thread, NULL, wait_thread, &w);
	wait_for_waiters(fd, attach.id, 1);
	check(!call(fd, RTXG_IOC_IRQ_DETACH, &detach), "detach with a waiter");
	pthread_join(thread, NULL);
	check(w.result == -EPIPE, "detaching gave the waiter %d", w.result);
	check(call(fd, RTXG_IOC_IRQ_DETACH, &detach) == -ENOENT, "detached twice");
	close(fd);
}

/*
 * The waiter of a completion that the driver itself writes down: with AFTER it never sees the word
 * from before.
 */
static void test_woken_after_the_handler(void)
{
	struct rtxg_irq_attach attach = edu_attach(RTXG_EDU_IRQ_COMPLETE);
	int fd = open_rtxg(), edu = open_edu(0);
	volatile uint64_t *fence = mmap(NULL, 4096, PROT_READ, MAP_SHARED, edu, 0);
	struct rtxg_irq_wait wait = { .size = sizeof(wait), .until_ns = UINT64_MAX };

	attach.flags |= RTXG_IRQ_F_AFTER;
	if (!check(fence != MAP_FAILED && !call(fd, RTXG_IOC_IRQ_ATTACH, &attach), "attach"))
		return;
	wait.id = attach.id;
	for (int i = 0; i < 50; i++) {
		uint64_t sequence = edu_launch(edu, 20000);

		check(!call(fd, RTXG_IOC_IRQ_WAIT, &wait), "wait %d", i);
		check(*fence >= sequence, "woken for %" PRIu64 " at %" PRIu64, sequence, *fence);
		check(wait.seen == (uint64_t)i + 1, "event %" PRIu64, (uint64_t)wait.seen);
	}
	munmap((void *)fence, 4096);
	close(fd);
	close(edu);
}

/*
 * The same of a driver whose handler asks for a thread, which completes the kernel: not woken
 * before that thread has run. Where the kernel forces threads, it is the second of two.
 */
static void test_woken_after_the_thread(void)
{
	struct rtxg_irq_attach attach = edu_attach(RTXG_EDU_IRQ_COMPLETE);
	int fd = open_rtxg(), edu = open_edu(0);
	volatile uint64_t *fence = mmap(NULL, 4096, PROT_READ, MAP_SHARED, edu, 0);
	struct rtxg_irq_wait wait = { .size = sizeof(wait), .until_ns = UINT64_MAX };
	uint32_t form = RTXG_EDU_F_THREADED;
	struct rtxg_irq_stats stats;
	unsigned int early = 0;

	attach.flags |= RTXG_IRQ_F_AFTER;
	check(!call(edu, RTXG_EDU_REQUEST, &form), "threaded");
	if (!check(fence != MAP_FAILED && !call(fd, RTXG_IOC_IRQ_ATTACH, &attach), "attach"))
		return;
	check(attach.threaded, "not threaded");
	wait.id = attach.id;
	for (int i = 0; i < 50; i++) {
		uint64_t sequence = edu_launch(edu, 20000);

		check(!call(fd, RTXG_IOC_IRQ_WAIT, &wait), "wait %d", i);
		early += *fence < sequence;
		check(!edu_sync(edu, sequence), "sync");
	}
	check(!early, "%u of 50 times woken before the driver's thread had completed", early);
	stats = stats_after(fd, attach.id, 50);
	check(stats.thread_entries >= 50 && stats.thread_entries == stats.thread_exits,
	      "%" PRIu64 " runs of threads, %" PRIu64 " ends", (uint64_t)stats.thread_entries,
	      (uint64_t)stats.thread_exits);
	munmap((void *)fence, 4096);
	close(fd);
	form = RTXG_EDU_F_TOP;
	check(!call(edu, RTXG_EDU_REQUEST, &form), "as before");
	close(edu);
}

/*
 * A kernel that ends between our look at the register and the driver's, in an interrupt that came
 * for something else: the driver serves it, and no other interrupt comes. The waiter hears of it.
 */
static void ends_unseen(uint32_t form, uint32_t flags)
{
	struct rtxg_irq_attach attach = edu_attach(RTXG_EDU_IRQ_COMPLETE);
	struct rtxg_irq_attach exact = edu_attach(RTXG_EDU_IRQ_COMPLETE);
	int fd = open_rtxg(), edu = open_edu(0);
	volatile uint64_t *fence = mmap(NULL, 4096, PROT_READ, MAP_SHARED, edu, 0);
	struct rtxg_irq_wait wait = { .size = sizeof(wait) };
	struct rtxg_irq_stats stats;
	uint32_t other = 1;
	uint64_t sequence;
	int err;

	attach.flags |= flags;
	exact.flags |= flags | RTXG_IRQ_F_EXACT;
	check(!call(edu, RTXG_EDU_REQUEST, &form), "form %u", form);
	if (!check(fence != MAP_FAILED && !call(fd, RTXG_IOC_IRQ_ATTACH, &attach) &&
			   !call(fd, RTXG_IOC_IRQ_ATTACH, &exact),
		   "attach"))
		return;
	wait.id = attach.id;
	for (int i = 0; i < 5; i++) {
		stats_after(fd, attach.id, 0);
		wait.until_ns = 0;
		call(fd, RTXG_IOC_IRQ_WAIT, &wait); /* how many there were */
		sequence = edu_launch(edu, 0);
		check(!call(edu, RTXG_EDU_JOIN, NULL) && !call(edu, RTXG_EDU_STORM, &other),
		      "form %u, %d", form, i);
		wait.until_ns = rtxg_now_ns() + 20000 * 1000000ull;
		do
			err = call(fd, RTXG_IOC_IRQ_WAIT, &wait);
		while (!err && flags & RTXG_IRQ_F_AFTER && *fence < sequence);
		check(!err, "form %u, flags %x: kernel %d has ended unheard", form, flags, i);
		check(!edu_sync(edu, sequence), "sync");
	}
	stats = stats_after(fd, attach.id, 1);
	/* where the driver looks in a thread, the device's second interrupt comes before it has */
	check(attach.threaded || (stats.unseen == 5 && !stats.matched),
	      "%" PRIu64 " unseen, %" PRIu64 " matched", (uint64_t)stats.unseen,
	      (uint64_t)stats.matched);
	check(stats.unseen <= stats.exits + stats.thread_exits, "%" PRIu64 " for %" PRIu64,
	      (uint64_t)stats.unseen, (uint64_t)stats.exits);
	check(!stats_of(fd, exact.id).unseen, "an exact one was told of what it did not see");
	munmap((void *)fence, 4096);
	close(fd);
	form = RTXG_EDU_F_TOP;
	check(!call(edu, RTXG_EDU_REQUEST, &form), "as before");
	close(edu);
}

static void test_ends_unseen(void)
{
	ends_unseen(RTXG_EDU_F_TOP, 0);
	ends_unseen(RTXG_EDU_F_TOP, RTXG_IRQ_F_AFTER);
}

static void test_ends_unseen_in_a_thread(void)
{
	ends_unseen(RTXG_EDU_F_THREADED, 0);
	ends_unseen(RTXG_EDU_F_THREADED, RTXG_IRQ_F_AFTER);
}

static void test_two_files_share_a_hook(void)
{
	struct rtxg_irq_attach first = edu_attach(RTXG_EDU_IRQ_COMPLETE),
			       second = edu_attach(RTXG_EDU_IRQ_STORM);
	struct rtxg_irq_attach third = by_name("rtxg_edu0");
	int a = open_rtxg(), b = open_rtxg(), edu = open_edu(0);
	struct rtxg_irq_stats stats;
	uint32_t storm = 1;

	third.flags |= RTXG_IRQ_F_TRACEPOINT;
	check(!call(a, RTXG_IOC_IRQ_ATTACH, &first), "first");
	check(!call(b, RTXG_IOC_IRQ_ATTACH, &second), "second");
	check(!call(b, RTXG_IOC_IRQ_ATTACH, &third), "third, by tracepoint");
	for (int i = 0; i < 5; i++)
		check(!edu_sync(edu, edu_launch(edu, 100000)), "kernel");
	check(!call(edu, RTXG_EDU_STORM, &storm), "storm");
	stats = stats_after(a, first.id, 6);
	check(stats.entries == 6 && stats.matched == 5,
	      "first: %" PRIu64 " entries %" PRIu64 " matched", (uint64_t)stats.entries,
	      (uint64_t)stats.matched);
	check(stats_of(b, second.id).matched == 1, "second: %" PRIu64,
	      (uint64_t)stats_of(b, second.id).matched);
	stats = stats_after(b, third.id, 6);
	check(stats.entries == 6 && stats.exits == 6 && stats.matched == 6,
	      "tracepoint: %" PRIu64 " entries %" PRIu64 " exits", (uint64_t)stats.entries,
	      (uint64_t)stats.exits);
	close(a);
	check(!edu_sync(edu, edu_launch(edu, 100000)), "kernel");
	check(stats_after(b, second.id, 7).entries == 7, "the hook went with the first file");
	close(b);
	close(edu);
}

/* An interrupt of a stock driver: entries equal the counts of /proc/interrupts. */
static void foreign(const char *name, const char *provoke)
{
	struct rtxg_irq_attach attach = by_name(name);
	struct rtxg_irq_stats stats;
	long long before, after;
	int fd = open_rtxg(), err;

	err = call(fd, RTXG_IOC_IRQ_ATTACH, &attach);
	if (!check(!err, "attach to %s: %d", name, err)) {
		shell("sed 's/^/    # /' /proc/interrupts");
		close(fd);
		return;
	}
	before = interrupt_count(attach.irq);
	check(!shell(provoke), "%s", provoke);
	stats = stats_after(fd, attach.id, 1);
	after = interrupt_count(attach.irq);
	check(after > before, "%s raised nothing", name);
	check(stats.entries >= 1 && stats.entries <= (uint64_t)after &&
		      stats.entries + 2 >= (uint64_t)(after - before),
	      "%s: %" PRIu64 " entries, /proc/interrupts says %lld", name, (uint64_t)stats.entries,
	      after - before);
	check(stats.entries == stats.exits, "entries %" PRIu64 " exits %" PRIu64,
	      (uint64_t)stats.entries, (uint64_t)stats.exits);
	note("%s: irq %u, %" PRIu64 " interrupts, handler %s", name, attach.irq,
	     (uint64_t)stats.entries, attach.threaded ? "in a thread" : "in the top half");
	close(fd);
	before = interrupt_count(attach.irq);
	check(!shell(provoke), "%s after detaching", provoke);
	check(interrupt_count(attach.irq) > before, "%s is silent after detaching", name);
}

static void test_foreign_nvme(void)
{
	/* which CPU has which queue is the driver's business */
	foreign("nvme0q1", "for cpu in 1 2; do taskset $cpu dd if=/dev/nvme0n1 of=/dev/null bs=64k "
			   "count=16 2>/dev/null; "
			   "echo 3 >/proc/sys/vm/drop_caches; done");
}

static void test_foreign_e1000e(void)
{
	/* a slow kernel takes its time until the link is up */
	check(!shell("ifconfig eth0 10.0.2.15 up && n=0 && until grep -q 1 "
		     "/sys/class/net/eth0/carrier || [ $n -ge 300 ]; do "
		     "n=$((n + 1)); usleep 100000; done"),
	      "eth0");
	foreign("eth0-tx-0", "ping -c 3 -W 1 10.0.2.2 >/dev/null; true");
}

static void test_foreign_virtio(void)
{
	foreign("virtio0-input", "head -c 4096 /dev/hwrng >/dev/null");
}

static void *storm_thread(void *argument)
{
	int edu = open_edu(0);
	uint32_t count = 50;

	while (!__atomic_load_n((bool *)argument, __ATOMIC_RELAXED)) {
		ioctl(edu, RTXG_EDU_STORM, &count);
		edu_launch(edu, 50000);
	}
	close(edu);
	return NULL;
}

static void test_removed_under_load(void)
{
	bool stop = false;
	pthread_t thread;
	int edu = open_edu(0);

	pthread_create(&thread, NULL, storm_thread, &stop);
	for (int i = 0; i < 40; i++) {
		struct rtxg_irq_attach attach = edu_attach(~0u);
		int fd = open_rtxg(), err;

		if (i % 4 == 3)
			attach.flags |= RTXG_IRQ_F_TRACEPOINT;
		err = call(fd, RTXG_IOC_IRQ_ATTACH, &attach);
		check(!err, "attach %d: %d", i, err);
		check(stats_after(fd, attach.id, 1).entries > 0, "round %d saw nothing", i);
		close(fd);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	check(!shell("rmmod rtxg"), "the module does not unload");
	check(!edu_sync(edu, edu_launch(edu, 100000)), "the driver works after unloading");
	check(!shell("insmod /modules/rtxg.ko"), "the module does not load again");
	close(edu);
}

static void test_unload_refused_with_users(void)
{
	struct rtxg_irq_attach attach = edu_attach(RTXG_EDU_IRQ_COMPLETE);
	int fd = open_rtxg(), edu = open_edu(0);

	check(!call(fd, RTXG_IOC_IRQ_ATTACH, &attach), "attach");
	check(shell("rmmod rtxg 2>/dev/null"), "unloaded while a handler of ours was in place");
	check(!edu_sync(edu, edu_launch(edu, 100000)), "kernel");
	check(stats_after(fd, attach.id, 1).matched == 1, "the refusal broke the interception");
	close(fd);
	close(edu);
}

/*
 * Another module swaps the same handler after rtxg: rtxg's handler cannot be taken out until the
 * other handler is gone.
 */
static void test_stacked_handler(void)
{
	struct rtxg_irq_attach attach = edu_attach(RTXG_EDU_IRQ_COMPLETE);
	struct rtxg_irq_detach detach = { .size = sizeof(detach) };
	int fd = open_rtxg(), edu = open_edu(0), again;
	uint32_t on = 1, off = 0;

	check(!call(fd, RTXG_IOC_IRQ_ATTACH, &attach), "attach");
	check(!call(edu, RTXG_EDU_STACK, &on), "stack");
	detach.id = attach.id;
	check(call(fd, RTXG_IOC_IRQ_DETACH, &detach) == -EBUSY,
	      "taken out from under another handler");
	close(fd);
	check(shell("rmmod rtxg 2>/dev/null"), "unloaded while called by another handler");
	check(!edu_sync(edu, edu_launch(edu, 100000)), "kernel");
	again = open_rtxg();
	check(call(again, RTXG_IOC_IRQ_ATTACH, &attach) == -EBUSY,
	      "attached below another handler");
	check(!call(edu, RTXG_EDU_STACK, &off), "unstack");
	check(!call(again, RTXG_IOC_IRQ_ATTACH, &attach), "attach after the other is gone");
	check(!edu_sync(edu, edu_launch(edu, 100000)), "kernel");
	check(stats_after(again, attach.id, 1).matched == 1, "not seen");
	close(again);
	check(!shell("rmmod rtxg && insmod /modules/rtxg.ko"), "still pinned");
	close(edu);
}

/* The driver frees its interrupt while we hold it, and comes back. */
static void test_driver_goes(void)
{
	struct rtxg_irq_attach attach = by_name("eth0-tx-0");
	int fd = open_rtxg(), err;

	shell("ifconfig eth0 10.0.2.15 up");
	err = call(fd, RTXG_IOC_IRQ_ATTACH, &attach);
	if (!check(!err, "attach: %d", err))
		return;
	check(!stats_of(fd, attach.id).gone, "gone before");
	check(!shell("ifconfig eth0 down"), "down");
	check(stats_of(fd, attach.id).gone, "not seen as gone");
	check(!shell("ifconfig eth0 10.0.2.15 up"), "up");
	check(stats_of(fd, attach.id).gone, "gone for good: attach again");
	close(fd);
	fd = open_rtxg();
	attach = by_name("eth0-tx-0");
	check(!call(fd, RTXG_IOC_IRQ_ATTACH, &attach), "attach again");
	/* a slow kernel takes its time until the link is up */
	shell("n=0; until ping -c 1 -W 1 10.0.2.2 >/dev/null || [ $n -ge 20 ]; do n=$((n + 1)); "
	      "done");
	check(stats_after(fd, attach.id, 1).entries > 0, "nothing seen after attaching again");
	check(!shell("ifconfig eth0 down; rmmod e1000e"),
	      "the driver unloads with its interrupt watched");
	check(stats_of(fd, attach.id).gone, "not seen as gone");
	close(fd);
	check(!shell("insmod /modules/e1000e.ko"), "the driver loads again");
}

/*
 * The driver frees its interrupt and asks for it again with another handler, and gets the same
 * memory for it. Those who wait are told, and the interrupt can be attached to at once.
 */
static void test_driver_asks_again(void)
{
	int edu = open_edu(0);
	uint32_t form;

	if (!function_tracer())
		skip(NO_FUNCTION_TRACER);
	for (uint32_t round = 0; round < 6; round++) {
		struct rtxg_irq_attach attach = edu_attach(RTXG_EDU_IRQ_COMPLETE);
		struct rtxg_irq_detach detach = { .size = sizeof(detach) };
		int old = open_rtxg(), fresh = open_rtxg(), err;
		struct waiting w = { .fd = old };
		pthread_t thread;

		form = round % 2 ? RTXG_EDU_F_TOP : RTXG_EDU_F_OTHER;
		if (!check(!call(old, RTXG_IOC_IRQ_ATTACH, &attach), "attach"))
			return;
		w.id = detach.id = attach.id;
		pthread_create(&thread, NULL, wait_thread, &w);
		wait_for_waiters(old, attach.id, 1);
		check(!call(edu, RTXG_EDU_REQUEST, &form), "request");
		pthread_join(thread, NULL);
		check(w.result == -ENODEV, "a waiter for a freed interrupt got %d", w.result);
		check(stats_of(old, attach.id).gone, "not seen as gone");
		err = call(fresh, RTXG_IOC_IRQ_ATTACH, &attach);
		check(!err, "attach again: %d", err);
		check(!edu_sync(edu, edu_launch(edu, 100000)), "kernel");
		check(err || stats_after(fresh, attach.id, 1).matched == 1, "not seen");
		check(!stats_of(old, detach.id).matched, "seen by the freed one");
		err = call(old, RTXG_IOC_IRQ_DETACH, &detach);
		check(!err, "detach: %d", err);
		close(old);
		close(fresh);
	}
	check(!shell("rmmod rtxg && insmod /modules/rtxg.ko"), "still pinned");
	check(!edu_sync(edu, edu_launch(edu, 100000)), "kernel");
	close(edu);
}

static void *freeing_thread(void *argument)
{
	bool *stop = argument;
	int edu = open_edu(0);

	for (uint32_t i = 0; !__atomic_load_n(stop, __ATOMIC_RELAXED); i++) {
		uint32_t form = i % RTXG_EDU_FORMS;

		ioctl(edu, RTXG_EDU_REQUEST, &form);
	}
	close(edu);
	return NULL;
}

/*
 * Attaching and detaching while the driver frees its interrupt and asks for it, in all its forms.
 */
static void test_driver_asks_again_under_load(void)
{
	uint32_t form = RTXG_EDU_F_TOP, attached = 0;
	bool stop = false;
	pthread_t thread;
	int edu = open_edu(0);

	if (!function_tracer())
		skip(NO_FUNCTION_TRACER);
	pthread_create(&thread, NULL, freeing_thread, &stop);
	/* 400 times, and until one has met a moment in which the interrupt is there */
	for (int i = 0; i < 400 || (!attached && i < 20000); i++) {
		struct rtxg_irq_attach attach = edu_attach(~0u);
		int fd = open_rtxg(), err = call(fd, RTXG_IOC_IRQ_ATTACH, &attach);
		uint32_t count = 3;

		if (i % 2)
			attach.flags |= RTXG_IRQ_F_AFTER;
		check(!err || err == -ENOENT || err == -EBUSY, "attach %d: %d", i, err);
		attached += !err;
		ioctl(edu, RTXG_EDU_STORM, &count);
		close(fd);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	check(attached, "never attached");
	check(!call(edu, RTXG_EDU_REQUEST, &form), "as before");
	check(!edu_sync(edu, edu_launch(edu, 100000)), "kernel");
	close(edu);
}

static void test_waiters_are_limited(void)
{
	enum { COUNT = RTXG_IRQ_WAITERS + 1 };
	struct rtxg_irq_attach attach = edu_attach(RTXG_EDU_IRQ_COMPLETE);
	int fd = open_rtxg(), edu = open_edu(0), refused = 0;
	struct waiting waiting[COUNT];
	pthread_t threads[COUNT];

	if (!check(!call(fd, RTXG_IOC_IRQ_ATTACH, &attach), "attach"))
		return;
	for (int i = 0; i < COUNT; i++) {
		waiting[i] = (struct waiting){ .fd = fd, .id = attach.id };
		pthread_create(&threads[i], NULL, wait_thread, &waiting[i]);
		if (i < RTXG_IRQ_WAITERS)
			wait_for_waiters(fd, attach.id, i + 1);
	}
	pthread_join(threads[COUNT - 1], NULL);
	check(waiting[COUNT - 1].result == -EAGAIN, "one more than may wait got %d",
	      waiting[COUNT - 1].result);
	check(!edu_sync(edu, edu_launch(edu, 100000)), "kernel");
	for (int i = 0; i < RTXG_IRQ_WAITERS; i++) {
		pthread_join(threads[i], NULL);
		refused += !!waiting[i].result;
	}
	check(!refused, "%d of those that may wait were refused", refused);
	close(fd);
	close(edu);
}

static void test_bad_requests(void)
{
	struct rtxg_irq_attach good = edu_attach(RTXG_EDU_IRQ_COMPLETE), bad;
	int fd = open_rtxg();

#define refused(change, err)                                  \
	do {                                                  \
		bad = good;                                   \
		change;                                       \
		int r_ = call(fd, RTXG_IOC_IRQ_ATTACH, &bad); \
		check(r_ == (err), #change ": %d", r_);       \
	} while (0)
	refused(bad.size = 8, -EINVAL);
	refused(bad.flags |= 1u << 31, -EINVAL);
	refused(bad.reserved[4] = 1, -EINVAL);
	refused(bad.flags &= ~RTXG_IRQ_F_BY_NAME; bad.irq = 4000000, -ENOENT);
	refused(memset(bad.name, 'x', sizeof(bad.name)), -EINVAL);
	refused(strcpy(bad.name, "nobody"), -ENOENT);
	refused(bad.index = 3, -ENOENT);
	refused(bad.width = 3, -EINVAL);
	refused(bad.mask = 0, -EINVAL);
	refused(bad.bar = 6, -EINVAL);
	refused(bad.bar = 5, -ENXIO);
	refused(bad.offset = 0x26, -EINVAL);
	refused(bad.offset = 1ull << 40, -ERANGE);
	refused(bad.offset = -4ull, -ERANGE);
	refused(bad.bus = 77, -ENODEV);
	check(call(fd, RTXG_IOC_IRQ_ATTACH, NULL) == -EFAULT, "null");
	check(call(fd, _IO('x', 0x4f), &bad) == -ENOTTY, "unknown call");
	fflush(stdout);
	pid_t child = fork();

	if (!child) {
		bad = good;
		if (setresuid(65534, 65534, 65534))
			_exit(2);
		_exit(call(fd, RTXG_IOC_IRQ_ATTACH, &bad) == -EPERM ? 0 : 1);
	}
	int status = -1;

	waitpid(child, &status, 0);
	check(!status, "an unprivileged caller: %d", status);
	close(fd);
}

/* One without a top half of its own, as behind a bus that sleeps: nothing would ever be told. */
static void test_nested_is_refused(void)
{
	struct rtxg_irq_attach attach = by_name("rtxg_nested");
	int fd = open_rtxg(), err;

	check(!shell("insmod /modules/rtxg_plant.ko"), "insmod rtxg_plant.ko");
	err = call(fd, RTXG_IOC_IRQ_ATTACH, &attach);
	check(err == -EOPNOTSUPP, "attach: %d", err);
	attach = by_name("rtxg_nested");
	attach.flags |= RTXG_IRQ_F_TRACEPOINT;
	err = call(fd, RTXG_IOC_IRQ_ATTACH, &attach);
	check(err == -EOPNOTSUPP, "attach by tracepoint: %d", err);
	close(fd);
	check(!shell("rmmod rtxg_plant"), "rmmod");
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "kernels_seen", test_kernels_seen },
		{ "waiters_woken_by_priority", test_waiters_woken_by_priority },
		{ "waiting_ends", test_waiting_ends },
		{ "woken_after_the_handler", test_woken_after_the_handler },
		{ "woken_after_the_thread", test_woken_after_the_thread },
		{ "ends_unseen", test_ends_unseen },
		{ "ends_unseen_in_a_thread", test_ends_unseen_in_a_thread },
		{ "two_files_share_a_hook", test_two_files_share_a_hook },
		{ "foreign_nvme", test_foreign_nvme },
		{ "foreign_e1000e", test_foreign_e1000e },
		{ "foreign_virtio", test_foreign_virtio },
		{ "unload_refused_with_users", test_unload_refused_with_users },
		{ "removed_under_load", test_removed_under_load },
		{ "stacked_handler", test_stacked_handler },
		{ "driver_goes", test_driver_goes },
		{ "driver_asks_again", test_driver_asks_again },
		{ "driver_asks_again_under_load", test_driver_asks_again_under_load },
		{ "waiters_are_limited", test_waiters_are_limited },
		{ "bad_requests", test_bad_requests },
		{ "nested_is_refused", test_nested_is_refused },
	};

	load_module();
	return RUN(cases);
}
