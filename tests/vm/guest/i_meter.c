// SPDX-License-Identifier: MIT
/*
 * i_meter.c - priority inversions as rtxg-irq -i measures them, held against what they cost: a task
 * is late by the sum of the inversions that it suffers, and by nothing else. Run with counted
 * instructions on one CPU, where the time that work takes is known.
 */
#include "meter.h"

struct actor {
	int priority, kernels;
	uint64_t kernel_ns, work_ns, started_ns, ended_ns;
	pid_t tid;
	bool go, launched;
};

static void await_go(struct actor *a)
{
	as_fifo(a->priority);
	__atomic_store_n(&a->tid, gettid(), __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&a->go, __ATOMIC_SEQ_CST))
		sleep_ns(MS);
	__atomic_store_n(&a->started_ns, rtxg_now_ns(), __ATOMIC_SEQ_CST);
}

static void *owner_thread(void *argument)
{
	struct actor *a = argument;
	int edu = open_edu(0);
	uint64_t last = 0;

	await_go(a);
	for (int i = 0; i < a->kernels; i++)
		last = edu_launch(edu, a->kernel_ns);
	__atomic_store_n(&a->launched, true, __ATOMIC_SEQ_CST);
	edu_sync(edu, last);
	a->ended_ns = rtxg_now_ns();
	close(edu);
	return NULL;
}

static void *busy_thread(void *argument)
{
	struct actor *a = argument;

	await_go(a);
	compute(loops_of(a->work_ns));
	a->ended_ns = rtxg_now_ns();
	return NULL;
}

static void await_tid(struct actor *a)
{
	while (!__atomic_load_n(&a->tid, __ATOMIC_SEQ_CST))
		sleep_ns(MS);
}

/* A member of one kind of the one owner's inversions; 0: there were none. */
static double told(const char *kind, const char *member)
{
	char name[48];
	const char *at;

	snprintf(name, sizeof(name), "\"%s\":{", kind);
	at = strstr(meter.text, name);
	if (!at)
		return 0;
	snprintf(name, sizeof(name), "\"%s\":", member);
	at = strstr(at, name);
	return at ? strtod(at + strlen(name), NULL) : 0;
}

#define TRACING "/sys/kernel/tracing"
#define LOG	TRACING "/instances/meter"

/* The module's log, beside the scheduler's: as the lab's irqlog.py wants them. */
static void begin_log(void)
{
	check(!shell("mkdir " LOG " && cd " LOG
		     " && echo 0 >tracing_on && echo mono >trace_clock &&"
		     " echo 1024 >buffer_size_kb && for event in rtxg/rtxg_irq_begins "
		     "rtxg/rtxg_irq_ends rtxg/rtxg_irq_owner sched/sched_switch sched/sched_wakeup "
		     "sched/sched_wakeup_new sched/sched_pi_setprio irq/softirq_entry "
		     "irq/softirq_exit; do echo 1 >events/$event/enable || exit 1; done;"
		     " echo 1 >tracing_on"),
	      "the log cannot be begun");
}

/* The host reads it from the console, in a statement for each run. */
static void end_log(const char *name)
{
	char page[4096], command[160];
	FILE *file;
	ssize_t n;
	int fd;

	check(!shell("echo 0 >" LOG "/tracing_on; rm -rf /tmp/log; mkdir /tmp/log; cd " LOG
		     "/events && for event in rtxg/rtxg_irq_* sched/sched_* irq/softirq_*; do"
		     " [ \"$(cat $event/enable)\" = 0 ] || cp $event/format "
		     "/tmp/log/${event##*/}.format; done"),
	      "the log cannot be ended");
	fd = open(LOG "/per_cpu/cpu0/trace_pipe_raw", O_RDONLY | O_NONBLOCK);
	file = fopen("/tmp/log/cpu0.pages", "w");
	check(fd >= 0 && file, "no pages");
	while ((n = read(fd, page, sizeof(page))) > 0) {
		memset(page + n, 0, sizeof(page) - (size_t)n);
		fwrite(page, sizeof(page), 1, file);
	}
	fclose(file);
	close(fd);
	shell("grep -H overrun " LOG "/per_cpu/cpu0/stats | sed 's/^/    # /'");
	snprintf(command, sizeof(command),
		 "tar -C /tmp/log -cf - . | gzip | base64 | sed 's/^/    # log %s /'", name);
	check(!shell(command) && !shell("rmdir " LOG), "the log cannot be told");
}

static void set_edu(uint32_t form, int bottom_us)
{
	char command[96];
	int edu = open_edu(0);

	check(!call(edu, RTXG_EDU_REQUEST, &form), "form");
	close(edu);
	snprintf(command, sizeof(command), "echo %d >/sys/module/rtxg_edu/parameters/bottom_us",
		 bottom_us);
	check(!shell(command), "bottom half of %d us", bottom_us);
}

/* Both run, with the meter; the attachment's file, to be closed. */
static int run_both(const char *name, struct actor *owner, struct actor *busy, uint32_t mode,
		    uint32_t priority, uint32_t flags)
{
	struct rtxg_irq_attach attach = { .size = sizeof(attach),
					  .flags = RTXG_IRQ_F_BY_NAME,
					  .name = "rtxg_edu0" };
	struct rtxg_irq_own own = {
		.size = sizeof(own), .mode = mode, .priority = priority, .flags = flags
	};
	pthread_t threads[2];
	int fd = open_rtxg();

	as_fifo(90);
	loops_of(MS);
	pthread_create(&threads[0], NULL, owner_thread, owner);
	pthread_create(&threads[1], NULL, busy_thread, busy);
	await_tid(owner);
	await_tid(busy);
	check(!call(fd, RTXG_IOC_IRQ_ATTACH, &attach), "attach");
	if (mode != RTXG_IRQ_KEPT) {
		own.pid = mode >= RTXG_IRQ_OWNER ? owner->tid : 0;
		own.id = attach.id;
		check(!call(fd, RTXG_IOC_IRQ_OWN, &own), "own");
	}
	if (repeats(0, 1))
		begin_log();
	if (begin_meter(owner->tid)) {
		__atomic_store_n(&owner->go, true, __ATOMIC_SEQ_CST);
		while (!__atomic_load_n(&owner->launched, __ATOMIC_SEQ_CST))
			sleep_ns(MS / 10);
	}
	__atomic_store_n(&owner->go, true, __ATOMIC_SEQ_CST);
	__atomic_store_n(&busy->go, true, __ATOMIC_SEQ_CST);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	end_meter();
	if (repeats(0, 1)) {
		note("owner %s %d", name, owner->tid);
		end_log(name);
	}
	as_fifo(0);
	return fd;
}

static bool close_to(double a, double b, double slack)
{
	return a - b < slack && b - a < slack;
}

/*
 * A FIFO 60 job of 40 ms, while a FIFO 10 owner's 12 kernels of 3 ms each leave 1 ms to a tasklet.
 */
static void test_bottom_halves_of_a_lower_owner(void)
{
	static const struct {
		const char *name;
		uint32_t mode, priority, flags;
	} how[] = { { "kept", RTXG_IRQ_KEPT, 0, 0 },
		    { "high", RTXG_IRQ_FIXED, 95, RTXG_IRQ_TASKLETS },
		    { "owner", RTXG_IRQ_OWNER, 2, RTXG_IRQ_TASKLETS },
		    { "aware", RTXG_IRQ_PAI, 2, RTXG_IRQ_TASKLETS } };

	if (access(PROGRAM, X_OK))
		skip("rtxg-irq was not built (libbpf, clang and bpftool are needed)");
	set_edu(RTXG_EDU_F_TOP, 1000);
	/* the short tier has the one with inversions that are known in advance */
	for (int i = repeats(1, 0); i < repeats(2, 4); i++) {
		struct actor owner = { .priority = 10, .kernels = 12, .kernel_ns = 3 * MS };
		struct actor job = { .priority = 60, .work_ns = 40 * MS };
		double late, sum, count;
		char name[64];

		snprintf(name, sizeof(name), "job_%s", how[i].name);
		close(run_both(name, &owner, &job, how[i].mode, how[i].priority, how[i].flags));
		late = (double)(job.ended_ns - job.started_ns) - 40e6;
		sum = told("bottom_halves", "sum_ns");
		count = told("bottom_halves", "count");
		note("meter job_%s %s", how[i].name, meter.text);
		snprintf(name, sizeof(name), "inversions_of_a_job_%s_sum", how[i].name);
		value(name, sum / 1e6, "ms");
		snprintf(name, sizeof(name), "inversions_of_a_job_%s_longest", how[i].name);
		value(name, told("bottom_halves", "longest_ns") / 1e6, "ms");
		if (kernel_with_checks())
			continue;
		/* top halves, ticks and the meter itself take the rest */
		check(close_to(late, sum, 3e6), "%s: %.2f ms late, inversions of %.2f ms",
		      how[i].name, late / 1e6, sum / 1e6);
		if (how[i].mode == RTXG_IRQ_FIXED)
			/*
			 * A bottom half that finds the next one when it ends goes on: that is one
			 * inversion. One that ran before the job began is none, which is the first
			 * two at most.
			 */
			check(count >= 1 && sum > 8e6, "%.0f inversions, %.2f ms", count,
			      sum / 1e6);
		if (how[i].mode >= RTXG_IRQ_OWNER)
			check(sum < 1e6, "%.2f ms at the owner's priority", sum / 1e6);
	}
	set_edu(RTXG_EDU_F_TOP, 0);
}

/*
 * A FIFO 80 owner waits for the thread of its interrupt, and a FIFO 60 thread computes for 100 ms.
 */
static void test_waits_of_an_owners_thread(void)
{
	static const struct {
		const char *name;
		uint32_t mode, priority;
	} how[] = { { "low", RTXG_IRQ_FIXED, 2 }, { "owner", RTXG_IRQ_OWNER, 2 } };

	if (access(PROGRAM, X_OK))
		skip("rtxg-irq was not built (libbpf, clang and bpftool are needed)");
	set_edu(RTXG_EDU_F_THREADED, 0);
	for (int i = 0; i < 2; i++) {
		struct actor owner = { .priority = 80, .kernels = 1, .kernel_ns = 5 * MS };
		struct actor busy = { .priority = 60, .work_ns = 100 * MS };
		double late, sum;
		char name[64];

		snprintf(name, sizeof(name), "owner_%s", how[i].name);
		close(run_both(name, &owner, &busy, how[i].mode, how[i].priority, 0));
		/* its thread sleeps for half a millisecond */
		late = (double)(owner.ended_ns - owner.started_ns) - 5.5e6;
		sum = told("waits", "sum_ns");
		note("meter owner_%s %s", how[i].name, meter.text);
		snprintf(name, sizeof(name), "inversions_of_an_owner_%s_sum", how[i].name);
		value(name, sum / 1e6, "ms");
		snprintf(name, sizeof(name), "inversions_of_an_owner_%s_longest", how[i].name);
		value(name, told("waits", "longest_ns") / 1e6, "ms");
		if (kernel_with_checks())
			continue;
		check(close_to(late, sum, 3e6), "%s: %.2f ms late, inversions of %.2f ms",
		      how[i].name, late / 1e6, sum / 1e6);
		check(how[i].mode == RTXG_IRQ_OWNER ? sum < 1e6 : sum > 80e6, "%s: %.2f ms",
		      how[i].name, sum / 1e6);
	}
	set_edu(RTXG_EDU_F_TOP, 0);
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "bottom_halves_of_a_lower_owner", test_bottom_halves_of_a_lower_owner },
		{ "waits_of_an_owners_thread", test_waits_of_an_owners_thread, .slow = true },
	};

	char limit[32], command[96];
	int failed;

	load_module();
	/*
	 * rtxg-irq is begun by a real-time thread: its loading alone takes what these may use in a
	 * second
	 */
	if (!read_text("/proc/sys/kernel/sched_rt_runtime_us", limit, sizeof(limit)) ||
	    shell("echo -1 >/proc/sys/kernel/sched_rt_runtime_us"))
		return 1;
	failed = RUN(cases);
	snprintf(command, sizeof(command), "echo %s >/proc/sys/kernel/sched_rt_runtime_us", limit);
	return shell(command) || failed;
}
