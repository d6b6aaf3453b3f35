/* Trains a tiny model from scratch to say what comes next in 0, 1, 2, .. 15, 0, 1, .. */
#include <plsh/lm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char config[] =
    "{\"model_type\": \"qwen3\", \"hidden_size\": 32, \"intermediate_size\": 64, "
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, "
    "\"head_dim\": 8, \"vocab_size\": 16, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0, "
    "\"tie_word_embeddings\": true, \"hidden_act\": \"silu\", \"max_position_embeddings\": 64}";

static plsh_error error;

static void need(plsh_status status) {
    if (status == PLSH_STATUS_OK) return;
    fprintf(stderr, "%s\n", error.message);
    exit(1);
}

int main(void) {
    char folder[] = "example-XXXXXX", path[64];
    if (mkdtemp(folder) == NULL) return 1;
    snprintf(path, sizeof path, "%s/config.json", folder);
    need(plsh_file_save(path, config, strlen(config), &error));
    need(plsh_train_initialise(path, 1, folder, &error)); /* new weights beside it */

    /* Attention with ALiBi's bias by sampled masks, redrawn in every step. */
    plsh_head heads[4];
    need(plsh_heads_alibi(4, PLSH_METHOD_PLSH, heads, &error));
    plsh_layer_attention attention = {.head = heads, .head_count = 4};
    plsh_train_options options = {
        .context = 64, .batch = 1, .attention = &attention, .attention_count = 1, .seed = 1};
    plsh_trainer *trainer;
    need(plsh_trainer_create(&trainer, folder, &options, &error));

    plsh_schedule schedule = {
        .shape = PLSH_SCHEDULE_COSINE, .peak = 1e-2, .warmup = 10, .steps = 100};
    int32_t ids[64];
    double loss = 0, norm;
    for (int64_t step = 0; step < schedule.steps; step++) {
        for (int i = 0; i < 64; i++) ids[i] = (int32_t)((step + i) % 16);
        need(plsh_trainer_accumulate(trainer, ids, 64, 1, &loss, &error));
        plsh_update update = {.learning_rate = plsh_schedule_rate(&schedule, step), .clip = 1.0};
        need(plsh_trainer_update(trainer, &update, &norm, &error));
        if (step % 25 == 0) printf("step %3lld  loss %.4f\n", (long long)step, loss);
    }
    printf("at last   loss %.4f\n", loss);
    need(plsh_trainer_save(trainer, folder, &error)); /* transformers reads it, too */
    plsh_trainer_destroy(trainer);

    remove(path);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    remove(path);
    remove(folder);
    return loss < 0.1 ? 0 : 1;
}
