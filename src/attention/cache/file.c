/* attention/cache: decoding caches in files.
 *
 *     8 bytes   "PLSHKV02"
 *     records   the config: (name, 64-bit value) pairs, those of make_records
 *     int64     length, swept
 *     int64     first kept position, per kv head
 *     rows      per kv head: keys first..length-1, then values, as stored, without padding,
 *               then positions, if they are points
 *     uint64    digest of all before it
 *
 * A file is accepted if its config equals that of the reader bit by bit, its size agrees with
 * length and first positions, every position that may be needed is present, and the digest is
 * right. No memory is allocated by a number from the file before the size of the file was compared
 * with it. */
#include "attention/cache/cache.h"

#include "base/mapping.h"
#include "base/memory.h"
#include "base/reader.h"
#include "base/status.h"
#include "plsh/io.h"

#include <stdio.h>
#include <string.h>

static const char MAGIC[8] = "PLSHKV02";

/* FNV-1a over 64-bit words, the last one padded with zeros; it detects damage. */
static uint64_t digest_add(uint64_t sum, const void *bytes, size_t size) {
    for (const char *at = bytes; size > 0; at += 8) {
        uint64_t word = 0;
        size_t part = size < 8 ? size : 8;
        memcpy(&word, at, part);
        sum = (sum ^ word) * UINT64_C(0x100000001b3);
        sum ^= sum >> 29;
        size -= part;
    }
    return sum;
}

static const uint64_t DIGEST_START = UINT64_C(0xcbf29ce484222325);

/* ---- The config as records ------------------------------------------------------------------- */

typedef struct record {
    char name[24];
    uint64_t value;
} record;

enum { CACHE_RECORDS = 9, HEAD_RECORDS = 18 };

static uint64_t bits_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static int put(record *to, int at, const char *name, uint64_t value) {
    record r = {.value = value};
    snprintf(r.name, sizeof r.name, "%s", name);
    to[at] = r;
    return at + 1;
}

/* Only fields that the method uses: the window of a dense head is ignored. */
static int put_head(record *to, int at, const plsh_cache_mask *mask) {
    const plsh_head *head = &mask->head;
    const plsh_partition *set = &head->partition;
    const plsh_decay *decay = &set->decay;
    bool sampled = plsh_method_is_sampled(mask->head.method),
         labels = mask->kind == PLSH_MASK_LABELS;
    bool faded = mask->kind != PLSH_MASK_FLAT && !labels;
    bool table = faded && decay->kind == PLSH_DECAY_TABLE;
    at = put(to, at, "method", head->method);
    at = put(to, at, "eps", head->method == PLSH_METHOD_EXACT ? bits_of(head->eps) : 0);
    at = put(to, at, "window",
             head->method == PLSH_METHOD_WINDOW && !mask->points ? (uint64_t)head->window : 0);
    at = put(to, at, "radius",
             head->method == PLSH_METHOD_WINDOW && mask->points ? bits_of(head->radius) : 0);
    at = put(to, at, "block", head->method == PLSH_METHOD_FIXED ? (uint64_t)head->block : 0);
    at = put(to, at, "decay", faded ? decay->kind : 0);
    at = put(to, at, "decay a", faded && !table ? bits_of(decay->a) : 0);
    at = put(to, at, "decay b", faded && !table ? bits_of(decay->b) : 0);
    at = put(to, at, "decay limit", faded ? bits_of(decay->limit) : 0);
    at = put(to, at, "decay table size", table ? decay->table_size : 0);
    at =
        put(to, at, "decay table",
            table ? digest_add(DIGEST_START, decay->table, decay->table_size * sizeof(double)) : 0);
    at = put(to, at, "scheme", sampled ? set->scheme : 0);
    at = put(to, at, "design", sampled && !labels ? set->design : 0);
    at = put(to, at, "samples", sampled ? (uint64_t)set->samples : 0);
    at = put(to, at, "seed", sampled && !labels ? set->seed : 0);
    at = put(to, at, "partition head", sampled && !labels ? set->head : 0);
    at = put(to, at, "label_count", labels ? (uint64_t)set->label_count : 0);
    size_t count = labels ? (size_t)(set->samples * set->label_count) : 0;
    return put(to, at, "labels",
               labels ? digest_add(DIGEST_START, set->labels, count * sizeof(int32_t)) : 0);
}

static size_t record_count(const plsh_cache_setup *setup) {
    return CACHE_RECORDS + HEAD_RECORDS * (size_t)setup->heads;
}

static plsh_status make_records(const plsh_cache_setup *setup, record **out, plsh_error *error) {
    void *memory;
    plsh_status status =
        plsh_allocate(&memory, record_count(setup), sizeof(record), "a cache file", error);
    *out = memory;
    if (status) return status;
    record *to = memory;
    int at = put(to, 0, "heads", (uint64_t)setup->heads);
    at = put(to, at, "kv_heads", (uint64_t)setup->kv_heads);
    at = put(to, at, "head_dim", (uint64_t)setup->page[0].head_dim);
    at = put(to, at, "value_dim", (uint64_t)setup->page[0].value_dim);
    at = put(to, at, "dtype", setup->page[0].dtype);
    at = put(to, at, "scale", bits_of(setup->scale));
    at = put(to, at, "undo", (uint64_t)setup->undo);
    at = put(to, at, "position_dim", (uint64_t)setup->page[0].dim);
    at = put(to, at, "position_sets", (uint64_t)setup->point_sets);
    for (int64_t h = 0; h < setup->heads; h++) at = put_head(to, at, &setup->mask[h]);
    return PLSH_STATUS_OK;
}

/* The name of an enum's value; a file may hold a value without a name. */
static void show_name(const char *const *names, uint64_t value, char *text, size_t size) {
    uint64_t count = 0;
    while (names[count] != NULL) count++;
    if (value < count)
        snprintf(text, size, "%s", names[value]);
    else
        snprintf(text, size, "%llu", (unsigned long long)value);
}

/* A record's value in words; false for digests, which have none. */
static bool show_value(const record *r, char *text, size_t size) {
    static const char *const numbers[] = {"scale",   "eps",     "radius",
                                          "decay a", "decay b", "decay limit"};
    static const struct {
        const char *name;
        const char *const *(*names)(void);
    } words[] = {{"method", plsh_method_names},
                 {"decay", plsh_decay_names},
                 {"scheme", plsh_scheme_names},
                 {"design", plsh_design_names}};
    if (strcmp(r->name, "decay table") == 0 || strcmp(r->name, "labels") == 0) return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(r->name, words[i].name) != 0) continue;
        show_name(words[i].names(), r->value, text, size);
        return true;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(r->name, numbers[i]) != 0) continue;
        double number;
        memcpy(&number, &r->value, sizeof number);
        snprintf(text, size, "%.17g", number);
        return true;
    }
    if (strcmp(r->name, "dtype") == 0 && r->value <= PLSH_DTYPE_BFLOAT16)
        snprintf(text, size, "%s", plsh_dtype_name((plsh_dtype)r->value));
    else
        snprintf(text, size, "%llu", (unsigned long long)r->value);
    return true;
}

static plsh_status compare_records(const plsh_cache_setup *setup, const record *ours,
                                   const char *file, const char *path, plsh_error *error) {
    for (size_t i = 0; i < record_count(setup); i++) {
        record theirs; /* the bytes of a file need not be aligned */
        memcpy(&theirs, file + i * sizeof(record), sizeof theirs);
        if (memcmp(&ours[i], &theirs, sizeof(record)) == 0) continue;
        char head[32] = "";
        if (i >= CACHE_RECORDS)
            snprintf(head, sizeof head, " of head %zu", (i - CACHE_RECORDS) / HEAD_RECORDS);
        if (memcmp(ours[i].name, theirs.name, sizeof ours[i].name) != 0)
            return plsh_fail(error, PLSH_STATUS_FORMAT,
                             "%.100s: no %s%s where it belongs; this is not a whole cache file",
                             path, ours[i].name, head);
        char there[32], here[32];
        if (!show_value(&theirs, there, sizeof there) || !show_value(&ours[i], here, sizeof here))
            return plsh_fail(error, PLSH_STATUS_INVALID,
                             "%.100s: its %s%s: not the same entries as in the config", path,
                             ours[i].name, head);
        return plsh_fail(error, PLSH_STATUS_INVALID, "%.100s: its %s%s is %s, the config's is %s",
                         path, ours[i].name, head, there, here);
    }
    return PLSH_STATUS_OK;
}

/* ---- Saving ---------------------------------------------------------------------------------- */

enum { BUFFER = 1 << 16 };

typedef struct sink {
    plsh_file *file;
    uint64_t digest;
    size_t used;
    char buffer[BUFFER];
} sink;

static plsh_status flush(sink *to, plsh_error *error) {
    to->digest = digest_add(to->digest, to->buffer, to->used);
    plsh_status status = plsh_file_write(to->file, to->buffer, to->used, error);
    to->used = 0;
    return status;
}

static plsh_status emit(sink *to, const void *bytes, size_t size, plsh_error *error) {
    for (const char *at = bytes; size > 0;) {
        size_t part = size < BUFFER - to->used ? size : BUFFER - to->used;
        memcpy(to->buffer + to->used, at, part);
        to->used += part, at += part, size -= part;
        if (to->used < BUFFER) continue;
        plsh_status status = flush(to, error);
        if (status) return status;
    }
    return PLSH_STATUS_OK;
}

/* The keys, the values or the positions of one kv head, for both directions. */
typedef struct column {
    size_t offset, stride, row; /* of the first row in a page, between rows, of a row in the file */
} column;

enum { KEYS, VALUES, POSITIONS, COLUMNS };

static column column_of(const plsh_cache_page_layout *layout, int number) {
    const size_t point = (size_t)(layout->sets * layout->dim) * sizeof(float);
    if (number == POSITIONS) return (column){layout->points, point, point};
    if (number == VALUES)
        return (column){layout->values, (size_t)layout->dv * layout->element,
                        (size_t)layout->value_dim * layout->element};
    return (column){layout->keys, (size_t)layout->d * layout->element,
                    (size_t)layout->head_dim * layout->element};
}

static char *row_at(const plsh_cache_store *store, column c, int64_t position) {
    const plsh_cache_page *page = plsh_cache_store_page(store, position / PLSH_PAGE_KEYS);
    return plsh_cache_page_at(page, c.offset) + (size_t)(position % PLSH_PAGE_KEYS) * c.stride;
}

static plsh_status emit_rows(sink *to, const plsh_cache *cache, int64_t kv, int number,
                             plsh_error *error) {
    const plsh_cache_store *store = &cache->store[kv];
    column c = column_of(plsh_cache_setup_pages(cache->setup, kv), number);
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t at = store->first * PLSH_PAGE_KEYS; at < cache->length && !status; at++)
        status = emit(to, row_at(store, c, at), c.row, error);
    return status;
}

static plsh_status emit_all(sink *to, const plsh_cache *cache, const record *records,
                            plsh_error *error) {
    const plsh_cache_setup *setup = cache->setup;
    int64_t swept = cache->swept < cache->length ? cache->swept : cache->length;
    int64_t numbers[2] = {cache->length, swept};
    plsh_status status = emit(to, MAGIC, sizeof MAGIC, error);
    if (!status) status = emit(to, records, record_count(setup) * sizeof(record), error);
    if (!status) status = emit(to, numbers, sizeof numbers, error);
    for (int64_t kv = 0; kv < setup->kv_heads && !status; kv++) {
        int64_t first = cache->store[kv].first * PLSH_PAGE_KEYS;
        status = emit(to, &first, sizeof first, error);
    }
    for (int64_t kv = 0; kv < setup->kv_heads; kv++)
        for (int number = 0; number < COLUMNS && !status; number++)
            status = emit_rows(to, cache, kv, number, error);
    if (!status) status = flush(to, error);
    return status ? status : plsh_file_write(to->file, &to->digest, sizeof to->digest, error);
}

static plsh_status write_cache(const plsh_cache *cache, plsh_file *file, plsh_error *error) {
    record *records;
    void *memory = NULL;
    plsh_status status = make_records(cache->setup, &records, error);
    if (!status) status = plsh_allocate(&memory, 1, sizeof(sink), "a cache file", error);
    if (!status) {
        sink *to = memory;
        to->file = file;
        to->digest = DIGEST_START;
        status = emit_all(to, cache, records, error);
    }
    plsh_release(records);
    plsh_release(memory);
    return status;
}

plsh_status plsh_cache_save_into(const plsh_cache *cache, plsh_file *file, plsh_error *error) {
    plsh_status status = plsh_cache_enter(cache, error);
    if (status) return status;
    status = write_cache(cache, file, error);
    plsh_cache_leave(cache);
    return status;
}

plsh_status plsh_cache_save(const plsh_cache *cache, const char *path, plsh_error *error) {
    plsh_file *file;
    plsh_status status = plsh_file_create(&file, path, error);
    if (status) return status;
    status = plsh_cache_save_into(cache, file, error);
    if (!status) return plsh_file_commit(file, error);
    plsh_file_abandon(file);
    return status;
}

/* Of a row of keys, one of values and one of positions. */
static size_t row_bytes(const plsh_cache_setup *setup) {
    size_t sum = 0;
    for (int number = 0; number < COLUMNS; number++) sum += column_of(&setup->page[0], number).row;
    return sum;
}

size_t plsh_cache_file_bytes(const plsh_cache *cache) {
    const plsh_cache_setup *setup = cache->setup;
    size_t bytes = sizeof MAGIC + record_count(setup) * sizeof(record) + 2 * sizeof(int64_t) +
                   (size_t)setup->kv_heads * sizeof(int64_t) + sizeof(uint64_t);
    for (int64_t kv = 0; kv < setup->kv_heads; kv++)
        bytes +=
            (size_t)(cache->length - cache->store[kv].first * PLSH_PAGE_KEYS) * row_bytes(setup);
    return bytes;
}

/* ---- Loading --------------------------------------------------------------------------------- */

/* Magic and config. */
static plsh_status take_config(plsh_reader *from, const plsh_cache_setup *setup,
                               plsh_error *error) {
    const void *magic = plsh_reader_take(from, sizeof MAGIC, "the magic number");
    if (magic == NULL || memcmp(magic, MAGIC, sizeof MAGIC) != 0)
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%.150s: not a cache file of this version",
                         from->name);
    size_t count = record_count(setup);
    const void *theirs = plsh_reader_take(from, count * sizeof(record), "the config");
    if (theirs == NULL) return plsh_reader_status(from, error);
    record *ours;
    plsh_status status = make_records(setup, &ours, error);
    if (!status) status = compare_records(setup, ours, theirs, from->name, error);
    plsh_release(ours);
    return status;
}

/* Is every key that a query from `swept` on may see at or after `first`? */
static bool is_first_possible(const plsh_cache *cache, int64_t kv, int64_t first) {
    const plsh_cache_setup *setup = cache->setup;
    if (first < 0 || first % PLSH_PAGE_KEYS != 0 || first > cache->length) return false;
    for (int64_t h = kv * setup->group; first > 0 && h < (kv + 1) * setup->group; h++)
        if (plsh_cache_mask_reach(&setup->mask[h], NULL, cache->swept) < first) return false;
    return true;
}

static plsh_status take_numbers(plsh_reader *from, plsh_cache *cache) {
    int64_t most = plsh_cache_setup_most_tokens(cache->setup);
    int64_t length = (int64_t)plsh_reader_u64(from, "the length");
    int64_t swept = (int64_t)plsh_reader_u64(from, "the length");
    if (length < 0 || length > most || swept < 0 || swept > length)
        return plsh_reader_fail(from, PLSH_STATUS_FORMAT, "a length of %lld is impossible",
                                (long long)length);
    cache->length = length;
    cache->swept = swept;
    for (int64_t kv = 0; kv < cache->setup->kv_heads; kv++) {
        int64_t first = (int64_t)plsh_reader_u64(from, "the first positions");
        if (!is_first_possible(cache, kv, first))
            return plsh_reader_fail(from, PLSH_STATUS_FORMAT,
                                    "kv head %lld cannot begin at position %lld", (long long)kv,
                                    (long long)first);
        cache->store[kv].first = first / PLSH_PAGE_KEYS;
    }
    return plsh_reader_status(from, NULL);
}

/* Do the rows that are announced fill the rest of the file exactly? */
static plsh_status check_size(plsh_reader *from, const plsh_cache *cache) {
    size_t row = row_bytes(cache->setup), sum = 0, part;
    bool fits = true;
    for (int64_t kv = 0; kv < cache->setup->kv_heads; kv++) {
        int64_t rows = cache->length - cache->store[kv].first * PLSH_PAGE_KEYS;
        fits = fits && plsh_multiply((size_t)rows, row, &part) && plsh_add(sum, part, &sum);
    }
    if (fits && sum == plsh_reader_left(from)) return PLSH_STATUS_OK;
    return plsh_reader_fail(from, PLSH_STATUS_FORMAT,
                            "%lld tokens do not make a file of this size (%zu bytes of rows)",
                            (long long)cache->length, plsh_reader_left(from));
}

static plsh_status take_rows(plsh_reader *from, plsh_cache *cache, int64_t kv, plsh_error *error) {
    const plsh_cache_page_layout *layout = plsh_cache_setup_pages(cache->setup, kv);
    plsh_cache_store *store = &cache->store[kv];
    int64_t first = store->first * PLSH_PAGE_KEYS;
    plsh_status status = plsh_cache_store_reserve(store, layout, first, cache->length, error);
    if (status) return status;
    for (int number = 0; number < COLUMNS; number++) {
        column c = column_of(layout, number);
        for (int64_t at = first; at < cache->length; at++) {
            const void *row = plsh_reader_take(from, c.row, "a row");
            if (row == NULL) return plsh_reader_status(from, error);
            memcpy(row_at(store, c, at), row, c.row);
        }
    }
    plsh_cache_store_bound(store, layout, cache->length);
    return PLSH_STATUS_OK;
}

/* The file is `from` and the digest behind it. */
static plsh_status take_all(plsh_reader *from, plsh_cache *cache, plsh_error *error) {
    const plsh_cache_setup *setup = cache->setup;
    uint64_t digest;
    memcpy(&digest, from->bytes + from->size, sizeof digest);
    plsh_status status = take_config(from, setup, error);
    if (status) return status;
    if (take_numbers(from, cache) || check_size(from, cache))
        return plsh_reader_status(from, error);
    if (digest != digest_add(DIGEST_START, from->bytes, from->size))
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%.150s: the file is damaged: wrong digest",
                         from->name);
    for (int64_t kv = 0; kv < setup->kv_heads && !status; kv++)
        status = take_rows(from, cache, kv, error);
    for (int64_t h = 0; h < setup->heads && !status; h++)
        status = plsh_cache_mask_state_reserve(&cache->mask_state[h], &setup->mask[h],
                                               cache->length, error);
    return status;
}

static plsh_status parse(plsh_cache *cache, const void *bytes, size_t size, const char *name,
                         plsh_error *error) {
    if (size < sizeof(uint64_t))
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%.150s: the file ends too early", name);
    plsh_reader from = plsh_reader_make(bytes, size - sizeof(uint64_t), name);
    return take_all(&from, cache, error);
}

plsh_status plsh_cache_parse(const plsh_cache_config *config, const void *bytes, size_t size,
                             const char *name, plsh_cache **cache, plsh_error *error) {
    plsh_status status = plsh_cache_create(config, cache, error);
    if (!status) status = parse(*cache, bytes, size, name, error);
    if (status) {
        plsh_cache_destroy(*cache);
        *cache = NULL;
    }
    return status;
}

plsh_status plsh_cache_load(const plsh_cache_config *config, const char *path, plsh_cache **cache,
                            plsh_error *error) {
    plsh_mapping file;
    *cache = NULL;
    plsh_status status = plsh_mapping_open(&file, path, error);
    if (status) return status;
    status = plsh_cache_parse(config, file.bytes, file.size, path, cache, error);
    plsh_mapping_close(&file);
    return status;
}
