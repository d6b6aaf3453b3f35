/* formats: JSON from untrusted files, by jansson, with our errors. */
#ifndef PLSH_FORMATS_JSON_H
#define PLSH_FORMATS_JSON_H

#include <jansson.h>

#include "plsh/status.h"

/* Parses `length` bytes; `what` names the text in messages (a path). *root is NULL on failure, else
 * released with json_decref. Duplicate keys are refused; strings may hold U+0000. A text of so many
 * values that the tree would take gigabytes is refused. */
plsh_status plsh_weights_json_parse(const char *bytes, size_t length, const char *what,
                                    json_t **root, plsh_error *error);

/* The same with other flags of json_loadb. */
plsh_status plsh_weights_json_parse_as(const char *bytes, size_t length, size_t flags,
                                       const char *what, json_t **root, plsh_error *error);

/* The same of a file. */
plsh_status plsh_weights_json_read(const char *path, json_t **root, plsh_error *error);

/* Fields of an object; `what` as above. A field that is absent or null leaves *out alone, so that
 * it keeps its default; one of another type, or out of range, is an error that names it. */
plsh_status plsh_weights_json_integer(const json_t *object, const char *key, int64_t least,
                                      int64_t most, const char *what, int64_t *out,
                                      plsh_error *error);
plsh_status plsh_weights_json_number(const json_t *object, const char *key, const char *what,
                                     double *out, plsh_error *error);
plsh_status plsh_weights_json_bool(const json_t *object, const char *key, const char *what,
                                   bool *out, plsh_error *error);
/* *out points into the object, and ends with a zero byte. */
plsh_status plsh_weights_json_string(const json_t *object, const char *key, const char *what,
                                     const char **out, plsh_error *error);

#endif
