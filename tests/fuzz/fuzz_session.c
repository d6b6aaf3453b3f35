/* fuzz: cache and session files.
 *
 *     byte 0    flags, see below
 *     byte 1    which of the configs
 *     payload   what follows the config in a cache file, without its digest; of a session that of
 *               layer 0 behind its 16-bit size, then that of layer 1
 *
 * Config, digests, sizes and fingerprint are put around it as they have to be, so that mutations
 * reach what is behind them; flags make one of them wrong, or take the bytes as they are. What is
 * loaded is used: steps, a fork, a truncation. */
#include "base/checksum.h"
#include "fuzz/fuzz_model.h"
#include "plsh/model.h"

#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    FLAG_SESSION = 1,
    FLAG_RAW = 2,         /* the payload is the whole file */
    FLAG_FINGERPRINT = 4, /* of another model */
    FLAG_LAYERS = 8,
    FLAG_SIZES = 16,
    FLAG_CHECKSUM = 32,
    FLAG_DIGEST = 64,
    CONFIGS = 8,
    MOST = 1 << 16
};

typedef struct bytes {
    unsigned char at[3 * MOST];
    size_t used;
} bytes;

static void add(bytes *to, const void *from, size_t size) {
    fuzz_fail_if(size > sizeof to->at - to->used, "the input is too long");
    if (size > 0) memcpy(to->at + to->used, from, size);
    to->used += size;
}

/* As src/attention/cache/file.c has it. */
static uint64_t digest(const unsigned char *at, size_t size) {
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (; size > 0; at += 8) {
        uint64_t word = 0;
        size_t part = size < 8 ? size : 8;
        memcpy(&word, at, part);
        sum = (sum ^ word) * UINT64_C(0x100000001b3);
        sum ^= sum >> 29;
        size -= part;
    }
    return sum;
}

static plsh_cache_config config_of(int which, plsh_head *head) {
    static const plsh_method methods[CONFIGS] = {
        PLSH_METHOD_DENSE, PLSH_METHOD_EXACT, PLSH_METHOD_WINDOW, PLSH_METHOD_FIXED,
        PLSH_METHOD_PLSH,  PLSH_METHOD_MEAN,  PLSH_METHOD_NONE,   PLSH_METHOD_WINDOW};
    *head = (plsh_head){.method = methods[which], .window = 70, .block = 32, .eps = 1e-3};
    head->partition.decay = (plsh_decay){.kind = PLSH_DECAY_ALIBI, .a = 4.0};
    head->partition.samples = 3;
    return (plsh_cache_config){.heads = 2,
                               .kv_heads = which % 2 ? 1 : 2,
                               .head_dim = 4,
                               .dtype = which < 4 ? PLSH_DTYPE_FLOAT32 : PLSH_DTYPE_FLOAT16,
                               .head = head,
                               .head_count = 1,
                               .undo = which == 2 ? 3 : 0,
                               .threads = 1};
}

/* What a cache of this kind begins with: magic number and config of an empty one. */
static void prefix_of(const plsh_cache *empty, int64_t kv_heads, const char *path, bytes *out) {
    plsh_error error;
    const size_t size = plsh_cache_file_bytes(empty);
    plsh_status status = plsh_cache_save(empty, path, &error);
    fuzz_fail_if(status != PLSH_STATUS_OK, error.message);
    FILE *file = fopen(path, "rb");
    fuzz_fail_if(file == NULL || fread(out->at, 1, size, file) != size, "no prefix");
    fclose(file);
    out->used = size - (size_t)(3 + kv_heads) * sizeof(int64_t);
}

static void add_cache(bytes *to, const bytes *prefix, const uint8_t *payload, size_t size,
                      bool wrong) {
    const size_t begin = to->used;
    add(to, prefix->at, prefix->used);
    add(to, payload, size);
    const uint64_t sum = digest(to->at + begin, to->used - begin) ^ (uint64_t)wrong;
    add(to, &sum, sizeof sum);
}

/* ---- Caches ---------------------------------------------------------------------------------- */

static void use_cache(plsh_cache *cache) {
    float in[3][8] = {{0.5f, -1, 2, 0.25f}, {1}, {0, 1}}, out[8];
    plsh_cache *fork;
    plsh_tokens token = {.count = 1,
                         .q = in[0],
                         .k = in[1],
                         .v = in[2],
                         .o = out,
                         .q_layout = {.head_stride = 4, .row_stride = 8},
                         .k_layout = {.head_stride = 4, .row_stride = 8},
                         .v_layout = {.head_stride = 4, .row_stride = 8},
                         .o_layout = {.head_stride = 4, .row_stride = 8}};
    const int64_t length = plsh_cache_length(cache);
    for (int i = 0; i < 3; i++) {
        plsh_status status = plsh_cache_step(cache, &token, NULL, NULL);
        fuzz_fail_if(status == PLSH_STATUS_OK && plsh_cache_length(cache) != length + i + 1,
                     "a step did not count");
        if (status != PLSH_STATUS_OK) break;
    }
    if (plsh_cache_fork(cache, &fork, NULL) == PLSH_STATUS_OK) plsh_cache_destroy(fork);
    plsh_cache_truncate(cache, plsh_cache_earliest(cache), NULL);
    plsh_cache_step(cache, &token, NULL, NULL);
}

static void try_cache(int flags, int which, const uint8_t *payload, size_t size) {
    static bytes prefix[CONFIGS], file;
    plsh_head head;
    plsh_cache_config config = config_of(which, &head);
    plsh_cache *cache;
    if (prefix[which].used == 0) {
        plsh_error error;
        plsh_status status = plsh_cache_create(&config, &cache, &error);
        fuzz_fail_if(status != PLSH_STATUS_OK, error.message);
        prefix_of(cache, config.kv_heads, fuzz_path("cache"), &prefix[which]);
        plsh_cache_destroy(cache);
    }
    file.used = 0;
    if (flags & FLAG_RAW)
        add(&file, payload, size);
    else
        add_cache(&file, &prefix[which], payload, size, flags & FLAG_DIGEST);
    plsh_status status = plsh_cache_parse(&config, file.at, file.used, "input", &cache, NULL);
    fuzz_fail_if((status == PLSH_STATUS_OK) != (cache != NULL), "a cache that failed");
    if (cache == NULL) return;
    fuzz_fail_if(flags & FLAG_DIGEST && !(flags & FLAG_RAW), "a wrong digest was taken");
    fuzz_fail_if(plsh_cache_file_bytes(cache) != file.used, "a cache of another size");
    use_cache(cache);
    plsh_cache_destroy(cache);
}

/* ---- Sessions -------------------------------------------------------------------------------- */

typedef struct known {
    plsh_model *model;
    bytes prefix[FUZZ_LAYERS];
    uint64_t fingerprint;
} known;

/* The fingerprint and the prefixes of a session of this model that was saved without tokens. */
static void learn(known *k) {
    plsh_error error;
    plsh_session *session;
    static bytes file;
    fuzz_fail_if(plsh_model_open(&k->model, fuzz_path("model"), &(plsh_model_options){.threads = 1},
                                 &error) != PLSH_STATUS_OK,
                 error.message);
    fuzz_fail_if(plsh_session_create(&session, k->model, NULL, &error) != PLSH_STATUS_OK ||
                     plsh_session_save(session, fuzz_path("session"), &error) != PLSH_STATUS_OK,
                 error.message);
    plsh_session_destroy(session);
    FILE *in = fopen(fuzz_path("session"), "rb");
    fuzz_fail_if(in == NULL, "no session");
    file.used = fread(file.at, 1, sizeof file.at, in);
    fclose(in);
    uint64_t words[3 + FUZZ_LAYERS];
    memcpy(words, file.at, sizeof words);
    k->fingerprint = words[1];
    size_t at = sizeof words + sizeof(uint64_t);
    for (int l = 0; l < FUZZ_LAYERS; l++) { /* 2 kv heads: BLOOM's are as many as its heads */
        add(&k->prefix[l], file.at + at, (size_t)words[3 + l] - 5 * sizeof(int64_t));
        at += (size_t)words[3 + l];
    }
}

static void build_session(const known *k, int flags, const uint8_t *payload, size_t size,
                          bytes *file) {
    static bytes caches;
    uint64_t words[4 + FUZZ_LAYERS] = {0, k->fingerprint, FUZZ_LAYERS};
    const size_t announced = size < 2 ? 0 : (size_t)payload[0] | (size_t)payload[1] << 8;
    const size_t rest = size < 2 ? 0 : size - 2, first = announced < rest ? announced : rest;
    memcpy(words, "PLSHSES1", 8);
    caches.used = 0;
    for (int l = 0; l < FUZZ_LAYERS; l++) {
        const size_t before = caches.used;
        add_cache(&caches, &k->prefix[l], payload + (rest > 0 ? 2 : 0) + (l ? first : 0),
                  l ? rest - first : first, flags & FLAG_DIGEST);
        words[3 + l] = caches.used - before;
    }
    if (flags & FLAG_FINGERPRINT) words[1]++;
    if (flags & FLAG_LAYERS) words[2]++;
    if (flags & FLAG_SIZES) words[3] += 8, words[4] -= 8;
    words[3 + FUZZ_LAYERS] = plsh_checksum(words, sizeof words - sizeof *words);
    if (flags & FLAG_CHECKSUM) words[3 + FUZZ_LAYERS]++;
    file->used = 0;
    add(file, words, sizeof words);
    add(file, caches.at, caches.used);
}

static void try_session(int flags, const uint8_t *payload, size_t size) {
    static known k;
    static bytes file;
    static int memory = -1;
    static char path[64];
    plsh_session *session;
    if (k.model == NULL) learn(&k);
    if (memory < 0) memory = memfd_create("session", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    if (flags & FLAG_RAW) {
        file.used = 0;
        add(&file, payload, size);
    } else {
        build_session(&k, flags, payload, size, &file);
    }
    fuzz_fail_if(ftruncate(memory, 0) != 0 ||
                     pwrite(memory, file.at, file.used, 0) != (ssize_t)file.used,
                 "a file in memory");
    const plsh_session_options small = {.chunk = 4}; /* less memory to be made for each */
    plsh_status status = plsh_session_load(&session, k.model, &small, path, NULL);
    fuzz_fail_if((status == PLSH_STATUS_OK) != (session != NULL), "a session that failed");
    if (session == NULL) return;
    const int wrong = FLAG_FINGERPRINT | FLAG_LAYERS | FLAG_SIZES | FLAG_CHECKSUM | FLAG_DIGEST;
    fuzz_fail_if(flags & wrong && !(flags & FLAG_RAW), "a wrong header was taken");
    const int32_t ids[3] = {1, 2, 3};
    float logits[FUZZ_VOCABULARY];
    plsh_step step = {.ids = ids, .count = 3, .logits = logits};
    plsh_session_step(session, &step, NULL);
    plsh_session_truncate(session, 0, NULL);
    plsh_session_destroy(session);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool made;
    if (!made) fuzz_make_model();
    made = true;
    if (size < 2 || size > MOST) return 0;
    if (data[0] & FLAG_SESSION)
        try_session(data[0], data + 2, size - 2);
    else
        try_cache(data[0], data[1] % CONFIGS, data + 2, size - 2);
    return 0;
}
