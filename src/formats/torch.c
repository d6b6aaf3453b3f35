/* formats: pytorch_model.bin: a zip archive (torch.save since 1.6) of a pickled dictionary of
 * tensors and, one entry each, the bytes of their storages:
 *
 *     <name>/data.pkl      {"bert.embeddings.word_embeddings.weight": tensor, ..}
 *     <name>/data/0, ..    storages; tensors may share one
 *     <name>/byteorder     "little", where it is there
 *
 * A tensor is a call in the pickle: _rebuild_tensor_v2(storage, offset, sizes, strides, ..), a
 * storage is a persistent id: ("storage", FloatStorage, "0", "cpu", numbers). */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "formats/file.h"
#include "formats/pickle.h"
#include "formats/zip.h"
#include "linear/types.h"

/* A pickle takes about 150 bytes per tensor; the largest models have some ten thousand tensors. */
enum { PICKLE_MOST = 32 << 20, NAME_MOST = 512 };

typedef enum global {
    GLOBAL_ORDERED_DICT,
    GLOBAL_TENSOR,
    GLOBAL_PARAMETER,
    GLOBAL_STORAGE /* and those after it: the types of storages */
} global;

static const struct {
    const char *module, *name;
    plsh_weight_type type; /* of a storage */
} globals[] = {
    [GLOBAL_ORDERED_DICT] = {"collections", "OrderedDict", 0},
    [GLOBAL_TENSOR] = {"torch._utils", "_rebuild_tensor_v2", 0},
    [GLOBAL_PARAMETER] = {"torch._utils", "_rebuild_parameter", 0},
    [GLOBAL_STORAGE] = {"torch", "FloatStorage", PLSH_WEIGHT_F32},
    {"torch", "HalfStorage", PLSH_WEIGHT_F16},
    {"torch", "BFloat16Storage", PLSH_WEIGHT_BF16},
    {"torch", "DoubleStorage", PLSH_WEIGHT_F64},
    {"torch", "LongStorage", PLSH_WEIGHT_I64},
    {"torch", "IntStorage", PLSH_WEIGHT_I32},
    {"torch", "ShortStorage", PLSH_WEIGHT_I16},
    {"torch", "CharStorage", PLSH_WEIGHT_I8},
    {"torch", "ByteStorage", PLSH_WEIGHT_U8},
    {"torch", "BoolStorage", PLSH_WEIGHT_BOOL},
};

typedef struct storage {
    plsh_weight_type type;
    size_t begin; /* in the file */
    int64_t numbers;
} storage;

typedef struct archive {
    plsh_reader *reader; /* of the pickle */
    plsh_zip zip;
    char root[NAME_MOST]; /* "<name>/" */
    plsh_pickle_array storages, tensors;
} archive;

static const plsh_pickle_value nothing = {.kind = PLSH_PICKLE_NONE};

/* ---- Entries of the archive ---- */

static const plsh_zip_entry *find_entry(const archive *a, const char *folder, const char *name,
                                        size_t length) {
    char path[NAME_MOST];
    const int size = snprintf(path, sizeof path, "%s%s%.*s", a->root, folder, (int)length, name);
    if (size < 0 || (size_t)size >= sizeof path) return NULL;
    return plsh_zip_find(&a->zip, path, (size_t)size);
}

/* There is one entry <name>/data.pkl, which determines <name>. */
static const plsh_zip_entry *find_pickle(archive *a, plsh_reader *reader) {
    static const char tail[] = "/data.pkl";
    const plsh_zip_entry *found = NULL;
    for (size_t i = 0; i < a->zip.count; i++) {
        const plsh_zip_entry *e = &a->zip.entries[i];
        if (e->name_length < sizeof tail || e->name_length >= NAME_MOST ||
            memcmp(e->name + e->name_length - (sizeof tail - 1), tail, sizeof tail - 1) != 0)
            continue;
        if (found) {
            plsh_reader_fail(reader, PLSH_STATUS_FORMAT, "two entries are called data.pkl");
            return NULL;
        }
        found = e;
        memcpy(a->root, e->name, e->name_length - (sizeof tail - 2));
        a->root[e->name_length - (sizeof tail - 2)] = '\0';
    }
    if (!found)
        plsh_reader_fail(reader, PLSH_STATUS_FORMAT,
                         "a zip archive without data.pkl, so not a file of torch.save");
    else if (found->size > PICKLE_MOST)
        plsh_reader_fail(reader, PLSH_STATUS_FORMAT, "a pickle of %zu bytes; at most %d",
                         found->size, (int)PICKLE_MOST);
    return plsh_reader_is_ok(reader) ? found : NULL;
}

static void check_order(const archive *a, plsh_reader *reader) {
    const plsh_zip_entry *e = find_entry(a, "", "byteorder", strlen("byteorder"));
    if (!e || (e->size == 6 && memcmp(reader->bytes + e->begin, "little", 6) == 0)) return;
    reader->at = e->begin;
    plsh_reader_fail(reader, PLSH_STATUS_UNSUPPORTED, "its bytes are not little endian");
}

/* ---- Storages ---- */

static bool is_text(const archive *a, const plsh_pickle_value *value, const char *text) {
    return value && value->kind == PLSH_PICKLE_STRING && value->count == strlen(text) &&
           memcmp(a->reader->bytes + value->number, text, value->count) == 0;
}

static bool is_integer(const plsh_pickle_value *value) {
    return value && value->kind == PLSH_PICKLE_INTEGER && value->number >= 0;
}

/* The entry of a storage has exactly the bytes of its numbers, at a multiple of their size. */
static plsh_pickle_value add_storage(archive *a, plsh_weight_type type,
                                     const plsh_pickle_value *key, int64_t numbers) {
    const char *name = (const char *)a->reader->bytes + key->number;
    const plsh_zip_entry *e = find_entry(a, "data/", name, key->count);
    const size_t width = plsh_weight_type_bytes(type);
    size_t size;
    const int shown = key->count < 40 ? (int)key->count : 40;
    if (!e || !plsh_weight_type_size(type, 1, &numbers, &size) || e->size != size ||
        e->begin % width != 0) {
        plsh_reader_fail(a->reader, PLSH_STATUS_FORMAT,
                         "the storage %.*s needs an entry data/%.*s of %lld numbers of %zu bytes, "
                         "aligned",
                         shown, name, shown, name, (long long)numbers, width);
        return nothing;
    }
    const storage s = {.type = type, .begin = e->begin, .numbers = numbers};
    const plsh_pickle_value value = {.kind = PLSH_PICKLE_STORAGE,
                                     .number = (int64_t)a->storages.count};
    plsh_pickle_append(a->reader, &a->storages, &s, sizeof s);
    return value;
}

/* ("storage", type, key, device, numbers) */
static plsh_pickle_value load_storage(void *context, plsh_pickle *pickle,
                                      const plsh_pickle_value *id) {
    archive *a = context;
    const plsh_pickle_value *type = plsh_pickle_child(pickle, id, 1),
                            *key = plsh_pickle_child(pickle, id, 2),
                            *numbers = plsh_pickle_child(pickle, id, 4);
    if (id->count != 5 || !is_text(a, plsh_pickle_child(pickle, id, 0), "storage") || !type ||
        type->kind != PLSH_PICKLE_GLOBAL || type->number < GLOBAL_STORAGE || !key ||
        key->kind != PLSH_PICKLE_STRING || !is_integer(numbers)) {
        plsh_reader_fail(a->reader, PLSH_STATUS_FORMAT,
                         "a persistent id that is not (\"storage\", type, key, device, numbers)");
        return nothing;
    }
    return add_storage(a, globals[type->number].type, key, numbers->number);
}

/* ---- Tensors ---- */

static bool fail_tensor(archive *a, const char *problem) {
    plsh_reader_fail(a->reader, PLSH_STATUS_FORMAT, "a tensor %s", problem);
    return false;
}

/* Sizes and strides are those of rows one after the other. */
static bool read_sizes(archive *a, const plsh_pickle *pickle, const plsh_pickle_value *sizes,
                       const plsh_pickle_value *strides, plsh_tensor *out) {
    if (!sizes || !strides || sizes->kind != PLSH_PICKLE_TUPLE || strides->kind != sizes->kind ||
        sizes->count != strides->count || sizes->count > PLSH_TENSOR_RANK)
        return fail_tensor(a, "needs two tuples of at most 8 sizes and strides");
    out->rank = (int)sizes->count;
    for (int i = 0; i < out->rank; i++) {
        const plsh_pickle_value *size = plsh_pickle_child(pickle, sizes, (uint32_t)i);
        if (!is_integer(size)) return fail_tensor(a, "has a size that is not 0 or more");
        out->shape[i] = size->number;
    }
    if (!plsh_weight_type_size(out->type, out->rank, out->shape, &out->size))
        return fail_tensor(a, "is larger than any memory");
    int64_t step = 1;
    for (int i = out->rank - 1; i >= 0 && out->size > 0; i--) {
        const plsh_pickle_value *stride = plsh_pickle_child(pickle, strides, (uint32_t)i);
        if (!is_integer(stride) || (out->shape[i] > 1 && stride->number != step))
            return fail_tensor(a, "is not contiguous: save it again after .contiguous()");
        step *= out->shape[i];
    }
    return true;
}

/* _rebuild_tensor_v2(storage, offset, sizes, strides, requires_grad, hooks[, metadata]) */
static plsh_pickle_value make_tensor(archive *a, const plsh_pickle *pickle,
                                     const plsh_pickle_value *arguments) {
    const plsh_pickle_value *from = plsh_pickle_child(pickle, arguments, 0),
                            *offset = plsh_pickle_child(pickle, arguments, 1);
    if (arguments->count < 6 || arguments->count > 7 || from->kind != PLSH_PICKLE_STORAGE ||
        !is_integer(offset)) {
        fail_tensor(a, "needs a storage, an offset, sizes and strides");
        return nothing;
    }
    const storage *s = (const storage *)a->storages.data + from->number;
    plsh_tensor tensor = {.type = s->type};
    if (!read_sizes(a, pickle, plsh_pickle_child(pickle, arguments, 2),
                    plsh_pickle_child(pickle, arguments, 3), &tensor))
        return nothing;
    const size_t width = plsh_weight_type_bytes(s->type), all = (size_t)s->numbers * width;
    if (offset->number > s->numbers || tensor.size > all - (size_t)offset->number * width) {
        fail_tensor(a, "reaches beyond its storage");
        return nothing;
    }
    tensor.data = a->reader->bytes + s->begin + (size_t)offset->number * width;
    const plsh_pickle_value value = {.kind = PLSH_PICKLE_TENSOR,
                                     .number = (int64_t)a->tensors.count};
    plsh_pickle_append(a->reader, &a->tensors, &tensor, sizeof tensor);
    return value;
}

static int find_global(void *context, const char *module, const char *name) {
    (void)context;
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++)
        if (strcmp(globals[i].module, module) == 0 && strcmp(globals[i].name, name) == 0)
            return (int)i;
    return -1;
}

static plsh_pickle_value call_global(void *context, plsh_pickle *pickle, int64_t which,
                                     const plsh_pickle_value *arguments) {
    archive *a = context;
    if (which == GLOBAL_TENSOR) return make_tensor(a, pickle, arguments);
    if (which == GLOBAL_ORDERED_DICT && arguments->count == 0)
        return (plsh_pickle_value){.kind = PLSH_PICKLE_DICT};
    const plsh_pickle_value *data = plsh_pickle_child(pickle, arguments, 0);
    if (which == GLOBAL_PARAMETER && data && data->kind == PLSH_PICKLE_TENSOR) return *data;
    plsh_reader_fail(a->reader, PLSH_STATUS_UNSUPPORTED, "a call of %s.%s with such arguments",
                     globals[which].module, globals[which].name);
    return nothing;
}

/* ---- The dictionary ---- */

/* The items of the dictionary are tensors under names. Distinct names are separate bytes of the
 * pickle, so together they are no longer than it. */
static plsh_status count_items(const archive *a, const plsh_pickle *pickle, uint32_t root,
                               size_t most, size_t *count, size_t *bytes) {
    const plsh_pickle_item *items = pickle->items.data;
    for (size_t i = 0; i < pickle->items.count; i++) {
        if (items[i].dict != root) continue;
        const plsh_pickle_value *key = plsh_pickle_at(pickle, items[i].key);
        const bool string = key->kind == PLSH_PICKLE_STRING && key->count > 0;
        const char *name = string ? (const char *)a->reader->bytes + key->number : "";
        if (!string || memchr(name, '\0', key->count))
            return plsh_reader_fail(a->reader, PLSH_STATUS_FORMAT, "a tensor's name is no string");
        if (plsh_pickle_at(pickle, items[i].value)->kind != PLSH_PICKLE_TENSOR)
            return plsh_reader_fail(a->reader, PLSH_STATUS_UNSUPPORTED,
                                    "'%.*s' is not a tensor; a state dict of tensors is read",
                                    key->count < 60 ? (int)key->count : 60, name);
        *bytes += (size_t)key->count + 1;
        ++*count;
        if (*bytes > most)
            return plsh_reader_fail(a->reader, PLSH_STATUS_FORMAT, "tensor '%.*s' appears twice",
                                    key->count < 60 ? (int)key->count : 60, name);
    }
    return PLSH_STATUS_OK;
}

static void fill_tensors(plsh_weights_part *part, const archive *a, const plsh_pickle *pickle,
                         uint32_t root) {
    const plsh_pickle_item *items = pickle->items.data;
    const plsh_tensor *tensors = a->tensors.data;
    char *name = part->names;
    plsh_tensor *next = part->tensors;
    for (size_t i = 0; i < pickle->items.count; i++) {
        if (items[i].dict != root) continue;
        const plsh_pickle_value *key = plsh_pickle_at(pickle, items[i].key);
        *next = tensors[plsh_pickle_at(pickle, items[i].value)->number];
        next++->name = memcpy(name, a->reader->bytes + key->number, key->count);
        name += key->count + 1; /* allocated memory is zero */
    }
}

static plsh_status take_dictionary(plsh_weights_part *part, const archive *a,
                                   const plsh_pickle *pickle, uint32_t root, size_t most,
                                   plsh_error *error) {
    size_t count = 0, bytes = 0;
    if (plsh_pickle_at(pickle, root)->kind != PLSH_PICKLE_DICT)
        plsh_reader_fail(a->reader, PLSH_STATUS_UNSUPPORTED,
                         "the pickle is not a dictionary of tensors");
    else
        count_items(a, pickle, root, most, &count, &bytes);
    plsh_status status = plsh_reader_status(a->reader, error);
    if (status != PLSH_STATUS_OK) return status;
    void *tensors = NULL, *names = NULL;
    status = plsh_allocate(&tensors, count, sizeof(plsh_tensor), "tensors", error);
    part->tensors = tensors;
    if (status == PLSH_STATUS_OK) status = plsh_allocate(&names, bytes, 1, "names", error);
    part->names = names;
    if (status != PLSH_STATUS_OK) return status;
    part->tensor_count = count;
    fill_tensors(part, a, pickle, root);
    return PLSH_STATUS_OK;
}

static plsh_status read_pickle(plsh_weights_part *part, archive *a, const plsh_zip_entry *entry,
                               plsh_reader *file, plsh_error *error) {
    plsh_reader in = plsh_reader_make(file->bytes, entry->begin + entry->size, file->name);
    in.at = entry->begin;
    a->reader = &in;
    plsh_pickle pickle = {.reader = &in, .host = {a, find_global, call_global, load_storage}};
    uint32_t root = 0;
    plsh_status status = plsh_pickle_run(&pickle, &root, error);
    if (status == PLSH_STATUS_OK)
        status = take_dictionary(part, a, &pickle, root, entry->size, error);
    plsh_pickle_free(&pickle);
    plsh_release(a->storages.data);
    plsh_release(a->tensors.data);
    return status;
}

plsh_status plsh_torch_parse(plsh_weights_part *part, plsh_reader *reader, plsh_error *error) {
    archive a = {0};
    plsh_status status = plsh_zip_read(&a.zip, reader, error);
    if (status != PLSH_STATUS_OK) return status;
    const plsh_zip_entry *pickle = find_pickle(&a, reader);
    if (pickle) check_order(&a, reader);
    status = plsh_reader_status(reader, error);
    if (pickle && status == PLSH_STATUS_OK) status = read_pickle(part, &a, pickle, reader, error);
    plsh_zip_free(&a.zip);
    return status;
}

plsh_status plsh_torch_refuse_old(plsh_reader *reader, plsh_error *error) {
    plsh_reader_fail(reader, PLSH_STATUS_UNSUPPORTED,
                     "a file of torch before 1.6, or a bare pickle. Save it again in Python: "
                     "torch.save(torch.load(f, weights_only=True), f)");
    return plsh_reader_status(reader, error);
}
