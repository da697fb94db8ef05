// SPDX-License-Identifier: MIT
/* foreign.c - threads with files of their own read and close what users have open, too. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "foreign.h"

static void begins(uint32_t number)
{
}

static enum foreign_next done(uint32_t number)
{
	return FOREIGN_GO_ON;
}

static const struct foreign_events events = { .begins = begins, .done = done };
static int channel;

static int set_up(void **state)
{
	if (!foreign_start())
		channel = foreign_thread(0, &events);
	return channel > 0 ? 0 : -1;
}

static void pair(int ends[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
}

static void send_with(int socket, int fd)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { { 0 } };
	char text[] = "text";
	struct iovec io = { text, strlen(text) };
	struct msghdr message = { .msg_iov = &io,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control.room) };
	struct cmsghdr *m = CMSG_FIRSTHDR(&message);

	m->cmsg_level = SOL_SOCKET;
	m->cmsg_type = SCM_RIGHTS;
	m->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(m), &fd, sizeof(int));
	assert_int_equal(sendmsg(socket, &message, 0), (int)strlen(text));
}

static struct foreign_packet *hear(int *fd)
{
	static struct foreign_packet packet;
	struct pollfd p = { .fd = channel, .events = POLLIN };

	assert_int_equal(poll(&p, 1, -1), 1);
	assert_int_equal(foreign_hear(channel, &packet, fd), 0);
	return &packet;
}

/* The other end of a connection sees that nothing has it open any more. */
static void assert_ends(int other)
{
	char byte;

	assert_int_equal(recv(other, &byte, 1, 0), 0);
	close(other);
}

static void test_a_connection_is_closed_there(void **state)
{
	int ends[2];

	pair(ends);
	assert_int_equal(foreign_order(channel, FOREIGN_END, ends[0], 0), 0);
	close(ends[0]);
	assert_ends(ends[1]);
}

static void test_what_cannot_be_sent_is_taken_by_its_number(void **state)
{
	struct foreign_packet *packet;
	int ends[2], fd;

	pair(ends);
	assert_int_equal(foreign_order_of(channel, FOREIGN_END, ends[0], 0), 0);
	packet = hear(&fd);
	assert_int_equal(packet->news, FOREIGN_TAKEN);
	assert_int_equal(packet->number, ends[0]);
	if (packet->size == -EPERM) {
		print_message("skipped: no thread may take a descriptor here\n");
		close(ends[0]);
		close(ends[1]);
		return;
	}
	assert_int_equal(packet->size, 0);
	close(ends[0]);
	assert_ends(ends[1]);
}

static void test_only_what_ends_at_once_is_given(void **state)
{
	int memory = memfd_create("memory", MFD_CLOEXEC), event = eventfd(0, EFD_CLOEXEC);
	int path, null;
	char name[64];

	snprintf(name, sizeof(name), "/proc/self/fd/%d", memory);
	path = open(name, O_PATH | O_CLOEXEC);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	const struct {
		int fd;
		bool given;
	} all[] = {
		{ memory, true }, { event, true }, { channel, false },
		{ path, false },  { null, false },
	};

	for (uint32_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		struct foreign_packet *packet;
		int ends[2], fd;

		pair(ends);
		send_with(ends[1], all[i].fd);
		assert_int_equal(foreign_order(channel, FOREIGN_READ, ends[0], i), 0);
		packet = hear(&fd);
		assert_int_equal(packet->news, FOREIGN_PACKET);
		assert_int_equal(packet->number, i);
		assert_int_equal(packet->size, 4);
		assert_memory_equal(packet->text, "text", 4);
		assert_int_equal(packet->descriptors, 1);
		assert_int_equal(packet->given, all[i].given);
		assert_int_equal(fd >= 0, all[i].given);
		if (fd >= 0)
			close(fd);
		close(ends[0]);
		assert_ends(ends[1]);
	}
	for (uint32_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (all[i].fd != channel)
			close(all[i].fd);
}

static void test_a_connection_ends_over_what_was_not_read(void **state)
{
	int ends[2], pipes[2];
	char byte;

	pair(ends);
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	send_with(ends[1], pipes[1]);
	close(pipes[1]);
	assert_int_equal(send(ends[0], "last", 4, 0), 4);
	assert_int_equal(foreign_order(channel, FOREIGN_END, ends[0], 0), 0);
	close(ends[0]);
	/* What was in the socket is closed, too; and no reset comes instead of what was said. */
	assert_int_equal(read(pipes[0], &byte, 1), 0);
	assert_int_equal(recv(ends[1], &byte, 1, 0), 1);
	assert_ends(ends[1]);
	close(pipes[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_connection_is_closed_there),
		cmocka_unit_test(test_what_cannot_be_sent_is_taken_by_its_number),
		cmocka_unit_test(test_only_what_ends_at_once_is_given),
		cmocka_unit_test(test_a_connection_ends_over_what_was_not_read),
	};

	return cmocka_run_group_tests_name("foreign", tests, set_up, NULL);
}
