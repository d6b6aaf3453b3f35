/* fuzz: the public descriptors: decays, partitions, heads, plans, caches with hostile numbers. What
 * is refused has a message; what is taken runs on tiny arrays, twice with the same bits, and
 * outputs of finite values are finite and no larger than they are.
 *
 * Errors that the library cannot detect, such as arrays shorter than the descriptor says, are not
 * tested; nor are valid sizes that take long. */
#include "plsh/cache.h"
#include "plsh/plsh.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEADS = 4, ROWS = 96, DIM = 24, SAMPLES = 64, TABLE = 16, SEQUENCES = 3 };
enum { SIZE = HEADS * ROWS * DIM };

static void fail_if(bool wrong) {
    if (wrong) abort();
}

/* ---- Numbers of the input -------------------------------------------------------------------- */

typedef struct input {
    const uint8_t *at;
    size_t left;
} input;

static void take(input *in, void *to, size_t size) {
    const size_t have = size < in->left ? size : in->left;
    memset(to, 0, size);
    memcpy(to, in->at, have);
    in->at += have;
    in->left -= have;
}

static unsigned take_byte(input *in) {
    uint8_t byte;
    take(in, &byte, 1);
    return byte;
}

/* Small, at an edge, or anything. */
static int64_t take_integer(input *in) {
    static const int64_t edges[] = {INT64_MIN,
                                    -1,
                                    INT64_C(1) << 20,
                                    (INT64_C(1) << 20) + 1,
                                    (INT64_C(1) << 24) + 1,
                                    INT64_C(1) << 31,
                                    INT64_C(1) << 40,
                                    INT64_C(1) << 58,
                                    INT64_C(1) << 61,
                                    INT64_MAX};
    const unsigned how = take_byte(in);
    int64_t any;
    if (how < 224) return how;
    if (how < 248) return edges[how % (sizeof edges / sizeof *edges)];
    take(in, &any, sizeof any);
    return any;
}

static double take_real(input *in) {
    static const double edges[] = {0,    -1,  1,        0.5,  2,  1e-300, 5e-324,   1e300,
                                   1e38, 1e9, 0.999999, 1e-9, 16, NAN,    INFINITY, -INFINITY};
    const unsigned how = take_byte(in);
    double any;
    if (how < 128) return how / 8.0;
    if (how < 240) return edges[how % (sizeof edges / sizeof *edges)];
    take(in, &any, sizeof any);
    return any;
}

/* ---- Descriptors ----------------------------------------------------------------------------- */

static double table[TABLE];
static int32_t labels[SAMPLES * ROWS];
static float q[SIZE], k[SIZE], v[SIZE], d_o[SIZE], lse[HEADS * ROWS], certificate[HEADS * ROWS];
static bool is_plain; /* all of q, k, v are numbers of at most 1 */

static void fill_table(input *in) {
    const unsigned how = take_byte(in);
    for (int i = 0; i < TABLE; i++) {
        table[i] = how % 4 == 0 ? take_real(in) : exp(-i / (1.0 + how));
        if (how % 4 == 1) table[i] = i % 3 == 2 ? 1 : table[i];
    }
    for (int i = 0; i < SAMPLES * ROWS; i++) {
        if (how % 3 == 0) labels[i] = i % ROWS / (1 + (int)(how % 16)) + i / ROWS;
        if (how % 3 == 1) labels[i] = i % (1 + (int)(how % 16));
        if (how % 3 == 2) labels[i] = i * (int)how - INT32_MAX / 2;
    }
}

static void fill_arrays(input *in) {
    float *const arrays[] = {q, k, v, d_o};
    const unsigned how = take_byte(in);
    is_plain = how < 192;
    for (int a = 0; a < 4; a++)
        for (int i = 0; i < SIZE; i++) {
            const uint32_t bits = (uint32_t)(i * 4 + a + (int)how) * 2654435761u;
            arrays[a][i] = (float)(bits >> 8) * 0x1p-23f - 1;
            if (how % 8 == 1) arrays[a][i] = i % 7 == 0 ? 1.0f : 0.0f;
        }
    for (int i = 0; !is_plain && i < 16; i++) { /* anything, anywhere */
        float x;
        take(in, &x, sizeof x);
        arrays[take_byte(in) % 3][(take_byte(in) * 256 + take_byte(in)) % SIZE] = x;
    }
}

static plsh_decay take_decay(input *in) {
    plsh_decay decay = {.kind = (plsh_decay_kind)(take_byte(in) % (PLSH_DECAY_TABLE + 2)),
                        .a = take_real(in),
                        .b = take_real(in),
                        .limit = take_byte(in) % 4 ? 0 : take_real(in),
                        .table = take_byte(in) % 8 ? table : NULL};
    const int64_t entries = take_integer(in);
    decay.table_size = entries < 0 || entries > TABLE ? TABLE : (size_t)entries;
    return decay;
}

static plsh_partition take_partition(input *in) {
    plsh_partition set = {.scheme = (plsh_scheme)(take_byte(in) % (PLSH_SCHEME_HYPERPLANES + 2)),
                          .design = (plsh_design)(take_byte(in) % (PLSH_DESIGN_AUTO + 2)),
                          .decay = take_decay(in),
                          .samples = take_integer(in),
                          .seed = (uint64_t)take_integer(in),
                          .head = take_byte(in),
                          .axis = take_byte(in) % 4,
                          .labels = take_byte(in) % 8 ? labels : NULL,
                          .label_count = take_integer(in)};
    if (set.samples > SAMPLES && set.samples <= INT64_C(1) << 24) set.samples %= SAMPLES;
    if (set.label_count > ROWS) set.label_count = ROWS;
    if (set.samples > SAMPLES) set.labels = NULL; /* there are no more */
    return set;
}

static plsh_head take_head(input *in) {
    return (plsh_head){.method = (plsh_method)(take_byte(in) % (PLSH_METHOD_AUTO + 2)),
                       .partition = take_partition(in),
                       .eps = take_byte(in) % 2 ? 0 : take_real(in),
                       .window = take_integer(in),
                       .block = take_integer(in)};
}

/* Small, or too large for any plan. */
static int64_t take_size(input *in, int64_t most, int64_t limit) {
    const int64_t size = take_integer(in);
    return size > most && size <= limit ? size % (most + 1) : size;
}

static plsh_layout take_layout(input *in, bool *plain) {
    if (take_byte(in) % 16) return (plsh_layout){0, 0};
    *plain = false;
    return (plsh_layout){take_integer(in), take_integer(in)};
}

/* ---- Decays and partitions ------------------------------------------------------------------- */

static void try_decay(input *in) {
    const plsh_decay decay = take_decay(in);
    plsh_error error = {.message = ""};
    double gradient[2];
    if (plsh_decay_check(&decay, &error)) {
        fail_if(error.message[0] == '\0');
        return;
    }
    const bool convex = plsh_decay_check_convex(&decay, &error) == PLSH_STATUS_OK;
    for (int i = 0; i < 4; i++) {
        const int64_t t = take_integer(in) & (INT64_MAX >> 2), count = take_integer(in) & INT64_MAX;
        const double value = plsh_decay_value(&decay, t);
        fail_if(!(value >= 0 && value <= 1));
        fail_if(isnan(plsh_decay_log(&decay, t)) || plsh_decay_log(&decay, t) > 0);
        fail_if(convex && !(plsh_decay_drop(&decay, t) >= -1e-15));
        fail_if(!(plsh_decay_tail(&decay, t, count) >= (count > 0 ? value * (1 - 1e-9) : 0)));
        plsh_decay_log_gradient(&decay, t, gradient);
    }
}

static void try_partition(input *in) {
    plsh_partition set = take_partition(in);
    plsh_error error = {.message = ""};
    int32_t made[ROWS];
    if (plsh_partition_check(&set, &error)) {
        fail_if(error.message[0] == '\0');
        return;
    }
    const bool user = set.scheme == PLSH_SCHEME_LABELS;
    /* golden-shifted has blocks but no draws: no block of a draw, and no labels */
    const bool has_draws = user || set.design != PLSH_DESIGN_GOLDEN_SHIFTED;
    for (int i = 0; i < 4; i++) {
        const int64_t m = (take_integer(in) & INT64_MAX) % set.samples;
        int64_t at = (take_integer(in) & INT64_MAX) >> 2;
        plsh_range block;
        if (user && set.label_count == 0) return;
        if (user) at %= set.label_count;
        plsh_partition_block(&set, m, at, &block);
        fail_if(has_draws ? !(block.begin <= at && at < block.end) : block.begin != block.end);
        fail_if(has_draws && !plsh_partition_same(&set, m, at, at));
        const int64_t n = user ? set.label_count : ROWS;
        if (plsh_partition_labels(&set, m, n, made, &error) == PLSH_STATUS_OK)
            fail_if(n > 0 && !user && made[0] != 0);
        if (set.samples > SAMPLES) continue;
        const int64_t draws = plsh_partition_count(&set, at, at);
        fail_if(has_draws ? draws != set.samples : draws < 1);
    }
}

/* ---- Plans ----------------------------------------------------------------------------------- */

typedef struct case_of_plan {
    plsh_attention a;
    plsh_head head[HEADS];
    int64_t query_offsets[SEQUENCES + 1], key_offsets[SEQUENCES + 1];
    plsh_place places[SEQUENCES + 1];
    bool plain; /* layouts without gaps, sizes of the arrays: it can run */
} case_of_plan;

static void take_rows(input *in, case_of_plan *c) {
    plsh_attention *a = &c->a;
    a->keys = take_size(in, ROWS, INT64_C(1) << 40);
    a->queries = take_byte(in) % 2 ? a->keys : take_size(in, ROWS, INT64_C(1) << 40);
    a->sequences = take_byte(in) % 4 ? 0 : take_integer(in);
    if (a->sequences > SEQUENCES) a->sequences %= SEQUENCES + 1;
    for (int x = 0; x <= SEQUENCES; x++) {
        c->query_offsets[x] = x == 0 ? 0 : x == a->sequences ? a->queries : take_integer(in);
        c->key_offsets[x] = x == 0 ? 0 : x == a->sequences ? a->keys : take_integer(in);
        /* Rows that lie far apart are fine, and have decay tables of all distances between. */
        const int64_t key = take_integer(in), beside = take_byte(in);
        c->places[x] = (plsh_place){key > INT64_MAX - ROWS ? key : key + beside % ROWS, key};
    }
    a->query_offsets = take_byte(in) % 8 ? c->query_offsets : NULL;
    a->key_offsets = take_byte(in) % 8 ? c->key_offsets : NULL;
    a->places = take_byte(in) % 4 ? NULL : c->places;
}

static void take_case(input *in, case_of_plan *c) {
    static const char *const isas[] = {NULL, NULL, NULL, "reference", "avx2", "neon", "", "x"};
    plsh_attention *a = &c->a;
    c->plain = true;
    for (int h = 0; h < HEADS; h++) c->head[h] = h < 2 ? take_head(in) : c->head[h - 2];
    *a = (plsh_attention){.heads = take_size(in, HEADS, 1 << 20),
                          .kv_heads = take_size(in, HEADS, 1 << 20),
                          .head_dim = take_size(in, DIM, 512),
                          .value_dim = take_size(in, DIM, 512),
                          .causal = take_byte(in) % 2,
                          .check_finite = take_byte(in) % 4 == 0,
                          .scale = take_byte(in) % 2 ? 0 : take_real(in),
                          .dtype = PLSH_DTYPE_FLOAT32,
                          .o_dtype = (plsh_dtype)(take_byte(in) % 8 ? 0 : take_byte(in) % 9),
                          .head = take_byte(in) % 32 ? c->head : NULL,
                          .head_count = take_byte(in) % 4 ? 1 : take_size(in, HEADS, 1 << 20),
                          .threads = take_byte(in) % 16 ? 1 : 5000,
                          .isa = isas[take_byte(in) % 8]};
    take_rows(in, c);
    a->q = take_layout(in, &c->plain);
    a->k = take_layout(in, &c->plain);
    a->v = take_layout(in, &c->plain);
    a->o = take_layout(in, &c->plain);
}

/* Means of values of at most 1, of rows that are all numbers. */
static void check_output(const case_of_plan *c, const float *o, size_t count) {
    if (!is_plain || c->a.o_dtype != PLSH_DTYPE_FLOAT32 || !(fabs(c->a.scale) <= 1e30)) return;
    for (size_t i = 0; i < count; i++) fail_if(!(fabsf(o[i]) <= 1.0001f));
}

static void check_certificate(const plsh_attention *a) {
    for (int64_t i = 0; i < a->heads * a->queries; i++) fail_if(certificate[i] < 0);
}

static void run_backward(const case_of_plan *c, const plsh_plan *plan, const float *o) {
    static float d_q[SIZE], d_k[SIZE], d_v[SIZE];
    double d_decay[2 * HEADS];
    void *workspace = aligned_alloc(64, plsh_plan_backward_workspace(plan) + 64);
    plsh_backward arrays = {.q = q, .k = k, .v = v, .o = o, .lse = lse, .d_o = d_o};
    arrays.d_q = d_q;
    arrays.d_k = d_k;
    arrays.d_v = d_v;
    arrays.d_decay = d_decay;
    plsh_error error;
    if (workspace && c->a.o_dtype == PLSH_DTYPE_FLOAT32)
        (void)plsh_plan_backward(plan, &arrays, workspace, NULL, &error);
    free(workspace);
}

static void run_plan(const case_of_plan *c, const plsh_plan *plan, input *in) {
    static float o[2][SIZE];
    const plsh_attention *a = &c->a;
    const size_t count =
        (size_t)(a->heads * a->queries * (a->value_dim ? a->value_dim : a->head_dim));
    const size_t bytes = plsh_plan_workspace(plan);
    if (bytes > 64 << 20) return;
    void *workspace = aligned_alloc(64, bytes + 64);
    const bool certifies = take_byte(in) % 2, drops = take_byte(in) % 4 == 0;
    plsh_error error = {.message = ""};
    plsh_status status[2];
    for (int i = 0; workspace && i < 2; i++) {
        memset(workspace, i ? 0xff : 0, bytes);
        plsh_forward arrays = {.q = q, .k = k, .v = v, .o = o[i], .lse = lse};
        if (certifies) arrays.certificate = certificate;
        if (drops) arrays.dropout.p = 0.25;
        status[i] = plsh_plan_forward(plan, &arrays, workspace, NULL, &error);
    }
    free(workspace);
    if (!workspace) return;
    fail_if(status[0] != status[1] || (status[0] && error.message[0] == '\0'));
    if (status[0]) return;
    const size_t size = a->o_dtype == PLSH_DTYPE_FLOAT32 ? 4 : 2;
    fail_if(memcmp(o[0], o[1], count * size) != 0);
    if (!drops) check_output(c, o[0], count);
    if (certifies) check_certificate(a);
    run_backward(c, plan, o[0]);
}

static void try_plan(input *in) {
    case_of_plan c;
    take_case(in, &c);
    plsh_plan *plan;
    plsh_error error = {.message = ""};
    plsh_range seen;
    const plsh_range rows = {take_integer(in), take_integer(in)};
    (void)plsh_attention_reach(&c.a, (int64_t)take_byte(in) - 1, rows, &seen, &error);
    (void)plsh_head_reach(c.head, c.a.causal, take_integer(in), rows, &seen, &error);
    error.message[0] = '\0';
    if (plsh_plan_create(&c.a, &plan, &error)) {
        fail_if(plan != NULL || error.message[0] == '\0');
        return;
    }
    for (int64_t h = 0; h < c.a.heads; h++) {
        const char *reason;
        fail_if(plsh_plan_head(plan, h, &reason).method == PLSH_METHOD_AUTO || !reason);
    }
    if (c.plain && c.a.keys <= ROWS && c.a.queries <= ROWS) run_plan(&c, plan, in);
    plsh_plan_destroy(plan);
}

/* ---- Caches ---------------------------------------------------------------------------------- */

static void step_cache(plsh_cache *cache, const case_of_plan *c, input *in) {
    static float o[SIZE];
    const int64_t heads = c->a.heads, count = take_byte(in) % ROWS;
    const plsh_tokens tokens = {.count = take_byte(in) % 16 ? count : take_integer(in),
                                .o_dtype = c->a.o_dtype,
                                .q = q,
                                .k = k,
                                .v = v,
                                .o = o,
                                .lse = lse};
    const int64_t dim = c->a.value_dim ? c->a.value_dim : c->a.head_dim;
    plsh_error error = {.message = ""};
    const unsigned how = take_byte(in) % 3;
    if (tokens.count > ROWS) return;
    plsh_status status = how == 0   ? plsh_cache_append(cache, &tokens, &error)
                         : how == 1 ? plsh_cache_attend(cache, &tokens, NULL, &error)
                                    : plsh_cache_step(cache, &tokens, NULL, &error);
    fail_if(status && error.message[0] == '\0');
    if (!status && how > 0 && tokens.count > 0)
        check_output(c, o, (size_t)(heads * tokens.count * dim));
}

static void try_cache(input *in) {
    case_of_plan c;
    take_case(in, &c);
    plsh_cache_config config = {.heads = c.a.heads,
                                .kv_heads = c.a.kv_heads,
                                .head_dim = c.a.head_dim,
                                .value_dim = c.a.value_dim,
                                .dtype = (plsh_dtype)(take_byte(in) % 4),
                                .scale = c.a.scale,
                                .head = c.a.head,
                                .head_count = c.a.head_count,
                                .undo = take_byte(in) % 2 ? 0 : take_integer(in),
                                .threads = c.a.threads,
                                .isa = c.a.isa};
    plsh_cache *cache, *fork = NULL;
    plsh_error error = {.message = ""};
    size_t bytes;
    if (plsh_cache_create(&config, &cache, &error)) {
        fail_if(error.message[0] == '\0');
        return;
    }
    (void)plsh_cache_workspace(&cache, 1, take_integer(in), &bytes, &error);
    for (int i = 0; i < 6 && in->left > 0; i++) {
        step_cache(cache, &c, in);
        if (take_byte(in) % 4 == 0) (void)plsh_cache_truncate(cache, take_integer(in), &error);
        if (!fork && take_byte(in) % 4 == 0) (void)plsh_cache_fork(cache, &fork, &error);
        if (fork) step_cache(fork, &c, in);
        fail_if(plsh_cache_earliest(cache) > plsh_cache_length(cache));
    }
    plsh_cache_destroy(cache);
    plsh_cache_destroy(fork);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = {data, size};
    const unsigned what = take_byte(&in);
    fill_table(&in);
    if (what % 8 == 0) try_decay(&in);
    if (what % 8 == 1) try_partition(&in);
    if (what % 8 < 2) return 0;
    fill_arrays(&in);
    if (what % 8 < 5)
        try_plan(&in);
    else
        try_cache(&in);
    return 0;
}
