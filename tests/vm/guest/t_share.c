// SPDX-License-Identifier: MIT
/*
 * t_share.c - two drivers on the line of one interrupt, as devices without MSI are: each is
 * intercepted and owned by itself, and either goes while the other stays. Both are the tests'
 * accelerators. QEMU puts the pins of the two on one line.
 */
#include "owner.h"

#define MS 1000000ull

/* Both drivers have their handlers of this form on the line. False: it is not one line. */
static bool on_one_line(uint32_t form)
{
	check(!edu_form(0, RTXG_EDU_F_LINE | form) && !edu_form(1, RTXG_EDU_F_LINE | form),
	      "no line");
	return check(edu_stats(0).irq == edu_stats(1).irq, "lines %" PRIu64 " and %" PRIu64,
		     (uint64_t)edu_stats(0).irq, (uint64_t)edu_stats(1).irq);
}

static struct watched watch(int number, bool source)
{
	struct rtxg_irq_attach attach = { .size = sizeof(attach), .flags = RTXG_IRQ_F_BY_NAME };
	struct watched w = { .fd = open_rtxg() };
	int err;

	snprintf(attach.name, sizeof(attach.name), "rtxg_edu%d", number);
	if (source) {
		check(find_pci(0x1234, 0x11e8, number, &attach.bus, &attach.devfn), "no device");
		attach.flags |= RTXG_IRQ_F_SOURCE;
		attach.offset = RTXG_EDU_REG_IRQ_STATUS;
		attach.mask = RTXG_EDU_IRQ_COMPLETE;
		attach.width = 4;
	}
	err = call(w.fd, RTXG_IOC_IRQ_ATTACH, &attach);
	check(!err && attach.irq == edu_stats(number).irq, "attach to %s: %d, irq %u", attach.name,
	      err, attach.irq);
	w.id = attach.id;
	w.threaded = attach.threaded;
	return w;
}

static struct rtxg_irq_stats stats_of(const struct watched *w)
{
	struct rtxg_irq_stats stats = { .size = sizeof(stats), .id = w->id };
	int err = call(w->fd, RTXG_IOC_IRQ_STATS, &stats);

	check(!err, "stats: %d", err);
	return stats;
}

/* When no handler is at work any more. */
static struct rtxg_irq_stats settled(const struct watched *w)
{
	struct rtxg_irq_stats stats = stats_of(w);

	while (stats.exits != stats.entries || stats.thread_exits != stats.thread_entries) {
		sleep_ns(MS);
		stats = stats_of(w);
	}
	return stats;
}

static void kernels(int number, int count)
{
	int edu = open_edu(number);

	for (int i = 0; i < count; i++)
		check(!edu_sync(edu, edu_launch(edu, 100000)), "kernel %d of %d", i, number);
	close(edu);
}

struct load {
	int number;
	bool stop;
	int done;
	pthread_t thread;
};

static void *load_thread(void *argument)
{
	struct load *load = argument;

	while (!__atomic_load_n(&load->stop, __ATOMIC_SEQ_CST)) {
		kernels(load->number, 1);
		__atomic_add_fetch(&load->done, 1, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

static void begin_load(struct load *load)
{
	pthread_create(&load->thread, NULL, load_thread, load);
}

/* After so many more of its kernels. */
static void pass(const struct load *load, int more)
{
	int from = __atomic_load_n(&load->done, __ATOMIC_SEQ_CST);

	while (__atomic_load_n(&load->done, __ATOMIC_SEQ_CST) < from + more)
		sleep_ns(MS);
}

static void end_load(struct load *load)
{
	__atomic_store_n(&load->stop, true, __ATOMIC_SEQ_CST);
	pthread_join(load->thread, NULL);
}

/* Both count every interrupt of the line, and match those of their own device only. */
static void test_each_sees_its_own(void)
{
	static const int counts[2] = { 40, 15 };
	struct rtxg_edu_stats before[2] = { edu_stats(0), edu_stats(1) };
	struct rtxg_irq_stats stats[2];
	struct watched w[2];

	if (!on_one_line(RTXG_EDU_F_TOP))
		return;
	for (int i = 0; i < 2; i++)
		w[i] = watch(i, true);
	for (int i = 0; i < 2; i++)
		kernels(i, counts[i]);
	for (int i = 0; i < 2; i++) {
		stats[i] = settled(&w[i]);
		check(stats[i].matched == (uint64_t)counts[i],
		      "%d kernels of %d ended, %" PRIu64 " matched", counts[i], i,
		      (uint64_t)stats[i].matched);
		/* that the neighbour's interrupts are not its own the driver says */
		check(!stats[i].unseen, "%" PRIu64 " of the neighbour's told to %d",
		      (uint64_t)stats[i].unseen, i);
		/*
		 * where the kernel forces threads, the top half hands every interrupt of the line
		 * on
		 */
		check(w[i].threaded ||
			      stats[i].handled == edu_stats(i).interrupts - before[i].interrupts,
		      "the driver of %d handled %" PRIu64 ", seen %" PRIu64, i,
		      (uint64_t)(edu_stats(i).interrupts - before[i].interrupts),
		      (uint64_t)stats[i].handled);
	}
	check(stats[0].entries == stats[1].entries, "%" PRIu64 " and %" PRIu64 " on one line",
	      (uint64_t)stats[0].entries, (uint64_t)stats[1].entries);
	for (int i = 0; i < 2; i++)
		close(w[i].fd);
}

/* With the neighbour at rest: each of so many kernels is seen. */
static void sees(const struct watched *w, int number, const char *when)
{
	uint64_t before = settled(w).matched;

	kernels(number, 3);
	check(settled(w).matched == before + 3, "%s: %" PRIu64 " of 3 matched", when,
	      (uint64_t)(settled(w).matched - before));
}

/*
 * With both at work: a kernel that ends between our look at its register and the driver's, in an
 * interrupt of the neighbour's, is served by the driver and not seen. It is told of, and none is
 * seen twice.
 */
static void saw(const struct watched *w, int kernels, const char *when)
{
	struct rtxg_irq_stats stats = settled(w);

	check(stats.matched <= (uint64_t)kernels &&
		      stats.matched + stats.unseen >= (uint64_t)kernels,
	      "%s: %d kernels, %" PRIu64 " matched, %" PRIu64 " unseen", when, kernels,
	      (uint64_t)stats.matched, (uint64_t)stats.unseen);
}

/*
 * A kernel that ends between our look and its driver's, in an interrupt of the neighbour's: no
 * other interrupt comes for it.
 */
static void served_for_the_neighbour(uint32_t form)
{
	struct rtxg_irq_wait wait = { .size = sizeof(wait) };
	struct rtxg_irq_stats stats;
	int edu = open_edu(0);
	struct watched w[2];

	if (!on_one_line(form))
		return;
	w[0] = watch(0, true);
	w[1] = watch(1, true);
	wait.id = w[0].id;
	for (uint64_t i = 0; i < 5; i++) {
		uint64_t sequence;

		settled(&w[0]);
		wait.until_ns = 0;
		call(w[0].fd, RTXG_IOC_IRQ_WAIT, &wait); /* how many there were */
		sequence = edu_launch(edu, 0);
		check(!call(edu, RTXG_EDU_JOIN, NULL), "join");
		kernels(1, 1);
		wait.until_ns = rtxg_now_ns() + 20000 * MS;
		check(!call(w[0].fd, RTXG_IOC_IRQ_WAIT, &wait), "form %u: ended unheard", form);
		check(!edu_sync(edu, sequence), "kernel");
	}
	stats = settled(&w[0]);
	check(stats.matched + stats.unseen >= 5 && stats.unseen, "%" PRIu64 " and %" PRIu64,
	      (uint64_t)stats.matched, (uint64_t)stats.unseen);
	close(w[0].fd);
	close(w[1].fd);
	close(edu);
}

static void test_served_for_the_neighbour(void)
{
	served_for_the_neighbour(RTXG_EDU_F_TOP);
	served_for_the_neighbour(RTXG_EDU_F_THREADED);
	on_one_line(RTXG_EDU_F_TOP);
}

/* By number: which of the line's handlers. */
static void test_handlers_by_index(void)
{
	struct rtxg_irq_attach attach = { .size = sizeof(attach) };
	int fd = open_rtxg(), seen[2] = {};

	attach.irq = edu_stats(0).irq;
	for (attach.index = 0; attach.index < 2; attach.index++) {
		check(!call(fd, RTXG_IOC_IRQ_ATTACH, &attach), "handler %u", attach.index);
		seen[0] += !strcmp(attach.name, "rtxg_edu0");
		seen[1] += !strcmp(attach.name, "rtxg_edu1");
	}
	check(seen[0] == 1 && seen[1] == 1, "%d and %d of the two", seen[0], seen[1]);
	check(call(fd, RTXG_IOC_IRQ_ATTACH, &attach) == -ENOENT, "a third");
	close(fd);
}

/* A watch that reads no register cannot tell whose interrupt it is: the line's are told. */
static void test_without_a_source_the_line_is_told(void)
{
	struct watched w = watch(0, false);
	struct rtxg_irq_stats stats;

	kernels(1, 5);
	stats = settled(&w);
	check(stats.matched >= 5 && stats.matched == stats.entries, "%" PRIu64 " of %" PRIu64,
	      (uint64_t)stats.matched, (uint64_t)stats.entries);
	check(w.threaded || !stats.handled, "%" PRIu64 " handled by the neighbour",
	      (uint64_t)stats.handled);
	close(w.fd);
}

static void *wait_thread(void *argument)
{
	const struct watched *w = argument;
	struct rtxg_irq_wait wait = { .size = sizeof(wait), .id = w->id, .until_ns = UINT64_MAX };

	return (void *)(intptr_t)call(w->fd, RTXG_IOC_IRQ_WAIT, &wait);
}

/* One driver frees its interrupt and asks again, each in turn, while the other is at work. */
static void test_either_driver_goes(void)
{
	if (!function_tracer())
		skip(NO_FUNCTION_TRACER);
	for (int round = 0; round < 8; round++) {
		int goes = round % 2;
		struct load load = { .number = !goes };
		struct watched w[2] = { watch(0, true), watch(1, true) }, again;
		pthread_t waiter;
		void *result;

		pthread_create(&waiter, NULL, wait_thread, &w[goes]);
		while (stats_of(&w[goes]).waiters != 1)
			sleep_ns(MS);
		begin_load(&load);
		pass(&load, 2);
		check(!edu_form(goes, RTXG_EDU_F_FREE), "free");
		pthread_join(waiter, &result);
		check((intptr_t)result == -ENODEV, "who waited for %d got %d", goes,
		      (int)(intptr_t)result);
		check(stats_of(&w[goes]).gone && !stats_of(&w[!goes]).gone, "gone: %u and %u",
		      stats_of(&w[goes]).gone, stats_of(&w[!goes]).gone);
		pass(&load, 2);
		check(!edu_form(goes, RTXG_EDU_F_LINE | RTXG_EDU_F_TOP), "ask again");
		again = watch(goes, true);
		kernels(goes, 3);
		saw(&again, 3, "it came again");
		end_load(&load);
		saw(&w[!goes], load.done, "the other");
		sees(&again, goes, "it came again");
		sees(&w[!goes], !goes, "the other");
		close(again.fd);
		close(w[goes].fd);
		close(w[!goes].fd);
	}
}

/* The handlers are taken out one by one, and the drivers go on. */
static void test_either_attachment_goes(void)
{
	for (int round = 0; round < 8; round++) {
		struct load loads[2] = { { .number = 0 }, { .number = 1 } };
		struct watched w[2] = { watch(0, true), watch(1, true) };
		int first = round % 2;

		begin_load(&loads[0]);
		begin_load(&loads[1]);
		pass(&loads[first], 2);
		close(w[first].fd);
		pass(&loads[first], 2);
		end_load(&loads[0]);
		end_load(&loads[1]);
		saw(&w[!first], loads[!first].done, "the other");
		sees(&w[!first], !first, "the other");
		close(w[!first].fd);
		kernels(first, 1);
	}
	check(!shell("rmmod rtxg && insmod /modules/rtxg.ko"), "the module is pinned");
}

static void has(pid_t tid, int priority, const char *when)
{
	for (int n = 0; n < 60000 && priority_of(tid) != priority; n++)
		sleep_ns(MS);
	check(priority_of(tid) == priority, "%s: thread %d has %d instead of %d", when, tid,
	      priority_of(tid), priority);
}

/* Each driver's thread has its own owner's priority, and keeps it when the neighbour goes. */
static void test_each_thread_has_its_owner(void)
{
	const struct sched_param param = { .sched_priority = 33 };
	struct rtxg_irq_owner told[2];
	struct watched w[2];

	if (!function_tracer())
		skip(NO_FUNCTION_TRACER);
	if (!on_one_line(RTXG_EDU_F_THREADED))
		return;
	pthread_setschedparam(pthread_self(), SCHED_FIFO, &param);
	for (int i = 0; i < 2; i++)
		w[i] = watch(i, true);
	check(!own(&w[0], RTXG_IRQ_FIXED, 7, 0, 0), "own");
	has(owner_of(&w[0]).thread, 7, "the first, fixed");
	check(!own(&w[1], RTXG_IRQ_OWNER, 2, 0, gettid()), "own");
	for (int i = 0; i < 2; i++)
		told[i] = owner_of(&w[i]);
	check(told[0].thread != told[1].thread, "one thread for both");
	kernels(0, 10);
	kernels(1, 10);
	has(told[0].thread, 7, "the first");
	has(told[1].thread, 33, "the second");
	if (told[1].second)
		has(told[1].second, 33, "the second's second");
	check(!own(&w[0], RTXG_IRQ_KEPT, 0, 0, 0), "give back");
	has(told[0].thread, 50, "the first, given back");
	has(told[1].thread, 33, "the second, when the first was given back");
	check(!own(&w[0], RTXG_IRQ_FIXED, 8, 0, 0), "own again");
	has(told[0].thread, 8, "the first, owned again");
	check(!edu_form(1, RTXG_EDU_F_FREE), "the second driver goes");
	kernels(0, 10);
	has(told[0].thread, 8, "the first, when the second driver went");
	close(w[1].fd);
	check(!edu_form(1, RTXG_EDU_F_LINE | RTXG_EDU_F_THREADED), "it comes again");
	w[1] = watch(1, true);
	check(!own(&w[1], RTXG_IRQ_FIXED, 9, 0, 0), "own");
	told[1] = owner_of(&w[1]);
	has(told[1].thread, 9, "the second, come again");
	check(!edu_form(0, RTXG_EDU_F_FREE), "the first driver goes");
	kernels(1, 10);
	has(told[1].thread, 9, "the second, when the first driver went");
	close(w[0].fd);
	close(w[1].fd);
	has(told[1].thread, 50, "the second, closed");
	pthread_setschedparam(pthread_self(), SCHED_OTHER, &(struct sched_param){});
}

/* What each handler leaves to a tasklet runs in the thread of that handler's attachment. */
static void test_each_tasklet_in_its_thread(void)
{
	static const int counts[2] = { 20, 10 };
	struct rtxg_edu_stats before[2];
	struct watched w[2];

	if (!function_tracer())
		skip(NO_FUNCTION_TRACER);
	if (!on_one_line(RTXG_EDU_F_TOP))
		return;
	for (int i = 0; i < 2; i++) {
		w[i] = watch(i, true);
		check(!own(&w[i], RTXG_IRQ_FIXED, 5 + i, RTXG_IRQ_TASKLETS, 0), "own");
		before[i] = edu_stats(i);
	}
	for (int i = 0; i < 2; i++)
		kernels(i, counts[i]);
	for (int i = 0; i < 2; i++) {
		uint64_t ran;

		while (edu_stats(i).served != edu_stats(i).interrupts)
			sleep_ns(MS);
		ran = edu_stats(i).bottom - before[i].bottom;
		check(owner_of(&w[i]).redirected == ran && ran,
		      "%d: %" PRIu64 " tasklets ran, %" PRIu64 " in its thread", i, ran,
		      (uint64_t)owner_of(&w[i]).redirected);
		has(owner_of(&w[i]).tasklets, 5 + i, "its thread");
	}
	check(!edu_form(0, RTXG_EDU_F_FREE), "one goes");
	kernels(1, 5);
	for (int i = 0; i < 2; i++)
		close(w[i].fd);
}

/* As other programs want them. */
static void test_by_msi_again(void)
{
	check(!edu_form(0, RTXG_EDU_F_TOP) && !edu_form(1, RTXG_EDU_F_TOP), "no MSI");
	check(edu_stats(0).irq != edu_stats(1).irq, "one interrupt");
	kernels(0, 1);
	kernels(1, 1);
	check(!shell("rmmod rtxg && insmod /modules/rtxg.ko"), "the module is pinned");
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "each_sees_its_own", test_each_sees_its_own },
		{ "handlers_by_index", test_handlers_by_index },
		{ "without_a_source_the_line_is_told", test_without_a_source_the_line_is_told },
		{ "served_for_the_neighbour", test_served_for_the_neighbour },
		{ "either_driver_goes", test_either_driver_goes },
		{ "either_attachment_goes", test_either_attachment_goes },
		{ "each_thread_has_its_owner", test_each_thread_has_its_owner },
		{ "each_tasklet_in_its_thread", test_each_tasklet_in_its_thread },
		{ "by_msi_again", test_by_msi_again },
	};

	load_module();
	return RUN(cases);
}
