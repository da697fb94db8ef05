// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * command.c - what is decided of a command as it goes in. Decides, and does nothing: may not call
 * OpenCL or librtxg, or read a clock.
 */
#include "command.h"

#define MS 1000000ull
/* commands that share a permit */
#define BATCH_COMMANDS 256
/* what goes without an event in a row, and how long each may take, by estimate */
#define BARE_ROW    32
#define BARE_ROW_NS MS
#define BARE_NS	    (MS / 4)
/* how often an engine that is begun with for short commands is not measured, for one that is */
#define UNMEASURED 7
/* a longer measurement is none of commands */
#define MEASURE_MAX_NS (100000 * MS)

bool lane_takes(unsigned int commands, uint64_t batch_ns, uint64_t est_ns, uint64_t ahead_ns)
{
	return commands < BATCH_COMMANDS && batch_ns + est_ns <= ahead_ns / 2;
}

bool lane_refuses(const struct lane *l)
{
	return l->closed && !l->admitted;
}

bool lane_may_be_bare(const struct lane *l, const struct lane_row *row, uint64_t est_ns, bool joins)
{
	/* Beside a batch of another queue, its end would not be the engine's. */
	return (joins || !l->admitted) && !l->contended && !l->ready && est_ns <= BARE_NS &&
	       row->n < BARE_ROW && row->ns + est_ns <= BARE_ROW_NS;
}

void lane_entered(struct lane_row *row, bool bare, uint64_t est_ns)
{
	row->n = bare ? row->n + 1 : 0;
	row->ns = bare ? row->ns + est_ns : 0;
}

void lane_row_ended(struct lane_row *row, const struct lane *l)
{
	if (l->admitted)
		return;
	row->n = 0;
	row->ns = 0;
}

/*
 * Where measuring costs nothing, beside the commands or beside sharing the engine, all are; else
 * now and then.
 */
bool lane_measures(struct lane_meter *m, const struct lane *l, bool told, uint64_t est_ns)
{
	bool measure = !told && (l->contended || est_ns > BARE_NS || m->unmeasured >= UNMEASURED);

	m->unmeasured = measure ? 0 : m->unmeasured + 1;
	return measure;
}

bool lane_measures_rest(struct lane_meter *m, const struct lane *l)
{
	if (!l->admitted || ++m->unmeasured <= UNMEASURED)
		return false;
	m->unmeasured = 0;
	return true;
}

void lane_meter_begin(struct lane_meter *m, uint64_t now)
{
	m->from = now;
}

uint64_t lane_meter_read(struct lane_meter *m, const struct lane *l, uint64_t now)
{
	uint64_t took = now - m->from;

	m->from = l->admitted ? now : 0;
	return took <= MEASURE_MAX_NS ? took : 0;
}
