/* fuzz: checkpoints of training, and files of tokens.
 *
 *     byte 0    what the rest is: 0 state.json, 1 a patch of moments.safetensors, 2 one of
 *               model.safetensors, 3 moments.safetensors, 4 model.safetensors, 5 a file of tokens
 *     byte 1    flags: 1 leaves the checksums wrong
 *
 * A patch is a 32-bit offset and the bytes that are written there. Checksums are made right again,
 * and the header of a file of tokens counts its ids, so that mutations reach what is behind them.
 * What is loaded goes through a step of training. */
#include "base/checksum.h"
#include "fuzz/fuzz_model.h"
#include "plsh/model.h"

#include <inttypes.h>
#include <jansson.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CONTEXT = 4, MOST = 1 << 16 };

static const char checkpoint[] = "checkpoint-00000002";

typedef struct whole_file {
    char name[64]; /* in the folder of the target */
    char bytes[MOST];
    size_t size;
} whole_file;

static struct {
    plsh_trainer *trainer;
    whole_file model, moments;
    json_t *state;
} known;

static void read_whole(whole_file *file, const char *name) {
    snprintf(file->name, sizeof file->name, "%s/%s", checkpoint, name);
    FILE *in = fopen(fuzz_path(file->name), "rb");
    fuzz_fail_if(in == NULL, "no checkpoint");
    file->size = fread(file->bytes, 1, sizeof file->bytes, in);
    fuzz_fail_if(file->size == sizeof file->bytes, "a file of the checkpoint is too long");
    fclose(in);
}

static void make_checkpoint(void) {
    plsh_error error;
    static const int32_t ids[CONTEXT] = {1, 2, 3, 4};
    plsh_train_options options = {
        .context = CONTEXT, .batch = 1, .learn_slopes = true, .seed = 3, .threads = 1};
    plsh_checkpoint state = {.step = 2, .window = 2, .settings = "lr=1"};
    double loss, norm;
    plsh_status status = plsh_trainer_create(&known.trainer, fuzz_path("model"), &options, &error);
    for (int i = 0; status == PLSH_STATUS_OK && i < 2; i++) {
        status = plsh_trainer_accumulate(known.trainer, ids, CONTEXT, 1, &loss, &error);
        if (status == PLSH_STATUS_OK)
            status = plsh_trainer_update(known.trainer, &(plsh_update){.learning_rate = 1e-2},
                                         &norm, &error);
    }
    if (status == PLSH_STATUS_OK)
        status = plsh_checkpoint_save(known.trainer, &state, fuzz_folder, &error);
    fuzz_fail_if(status != PLSH_STATUS_OK, error.message);
    read_whole(&known.model, "model.safetensors");
    read_whole(&known.moments, "moments.safetensors");
    char path[128];
    snprintf(path, sizeof path, "%s/state.json", checkpoint);
    known.state = json_load_file(fuzz_path(path), 0, NULL);
    fuzz_fail_if(known.state == NULL, "no state.json");
}

/* ---- Repairs --------------------------------------------------------------------------------- */

static void put_checksum(json_t *object, const char *key, const void *bytes, size_t size) {
    char text[24];
    snprintf(text, sizeof text, "%016" PRIx64, plsh_checksum(bytes, size));
    json_object_set_new(object, key, json_string(text));
}

/* As src/train/checkpoint.c has it: of all fields but itself. */
static void write_state(json_t *state, bool wrong) {
    char path[128];
    json_object_del(state, "checksum");
    char *text = json_dumps(state, JSON_COMPACT | JSON_SORT_KEYS);
    if (text != NULL) put_checksum(state, "checksum", text, strlen(text) + wrong);
    free(text);
    text = json_dumps(state, 0);
    snprintf(path, sizeof path, "%s/state.json", checkpoint);
    if (text != NULL) fuzz_write(path, text, strlen(text));
    free(text);
}

/* ---- Inputs ---------------------------------------------------------------------------------- */

/* With the checksums that the files have, whatever else it says. */
static void put_state(const uint8_t *data, size_t size, int flags) {
    char path[128];
    json_t *state = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(state)) {
        json_t *sums = json_object_get(known.state, "checksums");
        if (!(flags & 2)) json_object_set(state, "checksums", sums);
        write_state(state, flags & 1);
    } else {
        snprintf(path, sizeof path, "%s/state.json", checkpoint);
        fuzz_write(path, data, size);
    }
    json_decref(state);
}

static void put_file(const whole_file *file, const char *bytes, size_t size, bool wrong) {
    json_t *state = json_deep_copy(known.state), *sums = json_object_get(state, "checksums");
    fuzz_write(file->name, bytes, size);
    put_checksum(sums, strchr(file->name, '/') + 1, bytes, size);
    write_state(state, wrong);
    json_decref(state);
}

static void put_patch(const whole_file *file, const uint8_t *data, size_t size, bool wrong) {
    static char bytes[MOST];
    uint32_t offset = 0;
    memcpy(bytes, file->bytes, file->size);
    memcpy(&offset, data, size < 4 ? size : 4);
    offset %= (uint32_t)file->size;
    size = size < 4 ? 0 : size - 4;
    if (size > file->size - offset) size = file->size - offset;
    memcpy(bytes + offset, data + 4, size);
    put_file(file, bytes, file->size, wrong);
}

static void put_back(const whole_file *file) { fuzz_write(file->name, file->bytes, file->size); }

/* ---- What a run does with them --------------------------------------------------------------- */

static void try_step(const int32_t *ids) {
    double loss, norm;
    if (plsh_trainer_accumulate(known.trainer, ids, CONTEXT, 1, &loss, NULL) != PLSH_STATUS_OK)
        return;
    plsh_trainer_update(known.trainer, &(plsh_update){.learning_rate = 1e-2}, &norm, NULL);
}

static void try_checkpoint(bool wrong) {
    static const int32_t ids[CONTEXT] = {5, 6, 7, 8};
    plsh_checkpoint found, loaded;
    int64_t step, passed;
    const char *folder = fuzz_path(checkpoint);
    plsh_status checked = plsh_checkpoint_check(folder, &found, NULL);
    plsh_checkpoint_newest(fuzz_folder, &step, &loaded, &passed, NULL);
    fuzz_fail_if((checked == PLSH_STATUS_OK) != (step == 2), "the newest is another");
    plsh_status status = plsh_checkpoint_load(known.trainer, folder, &loaded, NULL);
    fuzz_fail_if(checked != PLSH_STATUS_OK && status == PLSH_STATUS_OK, "damage was loaded");
    fuzz_fail_if(wrong && status == PLSH_STATUS_OK, "a wrong checksum was taken");
    if (status != PLSH_STATUS_OK) return;
    fuzz_fail_if(found.step < 0 || found.window < 0 || found.window > INT64_C(1) << 53 ||
                     found.in_a_row > found.skipped || found.skipped > found.step ||
                     strlen(found.settings) >= sizeof found.settings,
                 "a state that cannot be");
    try_step(ids);
}

static void try_tokens(const uint8_t *data, size_t size, bool wrong) {
    static unsigned char bytes[MOST + 128];
    uint64_t words[8] = {0};
    plsh_corpus *corpus;
    const size_t count = size / sizeof(int32_t);
    memcpy(words, "PLSHTOK1", 8);
    memcpy(bytes + sizeof words, data, size);
    words[4] = plsh_checksum(data, count * sizeof(int32_t)) ^ (uint64_t)wrong;
    words[5] = count;
    for (size_t i = 0; i < count; i++) {
        int32_t id;
        memcpy(&id, data + i * sizeof id, sizeof id);
        if (id > 0 && (uint64_t)id > words[6]) words[6] = (uint64_t)id;
    }
    memcpy(bytes, words, sizeof words);
    fuzz_write("tokens", bytes, sizeof words + size);
    plsh_corpus_options options = {.text = fuzz_path("tokens")};
    if (plsh_corpus_open(&corpus, &options, NULL) != PLSH_STATUS_OK) return;
    fuzz_fail_if(wrong, "a wrong checksum of ids was taken");
    if (plsh_corpus_count(corpus) >= CONTEXT) {
        int32_t ids[2 * CONTEXT];
        plsh_corpus_windows(corpus, CONTEXT, INT64_MAX, 2, ids);
        for (int i = 0; i < 2 * CONTEXT; i++)
            fuzz_fail_if(ids[i] < 0 || ids[i] > plsh_corpus_largest(corpus), "an id");
        try_step(ids);
    }
    plsh_corpus_close(corpus);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (known.trainer == NULL) {
        fuzz_make_model();
        make_checkpoint();
    }
    if (size < 2 || size > MOST) return 0;
    const int kind = data[0] % 6, flags = data[1];
    const bool wrong = flags & 1;
    data += 2;
    size -= 2;
    if (kind == 5) {
        try_tokens(data, size, wrong);
        return 0;
    }
    const whole_file *file = kind % 2 ? &known.moments : &known.model;
    if (kind == 0)
        put_state(data, size, flags);
    else if (kind < 3)
        put_patch(file, data, size, wrong);
    else
        put_file(file, (const char *)data, size, wrong);
    try_checkpoint(wrong);
    if (kind > 0) put_back(file);
    return 0;
}
