// SPDX-License-Identifier: MIT
/* message.c - see message.h. Hostile input ends here. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "rtxg_core.h"
#include "rtxg_slice.h"
#include "rtxg/name.h"
#include "rtxg/page.h"

enum kind { NAME, PLAIN_NAME, GPU_POLICY, TASK_POLICY, OVERRUN, INTEGER, BOOLEAN, NAMES, TEXT };

#define NS_MAX 1000000000000000ll /* eleven days: no time of a task or a server is longer */
#define AT(m)  offsetof(struct request, m)

static const struct {
	const char *name;
	enum kind kind;
	size_t at;
	int64_t min, max;
	/* null is accepted, and means what holds where the member was never given */
	bool nullable;
	int64_t null;
	const char *below; /* why there is nothing below min */
} members[MEMBERS] = {
	[M_GPU] = { "gpu", NAME, AT(gpu) },
	[M_VGPU] = { "vgpu", PLAIN_NAME, AT(vgpu) },
	[M_POOL] = { "pool", PLAIN_NAME, AT(pool) },
	[M_GPU_POLICY] = { "policy", GPU_POLICY, AT(policy) },
	[M_POLICY] = { "policy", TASK_POLICY, AT(policy) },
	[M_OVERRUN] = { "overrun", OVERRUN, AT(overrun) },
	[M_PERIOD] = { "period_ns", INTEGER, AT(period_ns), 0, NS_MAX },
	[M_WINDOW] = { "window_ns", INTEGER, AT(window_ns), 0, NS_MAX },
	[M_BAND_WAIT] = { "band_wait_ns", INTEGER, AT(band_wait_ns), 0, NS_MAX },
	[M_THINK] = { "think_ns", INTEGER, AT(think_ns), -1, NS_MAX },
	[M_REVOKE_TIMEOUT] = { "revoke_timeout_ns", INTEGER, AT(revoke_timeout_ns), -1, NS_MAX },
	[M_AHEAD] = { "ahead_ns", INTEGER, AT(ahead_ns), 0, RTXG_AHEAD_MAX_NS },
	[M_EARLY] = { "early_ns", INTEGER, AT(early_ns), 0, RTXG_AHEAD_MAX_NS },
	[M_SWITCH] = { "switch_ppm", INTEGER, AT(switch_ppm), 0, RTXG_PPM - 1 },
	[M_MIN] = { "min_ppm", INTEGER, AT(min_ppm), 0, RTXG_PPM },
	[M_MAX] = { "max_ppm", INTEGER, AT(max_ppm), 1, RTXG_PPM, true, RTXG_PPM,
		    MESSAGE_NO_CAP_OF_0 },
	[M_WEIGHT] = { "weight", INTEGER, AT(weight), RTXG_WEIGHT_MIN, RTXG_WEIGHT_MAX, true },
	[M_PRIORITY] = { "priority", INTEGER, AT(priority), RTXG_PRIORITY_MIN, RTXG_PRIORITY_MAX },
	[M_TASK_PRIORITY] = { "task_priority", INTEGER, AT(task_priority), RTXG_PRIORITY_MIN,
			      RTXG_PRIORITY_MAX },
	[M_RUNTIME] = { "runtime_ns", INTEGER, AT(runtime_ns), 0, NS_MAX },
	[M_DEADLINE] = { "deadline_ns", INTEGER, AT(deadline_ns), 0, NS_MAX },
	[M_PID] = { "pid", INTEGER, AT(pid), 1, INT32_MAX },
	[M_THREAD] = { "thread", INTEGER, AT(thread), 1, INT32_MAX },
	[M_TASK] = { "task", INTEGER, AT(task), 0, INT32_MAX },
	[M_SINCE] = { "since", INTEGER, AT(since), 0, INT64_MAX },
	[M_TAKEOVER] = { "takeover", INTEGER, AT(takeover), 0, INT64_MAX },
	[M_BEGAN] = { "began", INTEGER, AT(began), 1, INT64_MAX },
	[M_PAGE] = { "page", INTEGER, AT(page), 1, INT64_MAX },
	[M_LATENCY] = { "latency_ns", INTEGER, AT(latency_ns), RTXG_SLICE_LATENCY_MIN,
			RTXG_SLICE_LATENCY_MAX, true },
	[M_QUANTUM] = { "quantum_ns", INTEGER, AT(quantum_ns), RTXG_SLICE_QUANTUM_MIN,
			RTXG_SLICE_QUANTUM_MAX, true },
	[M_MEMORY] = { "memory_bytes", INTEGER, AT(memory_bytes), MESSAGE_MEMORY_MIN,
		       MESSAGE_MEMORY_MAX, true },
	[M_TASKS] = { "tasks", BOOLEAN, AT(tasks) },
	[M_FORCE] = { "force", BOOLEAN, AT(force) },
	[M_TRANSIENT] = { "transient", BOOLEAN, AT(transient) },
	[M_PERSIST] = { "persist", BOOLEAN, AT(persist) },
	[M_GPUS] = { "gpus", NAMES, AT(gpus) },
	[M_CGROUP] = { "cgroup", TEXT, AT(cgroup), 1, RTXG_CGROUP_MAX },
	[M_UID] = { "uid", INTEGER, AT(uid), 0, UINT32_MAX - 1 },
	[M_LANE] = { "lane", INTEGER, AT(lane), 0, RTXG_PAGE_LANES - 1 },
	[M_OFFSET] = { "offset", INTEGER, AT(offset), 0, RTXG_PAGE_SIZE - 4 },
};

json_t *message_string(const char *text)
{
	size_t size = strlen(text), at = 0, to = 0;
	char *clean = malloc(4 * size + 1);
	json_t *string;

	while (clean && at < size) {
		size_t length = rtxg_name_character((const unsigned char *)text + at, size - at);

		if (length) {
			memcpy(clean + to, text + at, length);
			to += length;
			at += length;
		} else {
			to += (size_t)sprintf(clean + to, "\\x%02x", (unsigned char)text[at++]);
		}
	}
	string = clean ? json_stringn(clean, to) : NULL;
	free(clean);
	return string ? string : json_string("?");
}

const char *message_name_wrong(const char *name, size_t length, bool plain)
{
	if (!length)
		return "it is empty";
	if (length > RTXG_NAME_MAX)
		return "it is longer than 63 bytes";
	if (*name == '-' || *name == '.')
		return "it begins with - or .";
	for (size_t i = 0, bytes; i < length; i += bytes) {
		unsigned char c = (unsigned char)name[i];

		bytes = rtxg_name_character((const unsigned char *)name + i, length - i);
		if (c == '/' || (!bytes && c < 0x80))
			return "it has a control character or a /";
		if (!bytes)
			return "it has a control character, a mark of direction, or bytes that are "
			       "not UTF-8";
		if (plain && !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
			       (c >= '0' && c <= '9') || strchr("._-@", c)))
			return "only letters, digits and . _ - @ are accepted";
	}
	return NULL;
}

static int read_name(const char *member, bool plain, const json_t *value, char *to, char *why,
		     size_t why_size)
{
	const char *wrong;

	if (!json_is_string(value)) {
		snprintf(why, why_size, "\"%s\" must be a string", member);
		return -EINVAL;
	}
	wrong = message_name_wrong(json_string_value(value), json_string_length(value), plain);
	if (wrong) {
		snprintf(why, why_size, "\"%s\": \"%.80s\" is not a name: %s", member,
			 json_string_value(value), wrong);
		return -EINVAL;
	}
	memcpy(to, json_string_value(value), json_string_length(value) + 1);
	return 0;
}

static int read_word(const char *member, const json_t *value, const char *(*name)(uint32_t),
		     uint32_t *to, char *why, size_t why_size)
{
	const char *text = json_string_value(value);
	size_t n;

	for (uint32_t i = 0; text && name(i); i++)
		if (!strcmp(name(i), text)) {
			*to = i;
			return 0;
		}
	snprintf(why, why_size, "\"%s\" is \"%.40s\"; accepted are:", member,
		 text ? text : "not a string");
	for (uint32_t i = 0; name(i); i++) {
		n = strlen(why);
		snprintf(why + n, why_size - n, "%s %s", i ? "," : "", name(i));
	}
	return -EINVAL;
}

static const char *overrun_name(uint32_t value)
{
	return value == RTXG_OVERRUN_FORGIVE  ? "forgive"
	       : value == RTXG_OVERRUN_CHARGE ? "charge"
					      : NULL;
}

static int read_names(const char *member, const json_t *value, struct request *r, char *why,
		      size_t why_size)
{
	size_t count = json_array_size(value);

	if (!json_is_array(value) || !count || count > GPUS_MAX) {
		snprintf(why, why_size, "\"%s\" must be a list of 1 to %u names", member, GPUS_MAX);
		return -EINVAL;
	}
	for (size_t i = 0; i < count; i++) {
		int ret = read_name(member, false, json_array_get(value, i), r->gpus[i], why,
				    why_size);

		if (ret)
			return ret;
	}
	r->gpus_count = (uint32_t)count;
	return 0;
}

static int read_member(enum member m, const json_t *value, struct request *r, char *why,
		       size_t why_size)
{
	const char *name = members[m].name;
	char *to = (char *)r + members[m].at;

	switch (members[m].kind) {
	case NAME:
	case PLAIN_NAME:
		return read_name(name, members[m].kind == PLAIN_NAME, value, to, why, why_size);
	case GPU_POLICY:
		return read_word(name, value, rtxg_gpu_policy_name, (uint32_t *)to, why, why_size);
	case TASK_POLICY:
		return read_word(name, value, rtxg_task_policy_name, (uint32_t *)to, why, why_size);
	case OVERRUN:
		return read_word(name, value, overrun_name, (uint32_t *)to, why, why_size);
	case INTEGER:
		if (members[m].nullable && json_is_null(value)) {
			*(int64_t *)to = members[m].null;
			return 0;
		}
		if (!json_is_integer(value) || json_integer_value(value) < members[m].min ||
		    json_integer_value(value) > members[m].max) {
			if (json_is_integer(value))
				snprintf(why, why_size,
					 "\"%s\" is %lld; %lld to %lld are accepted%s%s%s", name,
					 (long long)json_integer_value(value),
					 (long long)members[m].min, (long long)members[m].max,
					 members[m].below ? " (" : "",
					 members[m].below ? members[m].below : "",
					 members[m].below ? ")" : "");
			else
				snprintf(why, why_size, "\"%s\" must be an integer, %lld to %lld",
					 name, (long long)members[m].min,
					 (long long)members[m].max);
			return -EINVAL;
		}
		*(int64_t *)to = json_integer_value(value);
		return 0;
	case BOOLEAN:
		if (!json_is_boolean(value)) {
			snprintf(why, why_size, "\"%s\" must be true or false", name);
			return -EINVAL;
		}
		*(bool *)to = json_is_true(value);
		return 0;
	case NAMES:
		return read_names(name, value, r, why, why_size);
	case TEXT:
		if (!json_is_string(value) || json_string_length(value) < (size_t)members[m].min ||
		    json_string_length(value) > (size_t)members[m].max ||
		    strlen(json_string_value(value)) != json_string_length(value)) {
			snprintf(why, why_size, "\"%s\" must be a string of %lld to %lld bytes",
				 name, (long long)members[m].min, (long long)members[m].max);
			return -EINVAL;
		}
		strcpy(to, json_string_value(value));
		return 0;
	}
	return -EINVAL;
}

int message_parse(const struct message_op *ops, const char *text, size_t size, struct request *r,
		  char *why, size_t why_size)
{
	json_error_t error;
	json_t *json, *value;
	const char *key, *op;
	uint64_t missing;
	int ret = -EINVAL;

	memset(r, 0, sizeof(*r));
	r->op_name = "";
	json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
	if (!json) {
		snprintf(why, why_size, "the request is not JSON: %s (byte %d)", error.text,
			 error.position);
		return -EBADMSG;
	}
	op = json_string_value(json_object_get(json, "op"));
	if (!op) {
		snprintf(why, why_size, "the request has no string member \"op\"");
		goto out;
	}
	for (r->op = ops; r->op->name && strcmp(r->op->name, op) != 0; r->op++)
		;
	if (!r->op->name) {
		snprintf(why, why_size, "there is no request \"%.40s\"", op);
		ret = -EOPNOTSUPP;
		goto out;
	}
	r->op_name = r->op->name;
	json_object_foreach (json, key, value) {
		enum member m;

		if (!strcmp(key, "op"))
			continue;
		for (m = 0; m < MEMBERS; m++)
			if ((r->op->required | r->op->optional) & MESSAGE_BIT(m) &&
			    !strcmp(members[m].name, key))
				break;
		if (m == MEMBERS) {
			snprintf(why, why_size, "the request \"%s\" has no member \"%.40s\"",
				 r->op_name, key);
			goto out;
		}
		ret = read_member(m, value, r, why, why_size);
		if (ret)
			goto out;
		r->given |= MESSAGE_BIT(m);
		ret = -EINVAL;
	}
	missing = r->op->required & ~r->given;
	if (missing) {
		snprintf(why, why_size, "the request \"%s\" needs a member \"%s\"", r->op_name,
			 members[__builtin_ctzll(missing)].name);
		goto out;
	}
	ret = 0;
out:
	json_decref(json);
	return ret;
}
