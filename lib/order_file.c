// SPDX-License-Identifier: MIT
/*
 * order_file.c - orders as files: reading with line numbers, writing, and what is wrong with one in
 * words. See order_file.h. May not: decide whether an order can be followed; that is the core's.
 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "order_file.h"

/* A file of the greatest order that is accepted has some 100 bytes an entry. */
#define FILE_MAX_BYTES (512u << 20)

struct reader {
	struct rtx_order_file *file;
	const char *name, *at, *end;
	uint32_t line;
	uint32_t entry_room, need_room;
};

static int failed(struct rtx_order_file *file, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int failed(struct rtx_order_file *file, int error, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(file->error, sizeof(file->error), format, ap);
	va_end(ap);
	return error;
}

static int wrong(const struct reader *r, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int wrong(const struct reader *r, const char *format, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	return failed(r->file, -EINVAL, "%s:%u: %s", r->name, r->line, text);
}

/* What stands here, for messages: a word of it, at most. */
static const char *here(const struct reader *r)
{
	static __thread char text[24];
	size_t n = 0;

	if (r->at == r->end)
		return "the end of the file";
	text[n++] = '\'';
	for (const char *c = r->at; c < r->end && n < 20 && !isspace((unsigned char)*c); c++)
		text[n++] = isprint((unsigned char)*c) ? *c : '?';
	text[n++] = '\'';
	text[n] = 0;
	return n == 2 ? "the end of the line" : text;
}

static int need_room(struct reader *r)
{
	struct rtx_order_file *f = r->file;
	void *more;

	if (f->shape.needs + RTXG_ORDER_THREADS_MAX > r->need_room) {
		r->need_room = 2 * r->need_room + 4 * RTXG_ORDER_THREADS_MAX;
		more = realloc(f->need, r->need_room * sizeof(*f->need));
		if (!more)
			return failed(r->file, -ENOMEM, "%s: no memory for its needs", r->name);
		f->need = more;
	}
	if (f->shape.entries == r->entry_room) {
		r->entry_room = 2 * r->entry_room + 256;
		more = realloc(f->entry, r->entry_room * sizeof(*f->entry));
		if (more)
			f->entry = more;
		if (more)
			more = realloc(f->comment, r->entry_room * sizeof(*f->comment));
		if (!more)
			return failed(r->file, -ENOMEM, "%s: no memory for its entries", r->name);
		f->comment = more;
	}
	return 0;
}

/* Keeps the comment that begins here with the last entry, if they share a line. */
static int take_comment(struct reader *r)
{
	struct rtx_order_file *f = r->file;
	const char *start = r->at + 1, *end;
	uint32_t last = f->shape.entries - 1;

	while (r->at < r->end && *r->at != '\n')
		r->at++;
	if (!f->shape.entries || f->entry[last].mark != r->line || f->comment[last])
		return 0;
	for (end = r->at; end > start && isspace((unsigned char)end[-1]); end--)
		;
	while (start < end && isspace((unsigned char)*start))
		start++;
	if (start == end)
		return 0;
	f->comment[last] = strndup(start, (size_t)(end - start));
	return f->comment[last] ? 0 : failed(r->file, -ENOMEM, "%s: no memory", r->name);
}

/* Goes to what counts next; lines: over the ends of lines, too. */
static int skip_space(struct reader *r, bool lines)
{
	int err;

	while (r->at < r->end) {
		if (*r->at == '#') {
			err = take_comment(r);
			if (err)
				return err;
		} else if (*r->at == '\n' && lines) {
			r->line++;
			r->at++;
		} else if (*r->at != '\n' && isspace((unsigned char)*r->at)) {
			r->at++;
		} else {
			break;
		}
	}
	return 0;
}

static int take(struct reader *r, char wanted, const char *where)
{
	int err = skip_space(r, true);

	if (err)
		return err;
	if (r->at == r->end || *r->at != wanted)
		return wrong(r, "%s: '%c' is expected %s, as in (2,[4:0:7])", here(r), wanted,
			     where);
	r->at++;
	return 0;
}

static int take_number(struct reader *r, uint32_t most, const char *what, uint32_t *value)
{
	uint64_t sum = 0;
	int err = skip_space(r, true);

	if (err)
		return err;
	if (r->at == r->end || !isdigit((unsigned char)*r->at))
		return wrong(r, "%s: %s is expected, a number from 0 to %u", here(r), what, most);
	for (; r->at < r->end && isdigit((unsigned char)*r->at); r->at++) {
		sum = sum * 10 + (uint64_t)(*r->at - '0');
		if (sum > most)
			return wrong(r, "%s is too great; 0 to %u are accepted", what, most);
	}
	*value = (uint32_t)sum;
	return 0;
}

/* One word of a line before the body; 0 bytes: the line is over. */
static size_t take_word(struct reader *r, const char **word)
{
	while (r->at < r->end && *r->at != '\n' && isspace((unsigned char)*r->at))
		r->at++;
	*word = r->at;
	while (r->at < r->end && !isspace((unsigned char)*r->at) && *r->at != '#')
		r->at++;
	return (size_t)(r->at - *word);
}

static bool is_word(const char *word, size_t length, const char *wanted)
{
	return strlen(wanted) == length && memcmp(word, wanted, length) == 0;
}

/* --- lines before the body -------------------------------------------------------------------- */

static int read_variables(struct reader *r)
{
	struct rtx_order_file *f = r->file;
	const char *word;
	size_t length;

	while ((length = take_word(r, &word))) {
		if (f->variables == RTX_ORDER_VARIABLES)
			return wrong(r, "%u variables are accepted, this is one more",
				     RTX_ORDER_VARIABLES);
		if (is_word(word, length, "*"))
			f->all = true;
		f->variable[f->variables] = strndup(word, length);
		if (!f->variable[f->variables++])
			return failed(r->file, -ENOMEM, "%s: no memory", r->name);
	}
	if (!f->variables)
		return wrong(r, "variables: names are expected, or *");
	return 0;
}

static int room_for_threads(struct reader *r)
{
	struct rtx_order_file *f = r->file;

	if (f->name)
		return 0;
	f->name = calloc(RTXG_ORDER_THREADS_MAX, sizeof(*f->name));
	f->accesses = calloc(RTXG_ORDER_THREADS_MAX, sizeof(*f->accesses));
	f->cut = calloc(RTXG_ORDER_THREADS_MAX, sizeof(*f->cut));
	return f->name && f->accesses && f->cut
		       ? 0
		       : failed(r->file, -ENOMEM, "%s: no memory", r->name);
}

static int read_thread(struct reader *r)
{
	struct rtx_order_file *f = r->file;
	uint32_t number, thread = f->shape.threads;
	const char *word;
	size_t length;
	int err = take_number(r, RTXG_ORDER_THREADS_MAX, "the thread's number", &number);

	if (!err)
		err = room_for_threads(r);
	if (err)
		return err;
	if (number != thread + 1)
		return wrong(r, "thread %u: the next thread is %u", number, thread + 1);
	length = take_word(r, &word);
	if (!length || length >= RTX_ORDER_NAME)
		return wrong(r, "thread %u: a name of 1 to %u bytes is expected, as main.2", number,
			     RTX_ORDER_NAME - 1);
	memcpy(f->name[thread], word, length);
	for (uint32_t t = 0; t < thread; t++)
		if (strcmp(f->name[t], f->name[thread]) == 0)
			return wrong(r, "thread %u is called %s, as thread %u is", number,
				     f->name[t], t + 1);
	f->accesses[thread] = RTXG_ORDER_MANY;
	f->shape.threads++;
	length = take_word(r, &word);
	if (!length)
		return 0;
	if (!is_word(word, length, "accesses"))
		return wrong(r, "'%.*s': accesses is accepted here, and a number", (int)length,
			     word);
	err = take_number(r, RTXG_ORDER_MANY - 2, "the number of accesses", &f->accesses[thread]);
	if (err)
		return err;
	length = take_word(r, &word);
	if (length && !is_word(word, length, "cut"))
		return wrong(r, "'%.*s': cut is accepted here, or the end of the line", (int)length,
			     word);
	f->cut[thread] = length != 0;
	f->accesses[thread] += f->cut[thread];
	return 0;
}

static int read_line(struct reader *r)
{
	struct rtx_order_file *f = r->file;
	const char *word;
	size_t length = take_word(r, &word);
	uint32_t version;
	int err = 0;

	if (is_word(word, length, "rtxg-order")) {
		err = take_number(r, 1000, "the format's version", &version);
		if (!err && version != 1)
			return wrong(r, "version %u is not known; 1 is", version);
	} else if (is_word(word, length, "program")) {
		length = take_word(r, &word);
		free(f->program);
		f->program = length ? strndup(word, length) : NULL;
		if (!f->program)
			return wrong(r, "program: a name is expected");
	} else if (is_word(word, length, "variables")) {
		err = read_variables(r);
	} else if (is_word(word, length, "locks")) {
		f->locks = true;
	} else if (is_word(word, length, "others")) {
		length = take_word(r, &word);
		if (!is_word(word, length, "free") && !is_word(word, length, "last"))
			return wrong(r, "others '%.*s': free and last are accepted", (int)length,
				     word);
		f->others_free = is_word(word, length, "free");
		f->others_last = !f->others_free;
	} else if (is_word(word, length, "thread")) {
		err = read_thread(r);
	} else {
		r->at = word;
		return wrong(r,
			     "%s: rtxg-order, program, variables, locks, others, thread or '{' is "
			     "expected",
			     here(r));
	}
	if (err)
		return err;
	if (skip_space(r, false))
		return -ENOMEM;
	if (r->at < r->end && *r->at != '\n')
		return wrong(r, "%s: the end of the line is expected", here(r));
	return 0;
}

/* --- the body --------------------------------------------------------------------------------- */

/* A body without thread lines says by its first entry how many there are: the workers of main. */
static int name_threads(struct reader *r, uint32_t count)
{
	struct rtx_order_file *f = r->file;
	int err = room_for_threads(r);

	if (err)
		return err;
	for (uint32_t t = 0; t < count; t++) {
		snprintf(f->name[t], RTX_ORDER_NAME, "main.%u", t + 1);
		f->accesses[t] = RTXG_ORDER_MANY;
	}
	f->shape.threads = count;
	f->others_free = true;
	return 0;
}

static int read_clocks(struct reader *r, uint32_t *clocks, uint32_t *count)
{
	int err = take(r, '[', "before the clocks");

	*count = 0;
	while (!err) {
		if (*count == RTXG_ORDER_THREADS_MAX)
			return wrong(r, "more than %u clocks; an order has at most %u threads",
				     RTXG_ORDER_THREADS_MAX, RTXG_ORDER_THREADS_MAX);
		err = take_number(r, RTXG_ORDER_MANY - 2, "a clock", &clocks[(*count)++]);
		if (err || skip_space(r, true))
			break;
		if (r->at == r->end || *r->at != ':')
			return take(r, ']', "behind the clocks");
		r->at++;
	}
	return err;
}

static int read_entry(struct reader *r)
{
	struct rtx_order_file *f = r->file;
	uint32_t clocks[RTXG_ORDER_THREADS_MAX], thread, count, line;
	struct rtxg_order_entry *entry;
	int err = need_room(r);

	if (!err)
		err = take(r, '(', "before an entry");
	line = r->line;
	if (!err)
		err = take_number(r, RTXG_ORDER_THREADS_MAX, "the thread's number", &thread);
	if (!err)
		err = take(r, ',', "behind the thread's number");
	if (!err)
		err = read_clocks(r, clocks, &count);
	if (!err)
		err = take(r, ')', "behind an entry");
	if (!err && !f->shape.threads)
		err = name_threads(r, count);
	if (err)
		return err;
	if (count != f->shape.threads)
		return wrong(r, "%u clocks; the order has %u threads, so each entry has %u", count,
			     f->shape.threads, f->shape.threads);
	if (!thread || thread > f->shape.threads)
		return wrong(r, "thread %u; 1 to %u are accepted", thread, f->shape.threads);
	if (f->shape.entries == RTXG_ORDER_ENTRIES_MAX)
		return wrong(r, "more than %u entries", RTXG_ORDER_ENTRIES_MAX);
	f->comment[f->shape.entries] = NULL;
	entry = &f->entry[f->shape.entries++];
	*entry = (struct rtxg_order_entry){ .thread = thread - 1,
					    .number = clocks[thread - 1],
					    .first = f->shape.needs,
					    .mark = line };
	for (uint32_t t = 0; t < count; t++) {
		if (t == entry->thread || !clocks[t])
			continue;
		if (f->shape.needs == RTXG_ORDER_NEEDS_MAX)
			return wrong(r, "more than %u needs", RTXG_ORDER_NEEDS_MAX);
		f->need[f->shape.needs++] = (struct rtxg_order_need){ t, clocks[t] };
		entry->count++;
	}
	return 0;
}

static int read_body(struct reader *r)
{
	int err = take(r, '{', "before the entries");

	if (err)
		return err;
	for (;;) {
		err = skip_space(r, true);
		if (err)
			return err;
		if (r->at < r->end && *r->at == '}')
			break;
		err = read_entry(r);
		if (!err)
			err = skip_space(r, true);
		if (err)
			return err;
		if (r->at < r->end && *r->at == ',')
			r->at++;
		else if (r->at == r->end || *r->at != '}')
			return wrong(r, "%s: ',' or '}' is expected behind an entry", here(r));
	}
	r->at++;
	err = skip_space(r, true);
	if (err)
		return err;
	return r->at == r->end ? 0 : wrong(r, "%s stands behind the order's end", here(r));
}

int rtx_lib_order_file_parse(struct rtx_order_file *file, const char *name, const char *text,
			     size_t size)
{
	struct reader r = { .file = file, .name = name, .at = text, .end = text + size, .line = 1 };
	int err;

	memset(file, 0, sizeof(*file));
	err = skip_space(&r, true);
	while (!err && r.at < r.end && *r.at != '{') {
		err = read_line(&r);
		if (!err)
			err = skip_space(&r, true);
	}
	if (!err)
		err = read_body(&r);
	if (!err && !file->shape.threads)
		err = wrong(&r, "the order has no thread and no entry");
	if (err)
		rtx_lib_order_file_free(file);
	return err;
}

int rtx_lib_order_file_read(struct rtx_order_file *file, const char *path)
{
	FILE *in = fopen(path, "re");
	char *text = NULL;
	size_t size = 0, room = 0;
	int err = 0;

	memset(file, 0, sizeof(*file));
	if (!in)
		return failed(file, -errno, "%s: %s", path, strerror(errno));
	while (!err && !feof(in)) {
		char *more;

		if (size == room) {
			room = room ? 2 * room : 65536;
			more = room <= FILE_MAX_BYTES ? realloc(text, room) : NULL;
			if (!more) {
				err = failed(file, -ENOMEM, "%s: too long to be read", path);
				break;
			}
			text = more;
		}
		size += fread(text + size, 1, room - size, in);
		if (ferror(in))
			err = failed(file, -EIO, "%s: %s", path, strerror(errno));
	}
	fclose(in);
	if (!err)
		err = rtx_lib_order_file_parse(file, path, text, size);
	free(text);
	return err;
}

void rtx_lib_order_file_free(struct rtx_order_file *file)
{
	for (uint32_t i = 0; i < file->variables; i++)
		free(file->variable[i]);
	for (uint32_t e = 0; file->comment && e < file->shape.entries; e++)
		free(file->comment[e]);
	free(file->comment);
	free(file->entry);
	free(file->need);
	free(file->accesses);
	free(file->cut);
	free(file->name);
	free(file->program);
	/* the words stay */
	memset(file, 0, offsetof(struct rtx_order_file, error));
}

int rtx_lib_order_file_write(const struct rtx_order_file *file, FILE *out)
{
	fputs("rtxg-order 1\n", out);
	if (file->program)
		fprintf(out, "program %s\n", file->program);
	if (file->variables) {
		fputs("variables", out);
		for (uint32_t i = 0; i < file->variables; i++)
			fprintf(out, " %s", file->variable[i]);
		fputc('\n', out);
	}
	if (file->locks)
		fputs("locks\n", out);
	if (file->others_free)
		fputs("others free\n", out);
	if (file->others_last)
		fputs("others last\n", out);
	for (uint32_t t = 0; t < file->shape.threads; t++) {
		fprintf(out, "thread %u %s", t + 1, file->name[t]);
		if (file->accesses[t] != RTXG_ORDER_MANY)
			fprintf(out, file->cut[t] ? " accesses %u cut" : " accesses %u",
				file->accesses[t] - file->cut[t]);
		fputc('\n', out);
	}
	fputs("{\n", out);
	for (uint32_t e = 0; e < file->shape.entries; e++) {
		const struct rtxg_order_entry *entry = &file->entry[e];
		uint32_t clocks[RTXG_ORDER_THREADS_MAX] = { 0 };

		clocks[entry->thread] = entry->number;
		for (uint32_t i = 0; i < entry->count; i++)
			clocks[file->need[entry->first + i].thread] =
				file->need[entry->first + i].clock;
		fprintf(out, "(%u,[", entry->thread + 1);
		for (uint32_t t = 0; t < file->shape.threads; t++)
			fprintf(out, t ? ":%u" : "%u", clocks[t]);
		fputs(e + 1 < file->shape.entries ? "])," : "])", out);
		if (file->comment && file->comment[e])
			fprintf(out, "\t# %s", file->comment[e]);
		fputc('\n', out);
	}
	fputs("}\n", out);
	return ferror(out) ? -EIO : 0;
}

/* --- words ------------------------------------------------------------------------------------ */

static void append(char *text, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void append(char *text, size_t size, const char *format, ...)
{
	size_t used = strlen(text);
	va_list ap;

	va_start(ap, format);
	vsnprintf(text + used, size - used, format, ap);
	va_end(ap);
}

static int say_cycle(struct rtx_order_file *file, const char *path,
		     const struct rtxg_order_fault *fault)
{
	char text[420] = "";

	for (uint32_t i = 0; i < fault->shown; i++)
		append(text, sizeof(text),
		       "%saccess %u of thread %u (line %u) needs clock %u of thread %u",
		       i ? ", " : "", fault->steps[i].number, fault->steps[i].thread + 1,
		       fault->steps[i].mark, fault->steps[i].need.clock,
		       fault->steps[i].need.thread + 1);
	return failed(file, -EINVAL, "%s:%u: a circle of %u entries: %s%s", path,
		      fault->steps[0].mark, fault->cycle, text,
		      fault->cycle > fault->shown ? ", and so on" : "");
}

static int say_fault(struct rtx_order_file *file, const char *path,
		     const struct rtxg_order_fault *fault)
{
	const struct rtxg_order_step *step = &fault->steps[0];
	uint32_t thread = step->thread + 1;

	switch (fault->kind) {
	case RTXG_ORDER_FAULT_CYCLE:
		return say_cycle(file, path, fault);
	case RTXG_ORDER_FAULT_OVERTAKEN:
		return failed(file, -EINVAL,
			      "%s:%u: access %u of thread %u stands behind a later one of "
			      "that thread (line %u), which would overtake it; put the "
			      "entries of a thread in the order of its accesses",
			      path, step->mark, step->number, thread, fault->other);
	case RTXG_ORDER_FAULT_TWICE:
		return failed(file, -EINVAL,
			      "%s:%u: access %u of thread %u has an entry in line %u "
			      "already; put all clocks that it needs into one",
			      path, step->mark, step->number, thread, fault->other);
	case RTXG_ORDER_FAULT_BEYOND:
		if (file->cut && file->cut[step->thread])
			return failed(file, -EINVAL,
				      "%s:%u: access %u of thread %u never comes: its record was "
				      "cut short before access %u",
				      path, step->mark, step->number, thread, fault->limit - 1);
		return failed(file, -EINVAL,
			      "%s:%u: access %u of thread %u never comes: the thread makes "
			      "%u accesses, from 0",
			      path, step->mark, step->number, thread, fault->limit);
	case RTXG_ORDER_FAULT_NEVER:
		return failed(file, -EINVAL,
			      "%s:%u: access %u of thread %u needs clock %u of thread %u, "
			      "which makes %u accesses",
			      path, step->mark, step->number, thread, step->need.clock,
			      step->need.thread + 1, fault->limit);
	}
	return failed(file, -EINVAL, "%s:%u: access %u of thread %u is out of range", path,
		      step->mark, step->number, thread);
}

int rtx_lib_order_file_load(struct rtx_order_file *file, const char *path, struct rtxg_order *order,
			    void **memory)
{
	struct rtxg_order_fault fault;
	size_t size = rtxg_order_size(&file->shape);

	*memory = size ? calloc(1, size) : NULL;
	if (!*memory)
		return failed(file, -ENOMEM, "%s: no memory for its %u entries", path,
			      file->shape.entries);
	rtxg_order_place(order, &file->shape, *memory);
	if (!rtxg_order_load(order, file->entry, file->need, file->accesses, &fault))
		return 0;
	free(*memory);
	*memory = NULL;
	return say_fault(file, path, &fault);
}

static void name_thread(uint32_t thread, char (*names)[RTX_ORDER_NAME], char *text, size_t size)
{
	if (names)
		snprintf(text, size, "thread %u (%.63s)", thread + 1, names[thread]);
	else
		snprintf(text, size, "thread %u", thread + 1);
}

void rtx_lib_order_break_words(const struct rtxg_order_break *broken, char (*names)[RTX_ORDER_NAME],
			       char *text, size_t size)
{
	const struct rtxg_order_step *step = &broken->step;
	char waits[RTX_ORDER_NAME + 24], needed[RTX_ORDER_NAME + 24];

	name_thread(step->thread, names, waits, sizeof(waits));
	name_thread(step->need.thread, names, needed, sizeof(needed));
	switch (broken->kind) {
	case RTXG_ORDER_BREAK_ENDED:
		snprintf(text, size,
			 "%s ended after %u accesses; access %u of %s (line %u) needs %u of them",
			 needed, broken->clock, step->number, waits, step->mark, step->need.clock);
		return;
	case RTXG_ORDER_BREAK_STALLED:
		snprintf(text, size,
			 "nothing moved: access %u of %s (line %u) needs %u accesses of %s, which "
			 "made %u",
			 step->number, waits, step->mark, step->need.clock, needed, broken->clock);
		return;
	case RTXG_ORDER_BREAK_CLOSED:
		snprintf(text, size, "it was closed while threads followed it");
		return;
	case RTXG_ORDER_UNBROKEN:
		snprintf(text, size, "it is whole");
		return;
	}
	snprintf(text, size, "a thread that it does not have made an access");
}
