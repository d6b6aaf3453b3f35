/* train: checkpoints: folders written under a temporary name and renamed, with a checksum of every
 * file. A checkpoint is renamed before it is removed (plsh_folder_remove): under its own name it is
 * always complete.
 *
 * RUN/checkpoint-00000100/ has what plsh_trainer_save writes (weights or adapter, config,
 * tokenizer), moments.safetensors (the two moments of AdamW, "<name>.m" and "<name>.v") and
 * state.json (step, window, .., and the checksums of the other files).
 *
 * All random numbers are functions of the seed and the step, so that they need no further state. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/checksum.h"
#include "base/folder.h"
#include "base/mapping.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/json.h"
#include "formats/path.h"
#include "model/modules.h"
#include "train/save.h"

static const char state_name[] = "state.json", state_checksum[] = "checksum";
static const char name_begin[] = "checkpoint-";

enum { LONGEST_STATE = 1 << 20 }; /* bytes of state.json; plsh writes less than 10,000 */

/* The limit of every number in state.json: sums of a few of them do not overflow, and JSON stores
 * it exactly. */
static const int64_t largest_number = (INT64_C(1) << 53) - 1;

/* ---- Folders --------------------------------------------------------------------------------- */

plsh_status plsh_checkpoint_folder(const char *run, int64_t step, char *out, size_t size,
                                   plsh_error *error) {
    int length = snprintf(out, size, "%s/%s%08lld", run, name_begin, (long long)step);
    if (length > 0 && (size_t)length < size) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_INVALID, "%.200s..: the name of the folder is too long",
                     run);
}

/* The step of "checkpoint-00000100"; -1: no such name. */
static int64_t step_of(const char *name) {
    const char *digits = name + sizeof(name_begin) - 1;
    char *end;
    if (strncmp(name, name_begin, sizeof(name_begin) - 1) != 0) return -1;
    if (strspn(digits, "0123456789") < 8) return -1;
    long long step = strtoll(digits, &end, 10);
    return *end == '\0' && step <= largest_number ? step : -1;
}

int64_t plsh_checkpoint_last(const char *run, int64_t before) {
    DIR *list = opendir(run);
    int64_t last = -1;
    for (const struct dirent *entry; list && (entry = readdir(list));) {
        int64_t step = step_of(entry->d_name);
        if (step <= last || (before >= 0 && step >= before)) continue;
        struct stat about; /* a plain file of that name is no checkpoint */
        if (fstatat(dirfd(list), entry->d_name, &about, 0) == 0 && S_ISDIR(about.st_mode)) {
            last = step;
        }
    }
    if (list) closedir(list);
    return last;
}

plsh_status plsh_checkpoint_prune(const char *run, int64_t newest, int64_t keep,
                                  plsh_error *error) {
    char folder[PLSH_CHECKPOINT_PATH];
    int64_t step = -1, kept = 0;
    plsh_status status = PLSH_STATUS_OK;
    while (!status && (step = plsh_checkpoint_last(run, step)) >= 0) {
        status = plsh_checkpoint_folder(run, step, folder, sizeof(folder), error);
        if (!status && (step > newest || kept++ >= keep)) {
            status = plsh_folder_remove(folder, error);
        }
        if (step == 0) break;
    }
    plsh_folder_clean(run, name_begin);
    return status;
}

/* ---- Writing --------------------------------------------------------------------------------- */

static plsh_status declare_moments(plsh_weights_writer *writer, const plsh_parameters *p,
                                   plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = 0; !status && i < 2 * p->count; i++) {
        const plsh_parameter *one = &p->list[i / 2];
        char name[170];
        snprintf(name, sizeof(name), "%s.%c", one->name, i % 2 ? 'v' : 'm');
        plsh_tensor tensor = {
            .name = name, .type = PLSH_WEIGHT_F32, .rank = 1, .shape = {(int64_t)one->count}};
        status = plsh_weights_writer_declare(writer, &tensor, error);
    }
    return status;
}

/* Parameters that are not weights are stored with the moments, bit for bit; slopes.npy is
 * rounded. */
static plsh_status declare_slopes(plsh_weights_writer *writer, const plsh_parameter *first,
                                  plsh_error *error) {
    plsh_tensor tensor = {
        .name = first->name, .type = PLSH_WEIGHT_F32, .rank = 1, .shape = {(int64_t)first->count}};
    return first->not_a_weight ? plsh_weights_writer_declare(writer, &tensor, error)
                               : PLSH_STATUS_OK;
}

/* The moments are stored in the trainer's order of rows, also for GGUF: no other program reads
 * them. */
static plsh_status save_moments(const plsh_trainer *t, const char *folder, plsh_error *error) {
    const plsh_parameters *p = &t->parameters;
    plsh_weights_writer *writer;
    char *path;
    plsh_status status = plsh_path_join(&path, folder, "moments.safetensors", error);
    if (status) return status;
    status = plsh_weights_writer_create(&writer, path, PLSH_WEIGHTS_SAFETENSORS, error);
    plsh_release(path);
    if (status) return status;
    status = declare_slopes(writer, &p->list[0], error);
    if (!status) status = declare_moments(writer, p, error);
    if (!status && p->list[0].not_a_weight) {
        status =
            plsh_weights_writer_bytes(writer, p->value, p->list[0].count * sizeof(float), error);
    }
    for (size_t i = 0; !status && i < 2 * p->count; i++) {
        const plsh_parameter *one = &p->list[i / 2];
        const float *from = (i % 2 ? p->v : p->m) + one->first;
        status = plsh_weights_writer_bytes(writer, from, one->count * sizeof(float), error);
    }
    if (!status) return plsh_weights_writer_commit(writer, error);
    plsh_weights_writer_abandon(writer);
    return status;
}

/* A missing file is damage; a file that cannot be opened for another reason may be intact. */
static plsh_status open_part(plsh_mapping *file, const char *path, plsh_error *error) {
    if (!plsh_path_exists(path) && errno == ENOENT) {
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: damaged: it is missing", path);
    }
    return plsh_mapping_open(file, path, error);
}

static plsh_status checksum_file(const char *folder, const char *name, char out[24],
                                 plsh_error *error) {
    plsh_mapping file;
    char *path;
    plsh_status status = plsh_path_join(&path, folder, name, error);
    if (status) return status;
    status = open_part(&file, path, error);
    plsh_release(path);
    if (status) return status;
    snprintf(out, 24, "%016" PRIx64, plsh_checksum(file.bytes, file.size));
    plsh_mapping_close(&file);
    return PLSH_STATUS_OK;
}

static plsh_status add_checksums(json_t *files, const char *folder, plsh_error *error) {
    DIR *list = opendir(folder);
    plsh_status status = PLSH_STATUS_OK;
    if (!list) return plsh_fail(error, PLSH_STATUS_IO, "%s: %s", folder, strerror(errno));
    for (const struct dirent *entry; !status && (entry = readdir(list));) {
        char checksum[24];
        const char *name = entry->d_name;
        if (name[0] == '.') continue;
        if (strcmp(name, PLSH_POOLING_FOLDER) == 0) name = PLSH_POOLING_FILE;
        status = checksum_file(folder, name, checksum, error);
        if (!status && json_object_set_new(files, name, json_string(checksum)) != 0) {
            status = plsh_fail(error, PLSH_STATUS_NO_MEMORY, "%s: no memory", state_name);
        }
    }
    closedir(list);
    return status;
}

/* The checksum of the fields of state.json except this one. */
static plsh_status checksum_state(json_t *root, char out[24], plsh_error *error) {
    json_t *rest = json_copy(root);
    if (rest) json_object_del(rest, state_checksum);
    char *text = rest ? json_dumps(rest, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(rest);
    if (!text) return plsh_fail(error, PLSH_STATUS_NO_MEMORY, "%s: no memory", state_name);
    snprintf(out, 24, "%016" PRIx64, plsh_checksum(text, strlen(text)));
    free(text);
    return PLSH_STATUS_OK;
}

static plsh_status save_text(const json_t *root, const char *folder, plsh_error *error) {
    char *path, *text = json_dumps(root, JSON_INDENT(2));
    if (!text) return plsh_fail(error, PLSH_STATUS_NO_MEMORY, "%s: no memory", state_name);
    plsh_status status = plsh_path_join(&path, folder, state_name, error);
    if (!status) status = plsh_file_save(path, text, strlen(text), error);
    plsh_release(path);
    free(text);
    return status;
}

static plsh_status check_numbers(const plsh_checkpoint *s, int64_t updates, const char *what,
                                 plsh_error *error) {
    const struct {
        const char *key;
        int64_t value, most;
    } numbers[] = {{"step", s->step, largest_number},     {"updates", updates, largest_number},
                   {"window", s->window, largest_number}, {"skipped", s->skipped, s->step},
                   {"in_a_row", s->in_a_row, s->skipped}, {"log_bytes", s->log_bytes, INT64_MAX}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        if (numbers[i].value >= 0 && numbers[i].value <= numbers[i].most) continue;
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: %s is %lld; 0 to %lld", what,
                         numbers[i].key, (long long)numbers[i].value, (long long)numbers[i].most);
    }
    return PLSH_STATUS_OK;
}

static plsh_status save_state(const plsh_trainer *t, const plsh_checkpoint *state,
                              const char *folder, plsh_error *error) {
    plsh_status status = check_numbers(state, t->steps, "the state of a run", error);
    if (status) return status;
    json_t *root =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:{}}", "step", (json_int_t)state->step,
                  "updates", (json_int_t)t->steps, "window", (json_int_t)state->window, "skipped",
                  (json_int_t)state->skipped, "in_a_row", (json_int_t)state->in_a_row, "log_bytes",
                  (json_int_t)state->log_bytes, "settings", state->settings, "checksums");
    if (!root) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "the settings of a run have to be UTF-8");
    }
    char checksum[24];
    status = add_checksums(json_object_get(root, "checksums"), folder, error);
    if (!status) status = checksum_state(root, checksum, error);
    if (!status && json_object_set_new(root, state_checksum, json_string(checksum)) != 0) {
        status = plsh_fail(error, PLSH_STATUS_NO_MEMORY, "%s: no memory", state_name);
    }
    if (!status) status = save_text(root, folder, error);
    json_decref(root);
    return status;
}

static plsh_status write_checkpoint(const plsh_trainer *t, const plsh_checkpoint *state,
                                    const char *run, plsh_error *error) {
    char folder[PLSH_CHECKPOINT_PATH], made[PLSH_CHECKPOINT_PATH];
    plsh_status status = plsh_checkpoint_folder(run, state->step, folder, sizeof(folder), error);
    if (!status) status = plsh_folder_make_beside(made, sizeof(made), folder, error);
    if (status) return status;
    status = plsh_trainer_write(t, made, error);
    if (!status) status = save_moments(t, made, error);
    if (!status) status = save_state(t, state, made, error);
    if (!status) status = plsh_folder_put(made, folder, error);
    if (status) plsh_folder_remove(made, NULL);
    return status;
}

plsh_status plsh_checkpoint_save(const plsh_trainer *t, const plsh_checkpoint *state,
                                 const char *run, plsh_error *error) {
    const plsh_ranks *ranks = t->options.ranks;
    plsh_status status =
        plsh_ranks_first(ranks) ? write_checkpoint(t, state, run, error) : PLSH_STATUS_OK;
    return plsh_ranks_agree(ranks, status, error);
}

/* ---- Fingerprints of inputs ------------------------------------------------------------------ */

/* The files of a model or an adapter that determine its results. */
static bool is_model_file(const char *name) {
    return plsh_path_ends(name, ".safetensors") || strcmp(name, "config.json") == 0 ||
           strcmp(name, "adapter_config.json") == 0 || strcmp(name, "slopes.npy") == 0;
}

/* The sum over the files does not depend on the order in which a folder lists them. */
plsh_status plsh_checkpoint_fingerprint(const char *path, uint64_t *out, plsh_error *error) {
    plsh_mapping file;
    *out = 0;
    if (!plsh_path_is_folder(path)) {
        plsh_status status = plsh_mapping_open(&file, path, error);
        if (!status) *out = plsh_checksum(file.bytes, file.size);
        if (!status) plsh_mapping_close(&file);
        return status;
    }
    DIR *list = opendir(path);
    plsh_status status = PLSH_STATUS_OK;
    if (!list) return plsh_fail(error, PLSH_STATUS_IO, "%s: %s", path, strerror(errno));
    for (const struct dirent *entry; !status && (entry = readdir(list));) {
        char both[24 + sizeof(entry->d_name)];
        if (!is_model_file(entry->d_name)) continue;
        status = checksum_file(path, entry->d_name, both, error);
        if (status) continue;
        strcat(both, entry->d_name);
        *out += plsh_checksum(both, strlen(both));
    }
    closedir(list);
    return status;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static plsh_status check_files(const json_t *root, const char *folder, plsh_error *error) {
    const char *name;
    json_t *expected, *files = json_object_get(root, "checksums");
    if (!json_is_object(files) || !json_object_size(files)) {
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%s/%s: damaged: it has no checksums", folder,
                         state_name);
    }
    json_object_foreach(files, name, expected) {
        char checksum[24];
        const char *wanted = json_string_value(expected);
        if (strchr(name, '/') && strcmp(name, PLSH_POOLING_FILE) != 0) {
            return plsh_fail(error, PLSH_STATUS_FORMAT, "%s/%s: the name %s", folder, state_name,
                             name);
        }
        plsh_status status = checksum_file(folder, name, checksum, error);
        if (status) return status;
        if (!wanted || strcmp(wanted, checksum) != 0) {
            return plsh_fail(error, PLSH_STATUS_FORMAT,
                             "%s/%s: damaged: its checksum is %s, and was %s", folder, name,
                             checksum, wanted ? wanted : "not written down");
        }
    }
    return PLSH_STATUS_OK;
}

static plsh_status check_state(json_t *root, const char *what, plsh_error *error) {
    char checksum[24];
    const char *wanted = json_string_value(json_object_get(root, state_checksum));
    plsh_status status = checksum_state(root, checksum, error);
    if (status || (wanted && strcmp(wanted, checksum) == 0)) return status;
    return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: damaged: its checksum is %s, and was %s", what,
                     checksum, wanted ? wanted : "not written down");
}

static plsh_status read_fields(const json_t *root, const char *what, plsh_checkpoint *state,
                               int64_t *updates, plsh_error *error) {
    const char *settings = "";
    const struct {
        const char *key;
        int64_t *to;
    } fields[] = {{"step", &state->step},
                  {"updates", updates},
                  {"window", &state->window},
                  {"skipped", &state->skipped},
                  {"log_bytes", &state->log_bytes}};
    plsh_status status = PLSH_STATUS_OK;
    for (size_t i = 0; !status && i < sizeof(fields) / sizeof(*fields); i++) {
        *fields[i].to = -1;
        status =
            plsh_weights_json_integer(root, fields[i].key, 0, INT64_MAX, what, fields[i].to, error);
        if (!status && *fields[i].to < 0) {
            status = plsh_fail(error, PLSH_STATUS_FORMAT, "%s: damaged: %s is missing", what,
                               fields[i].key);
        }
    }
    state->in_a_row = 0; /* earlier versions did not keep it */
    if (!status) {
        status = plsh_weights_json_integer(root, "in_a_row", 0, INT64_MAX, what, &state->in_a_row,
                                           error);
    }
    if (!status) status = plsh_weights_json_string(root, "settings", what, &settings, error);
    if (!status && strlen(settings) >= sizeof(state->settings)) {
        status = plsh_fail(error, PLSH_STATUS_FORMAT, "%s: damaged: its settings are long", what);
    }
    if (!status) snprintf(state->settings, sizeof(state->settings), "%s", settings);
    return status ? status : check_numbers(state, *updates, what, error);
}

/* Reads state.json and checks the other files against it. */
static plsh_status read_state(const char *folder, plsh_checkpoint *state, int64_t *updates,
                              plsh_error *error) {
    plsh_mapping file = {0};
    json_t *root = NULL;
    char *path;
    plsh_status status = plsh_path_join(&path, folder, state_name, error);
    if (status) return status;
    status = open_part(&file, path, error);
    if (!status && file.size > LONGEST_STATE) {
        status = plsh_fail(error, PLSH_STATUS_FORMAT, "%s: damaged: %zu bytes; at most %d", path,
                           file.size, LONGEST_STATE);
    }
    if (!status) {
        status = plsh_weights_json_parse((const char *)file.bytes, file.size, path, &root, error);
    }
    plsh_mapping_close(&file);
    if (!status) status = check_state(root, path, error);
    if (!status) status = read_fields(root, path, state, updates, error);
    if (!status) status = check_files(root, folder, error);
    json_decref(root);
    plsh_release(path);
    return status;
}

plsh_status plsh_checkpoint_check(const char *folder, plsh_checkpoint *state, plsh_error *error) {
    int64_t updates;
    return read_state(folder, state, &updates, error);
}

plsh_status plsh_checkpoint_newest(const char *run, int64_t *step, plsh_checkpoint *state,
                                   int64_t *passed, plsh_error *error) {
    char folder[PLSH_CHECKPOINT_PATH];
    plsh_error other;
    *passed = 0;
    *step = -1;
    for (int64_t at = plsh_checkpoint_last(run, -1); at >= 0;
         at = at > 0 ? plsh_checkpoint_last(run, at) : -1) {
        plsh_error *say = *passed ? &other : error;
        plsh_status status = plsh_checkpoint_folder(run, at, folder, sizeof(folder), say);
        if (!status) status = plsh_checkpoint_check(folder, state, say);
        if (!status) *step = at;
        if (status == PLSH_STATUS_FORMAT) ++*passed;
        if (status != PLSH_STATUS_FORMAT) {
            if (status && error && say == &other) *error = other;
            return status;
        }
    }
    return *passed ? PLSH_STATUS_FORMAT : PLSH_STATUS_OK;
}

static const plsh_tensor *find_numbers(const plsh_weights *weights, const char *name,
                                       const plsh_parameter *p, plsh_error *error) {
    const plsh_tensor *tensor = plsh_weights_find(weights, name);
    if (tensor && tensor->type == PLSH_WEIGHT_F32 && tensor->size == p->count * sizeof(float)) {
        return tensor;
    }
    plsh_fail(error, PLSH_STATUS_FORMAT, "%s: %s: %s", plsh_weights_path(weights), name,
              tensor ? "of another shape than this model's" : "missing");
    return NULL;
}

static plsh_status load_values(plsh_trainer *t, const plsh_weights *weights, plsh_error *error) {
    const plsh_parameters *p = &t->parameters;
    for (size_t i = p->list[0].not_a_weight ? 1 : 0; i < p->count; i++) {
        const plsh_tensor *tensor = find_numbers(weights, p->list[i].name, &p->list[i], error);
        if (!tensor) return PLSH_STATUS_FORMAT;
        float *out = p->gradient + p->list[i].first; /* which is zero again below */
        memcpy(out, tensor->data, tensor->size);
        plsh_parameter_fetch(t, &p->list[i], out, p->value);
        memset(out, 0, tensor->size);
    }
    return PLSH_STATUS_OK;
}

/* Logarithms of slopes, which have to be numbers other than 0. */
static plsh_status check_slopes(const plsh_tensor *slopes, plsh_error *error) {
    const char *at = slopes->data;
    for (size_t i = 0; i < slopes->size / sizeof(float); i++) {
        float value;
        memcpy(&value, at + i * sizeof(float), sizeof(value));
        if (value >= -700.0f && value <= 700.0f) continue;
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: number %zu is %g; -700 to 700",
                         slopes->name, i, (double)value);
    }
    return PLSH_STATUS_OK;
}

static plsh_status load_moments(plsh_trainer *t, const plsh_weights *weights, plsh_error *error) {
    const plsh_parameters *p = &t->parameters;
    if (p->list[0].not_a_weight) {
        const plsh_tensor *slopes = find_numbers(weights, p->list[0].name, &p->list[0], error);
        if (!slopes) return PLSH_STATUS_FORMAT;
        plsh_status status = check_slopes(slopes, error);
        if (status) return status;
        memcpy(p->value, slopes->data, slopes->size);
    }
    for (size_t i = 0; i < 2 * p->count; i++) {
        const plsh_parameter *one = &p->list[i / 2];
        char name[170];
        snprintf(name, sizeof(name), "%s.%c", one->name, i % 2 ? 'v' : 'm');
        const plsh_tensor *tensor = find_numbers(weights, name, one, error);
        if (!tensor) return PLSH_STATUS_FORMAT;
        memcpy((i % 2 ? p->v : p->m) + one->first, tensor->data, tensor->size);
    }
    return PLSH_STATUS_OK;
}

static plsh_status load_file(plsh_trainer *t, const char *folder, const char *name,
                             plsh_status (*load)(plsh_trainer *, const plsh_weights *,
                                                 plsh_error *),
                             plsh_error *error) {
    plsh_weights *weights;
    char *path;
    plsh_status status = plsh_path_join(&path, folder, name, error);
    if (status) return status;
    status = plsh_weights_open(&weights, path, error);
    plsh_release(path);
    if (status) return status;
    status = load(t, weights, error);
    plsh_weights_close(weights);
    return status;
}

plsh_status plsh_checkpoint_load(plsh_trainer *t, const char *folder, plsh_checkpoint *state,
                                 plsh_error *error) {
    int64_t updates = 0;
    const char *values =
        t->options.lora_rank > 0 ? "adapter_model.safetensors" : "model.safetensors";
    const plsh_ranks *ranks = t->options.ranks;
    plsh_status status = plsh_ranks_agree(ranks, read_state(folder, state, &updates, error), error);
    if (status) return status;
    t->lost = true; /* until all of it is there */
    status = load_file(t, folder, values, load_values, error);
    if (!status) status = load_file(t, folder, "moments.safetensors", load_moments, error);
    status = plsh_ranks_agree(ranks, status, error);
    if (status) return status;
    t->steps = updates;
    t->planned_rows = 0; /* the plans were made for other draws and slopes */
    t->lost = false;
    plsh_trainer_drop_gradients(t);
    plsh_trainer_apply_slopes(t);
    return status;
}
