/* SPDX-License-Identifier: MIT */
/* doctor.h - what could be better here, and how: see doctor.c. */
#ifndef RTXGD_DOCTOR_H
#define RTXGD_DOCTOR_H

#include "daemon.h"

json_t *doctor_report(struct daemon *d, const struct connection *viewer);
json_t *doctor_limits(struct daemon *d);

#endif
