/* fuzz: plsh_train_options, plsh_update and plsh_schedule. The input is a stream of numbers, most
 * of them small, some of them at the edges of their types; where it ends, zeros follow. A trainer
 * that is made makes a step. */
#include "fuzz/fuzz_model.h"
#include "plsh/model.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
    const uint8_t *at;
    size_t left;
} input;

static uint8_t byte_of(input *in) {
    if (in->left == 0) return 0;
    in->left--;
    return *in->at++;
}

/* 0 to 199 as they are: sizes that a machine has memory for. Between these and the edges there are
 * only sizes that cost time. */
static int64_t integer_of(input *in) {
    static const int64_t edges[] = {-1,         INT64_MIN,           INT64_MAX,
                                    INT32_MAX,  INT64_C(1) << 62,    INT64_C(1) << 32,
                                    -INT32_MAX, INT64_C(1) << 31,    INT64_MIN + 1,
                                    1000,       INT64_C(0x55555555), INT64_MAX / 8};
    const uint8_t byte = byte_of(in);
    if (byte < 200) return byte;
    return edges[(byte - 200) % (int)(sizeof edges / sizeof *edges)];
}

/* A size that the memory is made by: not one that a machine might just have room for. */
static int64_t size_of(input *in) {
    const int64_t size = integer_of(in);
    return size > 1000 && size < INT64_C(1) << 60 ? size % 1000 : size;
}

static double real_of(input *in) {
    static const double edges[] = {0.0, 1.0,  -1.0, NAN,     INFINITY, -INFINITY, 5e-324,
                                   0.5, 1e-8, 0.9,  1.7e308, 1e39,     -1e-300,   0.999};
    const uint8_t byte = byte_of(in);
    if (byte < 200) return edges[byte % (sizeof edges / sizeof *edges)];
    uint64_t bits = 0;
    double value;
    for (int i = 0; i < 8; i++) bits = bits << 8 | byte_of(in);
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* No more samples than are drawn in an instant, or too many for anything. */
static plsh_head head_of(input *in) {
    static const int32_t labels[] = {0, 0, 1, 1, 2, 2, 3, 3};
    plsh_head head = {.method = (plsh_method)(byte_of(in) % 11),
                      .eps = real_of(in),
                      .window = integer_of(in),
                      .block = integer_of(in)};
    head.partition = (plsh_partition){.scheme = (plsh_scheme)(byte_of(in) % 7),
                                      .design = (plsh_design)(byte_of(in) % 3),
                                      .decay = {.kind = (plsh_decay_kind)(byte_of(in) % 7),
                                                .a = real_of(in),
                                                .b = real_of(in),
                                                .limit = real_of(in)},
                                      .samples = integer_of(in),
                                      .seed = byte_of(in),
                                      .labels = byte_of(in) % 2 ? labels : NULL,
                                      .label_count = byte_of(in) % 2 ? 8 : -1};
    if (head.partition.samples > 8 && head.partition.samples <= INT32_MAX)
        head.partition.samples %= 9;
    if (head.partition.labels != NULL) head.partition.samples = 1;
    return head;
}

static const char *word_of(input *in, const char *const *words, int count) {
    return words[byte_of(in) % count];
}

static plsh_train_options options_of(input *in, plsh_layer_attention *attention, plsh_head *heads,
                                     const char **targets) {
    static const char *const isas[] = {NULL, "", "portable", "avx2", "nothing"};
    static const char *const names[] = {"query_key_value", "dense", "q_proj", "", "dense_h_to_4h"};
    static const char *const adapters[] = {NULL, NULL, NULL, "nowhere"};
    plsh_train_options o = {.context = size_of(in),
                            .batch = size_of(in),
                            .attention_count = integer_of(in) % 5,
                            .keep_draws = byte_of(in) & 1,
                            .learn_slopes = byte_of(in) & 1,
                            .recompute = byte_of(in) & 1,
                            .seed = byte_of(in),
                            .dropout = real_of(in),
                            .lora_rank = size_of(in),
                            .lora_alpha = real_of(in),
                            .lora_dropout = real_of(in),
                            .lora_target_count = byte_of(in) % 4,
                            .threads = (int)integer_of(in),
                            .isa = word_of(in, isas, 5),
                            .adapter = word_of(in, adapters, 4),
                            .micro_batches = integer_of(in)};
    if (o.threads > 2) o.threads = 2; /* thousands are made where they are asked for */
    for (int i = 0; i < 4; i++) targets[i] = word_of(in, names, 5);
    o.lora_targets = byte_of(in) % 4 ? targets : NULL;
    for (int i = 0; i < 4; i++) {
        attention[i] = (plsh_layer_attention){.original = byte_of(in) & 1,
                                              .drop_rope = byte_of(in) & 1,
                                              .head = byte_of(in) % 8 ? &heads[i] : NULL,
                                              .head_count = integer_of(in) % 4};
        if (attention[i].head_count > 1) attention[i].head = heads;
        heads[i] = head_of(in);
    }
    o.attention = byte_of(in) % 8 ? attention : NULL;
    return o;
}

static void try_steps(plsh_trainer *trainer, input *in) {
    int32_t ids[64];
    double loss, norm;
    plsh_update update = {.learning_rate = real_of(in),
                          .weight_decay = real_of(in),
                          .beta1 = real_of(in),
                          .beta2 = real_of(in),
                          .eps = real_of(in),
                          .clip = real_of(in),
                          .decay_matrices_only = byte_of(in) & 1,
                          .accumulated = integer_of(in)};
    int64_t context = integer_of(in), windows = integer_of(in);
    if (context > 0 && context < 1 << 20 && windows > 0 && windows < 1 << 20 &&
        context * windows > 64)
        context = windows = 4;
    for (int i = 0; i < 64; i++) ids[i] = (int32_t)(byte_of(in) % (FUZZ_VOCABULARY + (i == 63)));
    for (int i = 0; i < 2; i++) {
        plsh_status status = plsh_trainer_accumulate(trainer, ids, context, windows, &loss, NULL);
        fuzz_fail_if(status == PLSH_STATUS_OK && !isfinite(loss), "a loss that is not finite");
        status = plsh_trainer_update(trainer, &update, &norm, NULL);
        fuzz_fail_if(status == PLSH_STATUS_OK && !isfinite(norm), "a norm that is not finite");
        for (size_t p = 0; status == PLSH_STATUS_OK && p < plsh_trainer_count(trainer); p++)
            fuzz_fail_if(!isfinite(plsh_trainer_at(trainer, p).value[0]), "a weight");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool made;
    input in = {data, size};
    plsh_layer_attention attention[4];
    plsh_head heads[4];
    const char *targets[4];
    plsh_trainer *trainer;
    if (!made) fuzz_make_model();
    made = true;
    plsh_train_options options = options_of(&in, attention, heads, targets);
    plsh_status status = plsh_trainer_create(&trainer, fuzz_path("model"), &options, NULL);
    fuzz_fail_if((status == PLSH_STATUS_OK) != (trainer != NULL), "a trainer that failed");
    if (trainer != NULL) try_steps(trainer, &in);
    plsh_trainer_destroy(trainer);
    plsh_schedule schedule = {.shape = (plsh_schedule_shape)(byte_of(&in) % 3),
                              .peak = 1.0,
                              .warmup = integer_of(&in),
                              .steps = integer_of(&in)};
    const double rate = plsh_schedule_rate(&schedule, integer_of(&in));
    fuzz_fail_if(schedule.steps > 0 && schedule.warmup >= 0 && !isfinite(rate), "a rate");
    return 0;
}
