/* tests: models with random weights, written as people have them. */
#include "support/tiny_model.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/random.h"
#include "support/support.h"

const char tiny_llama_config[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 32, \"intermediate_size\": 48, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"vocab_size\": 64, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, "
    "\"tie_word_embeddings\": true, \"hidden_act\": \"silu\", \"max_position_embeddings\": 128}";

const tiny_tensor tiny_llama_tensors[] = {
    {"model.embed_tokens.weight", 64, 32},
    {"model.norm.weight", 0, 32},
    {"model.layers.%d.input_layernorm.weight", 0, 32},
    {"model.layers.%d.post_attention_layernorm.weight", 0, 32},
    {"model.layers.%d.self_attn.q_proj.weight", 32, 32},
    {"model.layers.%d.self_attn.k_proj.weight", 16, 32},
    {"model.layers.%d.self_attn.v_proj.weight", 16, 32},
    {"model.layers.%d.self_attn.o_proj.weight", 32, 32},
    {"model.layers.%d.mlp.gate_proj.weight", 48, 32},
    {"model.layers.%d.mlp.up_proj.weight", 48, 32},
    {"model.layers.%d.mlp.down_proj.weight", 32, 48}};
const size_t tiny_llama_count = sizeof(tiny_llama_tensors) / sizeof(tiny_tensor);

/* Normal numbers of standard deviation 0.2; norms are near 1. */
static float *make_numbers(int64_t count, bool norm, uint32_t stream) {
    float *values = malloc((size_t)count * sizeof(float));
    plsh_stream s = {.seed = 7, .head = stream};
    for (int64_t i = 0; i < count; i++) {
        plsh_random r = plsh_random_at(s, (uint64_t)i);
        double u = plsh_random_unit(r.word[0]), v = plsh_random_unit(r.word[1]);
        double normal = sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
        values[i] = (float)((norm ? 1.0 : 0.0) + 0.2 * normal);
    }
    return values;
}

static void write_text(const char *folder, const char *name, const char *text) {
    char path[1024];
    plsh_error error;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_ok(plsh_file_save(path, text, strlen(text), &error));
}

/* Eight bytes of length, a header of JSON, the numbers. */
static void write_safetensors(const char *path, const plsh_tensor *tensors, size_t count) {
    static char header[1 << 16];
    size_t length = 0, offset = 0;
    for (size_t i = 0; i < count; i++) {
        const plsh_tensor *t = &tensors[i];
        char shape[48];
        snprintf(shape, sizeof(shape), t->rank == 2 ? "%lld, %lld" : "%lld", (long long)t->shape[0],
                 (long long)t->shape[1]);
        length += (size_t)snprintf(header + length, sizeof(header) - length,
                                   "%s\"%s\": {\"dtype\": \"F32\", \"shape\": [%s], "
                                   "\"data_offsets\": [%zu, %zu]}",
                                   i ? ", " : "{", t->name, shape, offset, offset + t->size);
        offset += t->size;
    }
    header[length++] = '}';
    while (length % 8 != 0) header[length++] = ' ';
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    uint64_t size = length;
    assert_int_equal(fwrite(&size, sizeof(size), 1, file), 1);
    assert_int_equal(fwrite(header, 1, length, file), length);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(fwrite(tensors[i].data, 1, tensors[i].size, file), tensors[i].size);
    }
    assert_int_equal(fclose(file), 0);
}

const char *tiny_model_write(const char *config, const tiny_tensor *tensors, size_t count,
                             int64_t layers) {
    static char folders[8][64];
    static int next;
    char *folder = folders[next++ % 8], path[1024];
    static char names[256][96];
    plsh_tensor made[256] = {0};
    size_t total = 0;
    const char *root = getenv("TMPDIR");
    snprintf(folder, sizeof(folders[0]), "%.40s/plsh-XXXXXX", root ? root : P_tmpdir);
    assert_non_null(mkdtemp(folder));
    write_text(folder, "config.json", config);
    for (size_t t = 0; t < count; t++) {
        bool each = strstr(tensors[t].name, "%d") != NULL;
        for (int64_t l = 0; l < (each ? layers : 1); l++) {
            const tiny_tensor *from = &tensors[t];
            int64_t numbers = (from->rows ? from->rows : 1) * from->columns;
            assert_true(total < 256);
            snprintf(names[total], sizeof(names[0]), from->name, (int)l);
            made[total] = (plsh_tensor){
                .name = names[total],
                .type = PLSH_WEIGHT_F32,
                .rank = from->rows ? 2 : 1,
                .shape = {from->rows ? from->rows : from->columns, from->rows ? from->columns : 0},
                .data = make_numbers(numbers, !from->rows, (uint32_t)total),
                .size = (size_t)numbers * sizeof(float)};
            total++;
        }
    }
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    write_safetensors(path, made, total);
    for (size_t i = 0; i < total; i++) free((void *)(uintptr_t)made[i].data);
    return folder;
}

const char *tiny_llama(void) {
    return tiny_model_write(tiny_llama_config, tiny_llama_tensors, tiny_llama_count, 2);
}

const char *tiny_llama_dropping(double p) {
    char config[sizeof(tiny_llama_config) + 64];
    const int body = (int)strlen(tiny_llama_config) - 1; /* but its brace */
    snprintf(config, sizeof(config), "%.*s, \"attention_dropout\": %g}", body, tiny_llama_config,
             p);
    return tiny_model_write(config, tiny_llama_tensors, tiny_llama_count, 2);
}

void tiny_model_remove(const char *folder) {
    char path[1024];
    DIR *directory = opendir(folder);
    if (!directory) return;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        snprintf(path, sizeof(path), "%s/%.200s", folder, entry->d_name);
        if (entry->d_name[0] != '.') unlink(path);
    }
    closedir(directory);
    rmdir(folder);
}

void tiny_model_copy_tensors(plsh_weights_writer *writer, const plsh_weights *weights) {
    plsh_error error;
    for (size_t i = 0; i < plsh_weights_count(weights); i++)
        assert_ok(plsh_weights_writer_declare(writer, plsh_weights_at(weights, i), &error));
    for (size_t i = 0; i < plsh_weights_count(weights); i++) {
        const plsh_tensor *tensor = plsh_weights_at(weights, i);
        assert_ok(plsh_weights_writer_bytes(writer, tensor->data, tensor->size, &error));
    }
    assert_ok(plsh_weights_writer_commit(writer, &error));
}

void tiny_model_same_weights(const char *one, const char *other) {
    plsh_weights *a, *b;
    plsh_error error;
    assert_ok(plsh_weights_open(&a, one, &error));
    assert_ok(plsh_weights_open(&b, other, &error));
    assert_int_equal(plsh_weights_count(a), plsh_weights_count(b));
    for (size_t i = 0; i < plsh_weights_count(a); i++) {
        const plsh_tensor *x = plsh_weights_at(a, i), *y = plsh_weights_find(b, x->name);
        if (!y) fail_msg("%s is missing", x->name);
        assert_int_equal(x->size, y->size);
        assert_memory_equal(x->shape, y->shape, (size_t)x->rank * sizeof *x->shape);
        if (memcmp(x->data, y->data, x->size) != 0) fail_msg("%s differs", x->name);
    }
    plsh_weights_close(a);
    plsh_weights_close(b);
}
