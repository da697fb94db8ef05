// SPDX-License-Identifier: MIT
/*
 * test_assigned.c - which process is in which vGPU, kept past the end of the daemon.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "../../bpf/discovery.h"
#include "assigned.h"
#include "contexts.h"
#include "fake_nvidiactl.h"
#include "lever_nvidia.h"
#include "patience.h"
#include "rig.h"
#include "state.h"

/* How often a process was asked for what it may hold up. */
static unsigned int questions;

int __real_rtx_lib_patience(uid_t uid, const struct patience_call *call, void *memory, size_t size);
int __wrap_rtx_lib_patience(uid_t uid, const struct patience_call *call, void *memory, size_t size);
int __wrap_rtx_lib_patience(uid_t uid, const struct patience_call *call, void *memory, size_t size)
{
	questions++;
	return __real_rtx_lib_patience(uid, call, memory, size);
}

int __real_rtx_lib_patience_of(pid_t pid, const struct patience_call *call, void *memory,
			       size_t size);
int __wrap_rtx_lib_patience_of(pid_t pid, const struct patience_call *call, void *memory,
			       size_t size);
int __wrap_rtx_lib_patience_of(pid_t pid, const struct patience_call *call, void *memory,
			       size_t size)
{
	questions++;
	return __real_rtx_lib_patience_of(pid, call, memory, size);
}

static int watch_error; /* what the kernel answers where a process is to be followed */

int __wrap_discovery_watch(struct discovery *d, uint32_t pid, uint32_t tag);
int __wrap_discovery_watch(struct discovery *d, uint32_t pid, uint32_t tag)
{
	return watch_error;
}

/* A process that forks one child when it is told to, and says its pid. */
struct parent {
	pid_t pid;
	int ask, answer;
};

static struct parent parent(void)
{
	pid_t self = getpid();
	int ask[2], answer[2];
	struct parent p;

	assert_int_equal(pipe(ask), 0);
	assert_int_equal(pipe(answer), 0);
	p = (struct parent){ .ask = ask[1], .answer = answer[0] };
	p.pid = fork();
	if (!p.pid) {
		pid_t child;
		char c;

		die_with(self);
		close(ask[1]);
		while (read(ask[0], &c, 1) == 1) {
			child = sleeper();
			if (write(answer[1], &child, sizeof(child)) != sizeof(child))
				break;
		}
		_exit(0);
	}
	close(ask[0]);
	close(answer[1]);
	return p;
}

static pid_t have_child(const struct parent *p)
{
	pid_t child;

	assert_int_equal(write(p->ask, "", 1), 1);
	assert_int_equal(read(p->answer, &child, sizeof(child)), sizeof(child));
	return child;
}

static void ended(struct parent *p)
{
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
	close(p->ask);
	close(p->answer);
}

static bool by_number(void *ctx, uint32_t tag, char *text)
{
	snprintf(text, NV_ASSIGNED_LABEL, "vgpu %u", tag);
	return tag != 9;
}

static void spoil(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void assignments_outlive_the_daemon(void **state)
{
	struct nv_assigned a = { 0 }, b = { 0 };
	const struct nv_assigned_one *e;
	struct parent p = parent(), other = parent();
	char folder[] = "/tmp/rtxg-assigned-XXXXXX", path[100], link[100];
	pid_t older = have_child(&p), child, grandchild;
	struct stat st;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/assigned", folder);
	snprintf(link, sizeof(link), "%s/link", folder);
	assert_int_equal(nv_assigned_load(&b, path), -ENOENT);
	usleep(30000); /* births are known to 10 ms */
	assert_int_equal(nv_assigned_put(&a, (uint32_t)p.pid, 3, false), 0);
	/* it has no name: not kept */
	assert_int_equal(nv_assigned_put(&a, (uint32_t)other.pid, 9, false), 0);
	assert_int_equal(nv_assigned_put(&a, 0x7ffffff0, 3, false), -ESRCH);
	assert_true(a.dirty);
	assert_int_equal(nv_assigned_save(&a, path, by_number, NULL, UINT64_MAX), 0);
	assert_false(a.dirty);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	child = have_child(&p);
	assert_int_equal(nv_assigned_load(&b, path), 0);
	assert_int_equal(b.count, 1);
	e = nv_assigned_find(&b, (uint32_t)p.pid);
	assert_non_null(e);
	assert_int_equal(e->tag, NV_ASSIGNED_NONE);
	assert_string_equal(e->label, "vgpu 3");
	assert_ptr_equal(nv_assigned_find(&b, (uint32_t)child), e);
	/* it was born before its parent was put there */
	assert_null(nv_assigned_find(&b, (uint32_t)older));
	assert_null(nv_assigned_find(&b, (uint32_t)getpid()));
	nv_assigned_inherit(&b, UINT64_MAX);
	assert_int_equal(b.count, 2);
	assert_int_equal(nv_assigned_find(&b, (uint32_t)child)->pid, child);
	/* Its own entry is kept when the parent has gone, and goes with it. */
	grandchild = have_child(&other);
	kill(p.pid, SIGKILL);
	waitpid(p.pid, NULL, 0);
	nv_assigned_prune(&b, UINT64_MAX); /* the child dies with its parent; perhaps not yet */
	assert_null(nv_assigned_find(&b, (uint32_t)p.pid));
	assert_null(nv_assigned_find(&b, (uint32_t)grandchild));
	nv_assigned_free(&b);
	/*
	 * Another process of the same pid is another process; and what another user could have
	 * written does not count.
	 */
	assert_int_equal(nv_assigned_put(&b, (uint32_t)other.pid, 1, false), 0);
	b.one[0].start++;
	assert_int_equal(nv_assigned_save(&b, path, by_number, NULL, UINT64_MAX), 0);
	assert_null(nv_assigned_find(&b, (uint32_t)other.pid));
	assert_int_equal(b.count, 0);
	assert_int_equal(nv_assigned_load(&b, path), 0);
	assert_int_equal(b.count, 0);
	assert_int_equal(nv_assigned_put(&b, (uint32_t)other.pid, 1, false), 0);
	assert_int_equal(nv_assigned_save(&b, path, by_number, NULL, UINT64_MAX), 0);
	nv_assigned_free(&b);
	assert_int_equal(chmod(path, 0620), 0);
	assert_int_equal(nv_assigned_load(&b, path), -EPERM);
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(symlink(path, link), 0);
	assert_int_equal(nv_assigned_load(&b, link), -ELOOP);
	spoil(path, "something\n");
	assert_int_equal(nv_assigned_load(&b, path), -EINVAL);
	spoil(path, "rtxg-assigned 1 of-another-boot\n1 1 1 name\n");
	assert_int_equal(nv_assigned_load(&b, path), 0);
	assert_int_equal(b.count, 0);
	nv_assigned_free(&a);
	unlink(link);
	unlink(path);
	rmdir(folder);
	ended(&p);
	ended(&other);
}

static uint32_t vgpu_of_pid(const struct lever_nvidia *l, pid_t pid)
{
	struct lever_nvidia_process list[8];
	int n = lever_nvidia_processes(l, list, 8);

	for (int i = 0; i < n && i < 8; i++)
		if (list[i].pid == (uint32_t)pid)
			return list[i].vgpu;
	return UINT32_MAX;
}

static void what_was_assigned_stays_so_after_a_restart(void **state)
{
	char folder[] = "/tmp/rtxg-assigned-XXXXXX", path[100];
	struct lever_nvidia_options o = { .size = sizeof(o),
					  .sys = &fake_sys,
					  .no_discovery = true,
					  .no_guardian = true,
					  .allow_unguarded = true,
					  .assigned = path };
	struct rtxg_slice_tenant t = { .min_ppm = 300000 };
	struct parent one = parent(), back = parent();
	struct lever_nvidia *dead, *l;
	struct discover_record r;
	pid_t child, forked;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/assigned", folder);
	assert_int_equal(lever_nvidia_open(&o, NULL, &dead, NULL, 0), 0);
	for (uint32_t v = 1; v < 4; v++)
		assert_int_equal(lever_nvidia_vgpu_set(dead, 0, v, &t), 0);
	assert_int_equal(lever_nvidia_assign(dead, (uint32_t)one.pid, 2), 0);
	assert_int_equal(lever_nvidia_assign(dead, (uint32_t)back.pid, 3), 0);
	assert_int_equal(lever_nvidia_assign(dead, (uint32_t)back.pid, 0), 0);
	/*
	 * A child that it knows of is in the file within the time of a look, and keeps its place
	 * when its parent has gone elsewhere.
	 */
	forked = have_child(&back);
	record(&r, (uint32_t)forked, 0, 0, 0, 0, 0, 0);
	r.kind = DISCOVER_FORK;
	r.tag = 1;
	nv_contexts_feed(dead, &r);
	fake->now += 300 * MS;
	assert_int_equal(lever_nvidia_dispatch(dead), 0);
	/*
	 * From here on it does nothing more, as one that was killed; a child is born, and both work
	 * on the GPU.
	 */
	child = have_child(&one);
	fake->next_client = 0xc1d00080;
	fake_object_add((uint32_t)one.pid, 0xc1d00041, 0, 0xc1d00041, NV_CLASS_ROOT_CLIENT, 0, 0);
	older_process((uint32_t)one.pid, 0xc1d00041, 0, 0x5c000000, 100);
	fake_object_add((uint32_t)child, 0xc1d00042, 0, 0xc1d00042, NV_CLASS_ROOT_CLIENT, 0, 0);
	older_process((uint32_t)child, 0xc1d00042, 0, 0x5c000000, 200);
	fake_object_add((uint32_t)back.pid, 0xc1d00043, 0, 0xc1d00043, NV_CLASS_ROOT_CLIENT, 0, 0);
	older_process((uint32_t)back.pid, 0xc1d00043, 0, 0x5c000000, 300);
	fake_object_add((uint32_t)forked, 0xc1d00044, 0, 0xc1d00044, NV_CLASS_ROOT_CLIENT, 0, 0);
	older_process((uint32_t)forked, 0xc1d00044, 0, 0x5c000000, 400);
	assert_int_equal(lever_nvidia_open(&o, NULL, &l, NULL, 0), 0);
	assert_int_equal(vgpu_of_pid(l, one.pid), 0); /* there are no vGPUs as yet */
	assert_int_equal(vgpu_of_pid(l, child), 0);
	for (uint32_t v = 1; v < 4; v++)
		assert_int_equal(lever_nvidia_vgpu_set(l, 0, v, &t), 0);
	assert_int_equal(vgpu_of_pid(l, one.pid), 2);
	assert_int_equal(vgpu_of_pid(l, child), 2);
	assert_int_equal(vgpu_of_pid(l, back.pid), 0);
	assert_int_equal(vgpu_of_pid(l, forked), 1);
	lever_nvidia_close(dead);
	lever_nvidia_close(l);
	unlink(path);
	rmdir(folder);
	ended(&one);
	ended(&back);
}

/* Its user has so many processes that are followed that there is no place for it. */
static void who_cannot_be_followed_goes_with_its_vgpu_and_comes_with_it(void **state)
{
	static char ring;
	char folder[] = "/tmp/rtxg-assigned-XXXXXX", path[100];
	struct lever_nvidia_options o = { .size = sizeof(o),
					  .sys = &fake_sys,
					  .no_discovery = true,
					  .no_adoption = true,
					  .no_lookout = true,
					  .no_guardian = true,
					  .allow_unguarded = true,
					  .assigned = path };
	struct rtxg_slice_tenant t = { .min_ppm = 300000 };
	struct discover_record r;
	struct lever_nvidia *l;
	pid_t pid = sleeper(), begun = sleeper();

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/assigned", folder);
	assert_int_equal(lever_nvidia_open(&o, NULL, &l, NULL, 0), 0);
	assert_int_equal(lever_nvidia_vgpu_set(l, 0, 2, &t), 0);
	assert_int_equal(lever_nvidia_vgpu_set(l, 0, 3, &t), 0);
	cuda_process(into_lever, l, (uint32_t)pid, FIRST, 100, 0);
	assert_int_equal(lever_nvidia_assign(l, (uint32_t)pid, 2), 0);
	assert_int_equal(vgpu_of_pid(l, pid), 2);
	l->discovery = (struct discovery *)&ring;
	watch_error = -ENOSPC;
	/* its children would be elsewhere: whoever asks for that is told */
	assert_int_equal(lever_nvidia_assign(l, (uint32_t)pid, 3), -ENOSPC);
	assert_int_equal(vgpu_of_pid(l, pid), 2);
	assert_int_equal(lever_nvidia_vgpu_remove(l, 0, 2), -EBUSY);
	assert_int_equal(lever_nvidia_assign(l, (uint32_t)pid, 0), 0);
	assert_int_equal(vgpu_of_pid(l, pid), 0);
	/* one that has begun, and has nothing on the GPU as yet */
	watch_error = 0;
	record(&r, (uint32_t)begun, 0xc1d00012, 0, 0xc1d00012, DISCOVER_CLASS_ROOT_CLIENT, 0, 0);
	into_lever(l, &r);
	assert_int_equal(lever_nvidia_assign(l, (uint32_t)begun, 2), 0);
	watch_error = -ENOSPC;
	assert_int_equal(lever_nvidia_vgpu_remove(l, 0, 2), 0);
	assert_int_equal(lever_nvidia_vgpu_set(l, 0, 2, &t), 0);
	cuda_process(into_lever, l, (uint32_t)begun, 0xc1d00012, 140, 0);
	assert_int_equal(vgpu_of_pid(l, begun), 0);
	/* one that was put there by its parent, before there was such a vGPU on this GPU */
	cuda_process(into_lever, l, 301, SECOND, 120, 4);
	assert_int_equal(vgpu_of_pid(l, 301), 0);
	assert_int_equal(lever_nvidia_vgpu_set(l, 0, 4, &t), 0);
	assert_int_equal(vgpu_of_pid(l, 301), 4);
	watch_error = 0;
	l->discovery = NULL;
	lever_nvidia_close(l);
	kill(pid, SIGKILL);
	kill(begun, SIGKILL);
	waitpid(pid, NULL, 0);
	waitpid(begun, NULL, 0);
	unlink(path);
	rmdir(folder);
}

#define MANY 100

static void ended_processes_are_found_piece_by_piece_with_few_questions(void **state)
{
	struct nv_assigned a = { 0 };
	pid_t pid[MANY];
	int pieces = 1;

	for (int i = 0; i < MANY; i++) {
		pid[i] = sleeper();
		assert_int_equal(nv_assigned_put(&a, (uint32_t)pid[i], 1, false), 0);
	}
	questions = 0;
	assert_true(nv_assigned_prune(&a, UINT64_MAX));
	assert_int_equal(a.count, MANY);
	assert_in_range(questions, 1, MANY / 20);
	for (int i = 0; i < MANY; i += 2) {
		kill(pid[i], SIGKILL);
		/* half of them are zombies, which have ended, too */
		if (i % 4)
			waitpid(pid[i], NULL, 0);
		else
			waitid(P_PID, (id_t)pid[i], NULL, WEXITED | WNOWAIT);
	}
	questions = 0;
	while (!nv_assigned_prune(&a, 0)) {
		assert_in_range(questions, 1, 2);
		questions = 0;
		pieces++;
	}
	assert_in_range(pieces, 2, MANY);
	assert_int_equal(a.count, MANY / 2);
	for (int i = 1; i < MANY; i += 2)
		assert_int_equal(nv_assigned_find(&a, (uint32_t)pid[i])->pid, pid[i]);
	/* The number of one that has ended may have gone to another. */
	a.one[7].start--;
	assert_true(nv_assigned_prune(&a, UINT64_MAX));
	assert_int_equal(a.count, MANY / 2 - 1);
	for (int i = 0; i < MANY; i++) {
		kill(pid[i], SIGKILL);
		waitpid(pid[i], NULL, 0);
	}
	nv_assigned_free(&a);
}

static void the_file_is_written_piece_by_piece_and_replaced_at_once(void **state)
{
	struct nv_assigned a = { 0 }, b = { 0 };
	char folder[] = "/tmp/rtxg-assigned-XXXXXX", path[100];
	pid_t pid[MANY];
	int pieces = 1;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/assigned", folder);
	for (int i = 0; i < MANY; i++) {
		pid[i] = sleeper();
		assert_int_equal(nv_assigned_put(&a, (uint32_t)pid[i], 1, false), 0);
	}
	assert_int_equal(nv_assigned_save(&a, path, by_number, NULL, UINT64_MAX), 0);
	nv_assigned_remove(&a, (uint32_t)pid[MANY - 1]);
	while (nv_assigned_save(&a, path, by_number, NULL, 0) > 0) {
		/* Until it is whole the one before is there. */
		assert_int_equal(nv_assigned_load(&b, path), 0);
		assert_int_equal(b.count, MANY);
		nv_assigned_free(&b);
		pieces++;
	}
	assert_in_range(pieces, 2, MANY / 10);
	assert_false(a.dirty);
	assert_int_equal(nv_assigned_load(&b, path), 0);
	assert_int_equal(b.count, MANY - 1);
	nv_assigned_free(&b);
	/* What changes behind the place where it is makes another one due. */
	a.dirty = true;
	assert_int_equal(nv_assigned_save(&a, path, by_number, NULL, 0), 1);
	nv_assigned_remove(&a, (uint32_t)pid[0]);
	while (nv_assigned_save(&a, path, by_number, NULL, 0) > 0)
		;
	assert_true(a.dirty);
	/* One that is given up leaves the file as it is, and is due again. */
	assert_int_equal(nv_assigned_save(&a, path, by_number, NULL, 0), 1);
	nv_assigned_save_again(&a);
	assert_true(a.dirty);
	assert_int_equal(nv_assigned_save(&a, path, by_number, NULL, UINT64_MAX), 0);
	assert_int_equal(nv_assigned_load(&b, path), 0);
	assert_int_equal(b.count, MANY - 2);
	nv_assigned_free(&a);
	nv_assigned_free(&b);
	unlink(path);
	rmdir(folder);
	for (int i = 0; i < MANY; i++) {
		kill(pid[i], SIGKILL);
		waitpid(pid[i], NULL, 0);
	}
}

#define CHAIN 40

/* Each is the parent of the next one. All end with the first. */
static void chain_of(pid_t pid[CHAIN])
{
	pid_t self = getpid();
	int said[2];

	assert_int_equal(pipe(said), 0);
	pid[0] = fork();
	for (int i = 0; !pid[0] && i < CHAIN; i++) {
		pid_t own = getpid();

		die_with(i ? getppid() : self);
		if (write(said[1], &own, sizeof(own)) != sizeof(own) || i == CHAIN - 1 || fork()) {
			pause();
			_exit(0);
		}
	}
	for (int i = 0; i < CHAIN; i++)
		assert_int_equal(read(said[0], &pid[i], sizeof(pid[i])), sizeof(pid[i]));
	close(said[0]);
	close(said[1]);
}

static void a_chain_of_programs_is_placed_with_few_questions(void **state)
{
	struct nv_assigned a = { 0 };
	pid_t pid[CHAIN], other = sleeper();

	/* births are known to 10 ms */
	assert_int_equal(nv_assigned_put(&a, (uint32_t)getpid(), 5, false), 0);
	usleep(30000);
	assert_int_equal(nv_assigned_put(&a, (uint32_t)other, 4, false), 0);
	chain_of(pid);
	questions = 0;
	assert_int_equal(nv_assigned_find(&a, (uint32_t)pid[CHAIN - 1])->tag, 5);
	assert_in_range(questions, 0, 2);
	nv_assigned_remove(&a, (uint32_t)getpid());
	assert_null(nv_assigned_find(&a, (uint32_t)pid[CHAIN - 1]));
	assert_in_range(questions, 0, 2);
	assert_int_equal(nv_assigned_put(&a, (uint32_t)getpid(), 5, true), 0);
	questions = 0;
	nv_assigned_pass(&a, true);
	for (int i = 0; i < CHAIN; i++)
		assert_int_equal(nv_assigned_find(&a, (uint32_t)pid[i])->tag, 5);
	nv_assigned_pass(&a, false);
	assert_in_range(questions, 0, 2);
	assert_true(nv_assigned_inherit(&a, UINT64_MAX));
	for (int i = 0; i < CHAIN; i++)
		assert_int_equal(nv_assigned_find(&a, (uint32_t)pid[i])->pid, pid[i]);
	kill(pid[0], SIGKILL);
	kill(other, SIGKILL);
	waitpid(pid[0], NULL, 0);
	waitpid(other, NULL, 0);
	nv_assigned_free(&a);
}

static void a_birth_that_the_kernel_told_of_is_not_asked_for(void **state)
{
	struct nv_assigned a = { 0 };
	uint64_t tick = 1000000000u / (uint64_t)sysconf(_SC_CLK_TCK), birth;
	pid_t pid[3] = { sleeper(), sleeper(), sleeper() };

	assert_int_equal(nv_assigned_put(&a, (uint32_t)pid[0], 1, true), 0);
	birth = a.one[0].start * tick + tick / 2;
	/* Told wrong, as in a namespace of time: all are asked. */
	questions = 0;
	assert_int_equal(nv_assigned_born(&a, (uint32_t)pid[0], 1, birth + 5 * tick), 0);
	assert_int_equal(nv_assigned_born(&a, (uint32_t)pid[0], 1, birth + 5 * tick), 0);
	assert_int_equal(nv_assigned_born(&a, (uint32_t)pid[0], 1, 0), 0);
	assert_int_equal(questions, 3);
	assert_int_equal(a.one[0].start, birth / tick);
	/* Once it has been told right the kernel is believed. */
	assert_int_equal(nv_assigned_born(&a, (uint32_t)pid[0], 1, birth), 0);
	assert_int_equal(questions, 4);
	for (int i = 0; i < 3; i++)
		assert_int_equal(nv_assigned_born(&a, (uint32_t)pid[i], 2, birth), 0);
	assert_int_equal(questions, 4);
	assert_int_equal(nv_assigned_find(&a, (uint32_t)pid[0])->tag, 2);
	for (int i = 0; i < 3; i++) {
		kill(pid[i], SIGKILL);
		waitpid(pid[i], NULL, 0);
	}
	nv_assigned_free(&a);
}

static unsigned int breaths, looks_at_descriptors;

static void breathe(void *ctx)
{
	breaths++;
}

static uint32_t into_the_first(void *ctx, uint32_t pid)
{
	return 1;
}

static int counted_ctl_fds(void *ctx, int pid, int *fds, int cap)
{
	looks_at_descriptors++;
	return fake_sys.ctl_fds(ctx, pid, fds, cap);
}

static void long_work_lets_the_host_hand_over(void **state)
{
	struct nv_sys sys = fake_sys;
	struct lever_nvidia_options o = { .size = sizeof(o),
					  .sys = &sys,
					  .no_discovery = true,
					  .no_adoption = true,
					  .no_lookout = true,
					  .no_guardian = true,
					  .allow_unguarded = true };
	struct lever_nvidia_ops ops = { .size = sizeof(ops),
					.place = into_the_first,
					.breathe = breathe };
	struct rtxg_slice_tenant t = { .min_ppm = 300000 };
	struct lever_nvidia_process list[20];
	struct lever_nvidia *l;

	sys.ctl_fds = counted_ctl_fds;
	assert_int_equal(lever_nvidia_open(&o, &ops, &l, NULL, 0), 0);
	assert_int_equal(lever_nvidia_vgpu_set(l, 0, 1, &t), 0);
	for (uint32_t i = 0; i < 20; i++)
		cuda_process(into_lever, l, 1000 + i, FIRST + i, 100 + 20 * i, 0);
	breaths = 0;
	lever_nvidia_place(l, true);
	assert_int_equal(breaths, 20);
	lever_nvidia_place(l, false);
	assert_int_equal(breaths, 20);
	/* All processes of the machine are not looked at for a list of those that are governed. */
	looks_at_descriptors = 0;
	assert_int_equal(lever_nvidia_processes(l, list, 20), 20);
	assert_int_equal(looks_at_descriptors, 0);
	lever_nvidia_close(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(assignments_outlive_the_daemon, before),
		cmocka_unit_test_setup(what_was_assigned_stays_so_after_a_restart, before),
		cmocka_unit_test_setup(who_cannot_be_followed_goes_with_its_vgpu_and_comes_with_it,
				       before),
		cmocka_unit_test(ended_processes_are_found_piece_by_piece_with_few_questions),
		cmocka_unit_test(the_file_is_written_piece_by_piece_and_replaced_at_once),
		cmocka_unit_test(a_chain_of_programs_is_placed_with_few_questions),
		cmocka_unit_test(a_birth_that_the_kernel_told_of_is_not_asked_for),
		cmocka_unit_test_setup(long_work_lets_the_host_hand_over, before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
