// SPDX-License-Identifier: MIT
/*
 * reply.c - members of a JSON object.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "reply.h"

uint64_t reply_u64(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_integer(value) && json_integer_value(value) > 0
		       ? (uint64_t)json_integer_value(value)
		       : 0;
}

double reply_number(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

const char *reply_string(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

bool reply_bool(const json_t *object, const char *key)
{
	return json_is_true(json_object_get(object, key));
}
