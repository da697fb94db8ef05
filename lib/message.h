/* SPDX-License-Identifier: MIT */
/*
 * message.h - requests and replies over the daemon's socket. Not installed.
 */
#ifndef RTX_LIB_MESSAGE_H
#define RTX_LIB_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include "rtxg/control.h"

/* For so long a reply is waited for: one that comes later than this does not come. */
#define REPLY_PATIENCE_NS ((RTXG_ANSWER_SECONDS + 5) * 1000000000ull)

int rtx_lib_message_send(int socket, const char *text, size_t size, int fd);
int rtx_lib_message_receive(int socket, char **text, int fds[2], uint64_t until);
/* Closes the descriptors that came with a reply. */
void rtx_lib_close_fds(int fds[2]);

#endif
