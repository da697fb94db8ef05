/* SPDX-License-Identifier: MIT */
/* backend_nvidia.h - processes under the NVIDIA lever: see backend_nvidia.c. */
#ifndef RTXGD_BACKEND_NVIDIA_H
#define RTXGD_BACKEND_NVIDIA_H

#include "backend.h"

extern const struct backend backend_nvidia;

#endif
