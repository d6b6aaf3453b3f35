/* model: the fields of a config.json, as tables that say what each of them is. */
#ifndef PLSH_MODEL_CONFIG_FIELDS_H
#define PLSH_MODEL_CONFIG_FIELDS_H

#include "formats/json.h"
#include "model/config.h"

/* How a field of config.json is read. */
typedef enum plsh_field_kind {
    FIELD_INTEGER, /* int64_t >= 1 */
    FIELD_NUMBER,  /* double */
    FIELD_BOOL,
    FIELD_ACTIVATION,
    FIELD_TRUE,    /* must be true, which it also is where it is absent */
    FIELD_FALSE,   /* must be false (or null, 0, empty), likewise */
    FIELD_SPECIAL, /* looked at elsewhere in this file */
    FIELD_ANY      /* does not affect the results of a forward pass */
} plsh_field_kind;

typedef struct plsh_field {
    const char *key;
    plsh_field_kind kind;
    size_t offset; /* in plsh_model_config */
    bool required;
} plsh_field;

/* How the configurations of a model_type are read. */
typedef struct plsh_config_reader {
    const char *model_type;
    const char *family; /* NULL: the one of that model_type */
    const plsh_field *fields;
    size_t count;
    plsh_model_config defaults; /* where they differ from zero */
    /* Reads what a table cannot describe, after the fields; may be NULL. */
    plsh_status (*finish)(const json_t *root, const char *what, plsh_model_config *config,
                          plsh_error *error);
} plsh_config_reader;

#define AT(member) offsetof(plsh_model_config, member)
#define FIELDS(table) table, sizeof(table) / sizeof(*(table))
/* Reads all fields of a table; every other key of the object must be null, or harmless where a
 * whole configuration (`config`) is read. */
plsh_status plsh_config_fields(const json_t *object, const plsh_field *fields, size_t count,
                               const char *what, plsh_model_config *config, plsh_error *error);

/* Reads one field. */
plsh_status plsh_config_field(const json_t *object, const plsh_field *field, const char *what,
                              plsh_model_config *config, plsh_error *error);

/* Refuses features that are not supported for any family. */
plsh_status plsh_config_never(const json_t *object, const char *what, plsh_error *error);

/* Fails with "what: "key" why". */
plsh_status plsh_config_refuse(const char *what, const char *key, const char *why,
                               plsh_error *error);

/* Fails if a value is present under two names and differs. */
plsh_status plsh_config_same(const json_t *one, const char *one_key, const json_t *other,
                             const char *other_key, const char *what, plsh_error *error);

/* Checks a text: it must be `right`, or `other` (unless that is NULL), or absent. */
plsh_status plsh_config_text(const json_t *object, const char *key, const char *what,
                             const char *right, const char *other, plsh_error *error);

/* Is it absent, null, false, 0 or empty? */
bool plsh_config_is_false(const json_t *value);

#endif
