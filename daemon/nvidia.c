// SPDX-License-Identifier: MIT
/*
 * nvidia.c - see nvidia.h. It passes on what the daemon knows (vGPUs, who is to be in which) and waits on the lever's descriptor; the
 * lever's own policy decides, the lever acts.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "nvidia.h"

#ifdef HAVE_LEVER_NVIDIA
#include "lever_nvidia.h"

static struct lever_nvidia *lever;
static sd_event_source *source;
static char why_not[300] = "there is no NVIDIA GPU here";
static const struct vgpu *slots[LEVER_NVIDIA_VGPUS]; /* number of a vGPU in the lever; 0 is that of everybody else */
static uint64_t periods[LEVER_NVIDIA_VGPUS];

static void on_log(void *ctx, enum lever_nvidia_log level, const char *line)
{
	if (level <= LEVER_NVIDIA_INFO)
		fprintf(stderr, "rtxgd: nvidia: %s\n", line);
}

static int on_lever(sd_event_source *s, int fd, uint32_t revents, void *userdata)
{
	int ret = lever_nvidia_dispatch(lever);

	if (ret < 0) {
		snprintf(why_not, sizeof(why_not), "the lever let go: %s; see the log, and restart rtxgd", strerror(-ret));
		fprintf(stderr, "rtxgd: nvidia: %s\n", why_not);
		nvidia_stop();
	}
	return 0;
}

static uint32_t number_of(const struct vgpu *vgpu)
{
	for (uint32_t i = 1; i < LEVER_NVIDIA_VGPUS; i++)
		if (slots[i] == vgpu)
			return i;
	return 0;
}

static int tell(uint32_t number)
{
	const struct vgpu *vgpu = slots[number];
	struct rtxg_slice_tenant t = {
		.min_ppm = vgpu->params.min_ppm,
		.max_ppm = vgpu->params.max_ppm >= RTXG_PPM ? 0 : vgpu->params.max_ppm,
		.weight = vgpu->params.weight,
		.class_id = vgpu->params.priority >= NVIDIA_CRITICAL_PRIORITY ? RTXG_SLICE_CRITICAL : RTXG_SLICE_BEST_EFFORT,
		.period_ns = vgpu->params.priority >= NVIDIA_CRITICAL_PRIORITY ? periods[number] : 0,
	};
	int ret = 0;

	/* What is left over goes in proportion to the reservations, unless somebody gave weights of his own. */
	if (t.min_ppm && t.weight == RTXG_WEIGHT_DEFAULT)
		t.weight = 0;
	for (uint32_t g = 0; g < lever_nvidia_gpus(lever) && !ret; g++)
		ret = lever_nvidia_vgpu_set(lever, g, number, &t);
	if (ret)
		fprintf(stderr, "rtxgd: nvidia: vGPU %s: %s\n", vgpu->name, strerror(-ret));
	return ret;
}

void nvidia_vgpu(struct daemon *d, const struct vgpu *vgpu)
{
	uint32_t number;

	if (!lever)
		return;
	number = number_of(vgpu);
	for (uint32_t i = 1; i < LEVER_NVIDIA_VGPUS && !number; i++)
		if (!slots[i]) {
			slots[i] = vgpu;
			periods[i] = 0;
			number = i;
		}
	if (number)
		tell(number);
	else
		fprintf(stderr, "rtxgd: nvidia: vGPU %s is one too many for the lever (%u): its processes share one\n", vgpu->name,
			LEVER_NVIDIA_VGPUS - 1);
}

void nvidia_vgpu_gone(const struct vgpu *vgpu)
{
	struct lever_nvidia_process list[256];
	uint32_t number;
	int n;

	if (!lever)
		return;
	number = number_of(vgpu);
	if (!number)
		return;
	n = lever_nvidia_processes(lever, list, 256);
	for (int i = 0; i < n && i < 256; i++)
		if (list[i].vgpu == number)
			lever_nvidia_assign(lever, list[i].pid, 0);
	for (uint32_t g = 0; g < lever_nvidia_gpus(lever); g++)
		lever_nvidia_vgpu_remove(lever, g, number);
	slots[number] = NULL;
}

int nvidia_assign(struct daemon *d, pid_t pid, const struct vgpu *vgpu, uint64_t period_ns)
{
	uint32_t number = vgpu ? number_of(vgpu) : 0;

	if (!lever)
		return -EOPNOTSUPP;
	if (vgpu && !number)
		return -ENOSPC;
	if (number && periods[number] != period_ns) {
		periods[number] = period_ns;
		tell(number);
	}
	return lever_nvidia_assign(lever, (uint32_t)pid, number);
}

void nvidia_start(struct daemon *d)
{
	struct lever_nvidia_options options = { .size = sizeof(options), .probe = true };
	struct lever_nvidia_ops ops = { .size = sizeof(ops), .log = on_log };

	if (access("/dev/nvidiactl", F_OK))
		return;
	if (geteuid() != 0) {
		snprintf(why_not, sizeof(why_not), "it needs root: run rtxgd as the system's service");
		return;
	}
	if (lever_nvidia_open(&options, &ops, &lever, why_not, sizeof(why_not))) {
		fprintf(stderr, "rtxgd: nvidia: %s; CUDA programs run as if rtxg were not there\n", why_not);
		return;
	}
	if (sd_event_add_io(d->event, &source, lever_nvidia_fd(lever), EPOLLIN, on_lever, NULL) < 0) {
		snprintf(why_not, sizeof(why_not), "the event loop refused it");
		nvidia_stop();
		return;
	}
	sd_event_source_set_priority(source, SD_EVENT_PRIORITY_IMPORTANT);
	for (uint32_t i = 0; i < VGPUS_MAX; i++)
		if (d->vgpus[i].used)
			nvidia_vgpu(d, &d->vgpus[i]);
}

void nvidia_stop(void)
{
	source = sd_event_source_disable_unref(source);
	lever_nvidia_close(lever);
	lever = NULL;
	memset(slots, 0, sizeof(slots));
}

void nvidia_doctor(void (*check)(void *ctx, const char *name, bool ok, const char *detail), void *ctx)
{
	struct lever_nvidia_probe probes[8];
	struct lever_nvidia_process list[256];
	char text[200];
	int n, unmanaged = 0;

	if (!lever) {
		if (!access("/dev/nvidiactl", F_OK)) /* else there is nothing to say */
			check(ctx, "nvidia", false, why_not);
		return;
	}
	n = lever_nvidia_probes(lever, probes, 8);
	for (int i = 0; i < n && i < 8; i++) {
		snprintf(text, sizeof(text), "nvidia %s", probes[i].name);
		check(ctx, text, !probes[i].error, probes[i].detail);
	}
	n = lever_nvidia_processes(lever, list, 256);
	for (int i = 0; i < n && i < 256; i++)
		unmanaged += !list[i].managed;
	snprintf(text, sizeof(text), "%d processes with contexts, %d of them UNMANAGED", n, unmanaged);
	check(ctx, "nvidia processes", !unmanaged, text);
}

#else

void nvidia_start(struct daemon *d)
{
}

void nvidia_stop(void)
{
}

void nvidia_vgpu(struct daemon *d, const struct vgpu *vgpu)
{
}

void nvidia_vgpu_gone(const struct vgpu *vgpu)
{
}

int nvidia_assign(struct daemon *d, pid_t pid, const struct vgpu *vgpu, uint64_t period_ns)
{
	return -EOPNOTSUPP;
}

void nvidia_doctor(void (*check)(void *ctx, const char *name, bool ok, const char *detail), void *ctx)
{
}

#endif
