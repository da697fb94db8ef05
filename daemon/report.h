/* SPDX-License-Identifier: MIT */
/* report.h - the values of which all replies are made: see report.c. */
#ifndef RTXGD_REPORT_H
#define RTXGD_REPORT_H

#include "daemon.h"
#include "process.h"

/* -1 for RTXG_TIME_NEVER, and for what JSON cannot hold. */
json_t *report_number(uint64_t value);
void report_put(json_t *object, const char *name, uint64_t value);
/* NULL is null; a byte that is not UTF-8, or that a terminal obeys, is \\xNN. */
/* UINT64_MAX: it is not known, and becomes null. */
void report_put_known(json_t *object, const char *name, uint64_t value);
void report_put_text(json_t *object, const char *name, const char *text);
void report_put_bool(json_t *object, const char *name, bool value);
/* Part of the whole, at most 1,000,000. */
uint32_t report_ppm(uint64_t part, uint64_t whole);
/* "completions", "busy_ns", ... as tasks and vGPUs show them. */
void report_put_stats(json_t *object, const struct rtxg_stats *stats);
/*
 * What /proc has said of a process, for one list: a process with a thousand tasks is asked once.
 * Zero: of none so far.
 */
struct report_process {
	pid_t pid;
	char comm[PROCESS_COMM], exe[PROCESS_EXE], command[PROCESS_COMMAND];
};
/*
 * "pid", "comm" (NULL: as /proc has it), "exe" and "command". The last two are "" unless the viewer
 * is the process's owner or root. `said`: of the process that was listed before, for that viewer.
 */
void report_put_process(json_t *object, pid_t pid, const char *comm,
			const struct connection *viewer, struct report_process *said);
const char *report_origin(enum origin origin);
json_t *report_gpu_params(const struct rtxg_gpu_params *params);
/* The sum of what the vGPUs for which `on` says yes have reserved. */
uint64_t report_reserved(const struct daemon *d, bool (*on)(const struct vgpu *vgpu, uint32_t gpu),
			 uint32_t gpu);
void report_put_vgpu_params(json_t *object, const struct vgpu *vgpu);
json_t *report_vgpu(struct daemon *d, const struct vgpu *vgpu);
/* The vGPU created next after that one (d->created of it; 0: the first); NULL: none. */
struct vgpu *report_next_vgpu(struct daemon *d, uint64_t created);
/* Appends one line of "doctor". */
void report_check(json_t *list, const char *name, bool ok, const char *remedy, const char *format,
		  ...) __attribute__((format(printf, 5, 6)));

#endif
