// SPDX-License-Identifier: MIT
/*
 * rtxg-nvlab - experiments with the driver's controls, for a reader who wants to know why the lever
 * does what it does. Not installed, holds no policy; what it stops it lets go again. docs/nvidia.md
 * says what came out of it.
 *
 * rtxg-nvlab log SECONDS FILE
 *     the whole context-switch log, one line a record: gpu ns, tag, pid, context
 * rtxg-nvlab warm KIND PID ROUNDS [STOP_PID...]
 *     does KIND to a process that has no work, ROUNDS times, and says how often its context came
 *     onto the engine within 5 ms: doorbell, preempt, restart, cycle (stop and resume), none.
 *     STOP_PID: stopped during that time
 * rtxg-nvlab stop KIND ROUNDS PID...
 *     stops and resumes processes together: all (as the lever), only (scheduling alone), preempt
 *     (only, then one PREEMPT a group), copies (copy engines' channels alone), everything (compute
 *     and copy); times of each, JSON
 * rtxg-nvlab slices US PID...
 *     sets the slice of each process without a restart of the runlist, then restarts it once,
 *     through the last process: mean stays before, after the setting, after the restart
 * rtxg-nvlab calls LETTERS PID
 *     one call after the other to a process that has work all the time, beside one that has, too;
 *     after each whether it comes onto the engine: S stops, s stops scheduling alone, G lets go,
 *     T and H stop and let go as another client, B and b stop together with a channel that is not
 *     there, behind and before its own, and D and d let go so. It shows whether stops are counted
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "act.h"
#include "adopt.h"
#include "fecs.h"
#include "rtxg_clock.h"

#define USERMODE_CLASS	      0xc661u /* Hopper's; others are tried after it */
#define USERMODE_SIZE	      0x10000u
#define DOORBELL	      0x90u
#define GET_WORK_SUBMIT_TOKEN 0xc36f0108u
#define MAX		      1024

static struct nv_rm rm;
static struct nv_rm_gpu gpus[RM_GPUS_MAX];
static int gpu_count;
static struct nv_registry reg;

static int fail(const char *what, int err)
{
	fprintf(stderr, "rtxg-nvlab: %s: %s (driver: 0x%x %s on 0x%x)\n", what, strerror(-err),
		rm.status, nv_rm_status_name(rm.status), rm.command);
	return 1;
}

static struct nv_process *find(const char *pid)
{
	struct nv_adopt_stats st;
	int n = nv_adopt(gpus, gpu_count, &reg, (uint32_t)atoi(pid), &st);

	if (n <= 0) {
		fail("adopt", n ? n : -ENOENT);
		return NULL;
	}
	return nv_registry_process(&reg, (uint32_t)atoi(pid));
}

static int open_log(struct nv_fecs *f)
{
	int err = nv_fecs_open_detail(f, &gpus[0], 16384, NV_FECS_LOD_FULL);

	if (!err)
		err = nv_fecs_calibrate(f);
	return err;
}

/* Every record since the last call, unfiltered. */
static unsigned int records(struct nv_fecs *f, struct nv_fecs_record *out, unsigned int cap)
{
	unsigned int n = 0;
	uint32_t put;

	nv_fecs_flush(f);
	put = __atomic_load_n(&f->header->put, __ATOMIC_ACQUIRE);
	while (f->get != put && n < cap) {
		memcpy(&out[n++], (const void *)&f->records[f->get], sizeof(*out));
		f->get = (f->get + 1) % f->count;
	}
	if (n) {
		struct nv_update_get u = { .record_get = f->get };

		nv_rm_control(&rm, f->h_buffer, NV90CD_UPDATE_GET, &u, sizeof(u));
	}
	return n;
}

static struct nv_fecs_record rec[16384];

static int cmd_log(double seconds, const char *path)
{
	uint64_t end = rtxg_now_ns() + (uint64_t)(seconds * 1e9);
	FILE *out = fopen(path, "we");
	struct nv_fecs f;
	int err = open_log(&f);

	if (err || !out)
		return fail("log", err ? err : -errno);
	records(&f, rec, 16384);
	while (rtxg_now_ns() < end) {
		unsigned int n;

		usleep(5000);
		n = records(&f, rec, 16384);
		for (unsigned int i = 0; i < n; i++)
			fprintf(out, "%llu 0x%02x %u %u\n",
				(unsigned long long)((int64_t)rec[i].timestamp + f.offset_ns),
				rec[i].tag, rec[i].pid, rec[i].context_id);
	}
	fclose(out);
	nv_fecs_close(&f);
	return 0;
}

/* Our own view of the GPU's doorbell page. */
static volatile uint32_t *doorbell(void)
{
	static const uint32_t classes[] = { USERMODE_CLASS, USERMODE_CLASS, 0xc461, 0xc361 };

	for (int i = 0; i < 4; i++) {
		struct {
			uint8_t bar1, priv;
		} params = { .bar1 = i == 0 };
		struct nv_register_fd r = { .ctl_fd = rm.ctl };
		struct nvos33_fd m = { .client = rm.client, .length = USERMODE_SIZE };
		uint32_t handle = 0;
		void *p;
		int fd;

		if (nv_rm_alloc(&rm, gpus[0].subdevice, &handle, classes[i], i < 2 ? &params : NULL,
				i < 2 ? sizeof(params) : 0))
			continue;
		fd = nv_sys_linux.open(NULL, "/dev/nvidia0");
		if (fd < 0)
			continue;
		nv_sys_linux.ioctl(NULL, fd, RM_IOC(NV_ESC_REGISTER_FD, struct nv_register_fd), &r);
		m.device = gpus[0].subdevice;
		m.memory = handle;
		m.fd = fd;
		nv_sys_linux.ioctl(NULL, rm.ctl, RM_IOC(NV_ESC_RM_MAP_MEMORY, struct nvos33_fd),
				   &m);
		if (m.status) { /* some drivers want the device as parent */
			m.device = gpus[0].device;
			m.status = 0;
			nv_sys_linux.ioctl(NULL, rm.ctl,
					   RM_IOC(NV_ESC_RM_MAP_MEMORY, struct nvos33_fd), &m);
		}
		if (m.status) {
			fprintf(stderr, "rtxg-nvlab: doorbell class 0x%x: map: 0x%x\n", classes[i],
				m.status);
			continue;
		}
		p = mmap(NULL, USERMODE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (p != MAP_FAILED) {
			fprintf(stderr, "rtxg-nvlab: doorbell class 0x%x, bar1 %d\n", classes[i],
				i == 0);
			return (volatile uint32_t *)((char *)p + DOORBELL);
		}
		fprintf(stderr, "rtxg-nvlab: doorbell class 0x%x: mmap: %s\n", classes[i],
			strerror(errno));
	}
	return NULL;
}

static int cmd_warm(const char *kind, const char *pid, int rounds, char **others, int other_count)
{
	struct nv_journal journal = { .fd = -1 };
	struct nv_batch stop = { 0 }, own = { 0 };
	struct nv_process *p = find(pid);
	volatile uint32_t *bell = NULL;
	uint32_t token[64], tokens = 0, came = 0, device = gpus[0].device_instance;
	double first_us = 0, took_us = 0;
	struct nv_fecs f;
	int err;

	if (!p)
		return 1;
	for (int i = 0; i < other_count; i++) {
		struct nv_process *o = find(others[i]);

		if (!o || nv_batch_add(&stop, o, device, NV_ALL))
			return 1;
	}
	nv_batch_add(&own, p, device, NV_ALL);
	err = open_log(&f);
	if (err)
		return fail("log", err);
	if (!strcmp(kind, "doorbell")) {
		int pidfd = nv_sys_linux.pidfd_open(NULL, (int)p->pid);

		for (unsigned int g = 0; g < p->group_count; g++) {
			const struct nv_group *group = &p->groups[g];
			const struct nv_client *client = nv_process_client(p, group->client);
			int fd;

			if (!nv_group_is_compute(group) || !client)
				continue;
			fd = nv_sys_linux.pidfd_getfd(NULL, pidfd, client->fd);
			for (unsigned int c = 0; c < group->count && tokens < 64; c++) {
				uint32_t t = 0;

				err = nv_rm_control_foreign(&rm, fd, group->client,
							    group->channels[c].handle,
							    GET_WORK_SUBMIT_TOKEN, &t, sizeof(t));
				fprintf(stderr, "rtxg-nvlab: channel 0x%x token 0x%x status 0x%x\n",
					group->channels[c].handle, t, rm.status);
				if (!err)
					token[tokens++] = t;
			}
			close(fd);
		}
		close(pidfd);
		bell = doorbell();
		if (!bell || !tokens)
			return fail("no doorbell", -ENODEV);
	}
	if (stop.count && (err = nv_suspend(&gpus[0], &journal, &stop, false)))
		return fail("suspend", err);
	usleep(20000);
	for (int i = 0; i < rounds; i++) {
		uint64_t t0, t1;
		unsigned int n;

		records(&f, rec, 16384);
		t0 = rtxg_now_ns();
		if (bell)
			for (uint32_t k = 0; k < tokens; k++)
				*bell = token[k];
		else if (!strcmp(kind, "preempt"))
			nv_preempt(&gpus[0], p, device, 100000);
		else if (!strcmp(kind, "restart"))
			nv_set_slice(&gpus[0], &journal, p, device, NV_DRIVER_SLICE_US);
		else if (!strcmp(kind, "cycle")) {
			nv_suspend(&gpus[0], &journal, &own, false);
			nv_resume(&gpus[0], &journal, &own);
		}
		t1 = rtxg_now_ns();
		usleep(5000);
		n = records(&f, rec, 16384);
		for (unsigned int k = 0; k < n; k++)
			if (i < 3)
				printf("  round %d: +%.1f us tag 0x%02x pid %u\n", i,
				       ((double)((int64_t)rec[k].timestamp + f.offset_ns) -
					(double)t0) /
					       1e3,
				       rec[k].tag, rec[k].pid);
		for (unsigned int k = 0; k < n; k++)
			if (rec[k].pid == p->pid && (rec[k].tag == NV_FECS_CONTEXT_START ||
						     rec[k].tag == NV_FECS_SIMPLE_START)) {
				came++;
				first_us += ((double)((int64_t)rec[k].timestamp + f.offset_ns) -
					     (double)t0) /
					    1e3;
				break;
			}
		took_us += (double)(t1 - t0) / 1e3;
		usleep(20000);
	}
	if (stop.count)
		nv_resume(&gpus[0], &journal, &stop);
	printf("{\"kind\": \"%s\", \"rounds\": %d, \"came_onto_engine\": %u, \"after_us\": %.1f, "
	       "\"call_us\": %.1f, \"tokens\": %u, "
	       "\"stopped\": %u}\n",
	       kind, rounds, came, came ? first_us / came : 0.0, took_us / rounds, tokens,
	       stop.count);
	nv_fecs_close(&f);
	return 0;
}

static int act(uint32_t *client, uint32_t *channel, unsigned int count, int disable, int only)
{
	int err = 0;

	for (unsigned int at = 0; at < count && !err; at += NV_DISABLE_CHANNELS_MAX) {
		struct nv_disable_channels d = { .disable = (uint8_t)disable,
						 .only_scheduling = (uint8_t)only };

		d.count =
			count - at < NV_DISABLE_CHANNELS_MAX ? count - at : NV_DISABLE_CHANNELS_MAX;
		memcpy(d.client, client + at, d.count * sizeof(*client));
		memcpy(d.channel, channel + at, d.count * sizeof(*channel));
		err = nv_rm_control(&rm, gpus[0].subdevice, NV2080_FIFO_DISABLE_CHANNELS, &d,
				    sizeof(d));
	}
	return err;
}

static int cmd_stop(const char *kind, int rounds, char **pids, int n)
{
	bool copies = !strcmp(kind, "copies"), everything = !strcmp(kind, "everything");
	bool only = !strcmp(kind, "only") || !strcmp(kind, "preempt");
	uint32_t client[MAX], channel[MAX], count = 0;
	struct nv_process *p[64];
	int err = 0;

	for (int i = 0; i < n && i < 64; i++) {
		p[i] = find(pids[i]);
		if (!p[i])
			return 1;
		for (unsigned int g = 0; g < p[i]->group_count; g++) {
			const struct nv_group *group = &p[i]->groups[g];

			if (group->device != gpus[0].device_instance ||
			    (!everything && nv_group_is_compute(group) == copies))
				continue;
			for (unsigned int c = 0; c < group->count && count < MAX; c++) {
				client[count] = group->client;
				channel[count++] = group->channels[c].handle;
			}
		}
	}
	printf("{\"kind\": \"%s\", \"processes\": %d, \"channels\": %u, \"rounds\": [", kind, n,
	       count);
	for (int i = 0; i < rounds && !err; i++) {
		uint64_t t0 = rtxg_now_ns(), t1, t2, t3;

		err = act(client, channel, count, 1, only);
		if (!strcmp(kind, "preempt"))
			for (int k = 0; k < n; k++)
				nv_preempt(&gpus[0], p[k], gpus[0].device_instance, 100000);
		t1 = rtxg_now_ns();
		usleep(30000);
		t2 = rtxg_now_ns();
		act(client, channel, count, 0, 0);
		t3 = rtxg_now_ns();
		printf("%s[%llu, %llu, %llu, %llu]", i ? ", " : "", (unsigned long long)t0,
		       (unsigned long long)t1, (unsigned long long)t2, (unsigned long long)t3);
		usleep(50000);
	}
	printf("], \"error\": %d}\n", err);
	return err ? fail("stop", err) : 0;
}

/* Mean stays on the engine of these processes over 0.3 s, into us[]. */
static void stays(struct nv_fecs *f, struct nv_process **p, int n, double *us)
{
	uint64_t since[64] = { 0 }, sum[64] = { 0 }, count[64] = { 0 };

	records(f, rec, 16384);
	for (int round = 0; round < 15; round++) {
		unsigned int got;

		usleep(20000);
		got = records(f, rec, 16384);
		for (unsigned int k = 0; k < got; k++)
			for (int i = 0; i < n; i++) {
				if (rec[k].pid != p[i]->pid)
					continue;
				if (rec[k].tag == NV_FECS_SIMPLE_START ||
				    rec[k].tag == NV_FECS_CONTEXT_START) {
					since[i] = rec[k].timestamp;
				} else if (rec[k].tag == NV_FECS_SIMPLE_END && since[i]) {
					sum[i] += rec[k].timestamp - since[i];
					count[i]++;
					since[i] = 0;
				}
			}
	}
	for (int i = 0; i < n; i++)
		us[i] = count[i] ? (double)sum[i] / 1e3 / (double)count[i] : 0;
}

/* How often it came onto the engine in 60 ms, a while after a call. */
static unsigned int stays_now(struct nv_fecs *f, uint32_t pid)
{
	unsigned int n, stays = 0;

	usleep(30000);
	records(f, rec, 16384);
	usleep(60000);
	n = records(f, rec, 16384);
	for (unsigned int k = 0; k < n; k++)
		stays += rec[k].pid == pid && (rec[k].tag == NV_FECS_CONTEXT_START ||
					       rec[k].tag == NV_FECS_SIMPLE_START);
	return stays;
}

static int cmd_calls(const char *letters, const char *pid)
{
	uint32_t client[NV_DISABLE_CHANNELS_MAX + 1], channel[NV_DISABLE_CHANNELS_MAX + 1],
		*clients = client + 1, *channels = channel + 1;
	struct nv_process *p = find(pid);
	struct nv_rm_gpu other[RM_GPUS_MAX];
	struct nv_batch own = { 0 };
	struct nv_rm second;
	struct nv_fecs f;
	int err;

	if (!p)
		return 1;
	err = nv_batch_add(&own, p, gpus[0].device_instance, NV_ALL);
	err = err ? err : own.count >= NV_DISABLE_CHANNELS_MAX ? -E2BIG : open_log(&f);
	err = err ? err : nv_rm_open(&second, &nv_sys_linux);
	if (err || nv_rm_gpus_open(&second, other, RM_GPUS_MAX) <= 0)
		return fail("set-up", err ? err : -ENODEV);
	memcpy(clients, own.client, own.count * sizeof(*clients));
	memcpy(channels, own.channel, own.count * sizeof(*channels));
	clients[own.count] = client[0] = own.client[0];
	channels[own.count] = channel[0] = 0x5cfffff0u;
	printf("%u channels; before: %u stays\n", own.count, stays_now(&f, p->pid));
	for (const char *c = letters; *c; c++) {
		bool stop = strchr("SsTBb", *c), two = *c == 'T' || *c == 'H';
		struct nv_disable_channels d = { .disable = stop, .only_scheduling = *c == 's' };
		unsigned int from = *c == 'b' || *c == 'd' ? 0 : 1;
		uint32_t status;

		d.count = own.count + (strchr("BbDd", *c) ? 1 : 0);
		memcpy(d.client, client + from, d.count * sizeof(*client));
		memcpy(d.channel, channel + from, d.count * sizeof(*channel));
		err = nv_rm_control(two ? &second : &rm, (two ? other : gpus)[0].subdevice,
				    NV2080_FIFO_DISABLE_CHANNELS, &d, sizeof(d));
		status = two ? second.status : rm.status;
		printf("%c: status 0x%x, then %u stays\n", *c, err ? status : 0,
		       stays_now(&f, p->pid));
	}
	for (int i = 0; i < 8; i++)
		act(clients, channels, own.count, 0, 0);
	printf("after eight more calls that let go: %u stays\n", stays_now(&f, p->pid));
	nv_fecs_close(&f);
	return 0;
}

static int cmd_slices(uint32_t us, char **pids, int n)
{
	double before[64], set[64], restarted[64], set_us = 0, restart_us;
	struct nv_process *p[64];
	uint64_t t0;
	struct nv_fecs f;
	int err = nv_fecs_open(&f, &gpus[0], 16384);

	if (err)
		return fail("log", err);
	for (int i = 0; i < n && i < 64; i++)
		if (!(p[i] = find(pids[i])))
			return 1;
	stays(&f, p, n, before);
	for (int i = 0; i < n; i++)
		for (unsigned int g = 0; g < p[i]->group_count; g++) {
			const struct nv_group *group = &p[i]->groups[g];
			struct nv_timeslice t = { .us = us };
			int pidfd, fd;

			if (!nv_group_is_compute(group))
				continue;
			t0 = rtxg_now_ns();
			pidfd = nv_sys_linux.pidfd_open(NULL, (int)p[i]->pid);
			fd = nv_client_fd(&rm, pidfd, p[i]->pid,
					  nv_process_client(p[i], group->client));
			err = nv_rm_control_foreign(&rm, fd, group->client, group->handle,
						    NVA06C_SET_TIMESLICE, &t, sizeof(t));
			close(fd);
			close(pidfd);
			set_us += (double)(rtxg_now_ns() - t0) / 1e3;
			if (err)
				return fail("set", err);
		}
	stays(&f, p, n, set);
	t0 = rtxg_now_ns();
	nv_set_slice(&gpus[0], &(struct nv_journal){ .fd = -1 }, p[n - 1], gpus[0].device_instance,
		     us);
	restart_us = (double)(rtxg_now_ns() - t0) / 1e3;
	stays(&f, p, n, restarted);
	printf("{\"slice_us\": %u, \"set_us\": %.1f, \"set_and_restart_us\": %.1f, \"stays_us\": [",
	       us, set_us, restart_us);
	for (int i = 0; i < n; i++)
		printf("%s[%.1f, %.1f, %.1f]", i ? ", " : "", before[i], set[i], restarted[i]);
	printf("]}\n");
	nv_fecs_close(&f);
	return 0;
}

int main(int argc, char **argv)
{
	int err = nv_rm_open(&rm, &nv_sys_linux);

	if (err)
		return fail("cannot open /dev/nvidiactl", err);
	gpu_count = nv_rm_gpus_open(&rm, gpus, RM_GPUS_MAX);
	if (gpu_count <= 0)
		return fail("no GPU", gpu_count);
	nv_registry_init(&reg);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 4 && !strcmp(argv[1], "log"))
		return cmd_log(atof(argv[2]), argv[3]);
	if (argc >= 5 && !strcmp(argv[1], "warm"))
		return cmd_warm(argv[2], argv[3], atoi(argv[4]), argv + 5, argc - 5);
	if (argc >= 5 && !strcmp(argv[1], "stop"))
		return cmd_stop(argv[2], atoi(argv[3]), argv + 4, argc - 4);
	if (argc >= 4 && !strcmp(argv[1], "slices"))
		return cmd_slices((uint32_t)atoi(argv[2]), argv + 3, argc - 3);
	if (argc == 4 && !strcmp(argv[1], "calls"))
		return cmd_calls(argv[2], argv[3]);
	fprintf(stderr, "usage: rtxg-nvlab log SECONDS FILE | warm KIND PID ROUNDS [STOP_PID...] | "
			"stop KIND ROUNDS PID... | slices US PID... | calls LETTERS PID\n");
	return 2;
}
