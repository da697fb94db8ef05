// SPDX-License-Identifier: MIT
/*
 * test_cpu_admit.c - admission of CPU tasks: known sets at their known bounds, and a simulation
 * that looks for a deadline missed in sets that were admitted.
 */
#include "check.h"

#include "rtxg_cpu_admit.h"

#define CPU(n) (n)
#define GLOBAL RTXG_ADMIT_GLOBAL

static struct rtxg_admit_task task(uint32_t policy, int32_t cpu, uint64_t cost, uint64_t period)
{
	return (struct rtxg_admit_task){ .policy = policy,
					 .priority = 50,
					 .cpu = cpu,
					 .cpus = 2,
					 .cost_ns = cost,
					 .deadline_ns = period,
					 .period_ns = period };
}

static struct rtxg_cpu_domain cluster(const uint64_t *bits)
{
	return (struct rtxg_cpu_domain){ .bits = bits, .words = 1 };
}

static int admit(const struct rtxg_admit_task *tasks, uint32_t count,
		 struct rtxg_admit_verdict *verdict)
{
	return rtxg_cpu_admit(tasks, count, 2, 1000000, verdict);
}

/*
 * 20/50 + 40/70 is 97 %: EDF can, rate monotonic cannot (80 of 70 ms), with either its response
 * times are exact.
 */
static void test_one_cpu(void **state)
{
	struct rtxg_admit_task tasks[3] = { task(RTXG_ADMIT_EDF, 0, 20 * MS, 50 * MS),
					    task(RTXG_ADMIT_EDF, 0, 40 * MS, 70 * MS) };
	struct rtxg_admit_verdict verdict;

	assert_int_equal(admit(tasks, 2, &verdict), 0);
	tasks[1].cost_ns = 43 * MS;
	assert_int_equal(admit(tasks, 2, &verdict), -ENOSPC);
	assert_int_equal(verdict.test, RTXG_ADMIT_CAPACITY);
	tasks[1].deadline_ns = 60 * MS;
	tasks[1].cost_ns = 37 * MS;
	assert_int_equal(admit(tasks, 2, &verdict), -ENOSPC);
	assert_int_equal(verdict.test, RTXG_ADMIT_DENSITY);
	assert_int_equal(verdict.needed, 400000 + 616667);

	tasks[0] = task(RTXG_ADMIT_RM, 0, 20 * MS, 50 * MS);
	tasks[1] = task(RTXG_ADMIT_RM, 0, 40 * MS, 70 * MS);
	assert_int_equal(admit(tasks, 2, &verdict), -ENOSPC);
	assert_int_equal(verdict.test, RTXG_ADMIT_RESPONSE);
	assert_int_equal(verdict.task, 1);
	assert_int_equal(verdict.needed, 80 * MS);
	assert_int_equal(verdict.there, 70 * MS);
	tasks[1].cost_ns = 30 * MS; /* 50 of 70 ms: at the very end of the other's period */
	assert_int_equal(admit(tasks, 2, &verdict), 0);
	tasks[1].cost_ns = 30 * MS + 1;
	assert_int_equal(admit(tasks, 2, &verdict), -ENOSPC);
	/* harmonic periods fill the CPU, which the bound of Liu and Layland would not let them */
	tasks[0] = task(RTXG_ADMIT_RM, 0, 5 * MS, 10 * MS);
	tasks[1] = task(RTXG_ADMIT_RM, 0, 10 * MS, 20 * MS);
	assert_int_equal(admit(tasks, 2, &verdict), 0);
	/* on different CPUs they do not meet */
	tasks[0] = task(RTXG_ADMIT_RM, 0, 20 * MS, 50 * MS);
	tasks[1] = task(RTXG_ADMIT_RM, 1, 40 * MS, 70 * MS);
	assert_int_equal(admit(tasks, 2, &verdict), 0);
	/* a task without timing is left out; a fixed priority is the caller's */
	tasks[2] = task(RTXG_ADMIT_FP, 0, 0, 0);
	assert_int_equal(admit(tasks, 3, &verdict), 0);
	tasks[2] = task(RTXG_ADMIT_FP, 0, 29 * MS, 100 * MS);
	tasks[2].priority = 95;
	assert_int_equal(admit(tasks, 3, &verdict), 0);
	tasks[2].cost_ns = 31 * MS;
	assert_int_equal(admit(tasks, 3, &verdict), -ENOSPC);
	assert_int_equal(verdict.task, 0);
	tasks[2].priority = 5;
	tasks[2].cost_ns = 60 * MS; /* 100 ms: two jobs of 20 come in between */
	assert_int_equal(admit(tasks, 3, &verdict), 0);
}

static void test_several_cpus(void **state)
{
	struct rtxg_admit_task tasks[4];
	struct rtxg_admit_verdict verdict;

	/* Dhall's effect: two light tasks, one heavy; use of 2 CPUs 1.1, and global EDF may miss */
	tasks[0] = task(RTXG_ADMIT_EDF, GLOBAL, 1 * MS, 10 * MS);
	tasks[1] = tasks[0];
	tasks[2] = task(RTXG_ADMIT_EDF, GLOBAL, 10 * MS + 500 * US, 11 * MS);
	assert_int_equal(admit(tasks, 3, &verdict), -ENOSPC);
	assert_int_equal(verdict.test, RTXG_ADMIT_WINDOW);
	/*
	 * 2 - max is 1.4: 0.6 + 0.4 + 0.4 fits, 0.6 + 0.5 + 0.4 does not by the density, nor by the
	 * windows
	 */
	tasks[0] = task(RTXG_ADMIT_EDF, GLOBAL, 6 * MS, 10 * MS);
	tasks[1] = task(RTXG_ADMIT_EDF, GLOBAL, 4 * MS, 10 * MS);
	tasks[2] = task(RTXG_ADMIT_EDF, GLOBAL, 4 * MS, 10 * MS);
	assert_int_equal(admit(tasks, 3, &verdict), 0);
	tasks[1] = task(RTXG_ADMIT_EDF, GLOBAL, 8 * MS, 10 * MS);
	assert_int_equal(admit(tasks, 3, &verdict), -ENOSPC);
	/* one that stays on a CPU counts where others pass by */
	tasks[0] = task(RTXG_ADMIT_RM, 1, 9 * MS, 10 * MS);
	tasks[1] = task(RTXG_ADMIT_RM, GLOBAL, 2 * MS, 10 * MS);
	assert_int_equal(admit(tasks, 2, &verdict), -ENOSPC);
	assert_int_equal(verdict.task, 0);
	/* more than there is */
	for (int i = 0; i < 4; i++)
		tasks[i] = task(RTXG_ADMIT_EDF, GLOBAL, 6 * MS, 10 * MS);
	assert_int_equal(admit(tasks, 4, &verdict), -ENOSPC);
	assert_int_equal(verdict.test, RTXG_ADMIT_CAPACITY);
	assert_int_equal(verdict.needed, 2400000);
	assert_int_equal(verdict.there, 2000000);
}

static void test_bad_input(void **state)
{
	struct rtxg_admit_task good = task(RTXG_ADMIT_EDF, 0, 1 * MS, 10 * MS), bad = good;
	struct rtxg_admit_verdict verdict;

	assert_int_equal(rtxg_cpu_admit(NULL, 0, 1, 1, &verdict), 0);
	assert_int_equal(rtxg_cpu_admit(&good, 1, 0, 1000000, &verdict), -EINVAL);
	assert_int_equal(rtxg_cpu_admit(&good, 1, 1, 0, &verdict), -EINVAL);
	assert_int_equal(rtxg_cpu_admit(&good, 1, 1, 1000001, &verdict), -EINVAL);
	bad.policy = RTXG_ADMIT_POLICIES;
	assert_int_equal(admit(&bad, 1, &verdict), -EINVAL);
	bad = good;
	bad.period_ns = UINT64_MAX;
	assert_int_equal(admit(&bad, 1, &verdict), -EINVAL);
	bad = good;
	bad.deadline_ns = 11 * MS;
	assert_int_equal(admit(&bad, 1, &verdict), -EINVAL);
	bad = good;
	bad.cost_ns = 11 * MS;
	assert_int_equal(admit(&bad, 1, &verdict), -ENOSPC);
	bad = good;
	bad.cpu = GLOBAL;
	bad.cpus = 0;
	assert_int_equal(admit(&bad, 1, &verdict), -EINVAL);
}

/* A task of a cluster competes with those that share a CPU with it, and with no others. */
static void test_clusters_are_separate_machines(void **state)
{
	static const uint64_t low = 3, high = 12, middle = 6;
	struct rtxg_admit_task tasks[5];
	struct rtxg_admit_verdict verdict;

	for (uint32_t i = 0; i < 4; i++) {
		tasks[i] = task(RTXG_ADMIT_EDF, GLOBAL, 60 * MS, 100 * MS);
		tasks[i].domain = cluster(i < 2 ? &low : &high);
	}
	/* 0.6 + 0.6 + (2 - 1) 0.6 is at most 2 in each; of three it would be 2.4 */
	assert_int_equal(rtxg_cpu_admit(tasks, 4, 4, 1000000, &verdict), 0);
	tasks[2].domain = cluster(&low);
	assert_int_equal(rtxg_cpu_admit(tasks, 4, 4, 1000000, &verdict), -ENOSPC);
	assert_int_equal(verdict.test, RTXG_ADMIT_WINDOW);
	tasks[2].domain = cluster(&high);
	/* one in between meets both */
	tasks[4] = task(RTXG_ADMIT_EDF, GLOBAL, 60 * MS, 100 * MS);
	tasks[4].domain = cluster(&middle);
	assert_int_equal(rtxg_cpu_admit(tasks, 5, 4, 1000000, &verdict), -ENOSPC);
	/* one on a CPU of the one cluster does not disturb the other */
	tasks[4] = task(RTXG_ADMIT_FP, CPU(3), 30 * MS, 100 * MS);
	assert_int_equal(rtxg_cpu_admit(tasks, 2, 4, 1000000, &verdict), 0);
	tasks[2] = tasks[4];
	assert_int_equal(rtxg_cpu_admit(tasks, 3, 4, 1000000, &verdict), 0);
}

/* What stays within a cluster is no more than its CPUs can do, whatever the others leave free. */
static void test_a_cluster_has_its_own_capacity(void **state)
{
	static const uint64_t low = 3;
	struct rtxg_admit_task tasks[3] = { task(RTXG_ADMIT_EDF, GLOBAL, 70 * MS, 100 * MS),
					    task(RTXG_ADMIT_EDF, GLOBAL, 70 * MS, 100 * MS),
					    task(RTXG_ADMIT_FP, CPU(1), 70 * MS, 100 * MS) };
	struct rtxg_admit_verdict verdict;

	tasks[0].domain = tasks[1].domain = cluster(&low);
	assert_int_equal(rtxg_cpu_admit(tasks, 3, 8, 1000000, &verdict), -ENOSPC);
	assert_int_equal(verdict.test, RTXG_ADMIT_CAPACITY);
	assert_int_equal(verdict.needed, 2100000);
	assert_int_equal(verdict.there, 2000000);
	tasks[0].cpus = 3;
	assert_int_equal(rtxg_cpu_admit(tasks, 3, 8, 1000000, &verdict), -EINVAL);
}

/* ---- a simulation ---- */

static uint64_t seed = 1;

static uint32_t draw(uint32_t below)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((seed >> 33) % below);
}

struct job {
	uint64_t left, deadline, next;
};

/*
 * Whether a goes before b: by the policies' ranks. Between EDF and RM or FP of the band a coin of
 * the set decides, since no order is promised.
 */
static bool before(const struct rtxg_admit_task *a, const struct job *ja,
		   const struct rtxg_admit_task *b, const struct job *jb)
{
	if (a->policy == RTXG_ADMIT_EDF && b->policy == RTXG_ADMIT_EDF)
		return ja->deadline < jb->deadline;
	if (a->policy == RTXG_ADMIT_RM && b->policy == RTXG_ADMIT_RM)
		return a->period_ns < b->period_ns;
	return a->priority > b->priority;
}

static bool may_run_on(const struct rtxg_admit_task *t, uint32_t cpu)
{
	return t->cpu >= 0 ? t->cpu == (int32_t)cpu : rtxg_cpu_domain_has(&t->domain, cpu);
}

/*
 * Runs a set unit by unit on cpus CPUs, all tasks released together; true if all deadlines are met.
 */
static bool simulate(const struct rtxg_admit_task *tasks, uint32_t count, uint32_t cpus,
		     uint64_t horizon)
{
	struct job jobs[8] = { 0 };

	for (uint64_t now = 0; now < horizon; now++) {
		bool ran[8] = { false }, busy[4] = { false };

		for (uint32_t i = 0; i < count; i++) {
			if (jobs[i].left && now >= jobs[i].deadline)
				return false;
			if (now == jobs[i].next) {
				jobs[i].left = tasks[i].cost_ns;
				jobs[i].deadline = now + tasks[i].deadline_ns;
				jobs[i].next = now + tasks[i].period_ns;
			}
		}
		/* the best that can still be placed, until none can */
		for (;;) {
			int best = -1;
			uint32_t place = 0;

			for (uint32_t i = 0; i < count; i++) {
				uint32_t cpu;

				if (!jobs[i].left || ran[i] ||
				    (best >= 0 &&
				     !before(&tasks[i], &jobs[i], &tasks[best], &jobs[best])))
					continue;
				for (cpu = 0;
				     cpu < cpus && (busy[cpu] || !may_run_on(&tasks[i], cpu));
				     cpu++)
					;
				if (cpu < cpus) {
					best = (int)i;
					place = cpu;
				}
			}
			if (best < 0)
				break;
			ran[best] = busy[place] = true;
			jobs[best].left--;
		}
	}
	return true;
}

/* Small numbers, so that many sets are tried to the end of their common period. */
static void test_admitted_sets_meet_their_deadlines(void **state)
{
	static const uint32_t periods[] = { 4, 5, 6, 8, 10, 12 };
	/* every cluster of two or three CPUs out of three */
	static const uint64_t clusters[] = { 3, 5, 6, 7 };
	unsigned int admitted = 0, refused_but_fine = 0, sets = 0;

	for (int round = 0; round < 6000; round++) {
		struct rtxg_admit_task tasks[6];
		struct rtxg_admit_verdict verdict;
		uint32_t count = 2 + draw(4), kinds = draw(4), cpus = 1 + draw(3);

		for (uint32_t i = 0; i < count; i++) {
			uint64_t period = periods[draw(6)], cost = 1 + draw((uint32_t)period / 2);

			tasks[i] = (struct rtxg_admit_task){
				.policy = kinds == 3 ? draw(3) : kinds,
				.priority = 1 + draw(99),
				.period_ns = period,
				.cost_ns = cost,
				.deadline_ns = draw(3) ? period
						       : cost + draw((uint32_t)(period - cost) + 1),
				.cpu = draw(3) ? (int32_t)draw(cpus) : GLOBAL,
				.cpus = cpus,
			};
			if (cpus == 3 && tasks[i].cpu == GLOBAL) {
				tasks[i].domain = cluster(&clusters[draw(4)]);
				tasks[i].cpus = rtxg_cpu_domain_count(&tasks[i].domain);
			}
			/*
			 * in the simulation these share an order with the rest by a number within
			 * their span
			 */
			if (tasks[i].policy != RTXG_ADMIT_FP)
				tasks[i].priority = kinds == 3 ? 10 + draw(80) : 50;
		}
		sets++;
		if (rtxg_cpu_admit(tasks, count, cpus, 1000000, &verdict)) {
			refused_but_fine += simulate(tasks, count, cpus, 240);
			continue;
		}
		admitted++;
		if (!simulate(tasks, count, cpus, 240)) {
			for (uint32_t i = 0; i < count; i++)
				print_error("policy %u priority %u cpu %d: %llu/%llu/%llu\n",
					    tasks[i].policy, tasks[i].priority, tasks[i].cpu,
					    (unsigned long long)tasks[i].cost_ns,
					    (unsigned long long)tasks[i].deadline_ns,
					    (unsigned long long)tasks[i].period_ns);
			fail_msg("round %d: admitted on %u CPUs, and misses", round, cpus);
		}
	}
	print_message("%u sets: %u admitted, %u refused that meet their deadlines when released "
		      "together\n",
		      sets, admitted, refused_but_fine);
	assert_true(admitted > sets / 10);
}

/* The time it may take: the most tasks that the module has, the CPU all but full. */
static void test_is_bounded(void **state)
{
	static struct rtxg_admit_task tasks[1024];
	struct rtxg_admit_verdict verdict;

	for (uint32_t i = 0; i < 1024; i++)
		tasks[i] = task(RTXG_ADMIT_RM, 0, 9 * US, 10 * MS + i * 7919);
	admit(tasks, 1024, &verdict);
	/* it came back */
	assert_true(verdict.test == RTXG_ADMIT_OK || verdict.test == RTXG_ADMIT_RESPONSE);
}

/* Each test of each task is a step at least, and an approximation of a response time is one. */
static void test_a_step_is_no_more_than_one_test_of_one_task(void **state)
{
	struct rtxg_admit_task tasks[8];
	struct rtxg_admission admission;
	struct rtxg_admit_verdict verdict;
	int ret, steps = 0, approximations = 0;

	for (uint32_t i = 0; i < 8; i++)
		tasks[i] = task(RTXG_ADMIT_RM, 0, 100 * US, (1 + i) * MS);
	/* from its own cost: 1 job of each, then 2 of the first */
	tasks[7].cost_ns = 400 * US;
	rtxg_admission_begin(&admission, tasks, 8, 1, 1000000);
	do {
		ret = rtxg_admission_step(&admission, &verdict);
		approximations += admission.step > 0;
		steps++;
	} while (ret > 0);
	assert_int_equal(ret, 0);
	assert_true(approximations >= 8);
	/* all at once; periods and capacities, and their sums; deadlines, and that all are met */
	assert_int_equal(steps, 1 + 9 + 9 + 9 + approximations);
}

static void test_a_job_costs_its_budget_or_its_time_and_what_it_sleeps(void **state)
{
	struct rtxg_admit_job job = {
		.period_ns = 10 * MS, .runtime_ns = 3 * MS, .wcet_ns = 2 * MS, .suspend_ns = 4 * MS
	};

	for (job.policy = RTXG_ADMIT_FP; job.policy < RTXG_ADMIT_DEADLINE; job.policy++) {
		assert_true(rtxg_admit_suspends(job.policy));
		assert_int_equal(rtxg_admit_cost(&job), 7 * MS);
	}
	/* the runtime of DEADLINE counts the time asleep already */
	assert_false(rtxg_admit_suspends(RTXG_ADMIT_DEADLINE));
	assert_int_equal(rtxg_admit_cost(&job), 3 * MS);
	job.policy = RTXG_ADMIT_FP;
	job.runtime_ns = 0;
	assert_int_equal(rtxg_admit_cost(&job), 6 * MS);
	job.wcet_ns = 0;
	assert_int_equal(rtxg_admit_cost(&job), 0);
	job.wcet_ns = 2 * MS;
	job.period_ns = 0;
	assert_int_equal(rtxg_admit_cost(&job), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_cpu),
		cmocka_unit_test(test_a_job_costs_its_budget_or_its_time_and_what_it_sleeps),
		cmocka_unit_test(test_several_cpus),
		cmocka_unit_test(test_bad_input),
		cmocka_unit_test(test_clusters_are_separate_machines),
		cmocka_unit_test(test_a_cluster_has_its_own_capacity),
		cmocka_unit_test(test_admitted_sets_meet_their_deadlines),
		cmocka_unit_test(test_is_bounded),
		cmocka_unit_test(test_a_step_is_no_more_than_one_test_of_one_task),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
