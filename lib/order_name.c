// SPDX-License-Identifier: MIT
/*
 * order_name.c - the words for hosts. May not: know what a host does.
 */
#include "rtxg_order.h"

const char *rtx_order_host_name(enum rtx_order_host host)
{
	static const char *const names[RTX_ORDER_HOSTS] = {
		[RTX_ORDER_FUTEX] = "futex",	 [RTX_ORDER_PROTO_1] = "proto-1",
		[RTX_ORDER_PROTO_2] = "proto-2", [RTX_ORDER_PROTO_3] = "proto-3",
		[RTX_ORDER_PROTO_4] = "proto-4", [RTX_ORDER_PROTO_5] = "proto-5",
		[RTX_ORDER_PROTO_6] = "proto-6", [RTX_ORDER_SHARED] = "shared",
		[RTX_ORDER_OPT] = "opt",
	};

	return (unsigned int)host < RTX_ORDER_HOSTS ? names[host] : NULL;
}
