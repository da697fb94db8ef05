// SPDX-License-Identifier: MIT
/*
 * top.c - `rtxg top`: what each vGPU has reserved and what it uses, live. The numbers are the
 * host's accounts; nothing is computed here but how long a bar is.
 */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "commands.h"
#include "control.h"
#include "message.h"
#include "proc.h"
#include "reply.h"
#include "screen.h"
#include "value.h"

static const struct option options[] = {
	{ "batch", no_argument, NULL, 'b' },
	{ "iterations", required_argument, NULL, 'n' },
	{ "delay", required_argument, NULL, 'd' },
	{ "gpu", required_argument, NULL, 'g' },
	{ "tasks", no_argument, NULL, 't' },
	{ "json", no_argument, NULL, 'J' },
	{ "sort", required_argument, NULL, 's' },
	COMMON_OPTIONS,
	{ 0 },
};

struct top {
	struct screen screen;
	const char *gpu;
	bool tasks, help;
	size_t order;		/* of the vGPUs: an index of orders */
	bool reverse, choosing; /* choosing: the next key names an order */
	bool memory;		/* some GPU says what of its memory is in use */
	bool conserving;	/* there is room for that column */
	size_t scroll;		/* lines that have gone up */
	int bar;		/* columns of a bar */
	size_t name_width;
};

/* --- order ------------------------------------------------------------------------------------ */

static double used_of(const json_t *vgpu)
{
	return reply_number(json_array_get(json_object_get(vgpu, "engines"), 0), "used_1s_ppm");
}

static double waiting_of(const json_t *vgpu)
{
	return reply_number(json_array_get(json_object_get(vgpu, "engines"), 0), "waiting");
}

static double memory_of(const json_t *vgpu)
{
	return reply_number(vgpu, "memory");
}

static double reserved_of(const json_t *vgpu)
{
	return reply_number(vgpu, "min_ppm");
}

/* What is missing of the reservation, where the vGPU wants it. */
static double missing_of(const json_t *vgpu)
{
	double missing = reserved_of(vgpu) - used_of(vgpu);

	return waiting_of(vgpu) > 0 && missing > 0 ? missing : 0;
}

/*
 * Key of a vGPU; the largest stands first. NULL: by name, or as they were made. The letter chooses
 * it behind an o.
 */
static const struct {
	const char *name;
	char letter;
	double (*key)(const json_t *vgpu);
} orders[] = {
	{ "made", 'n', NULL },
	{ "used", 'u', used_of },
	{ "reserved", 'r', reserved_of },
	{ "missing", 's', missing_of },
	{ "waiting", 'w', waiting_of },
	{ "memory", 'm', memory_of },
	{ "name", 'a', NULL },
};
#define ORDERS (sizeof(orders) / sizeof(orders[0]))

struct place {
	const json_t *vgpu;
	size_t at; /* as they were made: the order among equals */
	double key;
};

static int by_key(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->key != y->key)
		return x->key > y->key ? -1 : 1;
	return x->at < y->at ? -1 : 1;
}

static int by_name(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return strcmp(reply_string(x->vgpu, "vgpu"), reply_string(y->vgpu, "vgpu"));
}

/* To be freed; NULL without memory. */
static struct place *sorted(const struct top *top, const json_t *vgpus, size_t *count)
{
	struct place *list = calloc(json_array_size(vgpus) + 1, sizeof(*list));
	const json_t *vgpu;
	size_t i;

	*count = list ? json_array_size(vgpus) : 0;
	json_array_foreach (vgpus, i, vgpu)
		if (list)
			list[i] = (struct place){ .vgpu = vgpu,
						  .at = i,
						  .key = orders[top->order].key
								 ? orders[top->order].key(vgpu)
								 : 0 };
	if (list && strcmp(orders[top->order].name, "made") != 0)
		qsort(list, *count, sizeof(*list), orders[top->order].key ? by_key : by_name);
	for (size_t k = 0; top->reverse && k < *count / 2; k++) {
		struct place one = list[k];

		list[k] = list[*count - 1 - k];
		list[*count - 1 - k] = one;
	}
	return list;
}

static int take_order(struct top *top, const char *name)
{
	for (size_t i = 0; i < ORDERS; i++)
		if (strcmp(orders[i].name, name) == 0) {
			top->order = i;
			return 0;
		}
	message_error("--sort: '%s' is not accepted; accepted: made, used, reserved, missing, "
		      "waiting, memory, name",
		      name);
	return -EINVAL;
}

/* --- drawing ---------------------------------------------------------------------------------- */

/*
 * A bar of the whole engine: what was used, and a mark where the reservation ends. It is red where
 * the vGPU waits and gets less than it reserved, by more than the 3 points within which the shares
 * of 1 s windows are said to stay.
 */
static void draw_bar(struct top *top, double used, double reserved, bool short_of_it)
{
	const char *full = top->screen.utf8 ? "█" : "#", *empty = top->screen.utf8 ? "·" : ".";
	const char *mark = "|";
	int filled = (int)(used * top->bar + 0.5), at = (int)(reserved * top->bar + 0.5) - 1;

	screen_style(&top->screen, short_of_it ? STYLE_RED : STYLE_GREEN);
	for (int i = 0; i < top->bar; i++) {
		if (i == filled)
			screen_style(&top->screen, STYLE_NONE STYLE_DIM);
		if (i == at) {
			screen_style(&top->screen, STYLE_NONE STYLE_BOLD);
			screen_put(&top->screen, mark);
			screen_style(&top->screen, i < filled
							   ? (short_of_it ? STYLE_NONE STYLE_RED
									  : STYLE_NONE STYLE_GREEN)
							   : STYLE_NONE STYLE_DIM);
			continue;
		}
		screen_put(&top->screen, i < filled ? full : empty);
	}
	screen_style(&top->screen, STYLE_NONE);
}

static bool is_wide(const struct top *top)
{
	return !top->screen.live || top->screen.width >= 100;
}

/* What a program is, and what it does: on a narrow terminal without its priority. */
static void draw_task(struct top *top, const json_t *task, const char *state, uint64_t busy_ns,
		      uint64_t wait_ns, const char *waits)
{
	char busy[32], wait[32];

	screen_print(&top->screen, "    %7.0f %-15s ", reply_number(task, "pid"),
		     reply_string(task, "comm"));
	if (is_wide(top))
		screen_print(&top->screen, "priority %2.0f  ", reply_number(task, "priority"));
	screen_print(&top->screen, "%-8s busy %8s %s %8s", state,
		     value_format_duration(busy_ns, busy, sizeof(busy)), waits,
		     value_format_duration(wait_ns, wait, sizeof(wait)));
}

static void draw_tasks(struct top *top, const json_t *tasks, const char *gpu, const char *vgpu)
{
	const json_t *task, *engine, *memory;
	size_t index, at;

	json_array_foreach (tasks, index, task) {
		uint64_t busy_ns = 0, wait_ns = 0, launches = 0;
		const char *state = "idle";
		char text[32];

		if (strcmp(reply_string(task, "gpu"), gpu) != 0 ||
		    strcmp(reply_string(task, "vgpu"), vgpu) != 0)
			continue;
		json_array_foreach (json_object_get(task, "engines"), at, engine) {
			busy_ns += reply_u64(engine, "busy_ns");
			wait_ns += reply_u64(engine, "wait_ns");
			launches += reply_u64(engine, "launches");
			if (strcmp(state, "idle") == 0)
				state = reply_string(engine, "state");
		}
		if (!reply_string(task, "lever")[0]) {
			draw_task(top, task, state, busy_ns, wait_ns, "waited");
			screen_print(&top->screen, " %llu launches", (unsigned long long)launches);
			screen_line(&top->screen);
			continue;
		}
		engine = json_array_get(json_object_get(task, "engines"), 0);
		memory = json_object_get(task, "memory");
		draw_task(top, task, reply_string(engine, "state"), busy_ns, wait_ns, "stopped");
		screen_print(&top->screen, " %llu turns",
			     (unsigned long long)reply_u64(engine, "grants"));
		if (json_is_integer(memory) && is_wide(top))
			screen_print(
				&top->screen, " mem %s",
				value_format_bytes(reply_u64(task, "memory"), text, sizeof(text)));
		if (reply_bool(task, "mps"))
			screen_put(&top->screen, " MPS: its clients share this vGPU");
		screen_line(&top->screen);
	}
}

/* The bar of a span, and the number: red where the vGPU waits and gets less than it reserved. */
static void draw_used(struct top *top, double used, double reserved, bool waits)
{
	bool short_of_it = waits && used + 0.03 < reserved;
	char text[32];

	draw_bar(top, used, reserved, short_of_it);
	if (short_of_it)
		screen_style(&top->screen, STYLE_RED);
	screen_print(&top->screen, " %6s", value_format_share(used, text, sizeof(text)));
	screen_style(&top->screen, STYLE_NONE);
}

static void draw_vgpu(struct top *top, const json_t *vgpu)
{
	double reserved = reply_number(vgpu, "min_ppm") / 1e6,
	       cap = reply_number(vgpu, "max_ppm") / 1e6;
	const char *name = reply_string(vgpu, "vgpu");
	const json_t *engine;
	size_t index;

	json_array_foreach (json_object_get(vgpu, "engines"), index, engine) {
		double one = reply_number(engine, "used_1s_ppm") / 1e6,
		       ten = reply_number(engine, "used_10s_ppm") / 1e6;
		bool waits = reply_u64(engine, "waiting") > 0;
		char text[32];

		/*
		 * The copy engines have a line only when they were used: most programs hardly do.
		 */
		if (index > 0 && ten == 0 && !waits)
			continue;
		screen_style(&top->screen, STYLE_BOLD);
		screen_print(&top->screen, "  %-*.*s", (int)top->name_width, (int)top->name_width,
			     index == 0 ? name : "");
		screen_style(&top->screen, STYLE_NONE);
		screen_print(&top->screen, " %-8s %6s %6s  ", reply_string(engine, "engine"),
			     reserved > 0 ? value_format_share(reserved, text, sizeof(text)) : "-",
			     cap < 1 ? value_format_share(cap, (char[32]){ 0 }, 32) : "max");
		draw_used(top, one, reserved, waits);
		screen_put(&top->screen, "  ");
		draw_used(top, ten, reserved, waits);
		if (top->memory)
			screen_print(&top->screen, " %6s",
				     index || !json_is_integer(json_object_get(vgpu, "memory"))
					     ? "-"
					     : value_format_bytes(reply_u64(vgpu, "memory"), text,
								  sizeof(text)));
		screen_print(&top->screen, " %5.0f", reply_number(vgpu, "tasks"));
		if (top->conserving)
			screen_put(&top->screen,
				   reply_bool(vgpu, "work_conserving") ? " yes" : " no");
		screen_line(&top->screen);
	}
}

/*
 * What is promised beside the share, and what is not kept now: a line of its own, where there is
 * something to say.
 */
static void draw_promises(struct top *top, const json_t *vgpu)
{
	const json_t *broken = json_object_get(vgpu, "broken"), *name;
	const char *mechanism = reply_string(vgpu, "mechanism");
	uint64_t latency = reply_u64(vgpu, "latency_ns");
	char text[32];
	size_t index;

	/* Where the gate shares a GPU nothing can stop what runs: that matters to who is there. */
	if (!*mechanism && !reply_u64(vgpu, "tasks"))
		latency = 0;
	if (!latency && !json_array_size(broken) && !reply_u64(vgpu, "ungoverned"))
		return;
	screen_print(&top->screen, "  %*s", (int)top->name_width, "");
	if (latency) {
		screen_print(&top->screen, " latency %s",
			     value_format_duration(latency, text, sizeof(text)));
		if (*mechanism)
			screen_print(&top->screen, ", longest wait %s, by %s",
				     value_format_duration(reply_u64(vgpu, "waited_ns"), text,
							   sizeof(text)),
				     mechanism);
		else
			screen_put(&top->screen, " is not promised on this GPU");
	}
	if (json_array_size(broken) || reply_u64(vgpu, "ungoverned"))
		screen_style(&top->screen, STYLE_RED);
	json_array_foreach (broken, index, name)
		screen_print(&top->screen, "%s %s",
			     index ? "," : "  BROKEN:", json_string_value(name));
	if (json_array_size(broken) && reply_u64(vgpu, "broken_by"))
		screen_print(&top->screen, " (by %.0f)", reply_number(vgpu, "broken_by"));
	if (reply_u64(vgpu, "ungoverned"))
		screen_print(&top->screen, "  %.0f cannot be governed",
			     reply_number(vgpu, "ungoverned"));
	screen_style(&top->screen, STYLE_NONE);
	screen_line(&top->screen);
}

/* How a lever that is not the gate shares its GPU now. */
static const char *mode_words(const char *policy)
{
	static const char *const words[][2] = { { "spread", " (proportional slices)" },
						{ "batch", " (long turns)" },
						{ "arrival", " (arrival-driven)" },
						{ "turns", " (turns with short slices)" },
						{ "none", " (nothing is governed)" } };

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(words[i][0], policy) == 0)
			return words[i][1];
	return "";
}

/* Bytes of a GPU's name that leave room for its policy and its shares beside it. */
static int name_room(const struct screen *screen, const char *name)
{
	int room = screen->width - 65, length = (int)strlen(name);

	if (!screen->live || length <= room)
		return length;
	room = room < 12 ? 12 : room;
	room = room > length ? length : room;
	while (room > 0 && ((unsigned char)name[room] & 0xc0) == 0x80)
		room--;
	return room;
}

static void draw_gpu(struct top *top, const json_t *gpu, const json_t *tasks)
{
	const json_t *engine, *vgpu;
	const char *name = reply_string(gpu, "gpu");
	int room = name_room(&top->screen, name);
	struct place *list;
	char text[32];
	size_t index, count;

	screen_style(&top->screen, STYLE_BOLD);
	screen_print(&top->screen, "GPU %.*s%s", room, name, name[room] ? "~" : "");
	screen_style(&top->screen, STYLE_NONE);
	screen_print(
		&top->screen, "  policy %s%s, %s; reserved %s", reply_string(gpu, "policy"),
		reply_string(gpu, "lever")[0] ? mode_words(reply_string(gpu, "policy")) : "",
		reply_bool(gpu, "work_conserving") ? "work-conserving" : "not work-conserving",
		value_format_share(reply_number(gpu, "reserved_ppm") / 1e6, text, sizeof(text)));
	json_array_foreach (json_object_get(gpu, "engines"), index, engine) {
		if (index == 0 || reply_number(engine, "used_10s_ppm") > 0)
			screen_print(&top->screen, "; %s %s", reply_string(engine, "engine"),
				     value_format_share(reply_number(engine, "used_1s_ppm") / 1e6,
							text, sizeof(text)));
	}
	if (reply_number(gpu, "idle_1s_ppm") >= 1000)
		screen_print(&top->screen, "; idle %s while stopped work waited",
			     value_format_share(reply_number(gpu, "idle_1s_ppm") / 1e6, text,
						sizeof(text)));
	screen_line(&top->screen);
	screen_style(&top->screen, STYLE_REVERSE);
	screen_print(&top->screen, "  %-*s %-8s %6s %6s  %-*s  %-*s%s %5s%s", (int)top->name_width,
		     "VGPU", "ENGINE", "MIN", "MAX", top->bar + 7, "USED 1 s", top->bar + 7,
		     "USED 10 s", top->memory ? "    MEM" : "", "TASKS",
		     top->conserving ? " CONSERVING" : "");
	screen_line(&top->screen);
	list = sorted(top, json_object_get(gpu, "vgpus"), &count);
	for (index = 0; index < count; index++) {
		vgpu = list[index].vgpu;
		/* `default` is always there, and says nothing while it is empty. */
		if (strcmp(reply_string(vgpu, "vgpu"), "default") == 0 &&
		    reply_u64(vgpu, "tasks") == 0 &&
		    reply_number(json_array_get(json_object_get(vgpu, "engines"), 0),
				 "used_10s_ppm") == 0)
			continue;
		draw_vgpu(top, vgpu);
		draw_promises(top, vgpu);
		if (top->tasks)
			draw_tasks(top, tasks, name, reply_string(vgpu, "vgpu"));
	}
	free(list);
	screen_line(&top->screen);
}

/*
 * Processes that use a GPU and have no task, as JSON; kept between looks, because reading all of
 * /proc costs milliseconds.
 */
static json_t *find_unmanaged(const json_t *tasks)
{
	struct gpu_users users;
	json_t *found = json_array(), *task;
	size_t index;

	/* Those that the host sees and cannot govern */
	json_array_foreach (tasks, index, task)
		if (reply_string(task, "lever")[0] && !reply_bool(task, "managed"))
			json_array_append_new(found,
					      json_pack("{s:I, s:s, s:s}", "pid",
							(json_int_t)reply_u64(task, "pid"),
							"command", reply_string(task, "comm"),
							"uses", reply_string(task, "remedy")));
	if (proc_gpu_users(&users))
		return found;
	for (size_t i = 0; i < users.count; i++) {
		bool managed = false;

		json_array_foreach (tasks, index, task)
			managed = managed || reply_u64(task, "pid") == (uint64_t)users.list[i].pid;
		if (!managed)
			json_array_append_new(found, json_pack("{s:i, s:s, s:s}", "pid",
							       (int)users.list[i].pid, "command",
							       users.list[i].command, "uses",
							       users.list[i].uses));
	}
	proc_gpu_users_free(&users);
	return found;
}

static void draw_unmanaged(struct top *top, const json_t *unmanaged)
{
	const json_t *process;
	size_t index;

	if (json_array_size(unmanaged) == 0)
		return;
	screen_style(&top->screen, STYLE_YELLOW);
	screen_print(&top->screen, "UNMANAGED:");
	json_array_foreach (unmanaged, index, process)
		screen_print(&top->screen, " %.0f %s (%s)", reply_number(process, "pid"),
			     reply_string(process, "command"), reply_string(process, "uses"));
	screen_line(&top->screen);
}

static void draw_keys(struct top *top)
{
	static const char *const lines[] = {
		"",
		"  q, Ctrl-C             quits",
		"  t                     shows or hides a line for each program",
		"  up, down, k, j        a line up or down; Page Up, Page Down: a page",
		"  Home, End, g, G       the first, the last lines",
		"  s, .    ,             sorts by the next order, by the one before",
		"  r, /                  reverses the order",
		"  o and a letter        sorts: on as made, ou used, or reserved, os what is "
		"missing,",
		"                        ow waiting, om memory, oa name",
		"  h, ?                  this text, and back",
		"  any other             draws at once",
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		screen_put(&top->screen, lines[i]);
		screen_line(&top->screen);
	}
}

static int draw(struct top *top, const json_t *stats, const json_t *unmanaged)
{
	const json_t *gpu, *vgpu;
	size_t index, at, shown = 0;
	char clock[16];
	time_t now = time(NULL);

	screen_begin(&top->screen);
	top->name_width = 8;
	top->memory = false;
	json_array_foreach (json_object_get(stats, "gpus"), index, gpu)
		json_array_foreach (json_object_get(gpu, "vgpus"), at, vgpu) {
			top->memory |= json_is_integer(json_object_get(vgpu, "memory"));
			if (strlen(reply_string(vgpu, "vgpu")) > top->name_width)
				top->name_width = strlen(reply_string(vgpu, "vgpu"));
		}
	if (top->name_width > 20)
		top->name_width = 20;
	/* What the other columns leave: two bars, five at least. One column goes for them. */
	top->bar = (top->screen.width - (int)top->name_width - (top->memory ? 67 : 60)) / 2;
	top->conserving = !top->screen.live || top->bar >= 8;
	top->bar += top->conserving ? 0 : 5;
	top->bar = top->bar < 5 ? 5 : top->bar > 40 ? 40 : top->bar;

	strftime(clock, sizeof(clock), "%H:%M:%S", localtime(&now));
	screen_print(&top->screen, "rtxg top  %s%s", clock,
		     top->screen.keys ? "   q quits, t tasks, s sorts, h helps" : "");
	if (top->order || top->reverse)
		screen_print(&top->screen, "   by %s%s", orders[top->order].name,
			     top->reverse ? ", reversed" : "");
	screen_line(&top->screen);
	if (top->help) {
		draw_keys(top);
		return screen_end(&top->screen);
	}
	screen_skip(&top->screen, top->scroll);
	json_array_foreach (json_object_get(stats, "gpus"), index, gpu) {
		/*
		 * A GPU without a task and without a reservation has nothing to show, unless it
		 * is the only one.
		 */
		if (reply_u64(gpu, "tasks") == 0 && !top->gpu &&
		    json_array_size(json_object_get(stats, "gpus")) > 1) {
			bool used = false;

			json_array_foreach (json_object_get(gpu, "vgpus"), at, vgpu)
				used = used ||
				       reply_number(
					       json_array_get(json_object_get(vgpu, "engines"), 0),
					       "used_10s_ppm") > 0;
			if (!used)
				continue;
		}
		draw_gpu(top, gpu, json_object_get(stats, "tasks"));
		shown++;
	}
	if (!shown) {
		screen_print(&top->screen,
			     "No task is open. Start one: rtxg run -v NAME -- PROGRAM");
		screen_line(&top->screen);
	}
	draw_unmanaged(top, unmanaged);
	return screen_end(&top->screen);
}

static void print_help(void)
{
	fputs("Usage: rtxg top [OPTION...]\n\n"
	      "Shows live what each vGPU has reserved and what it used, over 1 s and 10 s. The "
	      "mark | in a bar is the "
	      "reservation;\n"
	      "a bar is red while its vGPU waits and gets less.\n\n"
	      " -b, --batch           one picture after the other, as into a pipe\n"
	      " -n, --iterations N    that many, then end\n"
	      " -d, --delay TIME      between two, as 500ms (default 1s)\n"
	      " -g, --gpu NAME        this GPU only\n"
	      " -t, --tasks           the tasks of each vGPU too\n"
	      " -s, --sort NAME       order of the vGPUs: made (default), used, reserved, missing "
	      "(of what is\n"
	      "                       reserved), waiting, memory or name\n"
	      " -J, --json            one JSON object a line: the host's 'stats', and 'unmanaged'\n"
	      " -h, --help            this text\n\n"
	      "Keys: q quits, t shows or hides tasks, s sorts by the next of these, r reverses, "
	      "arrows\n"
	      "and pages scroll, h shows all keys, any other draws at once.\n",
	      stdout);
}

static void scroll(struct top *top, int letter)
{
	size_t page = top->screen.height > 3 ? (size_t)top->screen.height - 2 : 1, by = 0,
	       most = screen_most(&top->screen);

	if (letter == SCREEN_DOWN || letter == 'j')
		by = 1;
	else if (letter == SCREEN_PAGE_DOWN)
		by = page;
	top->scroll += by;
	by = letter == SCREEN_UP || letter == 'k' ? 1 : letter == SCREEN_PAGE_UP ? page : 0;
	top->scroll -= by < top->scroll ? by : top->scroll;
	if (letter == SCREEN_HOME || letter == 'g')
		top->scroll = 0;
	if (letter == SCREEN_END || letter == 'G' || top->scroll > most)
		top->scroll = most;
}

static void take_key(struct top *top, int letter)
{
	if (top->choosing) {
		for (size_t i = 0; i < ORDERS; i++)
			if (orders[i].letter == letter)
				top->order = i;
		top->choosing = false;
		return;
	}
	switch (letter) {
	case 't':
		top->tasks = !top->tasks;
		break;
	case 's':
	case '.':
		top->order = (top->order + 1) % ORDERS;
		break;
	case ',':
		top->order = (top->order + ORDERS - 1) % ORDERS;
		break;
	case 'r':
	case '/':
		top->reverse = !top->reverse;
		break;
	case 'o':
		top->choosing = true;
		break;
	case 'h':
	case '?':
		top->help = !top->help;
		break;
	}
	scroll(top, letter);
}

int cmd_top(int argc, char **argv)
{
	struct top top = { 0 };
	bool batch = false, json = false;
	uint64_t delay_ns = 1000000000;
	long iterations = 0, done = 0;
	json_t *unmanaged = NULL;
	time_t looked = 0;
	int letter, ret, error;
	const char *text;

	while ((letter = getopt_long(argc, argv, "bn:d:g:ts:Jh", options, NULL)) != -1) {
		switch (letter) {
		case 'h':
			print_help();
			return EXIT_OK;
		case 'b':
			batch = true;
			break;
		case 'n':
			if (value_number("--iterations", optarg, 1, 1000000000, &iterations))
				return EXIT_USAGE;
			break;
		case 'd':
			if (value_duration("--delay", optarg, &delay_ns))
				return EXIT_USAGE;
			if (delay_ns < 50000000 || delay_ns > 3600000000000ull) {
				message_error(
					"--delay: '%s' is not accepted; accepted: 50ms to 60min",
					optarg);
				return EXIT_USAGE;
			}
			break;
		case 'g':
			top.gpu = optarg;
			break;
		case 't':
			top.tasks = true;
			break;
		case 's':
			if (take_order(&top, optarg))
				return EXIT_USAGE;
			break;
		case 'J':
			json = batch = true;
			break;
		default:
			return message_try_help();
		}
	}
	if (optind < argc)
		return message_usage("'%s': no argument is accepted", argv[optind]);

	screen_open(&top.screen, batch);
	for (;;) {
		json_t *request = json_pack("{s:s, s:b}", "op", "stats", "tasks", true), *stats;

		if (top.gpu)
			json_object_set_new(request, "gpu", json_string(top.gpu));
		stats = control_try(request, &error, &text);
		if (!stats) {
			/* The message must not go down with the screen. */
			char said[1024];

			snprintf(said, sizeof(said), "%s", text);
			screen_close(&top.screen, false);
			json_decref(unmanaged);
			if (error == -ECONNREFUSED)
				control_no_host(said);
			else
				message_error("%s", said);
			return EXIT_FAILED;
		}
		if (!unmanaged || time(NULL) - looked >= 2) {
			json_decref(unmanaged);
			unmanaged = find_unmanaged(json_object_get(stats, "tasks"));
			looked = time(NULL);
		}
		if (json) {
			json_object_del(stats, "ok");
			json_object_del(stats, "op");
			json_object_set(stats, "unmanaged", unmanaged);
			ret = json_dumpf(stats, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
			ret = ret || putchar('\n') == EOF || fflush(stdout) ? -EIO : 0;
		} else {
			ret = draw(&top, stats, unmanaged);
		}
		json_decref(stats);
		if (ret || (iterations && ++done >= iterations))
			break;
		letter = screen_wait(&top.screen, (unsigned long)(delay_ns / 1000000));
		if (letter < 0)
			break;
		take_key(&top, letter);
	}
	screen_close(&top.screen, !ret && iterations && done >= iterations);
	json_decref(unmanaged);
	if (ret)
		message_error("writing: %s", strerror(-ret));
	return ret ? EXIT_FAILED : EXIT_OK;
}
