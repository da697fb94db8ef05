// SPDX-License-Identifier: MIT
/*
 * rtxg-channels - shows by hand what the lever sees and can do. A tool for debugging: it holds no
 * policy, and `suspend` holds a process only as long as it runs.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../../bpf/discovery.h"
#include "act.h"
#include "adopt.h"
#include "fecs.h"
#include "needs.h"
#include "nvtool.h"
#include "others.h"
#include "rtxg_clock.h"

static struct nv_rm rm;
static struct nv_rm_gpu gpus[RM_GPUS_MAX];
static int gpu_count;
static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
	stop = 1;
}

static int fail(const char *what, int err)
{
	fprintf(stderr, "rtxg-channels: %s: %s (driver: 0x%x %s on 0x%x)\n", what, strerror(-err),
		rm.status, nv_rm_status_name(rm.status), rm.command);
	return 1;
}

static void show_need(void *ctx, const struct nv_need *need)
{
	printf("lacks 0x%x %s (for: %s)\n", need->command, need->name, need->what_for);
}

/* Asks without doing anything. 1 if something is lacking. */
static int cmd_needs(void)
{
	struct nv_fecs fecs;
	unsigned int asked;
	int log = nv_fecs_open(&fecs, &gpus[0], 1024), lacking;

	if (log)
		printf("no context-switch log (%s): its own controls are not asked\n",
		       strerror(-log));
	lacking = nv_needs_ask(&gpus[0], log ? NULL : &fecs, show_need, NULL, &asked);
	if (!log)
		nv_fecs_close(&fecs);
	if (lacking < 0)
		return fail("cannot ask", lacking);
	printf("driver of release %u: %u controls asked, %d lacking\n", rm.release, asked, lacking);
	return lacking > 0;
}

static int setup(void)
{
	int err = nv_rm_open(&rm, nv_sys_patient());

	if (err)
		return fail("cannot open /dev/nvidiactl (is the driver loaded, are you root?)",
			    err);
	gpu_count = nv_rm_gpus_open(&rm, gpus, RM_GPUS_MAX);
	if (gpu_count < 0)
		return fail("no GPU could be opened", gpu_count);
	return 0;
}

static void show_process(const struct nv_process *p)
{
	printf("pid %u (%s)%s%s\n", p->pid, p->comm, p->mps_server ? " MPS server" : "",
	       p->adopted ? " adopted" : "");
	for (unsigned int g = 0; g < p->group_count; g++) {
		const struct nv_group *group = &p->groups[g];

		printf("  client 0x%x group 0x%x gpu %u engine %u:", group->client, group->handle,
		       group->device, group->engine);
		for (unsigned int c = 0; c < group->count; c++)
			printf(" 0x%x/%u", group->channels[c].handle, group->channels[c].cid);
		printf("\n");
	}
}

static void on_record(void *ctx, const struct discover_record *r)
{
	static const char *const names[] = { "?",    "alloc", "free", "dup",	"fork",
					     "exec", "exit",  "lost", "control" };
	struct nv_registry *reg = ctx;
	struct nv_what what;
	int err = nv_registry_feed(reg, r, &what);
	char comm[sizeof(r->comm) + 1] = "";

	memcpy(comm, r->comm, sizeof(r->comm));
	nv_name_clean(comm);
	printf("%llu.%06llu %-5s pid %u (%s) fd %d client 0x%x parent 0x%x object 0x%x class 0x%x "
	       "engine %u cid %u userd 0x%x+0x%llx source 0x%x 0x%x value %llu%s\n",
	       r->ns / 1000000000ull, r->ns / 1000 % 1000000,
	       r->kind <= DISCOVER_CONTROL ? names[r->kind] : "?", r->pid, comm, r->fd, r->client,
	       r->parent, r->object, r->class_id, r->engine, r->cid, r->userd,
	       (unsigned long long)r->userd_offset, r->src_client, r->src_object,
	       (unsigned long long)r->value, err == -EPERM ? " REFUSED" : "");
	if (what.change == NV_GONE_PROCESS)
		nv_registry_drop(reg, what.process);
	fflush(stdout);
}

/* Of the driver that runs; programs may be watched without a right to it. */
static uint32_t release(void)
{
	struct nv_rm own;
	uint32_t number = nv_rm_open(&own, &nv_sys_linux) ? 0 : own.release;

	nv_rm_close(&own);
	return number;
}

/* of: a release of the driver in the place of that of the one that runs; 0: that. */
static int cmd_watch(double seconds, uint32_t of)
{
	struct nv_registry reg;
	struct discovery *d;
	struct pollfd p;
	uint64_t end;
	int err;

	nv_registry_init(&reg);
	d = discovery_open(of ? of : release(), &err);
	if (!d)
		return fail("cannot load the discovery program (root, and a kernel with BTF, are "
			    "needed)",
			    err);
	end = rtxg_now_ns() + (uint64_t)(seconds * 1e9);
	p.fd = discovery_fd(d);
	p.events = POLLIN;
	while (!stop && rtxg_now_ns() < end) {
		if (poll(&p, 1, 100) > 0)
			discovery_read(d, end, on_record, &reg);
	}
	for (unsigned int i = 0; i < reg.count; i++)
		show_process(reg.processes[i]);
	discovery_close(d);
	nv_registry_free(&reg);
	return 0;
}

static int cmd_fecs(double seconds, unsigned int flush_us, int print)
{
	struct nv_fecs_event ev[256];
	struct nv_fecs f;
	struct {
		uint32_t pid;
		uint64_t ns, switches;
	} use[64];
	uint64_t end, held_since = 0, flush_ns = 0, flushes = 0, flush_max = 0, first = 0, last = 0;
	uint32_t holder = 0;
	int n, err, users = 0, i, k;

	err = nv_fecs_open(&f, &gpus[0], 8192);
	if (err) {
		fprintf(stderr, "reason code %u\n", f.reason);
		return fail("no context-switch log", err);
	}
	err = nv_fecs_calibrate(&f);
	if (err)
		fail("no GPU clock", err);
	else
		printf("offset %lld ns\n", (long long)f.offset_ns);
	end = rtxg_now_ns() + (uint64_t)(seconds * 1e9);
	while (!stop && rtxg_now_ns() < end) {
		uint64_t t0;

		usleep(flush_us ? flush_us : 20000);
		t0 = rtxg_now_ns();
		if (flush_us && (err = nv_fecs_flush(&f)))
			return fail("flush", err);
		t0 = rtxg_now_ns() - t0;
		flush_ns += t0;
		flushes++;
		if (t0 > flush_max)
			flush_max = t0;
		while ((n = nv_fecs_read(&f, ev, 256)) > 0)
			for (i = 0; i < n; i++) {
				if (print-- > 0)
					printf("%llu %s pid %u context %u (age %lld us)\n",
					       (unsigned long long)ev[i].gpu_ns,
					       ev[i].start ? "start" : "end  ", ev[i].pid,
					       ev[i].context,
					       ((long long)rtxg_now_ns() - (long long)ev[i].gpu_ns -
						(long long)f.offset_ns) /
						       1000);
				if (!first)
					first = ev[i].gpu_ns;
				last = ev[i].gpu_ns;
				if (ev[i].start) {
					holder = ev[i].pid;
					held_since = ev[i].gpu_ns;
					continue;
				}
				for (k = 0; k < users && use[k].pid != ev[i].pid; k++)
					;
				if (k == users && users < 64) {
					use[users].pid = ev[i].pid;
					use[users].ns = use[users].switches = 0;
					users++;
				}
				if (k < users && holder == ev[i].pid) {
					use[k].ns += ev[i].gpu_ns - held_since;
					use[k].switches++;
				}
			}
		if (n < 0)
			return fail("log", n);
	}
	printf("span %.3f ms, lost %llu, flush mean %.1f us max %.1f us over %llu\n",
	       (last - first) / 1e6, (unsigned long long)f.lost,
	       flush_ns / 1e3 / (flushes ? flushes : 1), flush_max / 1e3,
	       (unsigned long long)flushes);
	for (k = 0; k < users; k++)
		printf("pid %u: %.3f ms %.2f %% in %llu stays, mean %.1f us\n", use[k].pid,
		       use[k].ns / 1e6, last > first ? 100.0 * use[k].ns / (last - first) : 0.0,
		       (unsigned long long)use[k].switches,
		       use[k].switches ? use[k].ns / 1e3 / use[k].switches : 0.0);
	nv_fecs_close(&f);
	return 0;
}

static int adopt(struct nv_registry *reg, uint32_t pid, struct nv_process **p)
{
	struct nv_adopt_stats st;
	int n;

	nv_registry_init(reg);
	n = nv_adopt(gpus, gpu_count, reg, pid, &st);
	printf("adopt %u: %d compute channels; %u descriptors, %u clients, %u objects, %u calls, "
	       "%.3f ms; our client 0x%x\n",
	       pid, n, st.descriptors, st.clients, st.objects, st.calls, st.ns / 1e6, rm.client);
	*p = nv_registry_process(reg, pid);
	if (n <= 0 || !*p)
		return fail("nothing to act on", n < 0 ? n : -ENOENT);
	return 0;
}

/*
 * Several processes in one call each way, 20 times; the first is asked for, the others are found in
 * `pids`.
 */
static int cmd_together(char **pids, int n)
{
	struct nv_journal journal = { .fd = -1 };
	struct nv_batch batch = { 0 };
	struct nv_registry reg;
	struct nv_adopt_stats st;
	double stop_us[20], go_us[20];
	int err = 0, i;

	nv_registry_init(&reg);
	for (i = 0; i < n; i++) {
		uint32_t pid = (uint32_t)atoi(pids[i]);

		err = nv_adopt(gpus, gpu_count, &reg, pid, &st);
		if (err <= 0)
			return fail("adopt", err ? err : -ENOENT);
		err = nv_batch_add(&batch, nv_registry_process(&reg, pid), gpus[0].device_instance,
				   NV_ALL);
		if (err)
			return fail("batch", err);
	}
	for (i = 0; i < 20; i++) {
		uint64_t t0 = rtxg_now_ns(), t1;

		err = nv_suspend(&gpus[0], &journal, &batch, false);
		t1 = rtxg_now_ns();
		if (err)
			return fail("suspend", err);
		stop_us[i] = (double)(t1 - t0) / 1e3;
		usleep(20000);
		t0 = rtxg_now_ns();
		err = nv_resume(&gpus[0], &journal, &batch);
		t1 = rtxg_now_ns();
		if (err)
			return fail("resume", err);
		go_us[i] = (double)(t1 - t0) / 1e3;
		usleep(50000);
	}
	printf("{\"processes\": %d, \"channels\": %u, \"suspend_us\": [", n, batch.count);
	for (i = 0; i < 20; i++)
		printf("%s%.1f", i ? ", " : "", stop_us[i]);
	printf("], \"resume_us\": [");
	for (i = 0; i < 20; i++)
		printf("%s%.1f", i ? ", " : "", go_us[i]);
	printf("]}\n");
	return 0;
}

static int cmd_act(const char *what, uint32_t pid, double value)
{
	struct nv_journal journal = { .fd = -1 };
	struct nv_batch batch = { 0 };
	struct nv_registry reg;
	struct nv_process *p;
	uint64_t t0, t1;
	uint32_t us = 0;
	int err;

	if (adopt(&reg, pid, &p))
		return 1;
	show_process(p);
	if (!strcmp(what, "adopt"))
		return 0;
	if (!strcmp(what, "slice")) {
		t0 = rtxg_now_ns();
		err = nv_set_slice(&gpus[0], &journal, p, gpus[0].device_instance, (uint32_t)value);
		t1 = rtxg_now_ns();
		if (err)
			return fail("set slice", err);
		err = nv_get_slice(&gpus[0], p, gpus[0].device_instance, (uint32_t)value, &us);
		printf("slice now %u us, set in %.1f us\n", us, (t1 - t0) / 1e3);
		return err ? fail("get slice", err) : 0;
	}
	err = nv_batch_add(&batch, p, gpus[0].device_instance, NV_ALL);
	if (err)
		return fail("batch", err);
	for (int i = 0; i < 5; i++) {
		t0 = rtxg_now_ns();
		err = nv_suspend(&gpus[0], &journal, &batch, false);
		t1 = rtxg_now_ns();
		if (err)
			return fail("suspend", err);
		printf("suspended %u channels in %.1f us\n", batch.count, (t1 - t0) / 1e3);
		fflush(stdout);
		usleep((useconds_t)(value * 1e6));
		t0 = rtxg_now_ns();
		err = nv_resume(&gpus[0], &journal, &batch);
		t1 = rtxg_now_ns();
		if (err)
			return fail("resume", err);
		printf("resumed in %.1f us\n", (t1 - t0) / 1e3);
		usleep(100000);
	}
	return 0;
}

int main(int argc, char **argv)
{
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	if (argc >= 2 && !strcmp(argv[1], "watch"))
		return cmd_watch(argc > 2 ? atof(argv[2]) : 1e9,
				 argc > 3 ? (uint32_t)atoi(argv[3]) : 0);
	if (argc >= 3 && !strcmp(argv[1], "fecs"))
		return setup() ? 1
			       : cmd_fecs(atof(argv[2]), argc > 3 ? (unsigned int)atoi(argv[3]) : 0,
					  argc > 4 ? atoi(argv[4]) : 0);
	if (argc >= 3 &&
	    (!strcmp(argv[1], "adopt") || !strcmp(argv[1], "slice") || !strcmp(argv[1], "suspend")))
		return setup() ? 1
			       : cmd_act(argv[1], (uint32_t)atoi(argv[2]),
					 argc > 3 ? atof(argv[3]) : 0.1);
	if (argc >= 3 && !strcmp(argv[1], "together"))
		return setup() ? 1 : cmd_together(argv + 2, argc - 2);
	if (argc >= 3 && !strcmp(argv[1], "demand"))
		return setup() ? 1
			       : nv_tool_demand(gpus, gpu_count, atof(argv[2]),
						argc > 3 ? (unsigned int)atoi(argv[3]) : 1000,
						argc > 4 && !strcmp(argv[4], "hold"));
	if (argc >= 3 && !strcmp(argv[1], "objects"))
		return setup() ? 1 : nv_tool_objects(gpus, gpu_count, (uint32_t)atoi(argv[2]));
	if (argc == 2 && !strcmp(argv[1], "needs"))
		return setup() ? 1 : cmd_needs();
	fprintf(stderr, "usage: rtxg-channels needs | watch [SECONDS [RELEASE]] | fecs SECONDS "
			"[FLUSH_US [PRINT]] | "
			"adopt PID | slice PID US | "
			"suspend PID SECONDS | together PID... | demand SECONDS [US [hold]] | "
			"objects PID\n");
	return 2;
}
