// SPDX-License-Identifier: MIT
/* test_metrics_pods.c - pods of processes whose numbers come again (cli/metrics_pods.c). */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../cli/metrics_pods.h"

#define FIRST	  "0f6bd3f7-8d3b-4a55-9a0c-3f6e2a4b1c2d"
#define SECOND	  "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
#define OTHER	  "cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd"
#define CONTAINER "abababababababababababababababababababababababababababababababab"

static char proc[64], logs[80];
static int ended;

static void be(const char *name, const char *cgroup)
{
	char path[160];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", proc, name);
	assert_true(mkdir(path, 0700) == 0);
	snprintf(path, sizeof(path), "%s/%s/cgroup", proc, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f, "0::%s\n", cgroup);
	assert_int_equal(fclose(f), 0);
}

/* Its folder is kept elsewhere, so that the next one of its name is another file for sure. */
static void end(const char *name)
{
	char from[160], to[160];

	snprintf(from, sizeof(from), "%s/%s", proc, name);
	snprintf(to, sizeof(to), "%s/ended-%d", proc, ended++);
	assert_int_equal(rename(from, to), 0);
}

static int make_proc(void **state)
{
	snprintf(proc, sizeof(proc), "/tmp/rtxg-proc-XXXXXX");
	if (!mkdtemp(proc))
		return -1;
	snprintf(logs, sizeof(logs), "%s/logs", proc);
	return 0;
}

static int remove_proc(void **state)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -rf %s", proc);
	return system(command);
}

static void expect(size_t place, long long pid, const char *uid, const char *container)
{
	struct metrics_pod pod = metrics_pod_of(proc, logs, place, pid);

	assert_string_equal(pod.uid, uid);
	assert_string_equal(pod.id, container);
}

/* As the kubelet and the runtimes name cgroups: systemd's driver and cgroupfs. */
static void both_forms_of_paths_are_read(void **state)
{
	be("10", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"
		 "0f6bd3f7_8d3b_4a55_9a0c_3f6e2a4b1c2d.slice/cri-containerd-" CONTAINER ".scope");
	be("11", "/kubepods/besteffort/pod" SECOND "/" CONTAINER);
	be("12", "/user.slice/session-1.scope");
	be("13", "/system.slice/podman-" CONTAINER ".scope");
	expect(0, 10, FIRST, CONTAINER);
	expect(1, 11, SECOND, CONTAINER);
	expect(2, 12, "", "");
	expect(3, 13, "", "");
	expect(4, 14, "", ""); /* it has ended */
}

static void a_process_number_that_comes_again_is_in_its_own_pod(void **state)
{
	be("20", "/kubepods/pod" FIRST "/" CONTAINER);
	expect(0, 20, FIRST, CONTAINER);
	end("20");
	be("20", "/kubepods/pod" SECOND "/" CONTAINER);
	expect(0, 20, SECOND, CONTAINER);
	end("20");
	be("20", "/user.slice");
	expect(0, 20, "", "");
}

static void a_process_that_ended_is_in_no_pod(void **state)
{
	be("30", "/kubepods/pod" FIRST "/" CONTAINER);
	expect(0, 30, FIRST, CONTAINER);
	end("30");
	expect(0, 30, "", "");
}

static void places_of_the_list_may_be_taken_by_others(void **state)
{
	be("40", "/kubepods/pod" FIRST "/" CONTAINER);
	be("41", "/kubepods/pod" SECOND "/" CONTAINER);
	for (size_t i = 0; i < 3; i++) {
		expect(0, 40 + (long long)i % 2, i % 2 ? SECOND : FIRST, CONTAINER);
		expect(1000, 41 - (long long)i % 2, i % 2 ? FIRST : SECOND, CONTAINER);
	}
}

/* A link of the kubelet's, which leads nowhere here. */
static void link_log(const char *name)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", logs, name);
	assert_return_code(symlink("/nowhere", path), 0);
}

static void names_are_those_of_the_containers_log(void **state)
{
	struct metrics_pod pod;

	mkdir(logs, 0755);
	link_log("other-0_default_main-" OTHER ".log");
	link_log("no_mark");
	link_log("cut_off_x-" CONTAINER);
	be("50", "/kubepods/pod" FIRST "/" CONTAINER);
	pod = metrics_pod_of(proc, logs, 2000, 50);
	assert_string_equal(pod.id, CONTAINER);
	assert_string_equal(pod.pod, "");
	assert_string_equal(pod.space, "");
	link_log("train-7f9c-x2_team-a_gpu-worker-" CONTAINER ".log");
	pod = metrics_pod_of(proc, logs, 2000, 50);
	assert_string_equal(pod.pod, "train-7f9c-x2");
	assert_string_equal(pod.space, "team-a");
	assert_string_equal(pod.container, "gpu-worker");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(both_forms_of_paths_are_read, make_proc,
						remove_proc),
		cmocka_unit_test_setup_teardown(a_process_number_that_comes_again_is_in_its_own_pod,
						make_proc, remove_proc),
		cmocka_unit_test_setup_teardown(a_process_that_ended_is_in_no_pod, make_proc,
						remove_proc),
		cmocka_unit_test_setup_teardown(places_of_the_list_may_be_taken_by_others,
						make_proc, remove_proc),
		cmocka_unit_test_setup_teardown(names_are_those_of_the_containers_log, make_proc,
						remove_proc),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
