/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * control.h - what a client and the daemon must agree on before they can talk: where the socket is
 * and how long a message may be. The messages themselves are JSON texts, see rtxg-protocol(7).
 */
#ifndef RTXG_UAPI_CONTROL_H
#define RTXG_UAPI_CONTROL_H

#define RTXG_PROTOCOL 1

#define RTXG_SYSTEM_SOCKET "/run/rtxg/rtxgd.sock"
#define RTXG_SOCKET_DIR	   "rtxg"	/* below $XDG_RUNTIME_DIR */
#define RTXG_SOCKET_NAME   "rtxgd.sock" /* in it */
#define RTXG_LOCK_NAME	   "start.lock" /* held by the process that starts a daemon */
#define RTXG_MODULE_DEVICE "/dev/rtxg"

#define RTXG_REQUEST_MAX     16384u /* bytes */
#define RTXG_REPLY_MAX	     65536u /* bytes; a longer reply comes as a memfd */
#define RTXG_REPLY_MEMFD_MAX (64u << 20)

/*
 * rtxgd answers within so long, and a client waits for longer: rtxgd may have to wait itself, for
 * drivers that say which devices there are.
 */
#define RTXG_ANSWER_SECONDS 20

#define RTXG_NAME_MAX	  63u /* bytes of a GPU's, vGPU's or pool's name */
#define RTXG_LAUNCHES_MAX 32u /* outstanding launches for one task and engine */

#endif
