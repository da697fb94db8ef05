// SPDX-License-Identifier: MIT
/*
 * interrupts.c - interrupts of a GPU's driver off the CPUs of critical tasks. The configuration
 * names both (KeepOffInterrupts=, KeepOffCPUs=); by itself there are none. When, and where an
 * interrupt is sent then, the core says (rtxg_cpu_keepoff.h): here the interrupts are looked for,
 * read and set.
 *
 * An interrupt is named by those who handle it, or by its PCI device. What is moved stands in the
 * journal of raised.c, so that it is set back when the daemon is killed. Interrupts come and go,
 * and a number may be another's afterwards: so the names are compared each time.
 *
 * May not: move an interrupt that the configuration does not name; decide where to; move one that
 * the kernel has given to a CPU for good.
 */
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "affinity.h"
#include "breathe.h"
#include "host.h"
#include "interrupts.h"
#include "raised.h"
#include "report.h"

/* Interrupts that are looked at with a sample, in less than a millisecond. */
#define LOOKS 32u

struct interrupt {
	bool used;
	bool fixed; /* the kernel refuses to move it */
	int error;  /* errno: why it could not be moved last; the next sample tries it */
	uint32_t number;
	char name[AFFINITY_NAME];
	struct rtxg_keepoff_interrupt state;
};

static struct {
	struct interrupts_wanted wanted;
	struct rtxg_keepoff_rule rule;
	struct interrupt interrupts[RAISED_INTERRUPTS];
	uint32_t count;
	bool full; /* more are named than there are places, by the last whole pass */
	bool over; /* and by the one that is under way */
	DIR *pass; /* over the machine's interrupts; NULL: none is under way */
	int error; /* errno: they cannot be looked for, or the CPUs cannot */
} irq;

/* --- which interrupts ------------------------------------------------------------------------- */

/* A pattern that has a colon is the address of a PCI device. */
static bool named(uint32_t number, const char *name)
{
	for (uint32_t i = 0; i < irq.wanted.names.count; i++) {
		const char *pattern = irq.wanted.names.word[i], *word = name;

		if (strchr(pattern, ':')) {
			if (affinity_of_device(number, pattern))
				return true;
			continue;
		}
		while (*word) {
			char one[AFFINITY_NAME];
			size_t length = strcspn(word, ",");

			memcpy(one, word, length);
			one[length] = 0;
			if (!fnmatch(pattern, one, 0))
				return true;
			word += length + (word[length] == ',');
		}
	}
	return false;
}

static struct interrupt *known(uint32_t number)
{
	for (uint32_t i = 0; i < irq.count; i++)
		if (irq.interrupts[i].used && irq.interrupts[i].number == number)
			return &irq.interrupts[i];
	return NULL;
}

/* --- where they are sent ---------------------------------------------------------------------- */

/* What is moved has its place in the journal: places do not move, and are used again. */
static uint32_t place_of(const struct interrupt *interrupt)
{
	return (uint32_t)(interrupt - irq.interrupts);
}

static bool moved(const struct interrupt *interrupt)
{
	return !rtxg_keepoff_none(&interrupt->state.moved);
}

static int note(const struct interrupt *interrupt, const struct rtxg_keepoff_cpus *wanted)
{
	struct raised_interrupt record = { .number = interrupt->number,
					   .own = interrupt->state.own,
					   .moved = interrupt->state.moved,
					   .wanted = *wanted };

	memcpy(record.name, interrupt->name, sizeof(record.name));
	return raised_record_interrupt(place_of(interrupt), &record);
}

/* -EIO: it is fixed. */
static int move(struct interrupt *interrupt, const struct rtxg_keepoff_cpus *wanted)
{
	struct rtxg_keepoff_cpus now;
	int error = note(interrupt, wanted);

	if (error)
		return -error;
	error = affinity_set(interrupt->number, wanted);
	if (error)
		return error;
	/* As the kernel shows it from now on. */
	if (affinity_get(interrupt->number, &now))
		now = *wanted;
	rtxg_keepoff_set(&interrupt->state, &now);
	return moved(interrupt) ? -note(interrupt, &now) : 0;
}

/*
 * What a file could not be read for is no sign that the interrupt is gone. One that is moved keeps
 * its place in the journal, or it would never be set back; the next sample tries again.
 */
static void unread(struct interrupt *interrupt, int error)
{
	if (-error != interrupt->error)
		fprintf(stderr, "rtxgd: interrupt %u (%s) is moved and cannot be read: %s\n",
			interrupt->number, interrupt->name, strerror(-error));
	interrupt->error = -error;
}

/*
 * Its handlers, which come and go on a shared line. -ENOENT: it is another's. One without a handler
 * just now, as a driver asks for it again, is still the device's.
 */
static int learn_name(struct interrupt *interrupt)
{
	char name[AFFINITY_NAME];
	int error = affinity_name(interrupt->number, name);

	if (error || !*name || !strcmp(name, interrupt->name))
		return error;
	if (!affinity_shared(name, interrupt->name))
		return -ENOENT;
	memcpy(interrupt->name, name, sizeof(name));
	return moved(interrupt) ? -note(interrupt, &interrupt->state.moved) : 0;
}

/* False: there is no such interrupt any more, or none that is named. */
static bool set_interrupt(struct interrupt *interrupt)
{
	const bool was = moved(interrupt);
	struct rtxg_keepoff_rule rule = irq.rule;
	struct rtxg_keepoff_cpus now, wanted;
	int error = learn_name(interrupt);
	bool ours;

	if (!error)
		error = affinity_get(interrupt->number, &now);
	if (error && error != -ENOENT && was) {
		unread(interrupt, error);
		return true;
	}
	if (error) {
		if (was)
			raised_forget_interrupt(place_of(interrupt));
		return false;
	}
	/* The handler that was named may have gone from a shared line. */
	ours = named(interrupt->number, interrupt->name);
	if (!ours)
		rule.ceiling = 0;
	if (!rtxg_keepoff_look(&interrupt->state, &rule, &now, &wanted)) {
		if (was && !moved(interrupt))
			raised_forget_interrupt(place_of(interrupt));
		interrupt->error = 0;
		return ours || moved(interrupt);
	}
	error = move(interrupt, &wanted);
	if (!moved(interrupt))
		raised_forget_interrupt(place_of(interrupt));
	if (-error != interrupt->error && error)
		fprintf(stderr, "rtxgd: interrupt %u (%s) stays where it is: %s\n",
			interrupt->number, interrupt->name,
			error == -EIO ? "the kernel refuses to move it" : strerror(-error));
	interrupt->fixed = error == -EIO;
	interrupt->error = -error;
	return ours || moved(interrupt);
}

/* Those that are moved are looked at each time: another may have set them. */
static void set_interrupts(struct daemon *d, bool all)
{
	for (uint32_t i = 0; i < irq.count; i++) {
		struct interrupt *interrupt = &irq.interrupts[i];

		if (!interrupt->used || interrupt->fixed ||
		    !(all || irq.rule.ceiling || moved(interrupt)))
			continue;
		if (!set_interrupt(interrupt))
			*interrupt = (struct interrupt){ 0 };
		/* Each is several calls of the kernel's, and a hand-over does not wait for all. */
		breathe(d);
	}
}

static struct interrupt *free_place(void)
{
	for (uint32_t i = 0; i < irq.count; i++)
		if (!irq.interrupts[i].used)
			return &irq.interrupts[i];
	return irq.count < RAISED_INTERRUPTS ? &irq.interrupts[irq.count++] : NULL;
}

static void look_at(uint32_t number)
{
	struct interrupt *interrupt;
	char name[AFFINITY_NAME];

	if (known(number) || affinity_name(number, name) || !*name || !named(number, name))
		return;
	interrupt = free_place();
	if (!interrupt) {
		irq.over = true;
		return;
	}
	*interrupt = (struct interrupt){ .used = true, .number = number };
	memcpy(interrupt->name, name, sizeof(name));
	if (irq.rule.ceiling && !set_interrupt(interrupt))
		interrupt->used = false;
}

/* A number may be another driver's now. One that is moved is forgotten where it is set. */
static void forget_gone(void)
{
	char name[AFFINITY_NAME];

	for (uint32_t i = 0; i < irq.count; i++) {
		struct interrupt *interrupt = &irq.interrupts[i];

		if (interrupt->used && !moved(interrupt) &&
		    (affinity_name(interrupt->number, name) || strcmp(name, interrupt->name)))
			*interrupt = (struct interrupt){ 0 };
	}
}

/* False: the pass is at its end. */
static bool look(uint32_t count)
{
	struct dirent *entry;
	char *end;

	if (!irq.pass) {
		irq.pass = opendir("/sys/kernel/irq");
		irq.over = false;
	}
	if (!irq.pass) {
		irq.error = errno;
		return false;
	}
	while (count--) {
		unsigned long number;

		entry = readdir(irq.pass);
		if (!entry) {
			closedir(irq.pass);
			irq.pass = NULL;
			irq.full = irq.over;
			forget_gone();
			return false;
		}
		number = strtoul(entry->d_name, &end, 10);
		if (end > entry->d_name && !*end && number < UINT32_MAX)
			look_at((uint32_t)number);
	}
	return true;
}

bool interrupts_wanted(void)
{
	return irq.wanted.names.count && !rtxg_keepoff_none(&irq.wanted.off);
}

void interrupts_next(struct daemon *d)
{
	struct rtxg_keepoff_cpus online;

	if (!interrupts_wanted() || !d->host->here)
		return;
	irq.error = 0;
	if (d->ceiling) {
		irq.error = -affinity_online(&online);
		/*
		 * Without it nothing is known of where they can be sent: they stay where they are.
		 */
		if (irq.error)
			return;
		irq.rule.online = online;
	}
	irq.rule.ceiling = d->ceiling;
	set_interrupts(d, false);
	look(LOOKS);
}

void interrupts_configure(struct daemon *d, const struct interrupts_wanted *wanted)
{
	if (!memcmp(&irq.wanted.names, &wanted->names, sizeof(wanted->names)) &&
	    rtxg_keepoff_same(&irq.wanted.off, &wanted->off))
		return;
	interrupts_stop(d);
	memset(irq.interrupts, 0, sizeof(irq.interrupts));
	irq.count = 0;
	irq.full = irq.over = false;
	irq.error = 0;
	irq.wanted = *wanted;
	irq.rule = (struct rtxg_keepoff_rule){ .off = wanted->off };
	/* So that the first task finds them known. */
	while (interrupts_wanted() && d->host->here && look(LOOKS))
		;
}

void interrupts_stop(struct daemon *d)
{
	irq.rule.ceiling = 0;
	set_interrupts(d, true);
	if (irq.pass)
		closedir(irq.pass);
	irq.pass = NULL;
}

/* --- the doctor ------------------------------------------------------------------------------- */

static const char remedy_names[] =
	"see the names in /sys/kernel/irq/*/actions, and KeepOffInterrupts= and KeepOffCPUs=";
static const char remedy_fixed[] =
	"name others in KeepOffInterrupts=, or let critical tasks run on other CPUs";
static const char remedy_rights[] =
	"let rtxgd write to /proc/irq (see rtxgd-interrupts.conf) and beside its socket";

void interrupts_doctor(const struct daemon *d, json_t *checks)
{
	uint32_t found = 0, away = 0, fixed = 0, others = 0;
	const struct interrupt *stays = NULL;
	const char *remedy = remedy_names;
	char off[64], why[256] = "";

	if (!d->host->here || (!irq.wanted.names.count && rtxg_keepoff_none(&irq.wanted.off)))
		return;
	for (uint32_t i = 0; i < irq.count; i++) {
		const struct interrupt *interrupt = &irq.interrupts[i];

		if (!interrupt->used)
			continue;
		found++;
		away += moved(interrupt);
		fixed += interrupt->fixed;
		others += interrupt->state.others;
		if (interrupt->error && (!stays || stays->fixed))
			stays = interrupt;
	}
	if (irq.error) {
		snprintf(why, sizeof(why), "; they cannot be looked for: %s",
			 strerrordesc_np(irq.error));
	} else if (stays && stays->fixed) {
		snprintf(why, sizeof(why), "; the kernel refuses to move %u of them, as %u (%s)",
			 fixed, stays->number, stays->name);
		remedy = remedy_fixed;
	} else if (stays) {
		snprintf(why, sizeof(why), "; %u (%s) could not be moved: %s", stays->number,
			 stays->name, strerrordesc_np(stays->error));
		remedy = remedy_rights;
	} else if (irq.full) {
		snprintf(why, sizeof(why), "; more than %u are named", RAISED_INTERRUPTS);
	}
	affinity_list(&irq.wanted.off, off, sizeof(off));
	report_check(checks, "interrupts", interrupts_wanted() && found && !*why, remedy,
		     "%u interrupts are named by KeepOffInterrupts=, %u are kept off CPUs %s now; "
		     "others have set them %u times since%s",
		     found, away, *off ? off : "(KeepOffCPUs= names none)", others, why);
}
