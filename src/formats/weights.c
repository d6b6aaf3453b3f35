/* formats: opening files of weights, and finding tensors in them. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "formats/file.h"
#include "formats/path.h"

/* ---- One file ---- */

static plsh_status parse_part(plsh_weights_part *part, const void *bytes, size_t size,
                              const char *name, plsh_weights_form *form, plsh_error *error) {
    plsh_reader reader = plsh_reader_make(bytes, size, name);
    *form = PLSH_WEIGHTS_GGUF;
    if (size >= 4 && memcmp(bytes, "GGUF", 4) == 0) return plsh_gguf_parse(part, &reader, error);
    /* A safetensors file begins with any 8 bytes, the length of its header, and a brace. */
    const bool brace = size > 8 && ((const char *)bytes)[8] == '{';
    *form = PLSH_WEIGHTS_TORCH;
    if (!brace && size >= 4 && memcmp(bytes, "PK\3\4", 4) == 0)
        return plsh_torch_parse(part, &reader, error);
    if (!brace && size >= 2 && memcmp(bytes, "\x80\2", 2) == 0)
        return plsh_torch_refuse_old(&reader, error);
    *form = PLSH_WEIGHTS_SAFETENSORS;
    return plsh_safetensors_parse(part, &reader, error);
}

static plsh_status open_part(plsh_weights_part *part, const char *path, plsh_weights_form *form,
                             plsh_error *error) {
    plsh_status status = plsh_mapping_open(&part->mapping, path, error);
    if (status != PLSH_STATUS_OK) return status;
    return parse_part(part, part->mapping.bytes, part->mapping.size, path, form, error);
}

static void close_part(plsh_weights_part *part) {
    plsh_release(part->tensors);
    plsh_release(part->metadata);
    plsh_release(part->names);
    plsh_mapping_close(&part->mapping);
}

/* ---- All tensors, in order and by name ---- */

static int compare_names(const void *x, const void *y) {
    return strcmp((*(const plsh_tensor *const *)x)->name, (*(const plsh_tensor *const *)y)->name);
}

static int compare_keys(const void *x, const void *y) {
    return strcmp((*(const plsh_metadata *const *)x)->key, (*(const plsh_metadata *const *)y)->key);
}

static plsh_status sort_tensors(plsh_weights *weights, plsh_error *error) {
    void *all = NULL, *by_name = NULL;
    for (size_t p = 0; p < weights->part_count; p++)
        weights->count += weights->parts[p].tensor_count;
    plsh_status status = plsh_allocate(&all, weights->count, sizeof(plsh_tensor), "tensors", error);
    weights->all = all;
    if (status == PLSH_STATUS_OK)
        status = plsh_allocate(&by_name, weights->count, sizeof(plsh_tensor *), "tensors", error);
    weights->by_name = by_name;
    if (status != PLSH_STATUS_OK) return status;
    plsh_tensor *next = weights->all;
    for (size_t p = 0; p < weights->part_count; p++) {
        const plsh_weights_part *part = &weights->parts[p];
        for (size_t i = 0; i < part->tensor_count; i++) *next++ = part->tensors[i];
    }
    for (size_t i = 0; i < weights->count; i++) weights->by_name[i] = &weights->all[i];
    qsort(by_name, weights->count, sizeof(plsh_tensor *), compare_names);
    for (size_t i = 1; i < weights->count; i++) {
        const char *name = weights->by_name[i]->name;
        if (strcmp(weights->by_name[i - 1]->name, name) == 0)
            return plsh_fail(error, PLSH_STATUS_FORMAT, "%.100s: tensor '%.80s' appears twice",
                             weights->path, name);
    }
    return PLSH_STATUS_OK;
}

static plsh_status sort_metadata(plsh_weights *weights, plsh_error *error) {
    const plsh_weights_part *part = &weights->parts[0];
    void *by_key;
    plsh_status status =
        plsh_allocate(&by_key, part->metadata_count, sizeof(plsh_metadata *), "metadata", error);
    weights->by_key = by_key;
    if (status != PLSH_STATUS_OK) return status;
    for (size_t i = 0; i < part->metadata_count; i++) weights->by_key[i] = &part->metadata[i];
    qsort(by_key, part->metadata_count, sizeof(plsh_metadata *), compare_keys);
    for (size_t i = 1; i < part->metadata_count; i++) {
        const char *key = weights->by_key[i]->key;
        if (strcmp(weights->by_key[i - 1]->key, key) == 0)
            return plsh_fail(error, PLSH_STATUS_FORMAT, "%.100s: key '%.80s' appears twice",
                             weights->path, key);
    }
    return PLSH_STATUS_OK;
}

static plsh_status sort_all(plsh_weights *weights, plsh_error *error) {
    plsh_status status = sort_tensors(weights, error);
    return status == PLSH_STATUS_OK ? sort_metadata(weights, error) : status;
}

/* ---- Files and folders ---- */

static plsh_status allocate_parts(plsh_weights *weights, size_t count, plsh_error *error) {
    void *parts;
    plsh_status status =
        plsh_allocate(&parts, count, sizeof(plsh_weights_part), "files of weights", error);
    if (status != PLSH_STATUS_OK) return status;
    weights->parts = parts;
    weights->part_count = count;
    return PLSH_STATUS_OK;
}

/* ---- A GGUF in several files: model-00001-of-00003.gguf, .. ---- */

enum { SPLIT_DIGITS = 5, SPLIT_MOST = 99999 };

/* Where the number of the part stands in the path, "00001-of-00003.gguf"; NULL: the name has no
 * such number. */
static const char *find_split(const char *path) {
    static const char form[] = "-00000-of-00000.gguf"; /* 0: any digit */
    const size_t length = strlen(path), tail = sizeof form - 1;
    if (length <= tail) return NULL;
    const char *at = path + length - tail;
    for (size_t i = 0; i < tail; i++) {
        const bool digit = at[i] >= '0' && at[i] <= '9';
        if (form[i] == '0' ? !digit : at[i] != form[i]) return NULL;
    }
    return at + 1;
}

static plsh_status fail_split(const char *path, const char *key, int64_t value, int64_t right,
                              plsh_error *error) {
    return plsh_fail(error, PLSH_STATUS_FORMAT, "%.150s: key '%s' is %lld; %lld is needed here",
                     path, key, (long long)value, (long long)right);
}

/* Part `number` (from 0) of `count`, whose name differs from that of another part in its number. */
static plsh_status open_split_part(plsh_weights *weights, char *path, int64_t number, int64_t count,
                                   plsh_error *error) {
    plsh_weights_part *part = &weights->parts[number];
    char digits[24];
    snprintf(digits, sizeof digits, "%0*lld", SPLIT_DIGITS, (long long)number + 1);
    memcpy(path + (find_split(path) - path), digits, SPLIT_DIGITS);
    plsh_status status = open_part(part, path, &weights->form, error);
    if (status != PLSH_STATUS_OK) return status;
    if (weights->form != PLSH_WEIGHTS_GGUF)
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%.150s: not a GGUF file", path);
    const int64_t is = plsh_metadata_part_integer(part, "split.no", -1),
                  of = plsh_metadata_part_integer(part, "split.count", -1);
    if (of != count) return fail_split(path, "split.count", of, count, error);
    if (is != number) return fail_split(path, "split.no", is, number, error);
    return PLSH_STATUS_OK;
}

/* Opens all parts, given the path of any of them; `count` is the number of parts in its name. */
static plsh_status open_split(plsh_weights *weights, const char *path, int64_t count,
                              plsh_error *error) {
    const char *split = find_split(path);
    if (!split || count > SPLIT_MOST || strtoll(split + SPLIT_DIGITS + 4, NULL, 10) != count)
        return plsh_fail(error, PLSH_STATUS_FORMAT,
                         "%.150s: one of %lld files, but its name does not end in "
                         "-00001-of-%05lld.gguf, so that the others are not found",
                         path, (long long)count, (long long)count);
    char *name = NULL;
    plsh_status status = plsh_path_copy(&name, path, strlen(path), error);
    if (status == PLSH_STATUS_OK) status = allocate_parts(weights, (size_t)count, error);
    for (int64_t i = 0; i < count && status == PLSH_STATUS_OK; i++)
        status = open_split_part(weights, name, i, count, error);
    plsh_release(name);
    if (status == PLSH_STATUS_OK) status = sort_all(weights, error);
    if (status != PLSH_STATUS_OK) return status;
    const int64_t all = plsh_metadata_part_integer(&weights->parts[0], "split.tensors.count", -1);
    if (all != (int64_t)weights->count)
        return fail_split(path, "split.tensors.count", all, (int64_t)weights->count, error);
    return PLSH_STATUS_OK;
}

static plsh_status open_file(plsh_weights *weights, const char *path, plsh_error *error) {
    plsh_status status = allocate_parts(weights, 1, error);
    if (status == PLSH_STATUS_OK)
        status = open_part(&weights->parts[0], path, &weights->form, error);
    if (status != PLSH_STATUS_OK) return status;
    const int64_t count = plsh_metadata_part_integer(&weights->parts[0], "split.count", 1);
    if (count <= 1) return sort_all(weights, error);
    close_part(&weights->parts[0]);
    plsh_release(weights->parts);
    weights->parts = NULL;
    weights->part_count = 0;
    return open_split(weights, path, count, error);
}

static plsh_status open_parts(plsh_weights *weights, const plsh_weights_index *index,
                              const char *path, plsh_error *error) {
    plsh_status status = allocate_parts(weights, index->count, error);
    for (size_t i = 0; i < index->count && status == PLSH_STATUS_OK; i++) {
        status = open_part(&weights->parts[i], index->files[i], &weights->form, error);
        if (status == PLSH_STATUS_OK && weights->form == PLSH_WEIGHTS_GGUF)
            status = plsh_fail(error, PLSH_STATUS_FORMAT,
                               "%s is a GGUF, not a file of safetensors or torch", index->files[i]);
    }
    if (status == PLSH_STATUS_OK) status = sort_all(weights, error);
    if (status == PLSH_STATUS_OK) status = plsh_weights_index_check(index, weights, path, error);
    return status;
}

static plsh_status open_index(plsh_weights *weights, const char *path, plsh_error *error) {
    plsh_weights_index index;
    plsh_status status = plsh_weights_index_read(&index, weights->folder, path, error);
    if (status != PLSH_STATUS_OK) return status;
    status = open_parts(weights, &index, path, error);
    plsh_weights_index_close(&index);
    return status;
}

/* The only .safetensors file of a folder. */
static plsh_status find_single(char **out, const char *folder, plsh_error *error) {
    *out = NULL;
    DIR *directory = opendir(folder);
    if (!directory) return plsh_fail(error, PLSH_STATUS_IO, "%.200s: %s", folder, strerror(errno));
    plsh_status status = PLSH_STATUS_OK;
    int found = 0;
    char gguf[200] = "";
    for (const struct dirent *entry; status == PLSH_STATUS_OK && (entry = readdir(directory));) {
        if (plsh_path_ends(entry->d_name, ".gguf"))
            snprintf(gguf, sizeof gguf, "%.190s", entry->d_name);
        if (entry->d_name[0] == '.' || !plsh_path_ends(entry->d_name, ".safetensors")) continue;
        if (found++ == 0) status = plsh_path_join(out, folder, entry->d_name, error);
    }
    closedir(directory);
    if (status == PLSH_STATUS_OK && found == 0 && gguf[0] != '\0')
        status = plsh_fail(error, PLSH_STATUS_IO,
                           "%.150s: a folder without .safetensors files; to open its GGUF, give "
                           "the file: %.150s/%s",
                           folder, folder, gguf);
    else if (status == PLSH_STATUS_OK && found != 1)
        status = plsh_fail(error, PLSH_STATUS_IO,
                           "%.150s: needs model.safetensors, model.safetensors.index.json, "
                           "pytorch_model.bin or one other .safetensors file; it has %s",
                           folder, found == 0 ? "none" : "several");
    if (status != PLSH_STATUS_OK) {
        plsh_release(*out);
        *out = NULL;
    }
    return status;
}

/* The files that a folder may have, the preferred ones first. */
static plsh_status open_folder(plsh_weights *weights, plsh_error *error) {
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json",
                                        "pytorch_model.bin", "pytorch_model.bin.index.json"};
    char *path = NULL;
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names && status == PLSH_STATUS_OK; i++) {
        status = plsh_path_join(&path, weights->folder, names[i], error);
        if (status == PLSH_STATUS_OK && plsh_path_exists(path)) {
            status =
                i % 2 == 0 ? open_file(weights, path, error) : open_index(weights, path, error);
            plsh_release(path);
            return status;
        }
        plsh_release(path);
        path = NULL;
    }
    if (status == PLSH_STATUS_OK) status = find_single(&path, weights->folder, error);
    if (status == PLSH_STATUS_OK) status = open_file(weights, path, error);
    plsh_release(path);
    return status;
}

static plsh_status create(plsh_weights **out, const char *path, bool is_folder, plsh_error *error) {
    void *memory;
    plsh_status status = plsh_allocate(&memory, 1, sizeof(plsh_weights), "weights", error);
    *out = memory;
    if (status != PLSH_STATUS_OK) return status;
    status = plsh_path_copy(&(*out)->path, path, strlen(path), error);
    if (status == PLSH_STATUS_OK)
        status = is_folder ? plsh_path_copy(&(*out)->folder, path, strlen(path), error)
                           : plsh_path_folder(&(*out)->folder, path, error);
    return status;
}

static plsh_status keep_or_close(plsh_weights **out, plsh_status status) {
    if (status == PLSH_STATUS_OK) return status;
    plsh_weights_close(*out);
    *out = NULL;
    return status;
}

plsh_status plsh_weights_open(plsh_weights **out, const char *path, plsh_error *error) {
    bool is_folder = plsh_path_is_folder(path);
    plsh_status status = create(out, path, is_folder, error);
    if (status == PLSH_STATUS_OK) {
        if (is_folder)
            status = open_folder(*out, error);
        else if (plsh_path_ends(path, ".safetensors.index.json") ||
                 plsh_path_ends(path, ".bin.index.json"))
            status = open_index(*out, path, error);
        else
            status = open_file(*out, path, error);
    }
    return keep_or_close(out, status);
}

plsh_status plsh_weights_parse(plsh_weights **out, const void *bytes, size_t size, const char *name,
                               plsh_error *error) {
    if ((uintptr_t)bytes % 8 != 0) {
        *out = NULL;
        return plsh_fail(error, PLSH_STATUS_INVALID, "%s: its bytes must begin on a multiple of 8",
                         name);
    }
    plsh_status status = create(out, name, false, error);
    if (status == PLSH_STATUS_OK) status = allocate_parts(*out, 1, error);
    if (status == PLSH_STATUS_OK)
        status = parse_part(&(*out)->parts[0], bytes, size, name, &(*out)->form, error);
    if (status == PLSH_STATUS_OK) status = sort_all(*out, error);
    return keep_or_close(out, status);
}

void plsh_weights_close(plsh_weights *weights) {
    if (!weights) return;
    for (size_t i = 0; i < weights->part_count; i++) close_part(&weights->parts[i]);
    plsh_release(weights->parts);
    plsh_release(weights->all);
    plsh_release(weights->by_name);
    plsh_release(weights->by_key);
    plsh_release(weights->path);
    plsh_release(weights->folder);
    plsh_release(weights);
}

/* ---- Accessors ---- */

plsh_weights_form plsh_weights_form_of(const plsh_weights *weights) { return weights->form; }
const char *plsh_weights_path(const plsh_weights *weights) { return weights->path; }
const char *plsh_weights_folder(const plsh_weights *weights) { return weights->folder; }
size_t plsh_weights_count(const plsh_weights *weights) { return weights->count; }

const plsh_tensor *plsh_weights_at(const plsh_weights *weights, size_t index) {
    return &weights->all[index];
}

const plsh_tensor *plsh_weights_find(const plsh_weights *weights, const char *name) {
    const plsh_tensor wanted = {.name = name}, *key = &wanted;
    const plsh_tensor **found =
        bsearch(&key, weights->by_name, weights->count, sizeof(plsh_tensor *), compare_names);
    return found ? *found : NULL;
}

size_t plsh_weights_bytes(const plsh_weights *weights) {
    size_t bytes = 0;
    for (size_t i = 0; i < weights->count; i++) bytes += weights->all[i].size;
    return bytes;
}

size_t plsh_metadata_count(const plsh_weights *weights) { return weights->parts[0].metadata_count; }

const plsh_metadata *plsh_metadata_at(const plsh_weights *weights, size_t index) {
    return &weights->parts[0].metadata[index];
}

const plsh_metadata *plsh_metadata_find(const plsh_weights *weights, const char *name) {
    const plsh_metadata wanted = {.key = name}, *key = &wanted;
    const plsh_metadata **found = bsearch(&key, weights->by_key, weights->parts[0].metadata_count,
                                          sizeof(plsh_metadata *), compare_keys);
    return found ? *found : NULL;
}
