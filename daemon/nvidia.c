// SPDX-License-Identifier: MIT
/*
 * nvidia.c - see nvidia.h. It passes on what the daemon knows (vGPUs, who is to be in which) and
 * waits on the lever's descriptor; the lever's own policy decides, the lever acts. What it shows to
 * people comes from the lever's accounts, and nothing depends on it.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "nvidia.h"

#ifdef HAVE_LEVER_NVIDIA
#include "lever_nvidia.h"
#include "releases.h"

/* of the timeline; at 2 ms a turn a minute and more of one GPU */
#define EVENTS 65536u

/* Counters of a vGPU on a GPU at the border of a slot. */
struct sample {
	uint64_t busy_ns, device_ns, wanted_ns, stays;
};

struct events { /* a ring of what happened */
	/*
	 * of an action: 0 = stop, UINT64_MAX = resume, else a slice; of a context: 1 = came, 0 =
	 * went
	 */
	uint64_t start_ns, end_ns, what;
	uint32_t gpu, pid, vgpu;
	bool stay, context;
	char comm[16];
};

static struct daemon *owner;
static struct lever_nvidia *lever;
static bool starting; /* the vGPUs are being told one by one */
static sd_event_source *source;
static char why_not[300] = "there is no NVIDIA GPU here";
/* number of a vGPU in the lever; 0 is `default`, where everybody else is */
static const struct vgpu *slots[LEVER_NVIDIA_VGPUS];
static uint64_t periods[LEVER_NVIDIA_VGPUS];
/* SLOTS + 1 of them, as d->times; NULL: nothing happened yet */
static struct sample *samples[LEVER_NVIDIA_GPUS][LEVER_NVIDIA_VGPUS];
static struct events *events;
static uint64_t events_count; /* since the start */
static uint64_t own_ns;
static bool locked; /* our memory */

/* For the next daemon: who is in which vGPU, root's alone to read. */
#define RUN_DIR	      "/run/rtxg"
#define ASSIGNED_PATH RUN_DIR "/nvidia-assigned"

static void on_log(void *ctx, enum lever_nvidia_log level, const char *line)
{
	if (level <= LEVER_NVIDIA_INFO)
		fprintf(stderr, "rtxgd: nvidia: %s\n", line);
}

static struct events *event_new(uint32_t gpu, uint32_t pid, uint32_t vgpu, uint64_t start,
				uint64_t end, uint64_t what)
{
	static struct events nowhere;
	struct events *e = events ? &events[events_count++ % EVENTS] : &nowhere;

	*e = (struct events){
		.gpu = gpu, .pid = pid, .vgpu = vgpu, .start_ns = start, .end_ns = end, .what = what
	};
	return e;
}

static void on_stay(void *ctx, uint32_t gpu, uint32_t pid, uint32_t vgpu, uint64_t start_ns,
		    uint64_t end_ns)
{
	event_new(gpu, pid, vgpu, start_ns, end_ns, 0)->stay = true;
}

static void on_acted(void *ctx, uint32_t gpu, uint32_t pid, uint64_t at_ns, uint64_t took_ns,
		     uint64_t what)
{
	event_new(gpu, pid, 0, at_ns, at_ns + took_ns, what);
}

static void on_context(void *ctx, uint32_t gpu, uint32_t pid, const char *comm, uint32_t vgpu,
		       bool alive)
{
	struct events *e = event_new(gpu, pid, vgpu, rtxg_now_ns(), rtxg_now_ns(), alive);

	e->context = true;
	snprintf(e->comm, sizeof(e->comm), "%s", comm);
	/* Somebody is there to be sampled: as history_task_opened() does for a task. */
	if (alive && owner->sample_ns == RTXG_TIME_NEVER) {
		if (owner->samples)
			history_sample(owner);
		else
			owner->times[0] = rtxg_now_ns();
		owner->sample_ns = rtxg_now_ns() + SLOT_NS;
	}
}

static uint64_t own_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static int on_lever(sd_event_source *s, int fd, uint32_t revents, void *userdata)
{
	uint64_t began = own_time();
	int ret = lever_nvidia_dispatch(lever);

	own_ns += own_time() - began;
	if (ret < 0) {
		snprintf(why_not, sizeof(why_not),
			 "the lever let go: %s; see the log, and restart rtxgd", strerror(-ret));
		fprintf(stderr, "rtxgd: nvidia: %s\n", why_not);
		nvidia_stop();
	}
	return 0;
}

static bool is_default(const struct vgpu *vgpu)
{
	return !strcmp(vgpu->name, "default");
}

/* -1: the lever has none for it. */
static int number_of(const struct vgpu *vgpu)
{
	for (int i = 0; i < (int)LEVER_NVIDIA_VGPUS; i++)
		if (slots[i] == vgpu)
			return i;
	return -1;
}

/* The lever's GPU of that name, or -1. */
static int gpu_of(const char *name)
{
	char own[32];

	for (uint32_t g = 0; lever && g < lever_nvidia_gpus(lever); g++) {
		snprintf(own, sizeof(own), "nvidia%u", g);
		if (!strcmp(own, name))
			return (int)g;
	}
	return -1;
}

bool nvidia_has(const char *gpu)
{
	return gpu_of(gpu) >= 0;
}

/* Does it apply to that GPU of the lever's? */
static bool applies(const struct vgpu *vgpu, uint32_t gpu)
{
	return !vgpu->gpu[0] || gpu_of(vgpu->gpu) == (int)gpu;
}

static int tell(uint32_t number)
{
	const struct vgpu *vgpu = slots[number];
	struct rtxg_slice_tenant t = {
		.min_ppm = vgpu->params.min_ppm,
		.max_ppm = vgpu->params.max_ppm,
		.weight = vgpu->params.weight,
		.priority = vgpu->params.priority,
		.period_ns = periods[number],
	};
	int ret = 0;

	for (uint32_t g = 0; g < lever_nvidia_gpus(lever) && !ret; g++)
		if (applies(vgpu, g))
			ret = lever_nvidia_vgpu_set(lever, g, number, &t);
	if (ret)
		fprintf(stderr, "rtxgd: nvidia: vGPU %s: %s\n", vgpu->name, strerror(-ret));
	return ret;
}

void nvidia_vgpu(struct daemon *d, const struct vgpu *vgpu)
{
	bool made = false;
	int number;

	if (!lever || (vgpu->gpu[0] && !nvidia_has(vgpu->gpu)))
		return;
	number = number_of(vgpu);
	if (is_default(vgpu) && number < 0) {
		slots[0] = vgpu;
		number = 0;
		made = true;
	}
	for (int i = 1; i < (int)LEVER_NVIDIA_VGPUS && number < 0; i++)
		if (!slots[i]) {
			slots[i] = vgpu;
			periods[i] = 0;
			number = i;
			made = true;
		}
	if (number >= 0)
		tell((uint32_t)number);
	else
		fprintf(stderr,
			"rtxgd: nvidia: vGPU %s is one too many for the lever (%u): its processes "
			"share one\n",
			vgpu->name, LEVER_NVIDIA_VGPUS - 1);
	if (made && !starting)
		lever_nvidia_restore(lever);
}

/* A vGPU as the file of assignments has it: the period of its releases, and its name. */
static bool on_label(void *ctx, uint32_t number, char *text, size_t size)
{
	if (!slots[number])
		return false;
	snprintf(text, size, "%llu %s", (unsigned long long)periods[number], slots[number]->name);
	return true;
}

static int on_number(void *ctx, const char *label)
{
	unsigned long long period;
	int at = 0;

	if (sscanf(label, "%llu %n", &period, &at) != 1 || !at)
		return -1;
	for (int i = 0; i < (int)LEVER_NVIDIA_VGPUS; i++)
		if (slots[i] && !strcmp(slots[i]->name, label + at)) {
			if (i && !periods[i] && period) {
				periods[i] = period;
				tell((uint32_t)i);
			}
			return i;
		}
	return -1;
}

/* All that the lever knows of; to be freed. */
static struct lever_nvidia_process *processes(int *count)
{
	int room = 64, n;
	struct lever_nvidia_process *list = NULL;

	*count = 0;
	if (!lever)
		return NULL;
	for (;;) {
		struct lever_nvidia_process *more = realloc(list, (size_t)room * sizeof(*more));

		if (!more) {
			free(list);
			return NULL;
		}
		list = more;
		n = lever_nvidia_processes(lever, list, room);
		if (n <= room)
			break;
		room = n + 16;
	}
	*count = n;
	return list;
}

void nvidia_vgpu_gone(const struct vgpu *vgpu)
{
	struct lever_nvidia_process *list;
	int n, number = lever ? number_of(vgpu) : -1;

	if (number <= 0)
		return;
	list = processes(&n);
	for (int i = 0; i < n; i++)
		if (list[i].vgpu == (uint32_t)number)
			lever_nvidia_assign(lever, list[i].pid, 0);
	free(list);
	for (uint32_t g = 0; g < lever_nvidia_gpus(lever); g++) {
		lever_nvidia_vgpu_remove(lever, g, (uint32_t)number);
		free(samples[g][number]);
		samples[g][number] = NULL;
	}
	slots[number] = NULL;
}

int nvidia_assign(struct daemon *d, pid_t pid, const struct vgpu *vgpu, uint64_t period_ns)
{
	int number = vgpu ? number_of(vgpu) : 0;

	if (!lever)
		return -EOPNOTSUPP;
	/* it belongs to a GPU that is not the lever's, or there are too many */
	if (number < 0)
		return vgpu->gpu[0] ? -ENODEV : -ENOSPC;
	if (number && periods[number] != period_ns) {
		periods[number] = period_ns;
		tell((uint32_t)number);
	}
	return lever_nvidia_assign(lever, (uint32_t)pid, (uint32_t)number);
}

void nvidia_start(struct daemon *d)
{
	struct lever_nvidia_options options = { .size = sizeof(options),
						.probe = true,
						.releases = NV_RELEASES_PATH,
						.assigned = ASSIGNED_PATH };
	struct lever_nvidia_ops ops = { .size = sizeof(ops),
					.log = on_log,
					.context = on_context,
					.stay = on_stay,
					.acted = on_acted,
					.label = on_label,
					.number = on_number };

	owner = d;
	if (&nvidia_stand) {
		options = *nvidia_stand.options;
	} else if (access("/dev/nvidiactl", F_OK)) {
		return;
	} else if (geteuid() != 0) {
		snprintf(why_not, sizeof(why_not),
			 "it needs root: run rtxgd as the system's service");
		return;
	} else if (mkdir(RUN_DIR, 0755) && errno != EEXIST) {
		/*
		 * The socket's unit makes it, and so does the daemon itself at its usual socket.
		 * The lever says what it cannot write.
		 */
		fprintf(stderr, "rtxgd: nvidia: cannot make " RUN_DIR ": %s\n", strerror(errno));
	}
	/* without memory there is no timeline; nothing else depends on it */
	events = calloc(EVENTS, sizeof(*events));
	if (lever_nvidia_open(&options, &ops, &lever, why_not, sizeof(why_not))) {
		fprintf(stderr, "rtxgd: nvidia: %s; CUDA programs run as if rtxg were not there\n",
			why_not);
		return;
	}
	if (sd_event_add_io(d->event, &source, lever_nvidia_fd(lever), EPOLLIN, on_lever, NULL) <
	    0) {
		snprintf(why_not, sizeof(why_not), "the event loop refused it");
		nvidia_stop();
		return;
	}
	sd_event_source_set_priority(source, SD_EVENT_PRIORITY_IMPORTANT);
	/* Whoever has to stop others in time must not wait for memory. */
	locked = !mlockall(MCL_CURRENT | MCL_FUTURE);
	if (!locked)
		fprintf(stderr,
			"rtxgd: nvidia: memory is not locked: %s; the unit says "
			"LimitMEMLOCK=infinity\n",
			strerror(errno));
	starting = true;
	for (uint32_t i = 0; i < VGPUS_MAX; i++)
		if (d->vgpus[i].used)
			nvidia_vgpu(d, &d->vgpus[i]);
	starting = false;
	lever_nvidia_restore(lever);
	if (&nvidia_stand)
		nvidia_stand.started(d, lever);
}

void nvidia_stop(void)
{
	source = sd_event_source_disable_unref(source);
	lever_nvidia_close(lever);
	lever = NULL;
	if (locked)
		munlockall();
	locked = false;
	memset(slots, 0, sizeof(slots));
	for (uint32_t g = 0; g < LEVER_NVIDIA_GPUS; g++)
		for (uint32_t v = 0; v < LEVER_NVIDIA_VGPUS; v++) {
			free(samples[g][v]);
			samples[g][v] = NULL;
		}
	free(events);
	events = NULL;
}

/* --- what people see -------------------------------------------------------------------------- */

static void put(json_t *o, const char *name, uint64_t value)
{
	json_object_set_new(o, name, json_integer(value > INT64_MAX ? -1 : (json_int_t)value));
}

static void put_text(json_t *o, const char *name, const char *text)
{
	json_t *string = text ? json_string(text) : json_null();

	/* names of processes may be any bytes */
	json_object_set_new(o, name, string ? string : json_string("?"));
}

static const char *vgpu_name(uint32_t number)
{
	return number < LEVER_NVIDIA_VGPUS && slots[number] ? slots[number]->name : "default";
}

static json_t *gpu_name(uint32_t gpu)
{
	return json_sprintf("nvidia%u", gpu);
}

bool nvidia_busy(void)
{
	for (uint32_t g = 0; lever && g < lever_nvidia_gpus(lever); g++) {
		struct lever_nvidia_gpu view;

		if (!lever_nvidia_gpu(lever, g, &view) && view.contexts)
			return true;
	}
	return false;
}

uint64_t nvidia_own_ns(void)
{
	return own_ns;
}

static uint64_t reserved_on(uint32_t gpu)
{
	uint64_t sum = 0;

	for (uint32_t v = 0; v < LEVER_NVIDIA_VGPUS; v++)
		if (slots[v] && applies(slots[v], gpu))
			sum += slots[v]->params.min_ppm;
	return sum;
}

static const char *policy_name(const struct lever_nvidia_gpu *view)
{
	return view->lost || view->log_error ? "none" : view->turns ? "turns" : "spread";
}

void nvidia_gpus(struct daemon *d, json_t *gpus)
{
	for (uint32_t g = 0; lever && g < lever_nvidia_gpus(lever); g++) {
		struct lever_nvidia_gpu view;
		uint64_t reserved = reserved_on(g);
		json_t *o = json_object();

		lever_nvidia_gpu(lever, g, &view);
		json_object_set_new(o, "gpu", gpu_name(g));
		put_text(o, "policy", policy_name(&view));
		put_text(o, "overrun", "charge");
		put(o, "period_ns", 0);
		put(o, "window_ns", 0);
		put(o, "band_wait_ns", 0);
		put(o, "think_ns", 0);
		put(o, "revoke_timeout_ns", 0);
		put(o, "switch_ppm", 0);
		put(o, "reserved_ppm", reserved);
		put(o, "available_ppm", reserved < RTXG_PPM ? RTXG_PPM - reserved : 0);
		put(o, "tasks", view.contexts);
		json_object_set_new(o, "levers", json_pack("[s]", "nvidia"));
		put_text(o, "origin", "builtin");
		put_text(o, "pci", view.pci);
		json_array_append_new(gpus, o);
	}
}

/* An engine of a process or vGPU; only the compute engine has something to say. */
static json_t *no_engine(uint32_t engine, const char *const *counters)
{
	json_t *o = json_object();

	put_text(o, "engine", rtxg_engine_name(engine));
	for (; *counters; counters++)
		put(o, *counters, 0);
	return o;
}

static const char *const task_counters[] = { "in_flight", "launches",  "completions", "busy_ns",
					     "used_ns",	  "device_ns", "wait_ns",     "grants",
					     "overruns",  "expelled",  NULL };
static const char *const vgpu_counters[] = {
	"used_1s_ppm", "used_10s_ppm", "device_1s_ppm", "device_10s_ppm", "busy_ns",	 "used_ns",
	"device_ns",   "wait_ns",      "grants",	"launches",	  "completions", "overruns",
	"expelled",    "throttled",    "waiting",	"credit_ns",	  "deadline_ns", NULL
};

void nvidia_tasks(struct daemon *d, json_t *tasks, const char *vgpu, const char *gpu, int64_t pid)
{
	static const char *const states[] = { "idle", "waiting", "running", "stopped" };
	int n, only = gpu ? gpu_of(gpu) : -1;
	struct lever_nvidia_process *list = processes(&n);

	for (int i = 0; i < n; i++) {
		const struct lever_nvidia_process *p = &list[i];
		json_t *o, *engines, *compute;
		char path[64], exe[4096];
		struct stat st;
		ssize_t length;

		if ((pid && p->pid != pid) || (gpu && (int)p->gpu != only) ||
		    (vgpu && (!p->managed || strcmp(vgpu_name(p->vgpu), vgpu))))
			continue;
		snprintf(path, sizeof(path), "/proc/%u/exe", p->pid);
		length = readlink(path, exe, sizeof(exe) - 1);
		exe[length > 0 ? length : 0] = '\0';
		snprintf(path, sizeof(path), "/proc/%u", p->pid);
		if (stat(path, &st))
			st.st_uid = (uid_t)-1;
		o = json_object();
		json_object_set_new(o, "task", json_null());
		put_text(o, "lever", "nvidia");
		put(o, "pid", p->pid);
		json_object_set_new(o, "uid",
				    st.st_uid == (uid_t)-1 ? json_null() : json_integer(st.st_uid));
		put_text(o, "comm", p->comm);
		put_text(o, "exe", exe);
		put_text(o, "vgpu", p->managed ? vgpu_name(p->vgpu) : NULL);
		json_object_set_new(o, "gpu", p->since_ns ? gpu_name(p->gpu) : json_null());
		put(o, "priority",
		    p->managed && slots[p->vgpu] ? slots[p->vgpu]->params.priority
						 : RTXG_PRIORITY_MIN);
		put(o, "runtime_ns", 0);
		put(o, "deadline_ns", 0);
		put(o, "period_ns", p->managed ? periods[p->vgpu] : 0);
		put(o, "opened_ns", p->since_ns);
		json_object_set_new(o, "managed", json_boolean(p->managed));
		put_text(o, "remedy", p->managed ? "" : p->remedy);
		json_object_set_new(o, "mps", json_boolean(p->mps));
		json_object_set_new(o, "adopted", json_boolean(p->adopted));
		put(o, "channels", p->channels);
		put(o, "slice_ns", p->slice_ns);
		json_object_set_new(o, "device_unknown", json_false());
		compute = no_engine(RTXG_ENGINE_COMPUTE, task_counters);
		put_text(compute, "state", states[p->state < 4 ? p->state : 0]);
		put(compute, "busy_ns", p->work_ns);
		put(compute, "used_ns", p->work_ns);
		put(compute, "device_ns", p->stay_ns);
		put(compute, "wait_ns", p->stopped_ns);
		put(compute, "grants", p->stays);
		engines = json_array();
		json_array_append_new(engines, compute);
		for (uint32_t e = 1; e < RTXG_ENGINES; e++) {
			json_t *none = no_engine(e, task_counters);

			put_text(none, "state", "idle");
			json_array_append_new(engines, none);
		}
		json_object_set_new(o, "engines", engines);
		json_array_append_new(tasks, o);
	}
	free(list);
}

static bool counters(uint32_t gpu, uint32_t number, struct sample *s, struct rtxg_slice_view *view)
{
	if (lever_nvidia_vgpu_view(lever, gpu, number, view))
		return false;
	*s = (struct sample){ .busy_ns = view->work_ns,
			      .device_ns = view->stay_ns,
			      .wanted_ns = view->wanted_ns,
			      .stays = view->stays };
	return true;
}

void nvidia_sample(struct daemon *d)
{
	uint64_t border = d->samples + 1;

	for (uint32_t g = 0; lever && g < lever_nvidia_gpus(lever) && g < LEVER_NVIDIA_GPUS; g++)
		for (uint32_t v = 0; v < LEVER_NVIDIA_VGPUS; v++) {
			struct rtxg_slice_view view;
			struct sample now;

			if (!counters(g, v, &now, &view) || (!samples[g][v] && !now.stays))
				continue;
			if (!samples[g][v]) /* all that went before it is zero */
				samples[g][v] = calloc(SLOTS + 1, sizeof(struct sample));
			if (samples[g][v])
				samples[g][v][border % (SLOTS + 1)] = now;
		}
}

/* What was used since the sample nearest to `span` ago, as parts of the time since then. */
static void used_over(struct daemon *d, const struct sample *ring, const struct sample *now,
		      uint64_t at, uint64_t span, uint32_t *busy_ppm, uint32_t *device_ppm)
{
	uint64_t oldest = d->samples > SLOTS ? d->samples - SLOTS : 0, border = d->samples, length;
	const struct sample *then;

	*busy_ppm = *device_ppm = 0;
	if (!ring)
		return;
	while (border > oldest &&
	       d->times[(border - 1) % (SLOTS + 1)] + SLOT_NS / 2 >= (at > span ? at - span : 0))
		border--;
	then = &ring[border % (SLOTS + 1)];
	length = at > d->times[border % (SLOTS + 1)] ? at - d->times[border % (SLOTS + 1)] : 1;
	if (now->busy_ns > then->busy_ns)
		*busy_ppm =
			now->busy_ns - then->busy_ns >= length
				? RTXG_PPM
				: (uint32_t)((now->busy_ns - then->busy_ns) * RTXG_PPM / length);
	if (now->device_ns > then->device_ns)
		*device_ppm = now->device_ns - then->device_ns >= length
				      ? RTXG_PPM
				      : (uint32_t)((now->device_ns - then->device_ns) * RTXG_PPM /
						   length);
}

static json_t *vgpu_stats(struct daemon *d, uint32_t gpu, uint32_t number, uint64_t at,
			  uint32_t sums[3])
{
	uint32_t busy_1s, busy_10s, device_1s, device_10s;
	const struct vgpu *vgpu = slots[number];
	struct rtxg_slice_view view;
	json_t *o, *e, *engines;
	struct sample now;

	if (!counters(gpu, number, &now, &view))
		return NULL;
	used_over(d, samples[gpu][number], &now, at, NS_PER_S, &busy_1s, &device_1s);
	used_over(d, samples[gpu][number], &now, at, 10 * NS_PER_S, &busy_10s, &device_10s);
	o = json_object();
	put_text(o, "vgpu", vgpu_name(number));
	put(o, "min_ppm", vgpu ? vgpu->params.min_ppm : 0);
	put(o, "max_ppm", vgpu ? vgpu->params.max_ppm : RTXG_PPM);
	if (vgpu && vgpu->params.weight)
		put(o, "weight", vgpu->params.weight);
	put(o, "priority", vgpu ? vgpu->params.priority : RTXG_PRIORITY_MIN);
	put(o, "period_ns", periods[number]);
	put_text(o, "policy", "fifo");
	json_object_set_new(o, "work_conserving",
			    json_boolean(!vgpu || vgpu->params.max_ppm > vgpu->params.min_ppm));
	put(o, "tasks", view.contexts);
	e = no_engine(RTXG_ENGINE_COMPUTE, vgpu_counters);
	put(e, "used_1s_ppm", busy_1s);
	put(e, "used_10s_ppm", busy_10s);
	put(e, "device_1s_ppm", device_1s);
	put(e, "device_10s_ppm", device_10s);
	put(e, "busy_ns", view.work_ns);
	put(e, "used_ns", view.work_ns);
	put(e, "device_ns", view.stay_ns);
	put(e, "wait_ns", view.stopped_ns);
	put(e, "grants", view.stays);
	put(e, "expelled", view.suspended);
	put(e, "waiting", view.active);
	json_object_set_new(e, "holder", json_null());
	json_object_set_new(e, "credit_ns", json_integer(-(json_int_t)view.lag_ns));
	engines = json_array();
	json_array_append_new(engines, e);
	for (uint32_t i = 1; i < RTXG_ENGINES; i++) {
		e = no_engine(i, vgpu_counters);
		json_object_set_new(e, "holder", json_null());
		json_array_append_new(engines, e);
	}
	json_object_set_new(o, "engines", engines);
	sums[0] += busy_1s;
	sums[1] += busy_10s;
	sums[2] += view.active;
	return o;
}

void nvidia_stats(struct daemon *d, json_t *gpus)
{
	static const char *const engine_counters[] = { "used_1s_ppm", "used_10s_ppm", "waiting",
						       NULL };
	uint64_t at = rtxg_now_ns();

	for (uint32_t g = 0; lever && g < lever_nvidia_gpus(lever) && g < LEVER_NVIDIA_GPUS; g++) {
		uint32_t sums[3] = { 0 };
		struct lever_nvidia_gpu view;
		json_t *o = json_object(), *vgpus = json_array(), *engines = json_array(), *e, *one;
		struct lever_nvidia_process *list;
		bool conserving = true;
		const char *holder = NULL;
		char name[32];
		size_t index;
		int n;

		snprintf(name, sizeof(name), "nvidia%u", g);
		/* if a vGPU was made for it the gate has a GPU of that name, which nobody opens */
		json_array_foreach (gpus, index, one)
			if (!strcmp(json_string_value(json_object_get(one, "gpu")), name)) {
				json_array_remove(gpus, index);
				break;
			}
		lever_nvidia_gpu(lever, g, &view);
		for (uint32_t v = 0; v < LEVER_NVIDIA_VGPUS; v++) {
			json_t *made = vgpu_stats(d, g, v, at, sums);

			conserving =
				conserving &&
				(!made || json_is_true(json_object_get(made, "work_conserving")));
			if (made)
				json_array_append_new(vgpus, made);
		}
		list = processes(&n);
		for (int i = 0; i < n; i++)
			if (list[i].gpu == g && list[i].managed &&
			    list[i].state == RTXG_SLICE_RUNNING)
				holder = vgpu_name(list[i].vgpu);
		free(list);
		json_object_set_new(o, "gpu", gpu_name(g));
		put_text(o, "lever", "nvidia");
		put_text(o, "policy", policy_name(&view));
		put_text(o, "pci", view.pci);
		put(o, "reserved_ppm", reserved_on(g));
		put(o, "tasks", view.contexts);
		json_object_set_new(o, "work_conserving", json_boolean(conserving));
		for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
			e = no_engine(i, engine_counters);
			if (!i) {
				put(e, "used_1s_ppm", sums[0]);
				put(e, "used_10s_ppm", sums[1]);
				put(e, "waiting", sums[2]);
			}
			json_object_set_new(e, "holder", json_null());
			put_text(e, "holder_vgpu", i ? NULL : holder);
			json_array_append_new(engines, e);
		}
		json_object_set_new(o, "engines", engines);
		json_object_set_new(o, "vgpus", vgpus);
		json_array_append_new(gpus, o);
	}
}

void nvidia_history(struct daemon *d, json_t *series, uint64_t first)
{
	for (uint32_t g = 0; lever && g < lever_nvidia_gpus(lever) && g < LEVER_NVIDIA_GPUS; g++)
		for (uint32_t v = 0; v < LEVER_NVIDIA_VGPUS; v++) {
			json_t *busy, *device, *completions, *backlogged, *o;
			const struct sample *ring = samples[g][v];
			uint64_t any = 0;

			if (!ring)
				continue;
			busy = json_array();
			device = json_array();
			completions = json_array();
			backlogged = json_array();
			for (uint64_t n = first; n < d->samples; n++) {
				const struct sample *a = &ring[n % (SLOTS + 1)],
						    *b = &ring[(n + 1) % (SLOTS + 1)];

				any |= (b->busy_ns - a->busy_ns) | (b->wanted_ns - a->wanted_ns);
				json_array_append_new(
					busy, json_integer((json_int_t)(b->busy_ns - a->busy_ns)));
				json_array_append_new(
					device,
					json_integer((json_int_t)(b->device_ns - a->device_ns)));
				json_array_append_new(completions, json_integer(0));
				json_array_append_new(
					backlogged,
					json_integer((json_int_t)(b->wanted_ns - a->wanted_ns)));
			}
			o = json_pack("{s:o, s:s, s:s, s:o, s:o, s:o, s:o}", "gpu", gpu_name(g),
				      "vgpu", vgpu_name(v), "engine",
				      rtxg_engine_name(RTXG_ENGINE_COMPUTE), "busy_ns", busy,
				      "device_ns", device, "completions", completions,
				      "backlogged_ns", backlogged);
			if (any)
				json_array_append_new(series, o);
			else
				json_decref(o);
		}
}

json_t *nvidia_timeline(uint64_t since)
{
	uint64_t first = events_count > EVENTS ? events_count - EVENTS : 0;
	json_t *list = json_array();

	if (since > first)
		first = since < events_count ? since : events_count;
	for (uint64_t i = first; events && i < events_count; i++) {
		const struct events *e = &events[i % EVENTS];
		const char *kind = e->stay		   ? "stay"
				   : e->context		   ? e->what ? "came" : "went"
				   : !e->what		   ? "stop"
				   : e->what == UINT64_MAX ? "resume"
							   : "slice";
		json_t *o = json_object();

		put_text(o, "kind", kind);
		json_object_set_new(o, "gpu", gpu_name(e->gpu));
		put(o, "pid", e->pid);
		put(o, "start_ns", e->start_ns);
		put(o, "end_ns", e->end_ns);
		if (e->stay || e->context)
			put_text(o, "vgpu", vgpu_name(e->vgpu));
		if (e->context)
			put_text(o, "comm", e->comm);
		if (!strcmp(kind, "slice"))
			put(o, "slice_ns", e->what);
		json_array_append_new(list, o);
	}
	return json_pack("{s:I, s:I, s:o}", "first", (json_int_t)first, "next",
			 (json_int_t)events_count, "events", list);
}

void nvidia_doctor(void (*check)(void *ctx, const char *name, bool ok, const char *detail),
		   void *ctx)
{
	struct lever_nvidia_probe probes[8];
	struct lever_nvidia_process *list;
	char text[400];
	int n, unmanaged = 0, mps = 0;

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
	for (uint32_t g = 0; g < lever_nvidia_gpus(lever); g++) {
		struct lever_nvidia_gpu view;
		char name[32];

		lever_nvidia_gpu(lever, g, &view);
		snprintf(name, sizeof(name), "nvidia%u", g);
		if (view.lost)
			snprintf(text, sizeof(text),
				 "%s: the lever let go of it after an error (see the log); restart "
				 "rtxgd",
				 view.pci);
		else if (view.mig)
			snprintf(text, sizeof(text),
				 "%s is in MIG mode, in which the driver gives out no log of the "
				 "whole GPU: nothing is "
				 "governed on it; \"nvidia-smi -i %u -mig 0\" ends that mode",
				 view.pci, g);
		else if (view.log_error)
			snprintf(text, sizeof(text),
				 "%s: no context-switch log (%s): nothing is governed on it",
				 view.pci, strerror(-view.log_error));
		else
			snprintf(text, sizeof(text),
				 "%s: %u processes, policy %s, %llu records of the log lost",
				 view.pci, view.contexts, policy_name(&view),
				 (unsigned long long)view.log_lost);
		check(ctx, name, !view.lost && !view.log_error, text);
	}
	if (nvidia_busy()) {
		int policy = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;

		snprintf(text, sizeof(text), "rtxgd has %s and its memory is %s%s",
			 policy == SCHED_FIFO ? "real-time priority" : "no real-time priority",
			 locked ? "locked" : "not locked",
			 policy == SCHED_FIFO && locked
				 ? ""
				 : "; with CAP_SYS_NICE and LimitMEMLOCK=infinity it stops and "
				   "resumes in time under load");
		check(ctx, "nvidia real-time", policy == SCHED_FIFO && locked, text);
	}
	list = processes(&n);
	for (int i = 0; i < n; i++) {
		unmanaged += !list[i].managed;
		mps += list[i].mps;
	}
	snprintf(text, sizeof(text), "%d with contexts, %d of them UNMANAGED%s", n, unmanaged,
		 mps ? "; MPS is running: all of its clients share one vGPU" : "");
	check(ctx, "nvidia processes", !unmanaged, text);
	free(list);
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

void nvidia_doctor(void (*check)(void *ctx, const char *name, bool ok, const char *detail),
		   void *ctx)
{
}

bool nvidia_has(const char *gpu)
{
	return false;
}

bool nvidia_busy(void)
{
	return false;
}

uint64_t nvidia_own_ns(void)
{
	return 0;
}

void nvidia_gpus(struct daemon *d, json_t *gpus)
{
}

void nvidia_tasks(struct daemon *d, json_t *tasks, const char *vgpu, const char *gpu, int64_t pid)
{
}

void nvidia_stats(struct daemon *d, json_t *gpus)
{
}

void nvidia_history(struct daemon *d, json_t *series, uint64_t first)
{
}

void nvidia_sample(struct daemon *d)
{
}

json_t *nvidia_timeline(uint64_t since)
{
	return json_pack("{s:i, s:i, s:[]}", "first", 0, "next", 0, "events");
}

#endif
