// SPDX-License-Identifier: MIT
/*
 * rtxg-guardian - a process of its own that holds its own client of the driver and watches the
 * daemon. When the daemon dies, by whatever cause, or gives no sign of life for two seconds while
 * something is stopped, it lets everything go that stands in the journal. It can do nothing else,
 * and it never stops anything.
 *
 *   rtxg-guardian JOURNAL_FD END_FD     (started by the daemon, not by hand; END_FD hangs up or is
 *                                       readable when the daemon has ended)
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "act.h"
#include "guardian.h"
#include "journal.h"
#include "others.h"
#include "rm.h"

#define HUNG_NS 2000000000ull
#define CALL	64
/* far more often than a channel is ever stopped before it is let go */
#define STOPS_MOST 100u

static uint64_t now_ns(void)
{
	return nv_sys_linux.now_ns(NULL);
}

/* How often what was stopped most often was. */
static uint32_t most_stops(const struct nv_journal_page *page)
{
	uint32_t most = 0, high = __atomic_load_n(&page->high, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < high && i < NV_JOURNAL_ENTRIES; i++) {
		uint32_t used = __atomic_load_n(&page->entry[i].used, __ATOMIC_ACQUIRE);

		most = used > most ? used : most;
	}
	return most;
}

/*
 * One call that lets go of these. One that is gone spoils the call for all: then one by one.
 * Returns how many the driver would not let go.
 */
static unsigned int let_go(struct nv_rm_gpu *gpu, struct nv_disable_channels *d)
{
	unsigned int failed = 0;

	if (!nv_rm_control(gpu->rm, gpu->subdevice, NV2080_FIFO_DISABLE_CHANNELS, d, sizeof(*d)))
		return 0;
	for (uint32_t i = 0; i < d->count; i++) {
		struct nv_disable_channels one = { .count = 1 };
		int err;

		one.client[0] = d->client[i];
		one.channel[0] = d->channel[i];
		err = nv_rm_control(gpu->rm, gpu->subdevice, NV2080_FIFO_DISABLE_CHANNELS, &one,
				    sizeof(one));
		failed += err && err != -ESRCH && err != -ENOENT && err != -EINVAL;
	}
	return failed;
}

/*
 * Lets go once of all that was stopped so often or more. Returns how many it asked for; *failed
 * counts what the driver would not do.
 */
static unsigned int let_go_of(struct nv_journal_page *page, struct nv_rm_gpu *gpu, uint32_t times,
			      unsigned int *failed)
{
	uint32_t at = 0, high = __atomic_load_n(&page->high, __ATOMIC_ACQUIRE);
	unsigned int asked = 0;

	high = high < NV_JOURNAL_ENTRIES ? high : NV_JOURNAL_ENTRIES;
	while (at < high) {
		struct nv_disable_channels d = { 0 };

		for (; at < high && d.count < CALL; at++) {
			struct nv_journal_entry *e = &page->entry[at];

			if (__atomic_load_n(&e->used, __ATOMIC_ACQUIRE) < times ||
			    e->device != gpu->device_instance)
				continue;
			d.client[d.count] = e->client;
			d.channel[d.count++] = e->channel;
		}
		if (d.count)
			*failed += let_go(gpu, &d);
		asked += d.count;
	}
	return asked;
}

/*
 * Lets all go that is in the journal, as often as it was stopped: the driver counts. Returns how
 * many channels; *failed counts what the driver would not do.
 */
static unsigned int let_all_go(struct nv_journal *journal, struct nv_rm_gpu *gpus, int count,
			       unsigned int *failed)
{
	struct nv_journal_page *page = journal->page;
	uint32_t most = most_stops(page);
	unsigned int asked = 0;

	*failed = 0;
	/* Those of a daemon that lies are not let go for ever. */
	most = most < STOPS_MOST ? most : STOPS_MOST;
	for (int g = 0; g < count; g++)
		for (uint32_t times = 1; times <= most; times++) {
			unsigned int n = let_go_of(page, &gpus[g], times, failed);

			asked += times == 1 ? n : 0;
		}
	return asked;
}

/* After that, where the daemon is gone. */
static void wipe(struct nv_journal_page *page)
{
	for (uint32_t i = 0; i < NV_JOURNAL_ENTRIES; i++)
		__atomic_store_n(&page->entry[i].used, 0, __ATOMIC_RELEASE);
}

/* The driver's own slices for all contexts whose slice was changed. Returns how many. */
static unsigned int slices_back(struct nv_journal *journal, struct nv_rm_gpu *gpus, int count)
{
	unsigned int n = 0;

	for (uint32_t i = 0; i < NV_JOURNAL_SLICES; i++) {
		struct nv_journal_slice *s = &journal->page->slice[i];

		if (!__atomic_load_n(&s->used, __ATOMIC_ACQUIRE))
			continue;
		for (int g = 0; g < count; g++)
			if (gpus[g].device_instance == s->device &&
			    !nv_set_slice_of(&gpus[g], s->pid, s->fd, s->client, s->group,
					     s->channel, NV_DRIVER_SLICE_US))
				n++;
		__atomic_store_n(&s->used, 0, __ATOMIC_RELEASE);
	}
	return n;
}

static void tell(const char *text)
{
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		return;
}

int main(int argc, char **argv)
{
	struct sched_param fifo = { .sched_priority = 50 };
	struct nv_journal journal;
	struct nv_rm_gpu gpus[RM_GPUS_MAX];
	struct nv_rm rm;
	struct pollfd p;
	unsigned int asked, failed;
	char line[160];
	int err, count;

	if (argc != 3) {
		fprintf(stderr, "usage: rtxg-guardian JOURNAL_FD END_FD (the daemon starts it)\n");
		return 2;
	}
	/* the farewell in the journal is what ends it, not a signal that was meant for all */
	nv_guardian_ignore_signals();
	err = nv_journal_attach(&journal, atoi(argv[1]));
	if (err) {
		fprintf(stderr, "rtxg-guardian: the journal is not one: %s\n", strerror(-err));
		return 1;
	}
	err = nv_rm_open(&rm, nv_sys_patient());
	count = err ? err : nv_rm_gpus_open(&rm, gpus, RM_GPUS_MAX);
	if (count < 0) {
		fprintf(stderr, "rtxg-guardian: cannot open the driver: %s\n", strerror(-count));
		__atomic_store_n(&journal.page->guarded, (uint32_t)count, __ATOMIC_RELEASE);
		return 1;
	}
	/*
	 * A program that rescues others must not wait for memory or for the CPU. Without the
	 * privilege it does what it can.
	 */
	mlockall(MCL_CURRENT | MCL_FUTURE);
	sched_setscheduler(0, SCHED_FIFO, &fifo);
	__atomic_store_n(&journal.page->guarded, 1, __ATOMIC_RELEASE);
	p.fd = atoi(argv[2]);
	p.events = POLLIN;
	for (;;) {
		int n = poll(&p, 1, 200);
		uint64_t beat;

		if (n < 0 && errno != EINTR)
			break;
		if (n > 0)
			break; /* the daemon has ended */
		if (__atomic_load_n(&journal.page->farewell, __ATOMIC_ACQUIRE))
			break;
		beat = __atomic_load_n(&journal.page->heartbeat_ns, __ATOMIC_ACQUIRE);
		if (beat && nv_journal_count(&journal) && now_ns() > beat + HUNG_NS) {
			asked = let_all_go(&journal, gpus, count, &failed);
			__atomic_fetch_add(&journal.page->let_go, 1, __ATOMIC_RELEASE);
			snprintf(
				line, sizeof(line),
				"rtxg-guardian: the daemon has hung for 2 s: %u channels resumed\n",
				asked);
			tell(line);
			__atomic_compare_exchange_n(&journal.page->heartbeat_ns, &beat, 0, 0,
						    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
		}
	}
	for (int attempt = 0; attempt < 10; attempt++) {
		uint64_t began = now_ns();

		asked = let_all_go(&journal, gpus, count, &failed);
		if (!failed)
			wipe(journal.page);
		if (asked) {
			snprintf(line, sizeof(line),
				 "rtxg-guardian: the daemon is gone: %u channels resumed in %llu "
				 "us, %u not\n",
				 asked - failed, (unsigned long long)(now_ns() - began) / 1000,
				 failed);
			tell(line);
		}
		if (!failed)
			break;
	}
	asked = slices_back(&journal, gpus, count);
	if (asked) {
		snprintf(line, sizeof(line),
			 "rtxg-guardian: %u time slices are the driver's own again\n", asked);
		tell(line);
	}
	for (int g = 0; g < count; g++)
		nv_rm_gpu_close(&gpus[g]);
	nv_rm_close(&rm);
	return 0;
}
