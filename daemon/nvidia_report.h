/* SPDX-License-Identifier: MIT */
/* nvidia_report.h - the members of backend_nvidia that show: see nvidia_report.c and backend.h. */
#ifndef RTXGD_NVIDIA_REPORT_H
#define RTXGD_NVIDIA_REPORT_H

#include "backend.h"

void nvidia_report_sample(struct daemon *d);
void nvidia_report_gpus(struct daemon *d, json_t *gpus);
bool nvidia_report_tasks(struct daemon *d, const struct backend_filter *filter,
			 struct backend_rows *rows);
void nvidia_report_memory(struct daemon *d, uint64_t used[VGPUS_MAX]);
void nvidia_report_stats(struct daemon *d, uint64_t now, json_t *gpus);
bool nvidia_report_history(struct daemon *d, struct series_list *list);
void nvidia_report_doctor(struct daemon *d, json_t *checks, const struct connection *viewer);

#endif
