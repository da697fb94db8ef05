// SPDX-License-Identifier: MIT
/*
 * i_latency.c - does `rtxg latency` name what made a thread late? rtxg_plant.ko plants delays of a
 * known kind and of 5 ms. Time is the number of instructions here, so that nothing but the planted
 * delay makes a thread of the highest priority 2 ms late.
 */
#include "rtxg_vm.h"

#include <sys/utsname.h>

#define PROGRAM	 "/tests/w_rtxg_latency"
#define OUTPUT	 "/tmp/latency.json"
#define PLANT	 "/sys/module/rtxg_plant/parameters/delay"
#define READS	 "/sys/module/rtxg_edu/parameters/isr_reads"
#define PLANT_US 5000
#define BREAK_US "2000"

static char text[1 << 20];
static bool rt;

static bool begins_to_measure(pid_t pid)
{
	char path[64], comm[32];

	for (pid_t tid = pid + 1; tid < pid + 40; tid++) {
		snprintf(path, sizeof(path), "/proc/%d/task/%d/comm", pid, tid);
		if (read_text(path, comm, sizeof(comm)) && !strncmp(comm, "rtxg-late/", 10))
			return true;
	}
	return false;
}

/* `breaks`: it ends at the first late wake-up; else the worst of the run is explained. */
static pid_t start_run(const char *priority, bool breaks)
{
	pid_t pid;

	unlink(OUTPUT);
	fflush(NULL);
	pid = fork();
	if (!pid) {
		execl(PROGRAM, PROGRAM, "-q", "-a", "0", "-p", priority, "-m", "-D", "30",
		      "--json=" OUTPUT, breaks ? "-b" : NULL, BREAK_US, (char *)NULL);
		_exit(127);
	}
	for (int i = 0; i < 3000 && !begins_to_measure(pid); i++)
		sleep_ns(10000000);
	sleep_ns(200000000);
	return pid;
}

static pid_t start(const char *priority)
{
	return start_run(priority, true);
}

/* Waits for its end and reads what it found. Returns its exit status. */
static int end(pid_t pid)
{
	FILE *file;
	int status;

	waitpid(pid, &status, 0);
	file = fopen(OUTPUT, "r");
	text[0] = 0;
	if (file) {
		text[fread(text, 1, sizeof(text) - 1, file)] = 0;
		fclose(file);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static double number_after(const char *place, const char *member)
{
	char name[48];
	const char *at;

	snprintf(name, sizeof(name), "\"%s\":", member);
	at = place ? strstr(place, name) : NULL;
	return at ? strtod(at + strlen(name), NULL) : -1;
}

/*
 * The longest part is of this kind, has the first words, has the second ones in itself or in its
 * stack, and makes up most of the latency.
 */
static void expect(const char *kind, const char *first, const char *second)
{
	static char whole_part[4096];
	const char *worst = strstr(text, "\"worst\"");
	const char *culprit = worst ? strstr(worst, "\"culprit\":\"") : NULL;
	const char *part = worst ? strstr(worst, "\"parts\":[{") : NULL;
	char said[200] = "", found[32] = "";
	double us, whole;

	if (!check(culprit && part, "no culprit in %.300s", text))
		return;
	sscanf(culprit, "\"culprit\":\"%199[^\"]", said);
	sscanf(strstr(part, "\"kind\""), "\"kind\":\"%31[^\"]", found);
	us = number_after(part, "us");
	whole = number_after(worst, "latency_us");
	note("%.0f us: %s", whole, said);
	check(!strcmp(found, kind), "%s expected, found %s", kind, found);
	snprintf(whole_part, sizeof(whole_part), "%.*s",
		 strstr(part, "]}") ? (int)(strstr(part, "]}") - part) : 0, part);
	check(strstr(said, first) && strstr(whole_part, second), "%s and %s expected, found %s",
	      first, second, whole_part);
	check(whole >= 2000 && whole <= PLANT_US + 1500, "%.0f us late", whole);
	check(us > whole * 0.7, "%.0f of %.0f us", us, whole);
}

static void plant_for(const char *word, int us)
{
	char line[64];
	int fd = open(PLANT, O_WRONLY | O_CLOEXEC);

	snprintf(line, sizeof(line), "%s %d", word, us);
	check(fd >= 0 && write(fd, line, strlen(line)) == (ssize_t)strlen(line), "%s: %s", word,
	      strerror(errno));
	close(fd);
}

static void plant(const char *word)
{
	plant_for(word, PLANT_US);
}

static void interrupts_off(void)
{
	pid_t pid = start("80");

	plant("irqs");
	check(end(pid) == 2, "the threshold was not passed");
	expect("interrupts off", "interrupts held off: i_latency", "plant_irqs_off");
	expect("interrupts off", "(system call write)", "plant_irqs_off");
}

static void preemption_off(void)
{
	pid_t pid = start("80");

	plant("preemption");
	check(end(pid) == 2, "the threshold was not passed");
	expect("preemption off", "preemption off: i_latency", "plant_");
	expect("preemption off", "(system call write)", "plant_");
}

static void an_interrupt(void)
{
	pid_t pid = start("80");

	plant("interrupt");
	check(end(pid) == 2, "the threshold was not passed");
	expect("interrupt", "interrupt irq work", "");
}

/* PREEMPT_RT runs it in a thread, which a real-time task preempts. */
static void a_softirq(void)
{
	pid_t pid = start("80");
	int status;

	plant("softirq");
	if (rt)
		kill(pid, SIGINT);
	status = end(pid);
	check(status == (rt ? 0 : 2), "exit status %d", status);
	if (!rt)
		expect("softirq", "softirq", "tasklet");
}

/*
 * Without a threshold fewer programs are called in a wake-up: the end of the timer's interrupt is
 * not seen, and nothing is recorded of a wake-up in time. A kernel without preemption goes on until
 * the end of the system call, so the stack at the timer alone has the function: it is walked once
 * the run's worst bears that, for which the first, shorter delay is.
 */
static void the_worst_of_a_run(const char *word, const char *kind, const char *first,
			       const char *second)
{
	pid_t pid = start_run("80", false);

	plant_for(word, PLANT_US / 4);
	plant(word);
	sleep_ns(50000000); /* wake-ups in time follow */
	kill(pid, SIGINT);
	check(end(pid) == 0, "%s: it did not end as it was told to", word);
	expect(kind, first, second);
}

/* Lines that --each has printed. Reads them into `text`, where the last line is whole. */
static int lines(void)
{
	int count = 0, fd = open(OUTPUT, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	for (const char *at = text; (at = strchr(at, '\n')); at++)
		count++;
	return count;
}

static bool wait_for_lines(int wanted)
{
	for (int i = 0; i < 6000 && lines() < wanted; i++)
		sleep_ns(10000000);
	return check(lines() >= wanted, "%d of %d lines", lines(), wanted);
}

/* Of a line (0: the first), the culprit, how late it was, and the sum of its parts' percent. */
static double line_worst(int number, char *culprit, size_t size, double *percent)
{
	const char *at = text, *end, *part;

	while (number-- && at)
		at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
	end = at ? strchr(at, '\n') : NULL;
	at = at ? strstr(at, "\"culprit\":\"") : NULL;
	*percent = 0;
	culprit[0] = 0;
	if (!at || !end || at > end)
		return 0;
	at += strlen("\"culprit\":\"");
	snprintf(culprit, size, "%.*s", (int)strcspn(at, "\""), at);
	for (part = at; (part = strstr(part, "\"percent\":")) && part < end; part++)
		*percent += number_after(part, "percent");
	return number_after(at, "latency_us");
}

/*
 * One run with a line for each half second, as a record of months has one for each minute, and one
 * delay in each second line. Each is to be named, however long it is.
 */
static void each_planted_delay(void)
{
	static const struct {
		const char *word, *culprit;
	} kinds[] = { { "irqs", "interrupts held off: i_latency" },
		      { "preemption", "preemption off: i_latency" },
		      { "interrupt", "interrupt irq work" } };
	int planted = repeats(6, 60), named = 0;
	pid_t pid;

	unlink(OUTPUT);
	fflush(NULL);
	pid = fork();
	if (!pid) {
		int fd = open(OUTPUT, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);

		dup2(fd, STDOUT_FILENO);
		execl(PROGRAM, PROGRAM, "-a", "0", "-p", "80", "-m", "--each", "0.5", (char *)NULL);
		_exit(127);
	}
	for (int i = 0; i < planted && wait_for_lines(1); i++) {
		const char *expected = kinds[i % 3].culprit;
		int us = 1500 + 137 * (i % 30), before;
		char said[2][160];
		double percent[2], late[2];

		before = lines();
		if (!wait_for_lines(before + 1)) /* not at the end of one */
			break;
		plant_for(kinds[i % 3].word, us);
		if (!wait_for_lines(before + 3))
			break;
		for (int j = 0; j < 2; j++)
			late[j] = line_worst(before + 1 + j, said[j], sizeof(said[j]), &percent[j]);
		/* a slow guest may have been at the end of a line after all */
		int one = late[1] > late[0];

		if (check(strstr(said[one], expected) == said[one] && late[one] > us - 1100 &&
				  late[one] < us + 1500 && percent[one] > 99.95 &&
				  percent[one] < 100.05,
			  "%s of %d us: %.0f us, %.2f %%: %s", kinds[i % 3].word, us, late[one],
			  percent[one], said[one]))
			named++;
	}
	kill(pid, SIGINT);
	check(!waitpid(pid, NULL, 0) || errno != ECHILD, "%s", strerror(errno));
	note("%d of %d planted delays were named", named, planted);
	check(named == planted, "%d of %d", named, planted);
}

static void without_a_threshold(void)
{
	the_worst_of_a_run("irqs", "interrupts off", "interrupts held off: i_latency",
			   "plant_irqs_off");
	the_worst_of_a_run("preemption", "preemption off", "preemption off: i_latency", "plant_");
	the_worst_of_a_run("interrupt", "interrupt", "interrupt irq work", "");
}

static void work(uint64_t ns)
{
	uint64_t end = rtxg_now_ns() + ns;

	while (rtxg_now_ns() < end)
		;
}

static void set_priority(int priority)
{
	struct sched_param param = { .sched_priority = priority };

	check(!sched_setscheduler(0, priority ? SCHED_FIFO : SCHED_OTHER, &param),
	      "priority %d: %s", priority, strerror(errno));
}

/* It was switched to as an ordinary task, and is one again when it is switched away from. */
static void a_raised_priority(void)
{
	pid_t pid = start("80");

	set_priority(90);
	work(PLANT_US * 1000ull);
	set_priority(0);
	check(end(pid) == 2, "the threshold was not passed");
	expect("higher priority", "higher priority: i_latency", "");
}

static pthread_mutex_t lent;

static void *want_lent(void *unused)
{
	set_priority(90);
	pthread_mutex_lock(&lent);
	pthread_mutex_unlock(&lent);
	return unused;
}

/* An ordinary task holds a lock that a more urgent one waits for. */
static void a_lent_priority(void)
{
	pid_t pid = start("80");
	pthread_mutexattr_t inherit;
	pthread_t thread;

	pthread_mutexattr_init(&inherit);
	pthread_mutexattr_setprotocol(&inherit, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&lent, &inherit);
	pthread_mutex_lock(&lent);
	pthread_create(&thread, NULL, want_lent, NULL);
	sleep_ns(3000000); /* it runs, and waits for the lock */
	work(PLANT_US * 1000ull);
	pthread_mutex_unlock(&lent);
	pthread_join(thread, NULL);
	check(end(pid) == 2, "the threshold was not passed");
	expect("higher priority", "higher priority: i_latency", "");
}

static void set_reads(uint64_t reads)
{
	char line[32];
	int fd = open(READS, O_WRONLY | O_CLOEXEC);

	snprintf(line, sizeof(line), "%" PRIu64, reads);
	check(fd >= 0 && write(fd, line, strlen(line)) > 0, "%s: %s", READS, strerror(errno));
	close(fd);
}

/* PREEMPT_RT runs its handler in a thread of priority 50. */
static void an_interrupt_of_a_device(void)
{
	uint32_t one = 1;
	int edu = open_edu(0);
	uint64_t begin, ns = UINT64_MAX;
	pid_t pid;

	if (!check(edu >= 0, "no device"))
		return;
	/* the shortest: something else may come in between */
	set_reads(5000);
	for (int i = 0; i < 5; i++) {
		begin = rtxg_now_ns();
		check(!ioctl(edu, RTXG_EDU_STORM, &one), "STORM: %s", strerror(errno));
		if (rtxg_now_ns() - begin < ns)
			ns = rtxg_now_ns() - begin;
	}
	pid = start(rt ? "40" : "80");
	set_reads(5000 * PLANT_US * 1000ull / ns);
	check(!ioctl(edu, RTXG_EDU_STORM, &one), "STORM: %s", strerror(errno));
	check(end(pid) == 2, "the threshold was not passed");
	if (rt)
		expect("higher priority", "higher priority: irq/", "rtxg_ed");
	else
		expect("interrupt", "interrupt rtxg_edu0", "");
	set_reads(0);
	close(edu);
}

/* Nothing planted: never 2 ms late, and the run ends as it was told to. */
static void nothing(void)
{
	pid_t pid = start("80");

	sleep_ns(300000000);
	kill(pid, SIGINT);
	check(end(pid) == 0, "late without a cause: %.400s",
	      strstr(text, "\"worst\"") ? strstr(text, "\"worst\"") : text);
	check(number_after(strstr(text, "\"observed\""), "count") > 100, "too few cycles");
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "nothing planted, nothing late", nothing },
		{ "interrupts off are named with the function", interrupts_off },
		{ "preemption off is named with the function", preemption_off },
		{ "an interrupt is named", an_interrupt },
		{ "a softirq is named", a_softirq },
		{ "without a threshold the worst of the run is named", without_a_threshold },
		{ "each planted delay of a long run is named", each_planted_delay },
		{ "a task that raised its priority is named", a_raised_priority },
		{ "a task that was lent its priority is named", a_lent_priority },
		{ "an interrupt of a device is named", an_interrupt_of_a_device },
	};
	struct utsname names;

	if (access(PROGRAM, X_OK)) {
		printf("    1..0 # SKIP rtxg-latency is not built\n");
		return 0;
	}
	uname(&names);
	rt = strstr(names.version, "PREEMPT_RT") != NULL;
	if (shell("insmod /modules/rtxg_plant.ko")) {
		printf("    1..1\n    not ok 1 insmod rtxg_plant.ko\n");
		return 1;
	}
	/* the planting process and the measured thread share the CPU */
	return RUN(cases);
}
