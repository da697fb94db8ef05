// SPDX-License-Identifier: MIT
/*
 * nvidia_promise.c - what is promised to vGPUs on the NVIDIA lever's GPUs: whether a bound can be
 * kept (the core says so, here it becomes a sentence), which promises are broken, for how long, and
 * by which process. May not judge a promise: core/slice does.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "nvidia_promise.h"
#include "process.h"
#include "report.h"

static const struct {
	uint32_t bit;
	const char *name;
} promises[] = {
	{ RTXG_SLICE_BROKEN_SHARE, "share" },
	{ RTXG_SLICE_BROKEN_LATENCY, "latency" },
	{ RTXG_SLICE_BROKEN_CAP, "cap" },
};
#define PROMISES (sizeof(promises) / sizeof(*promises))

/* Since the daemon began. */
static struct {
	uint64_t broken_ns[PROMISES];
	uint64_t ungoverned_ns; /* with a context that could not be governed */
} counted[LEVER_NVIDIA_GPUS][LEVER_NVIDIA_VGPUS];

/* --- words ------------------------------------------------------------------------------------ */

static const char *time_text(uint64_t ns, char text[24])
{
	if (ns >= NS_PER_S)
		snprintf(text, 24, "%.4gs", (double)ns / 1e9);
	else if (ns >= NS_PER_MS)
		snprintf(text, 24, "%.4gms", (double)ns / 1e6);
	else
		snprintf(text, 24, "%.4gus", (double)ns / 1e3);
	return text;
}

static const char *mechanism_name(uint32_t mechanism)
{
	static const char *const names[] = { "none", "slices", "arrival", "turns" };

	return mechanism < 4 ? names[mechanism] : "none";
}

/* What keeps a bound, and so what limits it. */
static const char *mechanism_words(uint32_t mechanism)
{
	switch (mechanism) {
	case RTXG_SLICE_BY_SLICES:
		return "by slices: one of each of them comes before its work";
	case RTXG_SLICE_BY_ARRIVAL:
		return "by arrival: the driver has to stop them when its work comes";
	case RTXG_SLICE_BY_TURNS:
		return "by turns: a short slice, a save and a restore come before its work";
	}
	return "by nothing";
}

const char *nvidia_promise_mode(uint32_t gpu)
{
	static const char *const names[] = { "spread", "batch", "arrival", "turns" };
	struct rtxg_slice_gpu_view view;

	if (lever_nvidia_gpu_slice(nvidia.lever, gpu, &view) || view.mode > 3)
		return "none";
	return names[view.mode];
}

/* --- admission -------------------------------------------------------------------------------- */

static struct rtxg_slice_tenant tenant_of(const struct vgpu *vgpu, int number)
{
	return nvidia_tenant(vgpu, number < 0 ? 0 : nvidia.periods[number]);
}

static void explain(char *why, size_t size, const struct vgpu *wanted, uint32_t gpu, int error,
		    const struct rtxg_slice_admission *a)
{
	char asked[24], best[24];
	int n = snprintf(why, size, "vGPU %s on GPU nvidia%u: ", wanted->name, gpu);

	why += n;
	size -= (size_t)n;
	time_text(wanted->latency_ns, asked);
	/* Rounded up: what the sentence names is to be accepted. */
	time_text((a->best_ns + 9999) / 10000 * 10000, best);
	switch (error) {
	case -ERANGE:
		snprintf(
			why, size,
			"a latency of %s cannot be kept; %s is the best that is possible beside "
			"%u context%s of others (%s); ask for --latency %s, or have fewer programs "
			"on this GPU",
			asked, best, a->contexts, a->contexts == 1 ? "" : "s",
			mechanism_words(a->best_mechanism), best);
		n = (int)strlen(why);
		if (a->loads)
			snprintf(why + n, size - (size_t)n,
				 "; in its way %s that cannot be governed (%u): \"rtxg ps -u\" "
				 "names "
				 "them and says what to do",
				 a->loads == 1 ? "is a context" : "are contexts", a->loads);
		break;
	case -EBUSY:
		snprintf(why, size,
			 "with it vGPU %s would lose its bound on latency; leave --latency out "
			 "here, "
			 "or ask for less there (rtxg vgpu set %s --latency default)",
			 nvidia_vgpu_name(a->breaks), nvidia_vgpu_name(a->breaks));
		break;
	case -ENOTSUP:
		snprintf(why, size,
			 "a latency of %s cannot be kept: the lever can neither set slices nor "
			 "stop there; \"rtxg doctor\" says why",
			 asked);
		break;
	default:
		snprintf(why, size,
			 "the slice policy does not accept it: %s; --latency is 100us to 10s, "
			 "--quantum 1ms to 1s",
			 strerrordesc_np(-error));
	}
}

int nvidia_promise_admit(struct daemon *d, const struct vgpu *vgpu, const struct vgpu *wanted,
			 char *why, size_t size, struct rtxg_refusal *refusal)
{
	int number = vgpu && nvidia.lever ? nvidia_number(vgpu) : -1, kept = 0;
	struct rtxg_slice_tenant tenant = tenant_of(wanted, number);

	for (uint32_t g = 0; nvidia.lever && g < lever_nvidia_gpus(nvidia.lever); g++) {
		struct rtxg_slice_admission a;
		int error;

		if (!nvidia_applies(wanted, g))
			continue;
		error = lever_nvidia_vgpu_admit(nvidia.lever, g,
						number < 0 ? RTXG_SLICE_NONE : (uint32_t)number,
						&tenant, &a);
		/* Reservations are the gate's to admit, for all GPUs alike. */
		if (error == -ENODEV || error == -ENOSPC)
			continue;
		if (error) {
			explain(why, size, wanted, g, error, &a);
			if (refusal && error == -ERANGE)
				*refusal = (struct rtxg_refusal){ .what = "latency_ns",
								  .value = wanted->latency_ns,
								  .limit = a.best_ns };
			return error;
		}
		kept = wanted->latency_ns != 0;
	}
	return kept;
}

/* --- promises --------------------------------------------------------------------------------- */

void nvidia_promise_put(json_t *o, uint32_t gpu, uint32_t number,
			const struct rtxg_slice_view *view)
{
	const struct vgpu *vgpu = nvidia.slots[number];
	json_t *broken = json_array(), *times = json_object();
	uint32_t by = view->broken ? lever_nvidia_pid(nvidia.lever, gpu, view->broken_by) : 0;

	if (vgpu && vgpu->latency_ns) {
		struct rtxg_slice_tenant tenant = tenant_of(vgpu, (int)number);
		struct rtxg_slice_admission a;
		int error = lever_nvidia_vgpu_admit(nvidia.lever, gpu, number, &tenant, &a);

		report_put(o, "latency_ns", vgpu->latency_ns);
		report_put_text(o, "mechanism", mechanism_name(view->mechanism));
		if (!error || error == -ERANGE || error == -EBUSY) {
			report_put(o, "bound_ns", a.bound_ns);
			report_put(o, "best_ns", a.best_ns);
		}
		report_put(o, "waited_ns", view->waited_ns);
	}
	if (vgpu && vgpu->quantum_ns)
		report_put(o, "quantum_ns", vgpu->quantum_ns);
	for (size_t i = 0; i < PROMISES; i++) {
		if (view->broken & promises[i].bit)
			json_array_append_new(broken, json_string(promises[i].name));
		report_put(times, promises[i].name, counted[gpu][number].broken_ns[i]);
	}
	json_object_set_new(o, "broken", broken);
	json_object_set_new(o, "broken_ns", times);
	json_object_set_new(o, "broken_by", by ? json_integer(by) : json_null());
	report_put(times, "ungoverned", counted[gpu][number].ungoverned_ns);
	report_put(o, "ungoverned", view->loads);
}

void nvidia_promise_sample(struct daemon *d)
{
	/* The border of this slot is not written before all backends have closed it. */
	uint64_t slot = rtxg_now_ns() - d->times[d->samples % (SLOTS + 1)];

	for (uint32_t g = 0;
	     nvidia.lever && g < lever_nvidia_gpus(nvidia.lever) && g < LEVER_NVIDIA_GPUS; g++)
		for (uint32_t v = 0; v < LEVER_NVIDIA_VGPUS; v++) {
			struct rtxg_slice_view view;

			if (lever_nvidia_vgpu_view(nvidia.lever, g, v, &view))
				continue;
			for (size_t i = 0; i < PROMISES; i++)
				if (view.broken & promises[i].bit)
					counted[g][v].broken_ns[i] += slot;
			if (view.loads)
				counted[g][v].ungoverned_ns += slot;
		}
}

void nvidia_promise_forget(uint32_t number)
{
	for (uint32_t g = 0; g < LEVER_NVIDIA_GPUS; g++)
		memset(&counted[g][number], 0, sizeof(counted[g][number]));
}

/* --- the doctor ------------------------------------------------------------------------------- */

static void describe_breaker(uint32_t gpu, const struct rtxg_slice_view *view, char text[120])
{
	uint32_t pid = lever_nvidia_pid(nvidia.lever, gpu, view->broken_by);
	char comm[PROCESS_COMM];

	text[0] = 0;
	if (!pid)
		return;
	process_comm((pid_t)pid, comm);
	snprintf(text, 120, "; most likely by process %u %.40s", pid, comm);
}

static void doctor_vgpu(json_t *checks, uint32_t gpu, const struct vgpu *vgpu,
			const struct rtxg_slice_view *view)
{
	char by[120], name[120], asked[24], waited[24];

	describe_breaker(gpu, view, by);
	snprintf(name, sizeof(name), "vGPU %s", vgpu->name);
	if (view->broken & RTXG_SLICE_BROKEN_SHARE)
		report_check(
			checks, name, false,
			"\"rtxg ps -u\" names programs that cannot be governed: restart or end "
			"them; else give it a larger --min, or a --latency",
			"on nvidia%u it gets less than the %.10g%% that it has reserved%s", gpu,
			(double)vgpu->params.min_ppm / 1e4, by);
	if (view->broken & RTXG_SLICE_BROKEN_LATENCY)
		report_check(
			checks, name, false,
			"\"rtxg ps -u\" names programs that cannot be governed: restart or end "
			"them; else ask for a longer bound (rtxg vgpu set NAME --latency TIME)",
			"on nvidia%u its work waited for %s, the bound is %s%s", gpu,
			time_text(view->waited_ns, waited), time_text(vgpu->latency_ns, asked), by);
	if (view->broken & RTXG_SLICE_BROKEN_CAP)
		report_check(
			checks, name, false,
			"\"rtxg ps -u\" names programs that cannot be governed: restart or end "
			"them",
			"on nvidia%u it gets more than the %.10g%% that it may have%s", gpu,
			(double)vgpu->params.max_ppm / 1e4, by);
}

/*
 * A bound that was admitted once, or came from a file, and that what is there now does not allow.
 */
static void doctor_bound(json_t *checks, uint32_t gpu, uint32_t number, const struct vgpu *vgpu)
{
	struct rtxg_slice_tenant tenant = tenant_of(vgpu, (int)number);
	struct rtxg_slice_admission a;
	char name[120], why[400];
	int error = lever_nvidia_vgpu_admit(nvidia.lever, gpu, number, &tenant, &a);

	if (!error || error == -ENODEV || error == -ENOSPC)
		return;
	explain(why, sizeof(why), vgpu, gpu, error, &a);
	snprintf(name, sizeof(name), "vGPU %s", vgpu->name);
	report_check(checks, name, false, "rtxg vgpu set NAME --latency TIME", "%s", why);
}

void nvidia_promise_doctor(json_t *checks)
{
	for (uint32_t g = 0; g < lever_nvidia_gpus(nvidia.lever); g++)
		for (uint32_t v = 0; v < LEVER_NVIDIA_VGPUS; v++) {
			const struct vgpu *vgpu = nvidia.slots[v];
			struct rtxg_slice_view view;

			if (!vgpu || lever_nvidia_vgpu_view(nvidia.lever, g, v, &view))
				continue;
			doctor_vgpu(checks, g, vgpu, &view);
			if (vgpu->latency_ns)
				doctor_bound(checks, g, v, vgpu);
		}
}
