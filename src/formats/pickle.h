/* formats: a reader of the part of Python's pickle format (protocol 2) that files of tensors use.
 *
 * A pickle is a program for a stack machine. This machine knows numbers, strings, tuples and
 * dictionaries. It has no code to run: a global is one of the names that the caller knows, and a
 * call is a function of the caller. Every other opcode and global is refused; the message names it.
 *
 * Memory is linear in the bytes of the pickle: every value comes from an opcode of its own, and the
 * memo holds numbers of values, which are never copied. Nothing here is recursive. */
#ifndef PLSH_FORMATS_PICKLE_H
#define PLSH_FORMATS_PICKLE_H

#include "base/reader.h"

typedef enum plsh_pickle_kind {
    PLSH_PICKLE_NONE,
    PLSH_PICKLE_BOOL,    /* number: 0 or 1 */
    PLSH_PICKLE_INTEGER, /* number */
    PLSH_PICKLE_STRING,  /* number: its offset in the file, count: its bytes */
    PLSH_PICKLE_TUPLE,   /* number: of its first child, count: of children */
    PLSH_PICKLE_DICT,    /* its items are in `items` */
    PLSH_PICKLE_GLOBAL,  /* number: the caller's */
    PLSH_PICKLE_STORAGE, /* number: the caller's, as of the next one */
    PLSH_PICKLE_TENSOR
} plsh_pickle_kind;

typedef struct plsh_pickle_value {
    int64_t number;
    uint32_t count;
    plsh_pickle_kind kind;
} plsh_pickle_value;

/* dict[key] = value, by the numbers of the values, in the order of the pickle. */
typedef struct plsh_pickle_item {
    uint32_t dict, key, value;
} plsh_pickle_item;

typedef struct plsh_pickle plsh_pickle;

/* The functions of the caller. One that refuses its input calls plsh_reader_fail. */
typedef struct plsh_pickle_host {
    void *context;
    /* The number of module.name; -1: not known, which is refused. */
    int (*find)(void *context, const char *module, const char *name);
    /* The result of calling `global` with the tuple of arguments. */
    plsh_pickle_value (*call)(void *context, plsh_pickle *pickle, int64_t global,
                              const plsh_pickle_value *arguments);
    /* The value of a persistent id, which is a tuple. */
    plsh_pickle_value (*load)(void *context, plsh_pickle *pickle, const plsh_pickle_value *id);
} plsh_pickle_host;

/* An array that grows. */
typedef struct plsh_pickle_array {
    void *data;
    size_t count, capacity;
} plsh_pickle_array;

struct plsh_pickle {
    plsh_reader *reader; /* at the first opcode; the bytes end where the pickle ends */
    plsh_pickle_host host;
    plsh_pickle_array values;   /* plsh_pickle_value */
    plsh_pickle_array stack;    /* uint32_t: numbers of values */
    plsh_pickle_array marks;    /* uint32_t: heights of the stack */
    plsh_pickle_array memo;     /* uint32_t: numbers of values */
    plsh_pickle_array children; /* uint32_t: of tuples */
    plsh_pickle_array items;    /* plsh_pickle_item */
};

/* Runs the pickle to its STOP; `root` receives the number of the value that is left. */
plsh_status plsh_pickle_run(plsh_pickle *pickle, uint32_t *root, plsh_error *error);
void plsh_pickle_free(plsh_pickle *pickle);

static inline const plsh_pickle_value *plsh_pickle_at(const plsh_pickle *pickle, uint32_t number) {
    return (const plsh_pickle_value *)pickle->values.data + number;
}

/* Child i of a tuple; NULL where the value is no tuple or has fewer. */
const plsh_pickle_value *plsh_pickle_child(const plsh_pickle *pickle,
                                           const plsh_pickle_value *tuple, uint32_t i);

/* One element more at the end; false after a failure, which `reader` keeps. */
bool plsh_pickle_append(plsh_reader *reader, plsh_pickle_array *array, const void *element,
                        size_t size);

#endif
