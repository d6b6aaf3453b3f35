/* model: sessions in files.
 *
 *     8 bytes   "PLSHSES1"
 *     uint64    fingerprint: the weights and all else that makes a token's keys and values
 *     uint64    layers
 *     uint64    bytes of the cache of each layer
 *     uint64    checksum of all before it
 *     caches    one after the other, as plsh_cache_save_into writes them
 *
 * Numbers are little endian. A file is replaced in one step (plsh_file), so that a process that is
 * killed leaves the old session or the new one. */
#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "base/mapping.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/path.h"
#include "model/attention.h"
#include "model/session.h"
#include "plsh/io.h"

static const char magic[8] = "PLSHSES1";

enum { HEAD_WORDS = 3, WORD = sizeof(uint64_t) }; /* magic, fingerprint, layers */

/* ---- Fingerprints ---------------------------------------------------------------------------- */

/* Fields of the configuration that the weights do not determine. */
static uint64_t add_config(uint64_t h, const plsh_model_config *c) {
    const uint64_t numbers[] = {
        (uint64_t)c->layers,       (uint64_t)c->hidden,      (uint64_t)c->heads,
        (uint64_t)c->kv_heads,     (uint64_t)c->head_dim,    (uint64_t)c->intermediate,
        (uint64_t)c->vocabulary,   (uint64_t)c->activation,  (uint64_t)c->sliding_window,
        (uint64_t)c->sliding_from, (uint64_t)c->multi_query, (uint64_t)c->parallel,
        (uint64_t)c->gguf};
    h = plsh_checksum_step(h, plsh_checksum(c->family->name, strlen(c->family->name)));
    h = plsh_checksum_step(h, plsh_checksum(&c->scale, sizeof(c->scale)));
    return plsh_checksum_step(h, plsh_checksum(numbers, sizeof(numbers)));
}

/* The cache of a layer holds its attention, except whether keys are rotated. */
static uint64_t fingerprint(const plsh_session *session) {
    const plsh_model *model = session->model;
    uint64_t h = add_config(plsh_model_fingerprint(model), &model->config);
    for (int64_t l = 0; l < model->config.layers; l++) {
        const plsh_layer_attention *attention =
            plsh_model_attention_at(session->attention, session->attention_count, l);
        h = plsh_checksum_step(h, plsh_model_attention_rotates(model, attention));
    }
    return h;
}

/* ---- Saving ---------------------------------------------------------------------------------- */

static plsh_status write_header(const plsh_session *session, plsh_file *file, plsh_error *error) {
    const size_t layers = (size_t)session->model->config.layers, count = HEAD_WORDS + layers + 1;
    uint64_t *words;
    plsh_status status =
        plsh_allocate((void **)&words, count, sizeof(*words), "the header of a session", error);
    if (status) return status;
    memcpy(&words[0], magic, sizeof(magic));
    words[1] = fingerprint(session);
    words[2] = layers;
    for (size_t l = 0; l < layers; l++) {
        words[HEAD_WORDS + l] = plsh_cache_file_bytes(session->cache[l]);
    }
    words[count - 1] = plsh_checksum(words, (count - 1) * WORD);
    status = plsh_file_write(file, words, count * WORD, error);
    plsh_release(words);
    return status;
}

plsh_status plsh_session_save(const plsh_session *session, const char *path, plsh_error *error) {
    plsh_file *file;
    if (session->broken) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "a step failed half way; nothing is saved");
    }
    if (plsh_path_is_folder(path)) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "%.150s is a folder, as earlier versions saved sessions; remove it, or "
                         "name another file",
                         path);
    }
    plsh_status status = plsh_file_create(&file, path, error);
    if (status) return status;
    status = write_header(session, file, error);
    for (int64_t l = 0; !status && l < session->model->config.layers; l++) {
        status = plsh_cache_save_into(session->cache[l], file, error);
    }
    if (!status) return plsh_file_commit(file, error);
    plsh_file_abandon(file);
    return status;
}

/* ---- Loading --------------------------------------------------------------------------------- */

/* The header: every byte after it belongs to a cache. */
static plsh_status open_source(plsh_session_source *source, const plsh_mapping *file,
                               const char *path, plsh_error *error) {
    plsh_reader from = plsh_reader_make(file->bytes, file->size, path);
    const void *begin = plsh_reader_take(&from, sizeof(magic), "the magic number");
    if (!begin || memcmp(begin, magic, sizeof(magic)) != 0) {
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%.150s: not a session of this version", path);
    }
    source->fingerprint = plsh_reader_u64(&from, "the fingerprint");
    const size_t layers = plsh_reader_count(&from, WORD, WORD, "the number of layers");
    const size_t table = from.at;
    size_t sum = 0;
    bool fits = true;
    for (size_t l = 0; l < layers; l++) {
        fits = plsh_add(sum, plsh_reader_u64(&from, "the size of a layer"), &sum) && fits;
    }
    const size_t end = from.at;
    const uint64_t expected = plsh_reader_u64(&from, "the checksum");
    if (!plsh_reader_is_ok(&from)) return plsh_reader_status(&from, error);
    if (expected != plsh_checksum(file->bytes, end) || !fits || sum != plsh_reader_left(&from)) {
        return plsh_fail(error, PLSH_STATUS_FORMAT,
                         "%.150s: the session is damaged: its header does not fit its %zu bytes",
                         path, file->size);
    }
    source->sizes = plsh_reader_make(file->bytes + table, end - table, path);
    source->caches = plsh_reader_make(file->bytes + from.at, sum, path);
    return PLSH_STATUS_OK;
}

plsh_status plsh_session_source_check(const plsh_session *session,
                                      const plsh_session_source *source, plsh_error *error) {
    const uint64_t own = fingerprint(session);
    const int64_t layers = session->model->config.layers;
    if (own == source->fingerprint && source->sizes.size == (size_t)layers * WORD) {
        return PLSH_STATUS_OK;
    }
    return plsh_fail(error, PLSH_STATUS_INVALID,
                     "%.150s: saved by another model, or with RoPE in other layers; load it with "
                     "the weights that it was saved with, or run its text again",
                     source->sizes.name);
}

plsh_status plsh_session_source_next(plsh_session_source *source, const plsh_cache_config *config,
                                     plsh_cache **cache, plsh_error *error) {
    const size_t size = (size_t)plsh_reader_u64(&source->sizes, "the size of a layer");
    const void *bytes = plsh_reader_take(&source->caches, size, "a layer");
    *cache = NULL;
    if (!bytes) return plsh_reader_status(&source->caches, error);
    return plsh_cache_parse(config, bytes, size, source->caches.name, cache, error);
}

static plsh_status check_lengths(const plsh_session *session, const char *path, plsh_error *error) {
    const int64_t length = plsh_session_length(session);
    for (int64_t l = 1; l < session->model->config.layers; l++) {
        const int64_t other = plsh_cache_length(session->cache[l]);
        if (other == length) continue;
        return plsh_fail(error, PLSH_STATUS_FORMAT,
                         "%.150s: layer %lld has %lld tokens, layer 0 has %lld", path, (long long)l,
                         (long long)other, (long long)length);
    }
    return PLSH_STATUS_OK;
}

plsh_status plsh_session_load(plsh_session **out, const plsh_model *model,
                              const plsh_session_options *options, const char *path,
                              plsh_error *error) {
    plsh_mapping file;
    plsh_session_source source;
    *out = NULL;
    if (plsh_path_is_folder(path)) {
        return plsh_fail(error, PLSH_STATUS_FORMAT,
                         "%.150s is a folder: an earlier version saved it, without saying with "
                         "which weights; run its text again and save the session anew",
                         path);
    }
    plsh_status status = plsh_mapping_open(&file, path, error);
    if (status) return status;
    status = open_source(&source, &file, path, error);
    if (!status) status = plsh_session_make(out, model, options, &source, error);
    if (!status) status = check_lengths(*out, path, error);
    plsh_mapping_close(&file);
    if (status) {
        plsh_session_destroy(*out);
        *out = NULL;
    }
    return status;
}
