// SPDX-License-Identifier: MIT
/*
 * metrics.c - values that all backends put into the reply of "metrics" alike. Reads, and changes
 * nothing. May not know a backend.
 */
#include <string.h>

#include <rtxg/name.h>

#include "metrics.h"
#include "report.h"

/* Three names at most, of which each byte may become four, and a dozen numbers. */
#define ROW (3 * 4 * RTXG_NAME_MAX + 12 * 21)

uint64_t metrics_entitled(const struct vgpu *vgpu, uint64_t wanted_ns)
{
	return vgpu ? (uint64_t)((unsigned __int128)wanted_ns * vgpu->params.min_ppm / RTXG_PPM)
		    : 0;
}

int64_t metrics_error(uint64_t received_ns, uint64_t entitled_ns, uint64_t span_ns)
{
	if (!span_ns)
		return 0;
	return (int64_t)(((double)received_ns - (double)entitled_ns) * RTXG_PPM / (double)span_ns);
}

const char *const metrics_vgpu_columns[] = { "gpu",	    "vgpu",	 "engine",    "min_ppm",
					     "max_ppm",	    "tasks",	 "waiting",   "received_ns",
					     "entitled_ns", "wanted_ns", "error_ppm", "waited_ns",
					     "stopped_ns",  "more",	 NULL };
const char *const metrics_process_columns[] = { "pid",	   "task",	  "vgpu",      "gpu",
						"managed", "received_ns", "waited_ns", "stopped_ns",
						"memory",  "comm",	  NULL };

json_t *metrics_columns(const char *const *names)
{
	json_t *list = json_array();

	for (; *names; names++)
		json_array_append_new(list, json_string(*names));
	return list;
}

/*
 * A row is text. As a list of numbers it took three quarters of what a scrape costs the daemon, and
 * more than half of what it costs the one that reads it.
 */
struct line {
	char text[ROW];
	size_t size;
};

static char *next_cell(struct line *line)
{
	if (line->size)
		line->text[line->size++] = '/';
	return line->text + line->size;
}

/* A name, in which there is no '/'; NULL is none. */
static void put_name(struct line *line, const char *name)
{
	char *at = next_cell(line);
	size_t n = name ? strnlen(name, RTXG_NAME_MAX) : 1;

	memcpy(at, name ? name : "-", n);
	line->size += n;
}

static void put_number(struct line *line, uint64_t value, bool negative)
{
	char *at = next_cell(line), digits[20];
	size_t n = sizeof(digits);

	do
		digits[--n] = (char)('0' + value % 10);
	while (value /= 10);
	if (negative)
		*at++ = '-';
	memcpy(at, digits + n, sizeof(digits) - n);
	line->size = (size_t)(at - line->text) + sizeof(digits) - n;
}

static void put(struct line *line, uint64_t value)
{
	if (value == UINT64_MAX)
		put_name(line, NULL);
	else
		put_number(line, value, false);
}

/* What a process calls itself: any bytes. */
static void put_text(struct line *line, const char *text)
{
	static const char digits[] = "0123456789abcdef";
	char *at = next_cell(line);

	for (size_t left = strnlen(text, RTXG_NAME_MAX); left;) {
		size_t n = rtxg_name_character((const unsigned char *)text, left);
		unsigned char c = (unsigned char)*text;

		if (n) {
			memcpy(at, text, n);
			at += n;
		} else {
			memcpy(at, (char[]){ '\\', 'x', digits[c >> 4], digits[c & 15] }, 4);
			at += 4;
			n = 1;
		}
		text += n;
		left -= n;
	}
	line->size = (size_t)(at - line->text);
}

static void append(json_t *list, const struct line *line)
{
	json_t *row = json_stringn_nocheck(line->text, line->size);

	if (row)
		json_array_append_new(list, row);
}

void metrics_put(struct metrics *m, const struct metrics_engine *e, json_t *more)
{
	struct line line;

	line.size = 0;
	put_name(&line, e->gpu);
	put_name(&line, e->vgpu ? e->vgpu->name : "default");
	put_name(&line, e->engine);
	put(&line, e->vgpu ? e->vgpu->params.min_ppm : 0);
	put(&line, e->vgpu ? e->vgpu->params.max_ppm : RTXG_PPM);
	put(&line, e->tasks);
	put(&line, e->waiting);
	put(&line, e->received_ns);
	put(&line, e->entitled_ns);
	put(&line, e->wanted_ns);
	put_number(&line, e->error_ppm < 0 ? 0 - (uint64_t)e->error_ppm : (uint64_t)e->error_ppm,
		   e->error_ppm < 0);
	put(&line, e->waited_ns);
	put(&line, e->stopped_ns);
	put(&line, more ? json_array_size(m->more) : UINT64_MAX);
	append(m->vgpus, &line);
	if (more)
		json_array_append_new(m->more, more);
}

void metrics_put_process(struct metrics *m, const struct metrics_process *p)
{
	struct line line;

	line.size = 0;
	put(&line, (uint64_t)p->pid);
	put(&line, p->task < 0 ? UINT64_MAX : (uint64_t)p->task);
	put_name(&line, p->vgpu);
	put_name(&line, p->gpu);
	put(&line, p->managed);
	put(&line, p->received_ns);
	put(&line, p->waited_ns);
	put(&line, p->stopped_ns);
	put(&line, p->memory);
	put_text(&line, p->comm);
	append(m->processes, &line);
}
