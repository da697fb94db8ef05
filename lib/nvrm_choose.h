/* SPDX-License-Identifier: MIT */
/*
 * nvrm_choose.h - which of the driver's GPUs a name means. Not installed.
 */
#ifndef RTX_LIB_NVRM_CHOOSE_H
#define RTX_LIB_NVRM_CHOOSE_H

#include "rm.h"

/*
 * cards: RM_GPUS_MAX of them, as the driver tells of them. device: a number in the order of the PCI
 * bus, a PCI address or a UUID. NULL: there is no such GPU.
 */
const struct nv_card_info *rtx_lib_nvrm_choose(const struct nv_card_info *cards,
					       const char *device);

#endif
