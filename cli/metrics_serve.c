// SPDX-License-Identifier: MIT
/*
 * metrics_serve.c - serves connections at a socket that the service manager listens at, all of them
 * at one time, and ends when none has come for a while. None waits for another: what is sent and
 * taken is bounded in time, and the host is asked in a thread. May not know what is said on them.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <rtxg_clock.h>

#include "command.h"
#include "message.h"
#include "metrics.h"
#include "metrics_ask.h"
#include "metrics_serve.h"

#define IDLE_EXIT_NS (600 * 1000000000ull)
#define KEPT	     (16 << 20)
#define CLIENTS	     64u
#define REQUEST_NS   1000000000ull /* for a client to send a request */
#define REST_NS	     100000000ull  /* and to end the connection */
/* For the host to answer. Prometheus waits for ten seconds, or for five. */
#define HOST_NS	    2000000000ull
#define UNTAKEN_MAX (16u << 20) /* bytes of answers that are not taken */

enum {
	FREE,
	READING,
	ASKING, /* the host */
	SENDING,
	ENDING, /* what was not read would reset the connection before the answer is taken */
};

struct server {
	const struct metrics_protocol *protocol;
	const char *proc;
	struct metrics_client client[CLIENTS];
	uint32_t count;
	size_t untaken;
	struct metrics_out page[2]; /* by form; used again */
};

static void set(struct metrics_client *c, int state, uint64_t ns)
{
	c->state = state;
	c->end = rtxg_now_ns() + ns;
}

static void drop_answer(struct server *s, struct metrics_client *c)
{
	s->untaken -= c->out.size;
	free(c->out.text);
	c->out = (struct metrics_out){ 0 };
	c->sent = 0;
}

static void drop(struct server *s, struct metrics_client *c)
{
	if (c->state == SENDING)
		drop_answer(s, c);
	else
		free(c->out.text);
	close(c->fd);
	free(c->in);
	memset(c, 0, sizeof(*c));
	s->count--;
}

/* The one that has been in that state for the longest time; NULL: none. */
static struct metrics_client *oldest(struct server *s, int state,
				     const struct metrics_client * not )
{
	struct metrics_client *found = NULL;

	for (uint32_t i = 0; i < CLIENTS; i++) {
		struct metrics_client *c = &s->client[i];

		if (c->state == state && c != not &&(!found || c->since < found->since))
			found = c;
	}
	return found;
}

/* --- what a client sends and takes ------------------------------------------------------------ */

static void ended(struct server *s, struct metrics_client *c)
{
	drop_answer(s, c);
	if (c->last) {
		shutdown(c->fd, SHUT_WR);
		set(c, ENDING, REST_NS);
		return;
	}
	set(c, READING, REQUEST_NS);
	c->again = true;
}

static void put(struct server *s, struct metrics_client *c)
{
	while (c->sent < c->out.size) {
		ssize_t n = send(c->fd, c->out.text + c->sent, c->out.size - c->sent,
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			drop(s, c);
			return;
		}
		c->sent += (size_t)n;
	}
	ended(s, c);
}

static void send_answer(struct server *s, struct metrics_client *c, bool last)
{
	struct metrics_client *other;

	if (c->out.failed) {
		drop(s, c);
		return;
	}
	c->last = last;
	set(c, SENDING, s->protocol->take_ns);
	s->untaken += c->out.size;
	while (s->untaken > UNTAKEN_MAX && (other = oldest(s, SENDING, c)))
		drop(s, other);
	put(s, c);
}

static void take_step(struct server *s, struct metrics_client *c, enum metrics_step step)
{
	switch (step) {
	case METRICS_MORE:
		break;
	case METRICS_PAGE:
		set(c, ASKING, HOST_NS);
		c->asked = metrics_ask();
		break;
	case METRICS_ANSWER:
	case METRICS_LAST:
		send_answer(s, c, step == METRICS_LAST);
		break;
	}
}

static void next(struct server *s, struct metrics_client *c, enum metrics_step step)
{
	take_step(s, c, step);
	/* An answer is out: the next request may have come with the one before. */
	while (c->state == READING && c->again) {
		c->again = false;
		take_step(s, c, s->protocol->read(c, false));
	}
}

static void get(struct server *s, struct metrics_client *c)
{
	size_t room = s->protocol->request_max - c->held;
	ssize_t n = room ? recv(c->fd, c->in + c->held, room, MSG_DONTWAIT) : 0;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0)
		c->held += (size_t)n;
	c->in[c->held] = 0;
	next(s, c, s->protocol->read(c, n <= 0));
}

static void rest(struct server *s, struct metrics_client *c)
{
	char text[512];
	ssize_t n = recv(c->fd, text, sizeof(text), MSG_DONTWAIT);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		drop(s, c);
}

/* --- the host --------------------------------------------------------------------------------- */

static const struct metrics_out *page_of(struct server *s, const json_t *reply, bool open)
{
	struct metrics_out *page = &s->page[open];

	if (!page->size) {
		page->failed = false;
		metrics_write(page, reply, s->proc, open);
	}
	return page;
}

/* Those who asked before that answer was asked for get it. NULL: there is none. */
static void give_page(struct server *s, const json_t *reply, uint64_t upto)
{
	s->page[0].size = s->page[1].size = 0;
	for (uint32_t i = 0; i < CLIENTS; i++) {
		struct metrics_client *c = &s->client[i];
		const struct metrics_out *page;

		if (c->state != ASKING || c->asked > upto)
			continue;
		page = page_of(s, reply, c->open);
		if (page->failed)
			drop(s, c);
		else
			next(s, c, s->protocol->page(c, page->text, page->size));
	}
}

/* The host did not answer in time, which is what the page says. */
static void give_up(struct server *s, struct metrics_client *c)
{
	struct metrics_out page = { 0 };

	metrics_write(&page, NULL, s->proc, c->open);
	if (page.failed)
		drop(s, c);
	else
		next(s, c, s->protocol->page(c, page.text, page.size));
	free(page.text);
}

/* --- the loop --------------------------------------------------------------------------------- */

static void take(struct server *s, int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct metrics_client *c = s->client;

	if (fd < 0)
		return;
	/* The one that has said nothing for the longest time makes room. */
	if (s->count == CLIENTS)
		for (int state = READING; s->count == CLIENTS; state++)
			if ((c = oldest(s, state, NULL)))
				drop(s, c);
	for (c = s->client; c->state != FREE; c++)
		;
	c->in = malloc(s->protocol->request_max + 1);
	if (!c->in) {
		close(fd);
		return;
	}
	s->count++;
	c->fd = fd;
	c->since = rtxg_now_ns();
	set(c, READING, REQUEST_NS);
	get(s, c);
}

static void ready(struct server *s, struct metrics_client *c)
{
	if (c->state == READING) {
		get(s, c);
	} else if (c->state == SENDING) {
		put(s, c);
		next(s, c, METRICS_MORE);
	} else if (c->state == ENDING) {
		rest(s, c);
	}
}

static void over(struct server *s, struct metrics_client *c)
{
	if (c->state == READING)
		next(s, c, s->protocol->late(c));
	else if (c->state == ASKING)
		give_up(s, c);
	else
		drop(s, c);
}

/* One round. A client that needs no waiting is served all the same: we may have been the slow. */
static void round_of(struct server *s, const struct pollfd *p)
{
	uint64_t now = rtxg_now_ns();

	for (uint32_t i = 0; i < CLIENTS; i++) {
		struct metrics_client *c = &s->client[i];

		if (c->state != FREE && c->fd == p[i].fd && p[i].revents)
			ready(s, c);
		else if (c->state != FREE && now >= c->end)
			over(s, c);
	}
}

/* What is waited for, and until when. */
static uint64_t fill(const struct server *s, struct pollfd *p, uint64_t end)
{
	for (uint32_t i = 0; i < CLIENTS; i++) {
		const struct metrics_client *c = &s->client[i];
		bool waits = c->state == FREE || c->state == ASKING;

		p[i] = (struct pollfd){ .fd = waits ? -1 : c->fd,
					.events = c->state == SENDING ? POLLOUT : POLLIN };
		if (c->state != FREE && c->end < end)
			end = c->end;
	}
	return end;
}

/* The exit status. */
static int run(struct server *s, int listener, int signals)
{
	struct pollfd p[CLIENTS + 3] = { 0 }, *asked = p + CLIENTS, *come = asked + 1,
				  *stop = come + 1;
	uint64_t idle = rtxg_now_ns() + IDLE_EXIT_NS;

	*asked = (struct pollfd){ .fd = metrics_ask_fd(), .events = POLLIN };
	*come = (struct pollfd){ .fd = listener, .events = POLLIN };
	*stop = (struct pollfd){ .fd = signals, .events = POLLIN };
	for (;;) {
		uint64_t end = fill(s, p, s->count ? UINT64_MAX : idle), now = rtxg_now_ns(), upto;
		uint64_t left = end > now ? end - now : 0;
		struct timespec t = { .tv_sec = (time_t)(left / 1000000000u),
				      .tv_nsec = (long)(left % 1000000000u) };
		json_t *reply;

		/* A restart ends it between answers, never within one; what waits is the next's. */
		if (!s->count && (come->fd < 0 || now >= idle))
			return EXIT_OK;
		if (ppoll(p, CLIENTS + 3, &t, NULL) < 0) {
			if (errno != EINTR)
				return EXIT_FAILED;
			continue;
		}
		round_of(s, p);
		if (asked->revents && metrics_answer(&reply, &upto)) {
			give_page(s, reply, upto);
			json_decref(reply);
		}
		if (stop->revents) {
			come->fd = stop->fd = -1;
		} else if (come->revents) {
			take(s, listener);
			idle = rtxg_now_ns() + IDLE_EXIT_NS;
		}
	}
}

int metrics_serve(const char *option, const struct metrics_protocol *protocol, const char *proc)
{
	static struct server server;
	int n = sd_listen_fds(1), listener = SD_LISTEN_FDS_START;
	sigset_t stop;
	int signals;

	if (n != 1 || sd_is_socket(listener, AF_UNSPEC, SOCK_STREAM, 1) <= 0) {
		message_error("%s: the service manager passed %d sockets that listen; one is "
			      "accepted: 'systemctl start rtxg-metrics.socket' (--http) or "
			      "'rtxg-report.socket' (--varlink), or "
			      "'systemd-socket-activate -l 127.0.0.1:9835 rtxg metrics --http'",
			      option, n < 0 ? 0 : n);
		return EXIT_FAILED;
	}
	/* Who has gone before it is taken is not waited for. */
	fcntl(listener, F_SETFL, O_NONBLOCK);
	sigemptyset(&stop);
	sigaddset(&stop, SIGTERM);
	sigprocmask(SIG_BLOCK, &stop, NULL);
	signals = signalfd(-1, &stop, SFD_CLOEXEC);
	/* The memory of a page stays for the next one: to take it from the kernel costs as much. */
	mallopt(M_MMAP_THRESHOLD, KEPT);
	mallopt(M_TRIM_THRESHOLD, KEPT);
	if (signals < 0 || metrics_ask_start()) {
		message_error("%s: there is no descriptor or no thread for it", option);
		return EXIT_FAILED;
	}
	server.protocol = protocol;
	server.proc = proc;
	return run(&server, listener, signals);
}
