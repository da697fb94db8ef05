// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * admit.c - admission of tasks of CPU policies. See rtxg_cpu_admit.h for the tests and where
 * they are from. May not: keep anything between calls, or know who the tasks are.
 */
#include "rtxg_cpu_admit.h"

#define PPM	 1000000ull
#define TIME_MAX 7200000000000ull
/* A response time is found in few steps unless the CPU is all but full. */
#define STEPS 4096u

/* Priorities that a task may have while a job of it is ready. */
struct span {
	uint32_t low, high;
};

/* The tests, in their order; each is taken task by task. */
enum stage { SENSE, PERIODS, CAPACITY, DEADLINES, DONE };

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
	return (a + b - 1) / b;
}

static uint64_t density_ppm(const struct rtxg_admit_task *t)
{
	return ceil_div(t->cost_ns * PPM, t->deadline_ns);
}

static bool sensible(const struct rtxg_admit_task *t)
{
	return t->policy < RTXG_ADMIT_POLICIES && t->period_ns && t->period_ns <= TIME_MAX &&
	       t->deadline_ns && t->deadline_ns <= t->period_ns && t->cost_ns <= TIME_MAX &&
	       (t->cpu >= 0 || t->cpus) &&
	       (t->cpu >= 0 || !t->domain.words || t->cpus == rtxg_cpu_domain_count(&t->domain)) &&
	       (t->policy != RTXG_ADMIT_FP || (t->priority >= 1 && t->priority <= 99));
}

/* Whether the two can ever be ready for the same CPU. */
static bool meet(const struct rtxg_admit_task *a, const struct rtxg_admit_task *b)
{
	if (a->cpu >= 0)
		return b->cpu >= 0 ? a->cpu == b->cpu : rtxg_cpu_domain_has(&b->domain, a->cpu);
	if (b->cpu >= 0)
		return rtxg_cpu_domain_has(&a->domain, b->cpu);
	return rtxg_cpu_domains_meet(&a->domain, &b->domain);
}

static struct span span_of(const struct rtxg_admit_task *t)
{
	switch (t->policy) {
	case RTXG_ADMIT_FP:
		return (struct span){ t->priority, t->priority };
	case RTXG_ADMIT_RM:
		return (struct span){ RTXG_RANK_LOW, RTXG_RANK_HIGH };
	case RTXG_ADMIT_EDF:
		return (struct span){ RTXG_RANK_LOW, RTXG_RANK_HIGH + 1 };
	default:
		return (struct span){ 100, 100 };
	}
}

/*
 * Whether a job of j may run while one of i is ready. Two RM tasks know their order, unless there
 * are more periods than priorities; ranks of EDF and of RM against others depend on who else is
 * there, so that everything within their span counts.
 */
static bool delays(const struct rtxg_admission *set, const struct rtxg_admit_task *j,
		   const struct rtxg_admit_task *i)
{
	if (j->policy == RTXG_ADMIT_RM && i->policy == RTXG_ADMIT_RM &&
	    set->rm_periods <= RTXG_RANK_HIGH - RTXG_RANK_LOW + 1)
		return j->period_ns <= i->period_ns;
	return span_of(j).high >= span_of(i).low;
}

/*
 * Whether j can bring work along into the window in which i is delayed: it was ready before and
 * stood behind, or came from another CPU. It meets its deadline, so that what it brings was
 * released at most deadline - cost before.
 */
static uint64_t carried_in(const struct rtxg_admit_task *j, const struct rtxg_admit_task *i)
{
	if (j->cpu >= 0 && (span_of(j).low >= span_of(i).low ||
			    (j->policy == RTXG_ADMIT_RM && i->policy == RTXG_ADMIT_RM)))
		return 0;
	return j->deadline_ns - j->cost_ns;
}

static int refuse(struct rtxg_admit_verdict *verdict, uint32_t test, uint32_t task, int32_t cpu,
		  uint64_t needed, uint64_t there)
{
	*verdict = (struct rtxg_admit_verdict){
		.test = test, .task = task, .cpu = cpu, .needed = needed, .there = there
	};
	return -ENOSPC;
}

/* EDF (or DEADLINE) among themselves on one CPU: false if another task may get in between. */
static bool density_fits(const struct rtxg_admission *set, uint32_t at, uint64_t *sum)
{
	const struct rtxg_admit_task *i = &set->tasks[at];

	*sum = 0;
	for (uint32_t k = 0; k < set->count; k++) {
		const struct rtxg_admit_task *j = &set->tasks[k];

		if (!j->cost_ns || !meet(i, j) || (k != at && !delays(set, j, i)))
			continue;
		if (j->policy != i->policy || j->cpu != i->cpu)
			return false;
		*sum += density_ppm(j);
	}
	return true;
}

/* The next approximation of a response time, from below. 1: it is not reached yet. */
static int respond(struct rtxg_admission *set, struct rtxg_admit_verdict *verdict)
{
	const struct rtxg_admit_task *i = &set->tasks[set->at];
	uint64_t next = i->cost_ns;

	for (uint32_t k = 0; k < set->count; k++) {
		const struct rtxg_admit_task *j = &set->tasks[k];

		if (k == set->at || !j->cost_ns || !meet(i, j) || !delays(set, j, i))
			continue;
		next += ceil_div(set->response + carried_in(j, i), j->period_ns) * j->cost_ns;
		if (next > i->deadline_ns)
			return refuse(verdict, RTXG_ADMIT_RESPONSE, set->at, i->cpu, next,
				      i->deadline_ns);
	}
	if (next == set->response)
		return 0;
	set->response = next;
	return ++set->step < STEPS ? 1
				   : refuse(verdict, RTXG_ADMIT_RESPONSE, set->at, i->cpu, next,
					    i->deadline_ns);
}

static int admit_on_cpu(struct rtxg_admission *set, struct rtxg_admit_verdict *verdict)
{
	const struct rtxg_admit_task *i = &set->tasks[set->at];
	uint64_t sum;

	if (!set->step) {
		if (i->policy >= RTXG_ADMIT_EDF && density_fits(set, set->at, &sum))
			return sum <= PPM ? 0
					  : refuse(verdict, RTXG_ADMIT_DENSITY, set->at, i->cpu,
						   sum, PPM);
		set->response = i->cost_ns;
	}
	return respond(set, verdict);
}

/* All that compete are EDF (or DEADLINE) tasks of the same domain. */
static bool global_density_fits(const struct rtxg_admission *set, uint32_t at)
{
	const struct rtxg_admit_task *i = &set->tasks[at];
	uint64_t sum = 0, most = 0;

	for (uint32_t k = 0; k < set->count; k++) {
		const struct rtxg_admit_task *j = &set->tasks[k];

		if (!j->cost_ns || !meet(i, j) || (k != at && !delays(set, j, i)))
			continue;
		if (j->policy != i->policy || j->cpu >= 0 || j->cpus != i->cpus ||
		    !rtxg_cpu_domains_equal(&j->domain, &i->domain))
			return false;
		sum += density_ppm(j);
		if (density_ppm(j) > most)
			most = density_ppm(j);
	}
	return most <= PPM && sum + (i->cpus - 1) * most <= i->cpus * PPM;
}

/* How much a task that meets its deadlines can run within a window, wherever that lies. */
static uint64_t most_work(const struct rtxg_admit_task *j, uint64_t window)
{
	uint64_t reach = window + j->deadline_ns - j->cost_ns, jobs = reach / j->period_ns,
		 rest = reach - jobs * j->period_ns;

	return jobs * j->cost_ns + (rest < j->cost_ns ? rest : j->cost_ns);
}

static int admit_global(const struct rtxg_admission *set, uint32_t at,
			struct rtxg_admit_verdict *verdict)
{
	const struct rtxg_admit_task *i = &set->tasks[at];
	uint64_t spare = i->deadline_ns - i->cost_ns + 1, taken = 0;

	if (i->policy >= RTXG_ADMIT_EDF && global_density_fits(set, at))
		return 0;
	for (uint32_t k = 0; k < set->count; k++) {
		const struct rtxg_admit_task *j = &set->tasks[k];
		uint64_t work;

		if (k == at || !j->cost_ns || !meet(i, j) || !delays(set, j, i))
			continue;
		work = most_work(j, i->deadline_ns);
		taken += work < spare ? work : spare;
	}
	if (taken < i->cpus * spare)
		return 0;
	return refuse(verdict, RTXG_ADMIT_WINDOW, at, RTXG_ADMIT_GLOBAL, taken,
		      i->cpus * spare - 1);
}

/* Whether a task runs on no CPU but those of a task that stays on one, or in a cluster. */
static bool stays_within(const struct rtxg_admit_task *t, const struct rtxg_admit_task *of)
{
	if (of->cpu >= 0)
		return t->cpu == of->cpu;
	return t->cpu >= 0 ? rtxg_cpu_domain_has(&of->domain, t->cpu)
			   : rtxg_cpu_domain_within(&t->domain, &of->domain);
}

static uint64_t use_ppm(const struct rtxg_admit_task *t)
{
	return ceil_div(t->cost_ns * PPM, t->period_ns);
}

/*
 * Use of the CPU or cluster where a task stays, by all that stay there; after the last, of all
 * CPUs.
 */
static int admit_capacity(struct rtxg_admission *set, struct rtxg_admit_verdict *verdict)
{
	const struct rtxg_admit_task *t = &set->tasks[set->at];
	uint64_t sum = 0, there = set->capacity_ppm;

	if (set->at == set->count) {
		there *= set->cpus;
		return set->use <= there ? 0
					 : refuse(verdict, RTXG_ADMIT_CAPACITY, set->count,
						  RTXG_ADMIT_GLOBAL, set->use, there);
	}
	if (!t->cost_ns)
		return 0;
	set->use += use_ppm(t);
	if (t->cpu < 0 && !t->domain.words)
		return 0;
	if (t->cpu < 0)
		there *= t->cpus;
	for (uint32_t m = 0; m < set->count; m++)
		if (set->tasks[m].cost_ns && stays_within(&set->tasks[m], t))
			sum += use_ppm(&set->tasks[m]);
	return sum <= there ? 0
			    : refuse(verdict, RTXG_ADMIT_CAPACITY, set->count, t->cpu, sum, there);
}

/*
 * Periods of RM that differ. Where EDF tasks stand between their ranks, RM tasks know no order
 * among themselves that holds, as if there were more periods than priorities.
 */
static int count_periods(struct rtxg_admission *set)
{
	const struct rtxg_admit_task *tasks = set->tasks;
	uint32_t at = set->at;
	bool counted;

	if (at == set->count) {
		if (set->rm && set->edf)
			set->rm_periods = set->count + RTXG_RANK_HIGH;
		return 0;
	}
	set->rm |= tasks[at].policy == RTXG_ADMIT_RM && tasks[at].cost_ns;
	set->edf |= tasks[at].policy == RTXG_ADMIT_EDF && tasks[at].cost_ns;
	counted = tasks[at].policy != RTXG_ADMIT_RM;
	for (uint32_t j = 0; j < at && !counted; j++)
		counted = tasks[j].policy == RTXG_ADMIT_RM &&
			  tasks[j].period_ns == tasks[at].period_ns;
	set->rm_periods += !counted;
	return 0;
}

static int make_sense(const struct rtxg_admission *set, struct rtxg_admit_verdict *verdict)
{
	for (uint32_t i = 0; i < set->count; i++) {
		const struct rtxg_admit_task *t = &set->tasks[i];

		if (!t->cost_ns)
			continue;
		if (!sensible(t))
			return -EINVAL;
		if (t->cost_ns > t->deadline_ns)
			return refuse(verdict, RTXG_ADMIT_RESPONSE, i, t->cpu, t->cost_ns,
				      t->deadline_ns);
	}
	return 0;
}

static int meet_deadlines(struct rtxg_admission *set, struct rtxg_admit_verdict *verdict)
{
	const struct rtxg_admit_task *t = &set->tasks[set->at];

	if (set->at == set->count || !t->cost_ns)
		return 0;
	return t->cpu >= 0 ? admit_on_cpu(set, verdict) : admit_global(set, set->at, verdict);
}

bool rtxg_admit_suspends(uint32_t policy)
{
	return policy != RTXG_ADMIT_DEADLINE;
}

uint64_t rtxg_admit_cost(const struct rtxg_admit_job *job)
{
	uint64_t cost = job->runtime_ns ? job->runtime_ns : job->wcet_ns;

	if (!job->period_ns || !cost)
		return 0;
	return rtxg_admit_suspends(job->policy) ? cost + job->suspend_ns : cost;
}

void rtxg_admission_begin(struct rtxg_admission *admission, const struct rtxg_admit_task *tasks,
			  uint32_t count, uint32_t cpus, uint32_t capacity_ppm)
{
	*admission = (struct rtxg_admission){
		.tasks = tasks, .count = count, .cpus = cpus, .capacity_ppm = capacity_ppm
	};
}

int rtxg_admission_step(struct rtxg_admission *set, struct rtxg_admit_verdict *verdict)
{
	int ret = 0;

	switch (set->stage) {
	case SENSE:
		*verdict = (struct rtxg_admit_verdict){ .test = RTXG_ADMIT_OK };
		if (!set->cpus || !set->capacity_ppm || set->capacity_ppm > PPM)
			return -EINVAL;
		ret = make_sense(set, verdict);
		set->at = set->count; /* all at once */
		break;
	case PERIODS:
		ret = count_periods(set);
		break;
	case CAPACITY:
		ret = admit_capacity(set, verdict);
		break;
	case DEADLINES:
		ret = meet_deadlines(set, verdict);
		break;
	}
	if (ret)
		return ret;
	set->step = 0;
	if (set->at++ == set->count) {
		set->at = 0;
		set->stage++;
	}
	return set->stage < DONE;
}

int rtxg_cpu_admit(const struct rtxg_admit_task *tasks, uint32_t count, uint32_t cpus,
		   uint32_t capacity_ppm, struct rtxg_admit_verdict *verdict)
{
	struct rtxg_admission admission;
	int ret;

	rtxg_admission_begin(&admission, tasks, count, cpus, capacity_ppm);
	do
		ret = rtxg_admission_step(&admission, verdict);
	while (ret > 0);
	return ret;
}
