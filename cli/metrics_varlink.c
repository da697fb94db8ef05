// SPDX-License-Identifier: MIT
/*
 * metrics_varlink.c - the same metrics as io.systemd.Metrics, the interface by which systemd-report
 * (systemd 260 and newer) asks services for theirs. Varlink is a JSON object with a byte of zero
 * behind it in each direction; of libsystemd only versions from 257 on speak it, and Debian 12 has
 * 252. May not say more than the page of Prometheus does: it is made from that page.
 */
#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "metrics_serve.h"

#define REQUEST_MAX 65536
#define OUTPUT_NS   10000000000ull
#define SERVICE	    "org.varlink.service"
#define INTERFACE   "io.systemd.Metrics"
#define OURS	    "rtxg_"
#define THEIRS	    "io.rtxg."

static const char service_description[] =
	"interface org.varlink.service\n\n"
	"method GetInfo() -> (vendor: string, product: string, version: string, url: string, "
	"interfaces: []string)\n\n"
	"method GetInterfaceDescription(interface: string) -> (description: string)\n\n"
	"error InterfaceNotFound (interface: string)\n"
	"error MethodNotFound (method: string)\n"
	"error InvalidParameter (parameter: string)\n"
	"error ExpectedMore ()\n";

static const char metrics_description[] =
	"interface io.systemd.Metrics\n\n"
	"type MetricFamilyType (counter, gauge, string)\n\n"
	"method List() -> (name: string, value: object, object: ?string, fields: "
	"?[string]object)\n\n"
	"method Describe() -> (name: string, description: string, type: MetricFamilyType)\n\n"
	"error NoSuchMetric ()\n";

/* --- messages --------------------------------------------------------------------------------- */

/* Takes the object. What goes out is gathered: replies of a call with "more" are many and small. */
static void put(struct metrics_out *out, json_t *message)
{
	char *text = json_dumps(message, JSON_COMPACT | JSON_ENSURE_ASCII);

	json_decref(message);
	if (text)
		metrics_out_put(out, text, strlen(text) + 1);
	out->failed |= !text;
	free(text);
}

static void put_error(struct metrics_out *v, const char *name, const char *parameter,
		      const char *value)
{
	json_t *parameters = json_object();

	if (parameter)
		json_object_set_new(parameters, parameter, json_string(value));
	put(v, json_pack("{s:s, s:o}", "error", name, "parameters", parameters));
}

/* --- metrics ---------------------------------------------------------------------------------- */

/* "rtxg_vgpu_received_seconds_total" is "io.rtxg.VgpuReceivedSecondsTotal". */
static void rename_family(const char *from, size_t size, char to[128])
{
	size_t n = strlen(strcpy(to, THEIRS));
	bool large = true;

	for (size_t i = strlen(OURS); i < size && n < 127; i++) {
		if (from[i] != '_')
			to[n++] = (char)(large ? toupper((unsigned char)from[i]) : from[i]);
		large = from[i] == '_';
	}
	to[n] = 0;
}

/* The labels of a line, from behind its brace; *end behind the closing one. NULL: no memory. */
static json_t *read_labels(const char *at, const char **end)
{
	json_t *fields = json_object();
	char value[1100];

	while (*at && *at != '}') {
		size_t name = strcspn(at, "="), n = 0;
		const char *key = at;

		at += name + 2;
		for (; *at && *at != '"'; at++) {
			if (*at == '\\')
				at++;
			if (n < sizeof(value) - 1)
				value[n++] = at[-1] == '\\' && *at == 'n' ? '\n' : *at;
		}
		json_object_setn_new(fields, key, name, json_stringn(value, n));
		at += at[0] == '"';
		at += *at == ',';
	}
	*end = at + (*at == '}');
	return fields;
}

/* What the family is about: the label of that name is the object. */
static const char *object_of(const char *line)
{
	return strncmp(line, "rtxg_vgpu_", 10) == 0	 ? "vgpu"
	       : strncmp(line, "rtxg_process_", 13) == 0 ? "pid"
	       : strncmp(line, "rtxg_gpu_", 9) == 0	 ? "gpu"
							 : NULL;
}

static json_t *metric_of(const char *line)
{
	size_t length = strcspn(line, "{ ");
	const char *at = line + length, *about = object_of(line);
	json_t *metric = json_object(), *fields = NULL;
	char name[128];

	rename_family(line, length, name);
	json_object_set_new(metric, "name", json_string(name));
	if (*at == '{')
		fields = read_labels(at + 1, &at);
	if (about && json_object_get(fields, about)) {
		json_object_set(metric, "object", json_object_get(fields, about));
		json_object_del(fields, about);
	}
	if (json_object_size(fields))
		json_object_set(metric, "fields", fields);
	json_decref(fields);
	if (strchr(at, '.'))
		json_object_set_new(metric, "value", json_real(strtod(at, NULL)));
	else
		json_object_set_new(metric, "value", json_integer(strtoll(at, NULL, 10)));
	return metric;
}

/* The families of a histogram are three here: there is no such type. */
static void describe(struct metrics_out *v, const char *help, const char *type, size_t name,
		     json_t **before)
{
	static const char *const parts[] = { "_bucket", "_sum", "_count" };
	bool histogram = strncmp(type, "histogram", 9) == 0;

	for (size_t i = 0; i < (histogram ? 3 : 1); i++) {
		char whole[160], renamed[128];

		snprintf(whole, sizeof(whole), "%.*s%s", (int)name, help,
			 histogram ? parts[i] : "");
		rename_family(whole, strlen(whole), renamed);
		if (*before)
			put(v, json_pack("{s:o, s:b}", "parameters", *before, "continues", 1));
		*before = json_pack("{s:s, s:s%, s:s}", "name", renamed, "description",
				    help + name + 1, strcspn(help + name + 1, "\n"), "type",
				    histogram || strncmp(type, "counter", 7) == 0 ? "counter"
										  : "gauge");
	}
}

/* Lines of the page become replies; the last one says that it is. */
static void stream(struct metrics_out *v, const char *page, bool list)
{
	const char *help = "";
	json_t *before = NULL;

	for (const char *line = page; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		if (strncmp(line, "# HELP ", 7) == 0)
			help = line + 7;
		if (!list && strncmp(line, "# TYPE ", 7) == 0)
			describe(v, help, line + 8 + strcspn(line + 7, " "), strcspn(help, " "),
				 &before);
		if (!list || *line == '#')
			continue;
		if (before)
			put(v, json_pack("{s:o, s:b}", "parameters", before, "continues", 1));
		before = metric_of(line);
	}
	if (before)
		put(v, json_pack("{s:o}", "parameters", before));
	else
		put_error(v, INTERFACE ".NoSuchMetric", NULL, NULL);
}

/* --- calls ------------------------------------------------------------------------------------ */

static void get_info(struct metrics_out *v)
{
	put(v, json_pack("{s:{s:s, s:s, s:s, s:s, s:[s, s]}}", "parameters", "vendor", "rtxg",
			 "product", "rtxg metrics", "version", RTXG_VERSION, "url",
			 "man:rtxg-metrics(1)", "interfaces", SERVICE, INTERFACE));
}

static void get_description(struct metrics_out *v, const json_t *parameters)
{
	const json_t *name = json_object_get(parameters, "interface");
	const char *text = json_string_value(name);

	if (!text)
		put_error(v, SERVICE ".InvalidParameter", "parameter", "interface");
	else if (strcmp(text, SERVICE) != 0 && strcmp(text, INTERFACE) != 0)
		put_error(v, SERVICE ".InterfaceNotFound", "interface", text);
	else
		put(v,
		    json_pack("{s:{s:s}}", "parameters", "description",
			      strcmp(text, SERVICE) ? metrics_description : service_description));
}

static enum metrics_step call(struct metrics_client *c, const json_t *request)
{
	const char *method = json_string_value(json_object_get(request, "method"));
	bool list = strcmp(method, INTERFACE ".List") == 0;

	c->list = list;
	if (strcmp(method, SERVICE ".GetInfo") == 0)
		get_info(&c->out);
	else if (strcmp(method, SERVICE ".GetInterfaceDescription") == 0)
		get_description(&c->out, json_object_get(request, "parameters"));
	else if (!list && strcmp(method, INTERFACE ".Describe") != 0)
		put_error(&c->out, SERVICE ".MethodNotFound", "method", method);
	else if (!json_is_true(json_object_get(request, "more")))
		put_error(&c->out, SERVICE ".ExpectedMore", NULL, NULL);
	else
		return METRICS_PAGE;
	return METRICS_ANSWER;
}

/* A client sends several, one after the other; what is none ends the connection. */
static enum metrics_step read_request(struct metrics_client *c, bool ended)
{
	while (memchr(c->in, 0, c->held)) {
		size_t length = strlen(c->in) + 1;
		json_t *request = json_loads(c->in, 0, NULL);
		enum metrics_step step = METRICS_LAST;
		bool oneway = json_is_true(json_object_get(request, "oneway"));

		c->held -= length;
		memmove(c->in, c->in + length, c->held + 1);
		if (json_is_string(json_object_get(request, "method")))
			step = call(c, request);
		json_decref(request);
		if (!oneway || step == METRICS_LAST)
			return step;
		c->out.size = 0;
	}
	return ended || c->held == REQUEST_MAX ? METRICS_LAST : METRICS_MORE;
}

static enum metrics_step late(struct metrics_client *c)
{
	return METRICS_LAST;
}

static enum metrics_step page(struct metrics_client *c, const char *text, size_t size)
{
	char *whole = strndup(text, size);

	if (whole)
		stream(&c->out, whole, c->list);
	c->out.failed |= !whole;
	free(whole);
	return METRICS_ANSWER;
}

const struct metrics_protocol metrics_varlink = {
	.request_max = REQUEST_MAX,
	.take_ns = OUTPUT_NS,
	.read = read_request,
	.late = late,
	.page = page,
};
