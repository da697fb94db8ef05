// SPDX-License-Identifier: MIT
/* backends.c - the backends that this build has. */
#include "backend.h"
#include "backend_gate.h"
#ifdef HAVE_LEVER_NVIDIA
#include "backend_nvidia.h"
#endif

const struct backend *const backends[] = {
	&backend_gate,
#ifdef HAVE_LEVER_NVIDIA
	&backend_nvidia,
#endif
	NULL,
};
