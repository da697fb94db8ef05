// SPDX-License-Identifier: MIT
/*
 * reply.c - what goes out to a client: JSON in a packet, or in a memfd where the JSON is long. A
 * client that does not read its replies loses its connection. May not wait, queue, or read a
 * request.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "breathe.h"
#include "message.h"
#include "reply.h"
#include "user.h"

#define REPLY_SHORT 8192u /* longer ones count until the client has read them */

static int send_packet(struct connection *c, const void *data, size_t size, const int *fds,
		       unsigned int fds_count)
{
	union {
		char room[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec io = { .iov_base = (void *)data, .iov_len = size };
	struct msghdr message = { .msg_iov = &io, .msg_iovlen = 1 };
	uint64_t own;
	int ret;

	if (fds_count) {
		struct cmsghdr *m;

		memset(&control, 0, sizeof(control));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(fds_count * sizeof(int));
		m = CMSG_FIRSTHDR(&message);
		m->cmsg_level = SOL_SOCKET;
		m->cmsg_type = SCM_RIGHTS;
		m->cmsg_len = CMSG_LEN(fds_count * sizeof(int));
		memcpy(CMSG_DATA(m), fds, fds_count * sizeof(int));
	}
	/* Never waits: a client that lets its replies pile up is cut off. */
	own = user_own_ns();
	do
		ret = sendmsg(c->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
	while (ret == -EINTR);
	user_packet(c->user, user_own_ns() - own);
	return ret;
}

static int send_long(struct connection *c, const char *text, size_t size)
{
	char small[64];
	size_t at = 0;
	int memfd = memfd_create("rtxg-reply", MFD_CLOEXEC | MFD_ALLOW_SEALING), ret;

	if (memfd < 0)
		return -errno;
	while (at < size) {
		ssize_t n = write(memfd, text + at, size - at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			close(memfd);
			return -EIO;
		}
		at += (size_t)n;
	}
	fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
	ret = snprintf(small, sizeof(small), "{\"ok\": true, \"memfd\": %zu}", size);
	ret = send_packet(c, small, (size_t)ret, &memfd, 1);
	close(memfd);
	return ret;
}

/* Steals the text. */
static int send_text(struct connection *c, char *text, const int *fds, unsigned int fds_count)
{
	size_t size = text ? strlen(text) : 0;
	int ret;

	if (!text)
		ret = -ENOMEM;
	else if (size > RTXG_REPLY_MAX)
		ret = send_long(c, text, size);
	else
		ret = send_packet(c, text, size, fds, fds_count);
	if (!ret && size > REPLY_SHORT)
		c->unread = size;
	free(text);
	if (ret)
		c->closing = true;
	return ret;
}

int reply_send(struct connection *c, json_t *reply, const int *fds, unsigned int fds_count)
{
	return send_text(c, reply ? breathe_text(c->daemon, reply) : NULL, fds, fds_count);
}

int reply_error(struct connection *c, const char *op, int error, const char *why,
		const struct rtxg_refusal *refusal)
{
	const char *name = strerrorname_np(-error);
	json_t *reply = json_pack("{s:b, s:s, s:i, s:s}", "ok", 0, "op", op, "errno", -error,
				  "error", name ? name : "unknown");

	/* It may quote the client, and be cut within a character. */
	json_object_set_new(reply, "message", message_string(why));
	if (refusal && refusal->what) {
		json_object_set_new(reply, "value", json_integer((json_int_t)refusal->value));
		json_object_set_new(reply, "limit", json_integer((json_int_t)refusal->limit));
	}
	reply_send(c, reply, NULL, 0);
	return error;
}

void reply_ok(struct connection *c, const struct request *r, json_t *content)
{
	/* First, so that librtxg knows it from the first bytes of a long reply. */
	json_t *reply = json_pack("{s:b, s:s}", "ok", 1, "op", r->op_name);

	if (content && json_object_update(reply, content)) {
		json_decref(reply);
		reply = NULL;
	}
	json_decref(content);
	reply_send(c, reply, NULL, 0);
}

/* --- long lists, row by row ------------------------------------------------------------------- */

int reply_rows_begin(struct reply_rows *rows, const struct request *r)
{
	*rows = (struct reply_rows){ 0 };
	rows->out = open_memstream(&rows->text, &rows->size);
	if (!rows->out)
		return -ENOMEM;
	fprintf(rows->out, "{\"ok\":true,\"op\":\"%s\"", r->op->name);
	return 0;
}

static void put(struct reply_rows *rows, json_t *value)
{
	rows->bad |= json_dumpf(value, rows->out, JSON_COMPACT | JSON_ENCODE_ANY) != 0;
	json_decref(value);
}

static void end_list(struct reply_rows *rows)
{
	if (rows->listing)
		fputc(']', rows->out);
	rows->listing = false;
}

void reply_rows_put(struct reply_rows *rows, const char *name, json_t *value)
{
	end_list(rows);
	fprintf(rows->out, ",\"%s\":", name);
	put(rows, value);
}

void reply_rows_list(struct reply_rows *rows, const char *name)
{
	end_list(rows);
	fprintf(rows->out, ",\"%s\":[", name);
	rows->listing = true;
	rows->count = 0;
}

void reply_rows_add(struct reply_rows *rows, json_t *row)
{
	if (rows->count++)
		fputc(',', rows->out);
	put(rows, row);
}

void reply_rows_send(struct connection *c, struct reply_rows *rows)
{
	end_list(rows);
	fputc('}', rows->out);
	rows->bad |= ferror(rows->out) != 0;
	rows->bad |= fclose(rows->out) != 0;
	rows->out = NULL;
	/* Without memory the client has no answer, and is cut off. */
	send_text(c, rows->bad ? NULL : rows->text, NULL, 0);
	if (!rows->bad)
		rows->text = NULL;
}

void reply_rows_drop(struct reply_rows *rows)
{
	if (rows->out)
		fclose(rows->out);
	free(rows->text);
}

void reply_no_such(struct connection *c, const struct request *r, const char *kind,
		   const char *name, const char *remedy)
{
	char why[256];

	snprintf(why, sizeof(why), "there is no %s %s; %s", kind, name, remedy);
	reply_error(c, r->op_name, -ENOENT, why, NULL);
}
