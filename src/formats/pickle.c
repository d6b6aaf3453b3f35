/* formats: a reader of the part of Python's pickle format (protocol 2) that files of tensors
 * use. */
#include "formats/pickle.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

/* ---- Names of opcodes, for what is refused (Python's pickletools) ---- */

static const char *const opcode_names[256] = {['('] = "MARK",
                                              ['.'] = "STOP",
                                              ['0'] = "POP",
                                              ['1'] = "POP_MARK",
                                              ['2'] = "DUP",
                                              ['F'] = "FLOAT",
                                              ['I'] = "INT",
                                              ['J'] = "BININT",
                                              ['K'] = "BININT1",
                                              ['L'] = "LONG",
                                              ['M'] = "BININT2",
                                              ['N'] = "NONE",
                                              ['P'] = "PERSID",
                                              ['Q'] = "BINPERSID",
                                              ['R'] = "REDUCE",
                                              ['S'] = "STRING",
                                              ['T'] = "BINSTRING",
                                              ['U'] = "SHORT_BINSTRING",
                                              ['V'] = "UNICODE",
                                              ['X'] = "BINUNICODE",
                                              ['a'] = "APPEND",
                                              ['b'] = "BUILD",
                                              ['c'] = "GLOBAL",
                                              ['d'] = "DICT",
                                              ['}'] = "EMPTY_DICT",
                                              ['e'] = "APPENDS",
                                              ['g'] = "GET",
                                              ['h'] = "BINGET",
                                              ['i'] = "INST",
                                              ['j'] = "LONG_BINGET",
                                              ['l'] = "LIST",
                                              [']'] = "EMPTY_LIST",
                                              ['o'] = "OBJ",
                                              ['p'] = "PUT",
                                              ['q'] = "BINPUT",
                                              ['r'] = "LONG_BINPUT",
                                              ['s'] = "SETITEM",
                                              ['t'] = "TUPLE",
                                              [')'] = "EMPTY_TUPLE",
                                              ['u'] = "SETITEMS",
                                              ['G'] = "BINFLOAT",
                                              ['B'] = "BINBYTES",
                                              ['C'] = "SHORT_BINBYTES",
                                              [0x80] = "PROTO",
                                              [0x81] = "NEWOBJ",
                                              [0x82] = "EXT1",
                                              [0x83] = "EXT2",
                                              [0x84] = "EXT4",
                                              [0x85] = "TUPLE1",
                                              [0x86] = "TUPLE2",
                                              [0x87] = "TUPLE3",
                                              [0x88] = "NEWTRUE",
                                              [0x89] = "NEWFALSE",
                                              [0x8a] = "LONG1",
                                              [0x8b] = "LONG4",
                                              [0x8c] = "SHORT_BINUNICODE",
                                              [0x8d] = "BINUNICODE8",
                                              [0x8e] = "BINBYTES8",
                                              [0x8f] = "EMPTY_SET",
                                              [0x90] = "ADDITEMS",
                                              [0x91] = "FROZENSET",
                                              [0x92] = "NEWOBJ_EX",
                                              [0x93] = "STACK_GLOBAL",
                                              [0x94] = "MEMOIZE",
                                              [0x95] = "FRAME",
                                              [0x96] = "BYTEARRAY8",
                                              [0x97] = "NEXT_BUFFER",
                                              [0x98] = "READONLY_BUFFER"};

/* ---- Arrays ---- */

bool plsh_pickle_append(plsh_reader *reader, plsh_pickle_array *array, const void *element,
                        size_t size) {
    if (!plsh_reader_is_ok(reader)) return false;
    if (array->count == array->capacity) {
        void *grown;
        plsh_error error;
        const size_t capacity = 2 * array->capacity + 64;
        if (plsh_allocate(&grown, capacity, size, "a pickle", &error)) {
            plsh_reader_fail(reader, PLSH_STATUS_NO_MEMORY, "no memory for its values");
            return false;
        }
        if (array->count > 0) memcpy(grown, array->data, array->count * size);
        plsh_release(array->data);
        array->data = grown;
        array->capacity = capacity;
    }
    memcpy((char *)array->data + array->count++ * size, element, size);
    return true;
}

static bool append_number(plsh_pickle *p, plsh_pickle_array *array, uint32_t number) {
    return plsh_pickle_append(p->reader, array, &number, sizeof number);
}

static uint32_t number_at(const plsh_pickle_array *array, size_t i) {
    return ((const uint32_t *)array->data)[i];
}

/* ---- The stack ---- */

static void push(plsh_pickle *p, plsh_pickle_value value) {
    const uint32_t number = (uint32_t)p->values.count;
    if (plsh_pickle_append(p->reader, &p->values, &value, sizeof value))
        append_number(p, &p->stack, number);
}

/* Where the part of the stack begins that opcodes may take: after the last mark. */
static size_t stack_floor(const plsh_pickle *p) {
    return p->marks.count > 0 ? number_at(&p->marks, p->marks.count - 1) : 0;
}

/* Are `count` values there, above the last mark? */
static bool has_values(plsh_pickle *p, size_t count) {
    if (!plsh_reader_is_ok(p->reader)) return false;
    if (p->stack.count - stack_floor(p) >= count) return true;
    plsh_reader_fail(p->reader, PLSH_STATUS_FORMAT, "the stack of the pickle has too few values");
    return false;
}

/* The value `back` places below the top: 1 is the top. */
static uint32_t peek(const plsh_pickle *p, size_t back) {
    return number_at(&p->stack, p->stack.count - back);
}

/* Takes the last mark off; *first is the height of the stack there. */
static bool pop_mark(plsh_pickle *p, size_t *first) {
    if (!plsh_reader_is_ok(p->reader)) return false;
    if (p->marks.count == 0) {
        plsh_reader_fail(p->reader, PLSH_STATUS_FORMAT, "the pickle has no mark here");
        return false;
    }
    *first = number_at(&p->marks, --p->marks.count);
    return true;
}

const plsh_pickle_value *plsh_pickle_child(const plsh_pickle *pickle,
                                           const plsh_pickle_value *tuple, uint32_t i) {
    if (tuple->kind != PLSH_PICKLE_TUPLE || i >= tuple->count) return NULL;
    return plsh_pickle_at(pickle, number_at(&pickle->children, (size_t)tuple->number + i));
}

/* ---- Opcodes ---- */

static void make_tuple(plsh_pickle *p, size_t first) {
    plsh_pickle_value tuple = {.kind = PLSH_PICKLE_TUPLE,
                               .number = (int64_t)p->children.count,
                               .count = (uint32_t)(p->stack.count - first)};
    for (size_t i = first; i < p->stack.count; i++)
        if (!append_number(p, &p->children, number_at(&p->stack, i))) return;
    p->stack.count = first;
    push(p, tuple);
}

static void make_tuple_of(plsh_pickle *p, size_t count) {
    if (has_values(p, count)) make_tuple(p, p->stack.count - count);
}

/* The pairs from `first` on are items of the dictionary below them. */
static void set_items(plsh_pickle *p, size_t first) {
    if (!plsh_reader_is_ok(p->reader)) return;
    if (first <= stack_floor(p) || (p->stack.count - first) % 2 != 0 ||
        plsh_pickle_at(p, number_at(&p->stack, first - 1))->kind != PLSH_PICKLE_DICT) {
        plsh_reader_fail(p->reader, PLSH_STATUS_FORMAT, "items without a dictionary to set them");
        return;
    }
    const uint32_t dict = number_at(&p->stack, first - 1);
    for (size_t i = first; i < p->stack.count; i += 2) {
        const plsh_pickle_item item = {dict, number_at(&p->stack, i), number_at(&p->stack, i + 1)};
        if (!plsh_pickle_append(p->reader, &p->items, &item, sizeof item)) return;
    }
    p->stack.count = first;
}

/* Pickles number their memo 0, 1, 2, ... Any other number is refused: it could ask for any amount
 * of memory. */
static void put(plsh_pickle *p, uint64_t index) {
    if (!has_values(p, 1)) return;
    const uint32_t top = peek(p, 1);
    if (index < p->memo.count)
        ((uint32_t *)p->memo.data)[index] = top;
    else if (index == p->memo.count)
        append_number(p, &p->memo, top);
    else
        plsh_reader_fail(p->reader, PLSH_STATUS_FORMAT, "the pickle's memo has %zu values; %llu",
                         p->memo.count, (unsigned long long)index);
}

static void get(plsh_pickle *p, uint64_t index) {
    if (!plsh_reader_is_ok(p->reader)) return;
    if (index < p->memo.count)
        append_number(p, &p->stack, number_at(&p->memo, (size_t)index));
    else
        plsh_reader_fail(p->reader, PLSH_STATUS_FORMAT, "the pickle's memo has %zu values; %llu",
                         p->memo.count, (unsigned long long)index);
}

static void push_number(plsh_pickle *p, plsh_pickle_kind kind, int64_t number) {
    if (plsh_reader_is_ok(p->reader)) push(p, (plsh_pickle_value){.kind = kind, .number = number});
}

/* LONG1: so many bytes in two's complement. */
static void push_long(plsh_pickle *p) {
    const size_t size = (size_t)plsh_reader_number(p->reader, 1, "a number");
    if (size > 8) {
        plsh_reader_fail(p->reader, PLSH_STATUS_UNSUPPORTED, "a number of %zu bytes; at most 8",
                         size);
        return;
    }
    const unsigned char *bytes = plsh_reader_take(p->reader, size, "a number");
    uint64_t value = bytes && size > 0 && bytes[size - 1] & 0x80 ? UINT64_MAX : 0;
    for (size_t i = size; bytes && i-- > 0;) value = value << 8 | bytes[i];
    push_number(p, PLSH_PICKLE_INTEGER, (int64_t)value);
}

static void push_string(plsh_pickle *p) {
    size_t length = 0;
    const char *bytes = plsh_reader_string(p->reader, 4, &length, "a string");
    if (bytes)
        push(p, (plsh_pickle_value){.kind = PLSH_PICKLE_STRING,
                                    .number = (const unsigned char *)bytes - p->reader->bytes,
                                    .count = (uint32_t)length});
}

/* A line of the pickle, of printable characters, with a zero at its end. */
enum { LINE_SIZE = 64 };
static bool take_line(plsh_pickle *p, char out[LINE_SIZE]) {
    for (size_t i = 0; i < LINE_SIZE; i++) {
        const int c = (int)plsh_reader_number(p->reader, 1, "the name of a global");
        if (!plsh_reader_is_ok(p->reader)) return false;
        out[i] = c == '\n' ? '\0' : (char)c;
        if (c == '\n') return true;
        if (c < ' ' || c > '~') break;
    }
    plsh_reader_fail(p->reader, PLSH_STATUS_FORMAT,
                     "the name of a global must be shorter than %d plain characters",
                     (int)LINE_SIZE);
    return false;
}

static void push_global(plsh_pickle *p) {
    char module[LINE_SIZE], name[LINE_SIZE];
    if (!take_line(p, module) || !take_line(p, name)) return;
    const int found = p->host.find(p->host.context, module, name);
    if (found < 0)
        plsh_reader_fail(p->reader, PLSH_STATUS_UNSUPPORTED,
                         "the global %s.%s is refused: only tensors are read, no code is run",
                         module, name);
    else
        push_number(p, PLSH_PICKLE_GLOBAL, found);
}

static void call(plsh_pickle *p) {
    if (!has_values(p, 2)) return;
    const plsh_pickle_value function = *plsh_pickle_at(p, peek(p, 2));
    const plsh_pickle_value arguments = *plsh_pickle_at(p, peek(p, 1));
    if (function.kind != PLSH_PICKLE_GLOBAL || arguments.kind != PLSH_PICKLE_TUPLE) {
        plsh_reader_fail(p->reader, PLSH_STATUS_FORMAT, "REDUCE needs a global and a tuple");
        return;
    }
    p->stack.count -= 2;
    const plsh_pickle_value result = p->host.call(p->host.context, p, function.number, &arguments);
    if (plsh_reader_is_ok(p->reader)) push(p, result);
}

static void load(plsh_pickle *p) {
    if (!has_values(p, 1)) return;
    const plsh_pickle_value id = *plsh_pickle_at(p, peek(p, 1));
    p->stack.count--;
    const plsh_pickle_value result = p->host.load(p->host.context, p, &id);
    if (plsh_reader_is_ok(p->reader)) push(p, result);
}

/* The state of a state dict (_metadata): versions of modules, which change no number. */
static void build(plsh_pickle *p) {
    if (!has_values(p, 2)) return;
    if (plsh_pickle_at(p, peek(p, 2))->kind != PLSH_PICKLE_DICT ||
        plsh_pickle_at(p, peek(p, 1))->kind != PLSH_PICKLE_DICT) {
        plsh_reader_fail(p->reader, PLSH_STATUS_UNSUPPORTED,
                         "BUILD of something that is no dictionary");
        return;
    }
    p->stack.count--;
}

static void check_protocol(plsh_pickle *p) {
    const uint64_t protocol = plsh_reader_number(p->reader, 1, "the protocol");
    if (plsh_reader_is_ok(p->reader) && protocol != 2)
        plsh_reader_fail(p->reader, PLSH_STATUS_UNSUPPORTED,
                         "a pickle of protocol %llu; torch.save writes 2 by default",
                         (unsigned long long)protocol);
}

static void run_opcode(plsh_pickle *p, int opcode) {
    plsh_reader *in = p->reader;
    size_t first = 0;
    switch (opcode) {
    case 0x80: check_protocol(p); break;
    case '(': append_number(p, &p->marks, (uint32_t)p->stack.count); break;
    case '}': push_number(p, PLSH_PICKLE_DICT, 0); break;
    case 'N': push_number(p, PLSH_PICKLE_NONE, 0); break;
    case 0x88: push_number(p, PLSH_PICKLE_BOOL, 1); break;
    case 0x89: push_number(p, PLSH_PICKLE_BOOL, 0); break;
    case 'J': push_number(p, PLSH_PICKLE_INTEGER, (int32_t)plsh_reader_u32(in, "a number")); break;
    case 'K':
        push_number(p, PLSH_PICKLE_INTEGER, (int64_t)plsh_reader_number(in, 1, "a number"));
        break;
    case 'M':
        push_number(p, PLSH_PICKLE_INTEGER, (int64_t)plsh_reader_number(in, 2, "a number"));
        break;
    case 0x8a: push_long(p); break;
    case 'X': push_string(p); break;
    case ')': make_tuple_of(p, 0); break;
    case 0x85: make_tuple_of(p, 1); break;
    case 0x86: make_tuple_of(p, 2); break;
    case 0x87: make_tuple_of(p, 3); break;
    case 't':
        if (pop_mark(p, &first)) make_tuple(p, first);
        break;
    case 's':
        if (has_values(p, 3)) set_items(p, p->stack.count - 2);
        break;
    case 'u':
        if (pop_mark(p, &first)) set_items(p, first);
        break;
    case 'q': put(p, plsh_reader_number(in, 1, "the memo")); break;
    case 'r': put(p, plsh_reader_number(in, 4, "the memo")); break;
    case 'h': get(p, plsh_reader_number(in, 1, "the memo")); break;
    case 'j': get(p, plsh_reader_number(in, 4, "the memo")); break;
    case 'c': push_global(p); break;
    case 'R': call(p); break;
    case 'Q': load(p); break;
    case 'b': build(p); break;
    default:
        plsh_reader_fail(in, PLSH_STATUS_UNSUPPORTED,
                         "the opcode %s (0x%02x) is refused: a file of tensors does not need it",
                         opcode_names[opcode] ? opcode_names[opcode] : "unknown", (unsigned)opcode);
    }
}

plsh_status plsh_pickle_run(plsh_pickle *p, uint32_t *root, plsh_error *error) {
    plsh_reader *in = p->reader;
    while (plsh_reader_is_ok(in)) {
        const int opcode = (int)plsh_reader_number(in, 1, "an opcode of the pickle");
        if (!plsh_reader_is_ok(in) || opcode == '.') break;
        run_opcode(p, opcode);
    }
    if (plsh_reader_is_ok(in) && (p->stack.count != 1 || p->marks.count != 0))
        plsh_reader_fail(in, PLSH_STATUS_FORMAT, "the pickle ends with %zu values; 1 is needed",
                         p->stack.count);
    if (plsh_reader_is_ok(in)) *root = number_at(&p->stack, 0);
    return plsh_reader_status(in, error);
}

void plsh_pickle_free(plsh_pickle *p) {
    plsh_release(p->values.data);
    plsh_release(p->stack.data);
    plsh_release(p->marks.data);
    plsh_release(p->memo.data);
    plsh_release(p->children.data);
    plsh_release(p->items.data);
}
