/* tests: a case of the reference data. */
#include "support/golden.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

/* What follows "key": in the metadata after `from`. The files are flat enough for that. */
static const char *find_value(const char *from, const char *key) {
    char quoted[64];
    snprintf(quoted, sizeof(quoted), "\"%s\":", key);
    const char *at = strstr(from, quoted);
    return at ? at + strlen(quoted) : NULL;
}

static double number(const char *from, const char *key) {
    const char *at = find_value(from, key);
    if (!at) fail_msg("no %s in the metadata", key);
    return strtod(at, NULL);
}

static void read_array(plsh_npy *array, const char *name, const char *file, plsh_dtype type) {
    plsh_error error;
    char path[128];
    snprintf(path, sizeof(path), "golden/%s/%s.npy", name, file);
    assert_ok(plsh_npy_read(test_shared(path), array, &error));
    assert_int_equal(array->type, type);
}

static void read_meta(golden *g, const char *name) {
    char path[128];
    snprintf(path, sizeof(path), "golden/%s/meta.json", name);
    FILE *file = fopen(test_shared(path), "r");
    assert_non_null(file);
    size_t size = fread(g->meta, 1, sizeof(g->meta) - 1, file);
    fclose(file);
    g->meta[size] = '\0';
    g->scale = number(g->meta, "scale");
    g->causal = strncmp(find_value(g->meta, "causal"), " true", 5) == 0;
    const char *at = find_value(g->meta, "sigma");
    at = at ? strchr(at, '[') : NULL;
    for (int64_t h = 0; at && h < 8 && *at != ']'; h++) {
        char *end;
        g->sigma[h] = strtod(at + 1, &end);
        at = end + strspn(end, " \n");
    }
}

void golden_read(golden *g, const char *name) {
    memset(g, 0, sizeof(*g));
    read_meta(g, name);
    read_array(&g->q, name, "q", PLSH_DTYPE_FLOAT32);
    read_array(&g->k, name, "k", PLSH_DTYPE_FLOAT32);
    read_array(&g->v, name, "v", PLSH_DTYPE_FLOAT32);
    read_array(&g->d_o, name, "do", PLSH_DTYPE_FLOAT32);
    read_array(&g->o, name, "o", PLSH_DTYPE_FLOAT64);
    read_array(&g->lse, name, "lse", PLSH_DTYPE_FLOAT64);
    read_array(&g->d_q, name, "dq", PLSH_DTYPE_FLOAT64);
    read_array(&g->d_k, name, "dk", PLSH_DTYPE_FLOAT64);
    read_array(&g->d_v, name, "dv", PLSH_DTYPE_FLOAT64);
    if (strncmp(name, "masks/", 6) == 0) {
        read_array(&g->labels, name, "labels", PLSH_DTYPE_INT32);
        g->samples = g->labels.shape[1];
    }
    g->heads = g->q.shape[0];
    g->queries = g->q.shape[1];
    g->d = g->q.shape[2];
    g->kv_heads = g->k.shape[0];
    g->keys = g->k.shape[1];
    g->dv = g->v.shape[2];
}

void golden_free(golden *g) {
    plsh_npy *all[] = {&g->q,   &g->k,   &g->v,   &g->d_o, &g->o,
                       &g->lse, &g->d_q, &g->d_k, &g->d_v, &g->labels};
    for (int i = 0; i < 10; i++) plsh_npy_free(all[i]);
}

plsh_attention golden_attention(const golden *g, plsh_method method, plsh_head *head) {
    for (int64_t h = 0; h < g->heads; h++) {
        double sigma = g->sigma[h] > 0 ? g->sigma[h] : 1.0;
        head[h] = (plsh_head){.method = method, .partition.decay = plsh_decay_alibi(sigma)};
        if (!g->samples) continue;
        plsh_partition *set = &head[h].partition;
        set->scheme = PLSH_SCHEME_LABELS;
        set->samples = g->samples;
        set->labels = (const int32_t *)g->labels.data + h * g->samples * g->keys;
        set->label_count = g->keys;
    }
    return (plsh_attention){.heads = g->heads,
                            .kv_heads = g->kv_heads,
                            .queries = g->queries,
                            .keys = g->keys,
                            .head_dim = g->d,
                            .value_dim = g->dv,
                            .causal = g->causal,
                            .scale = g->scale,
                            .head = head,
                            .head_count = g->heads};
}

void golden_compare(const golden *g, const char *what, const char *array, const plsh_npy *expected,
                    const float *got) {
    double plain = number(find_value(g->meta, "float32_error"), array);
    double largest = number(find_value(g->meta, "max_abs"), array), worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < expected->count; i++) {
        double off = fabs((double)got[i] - ((const double *)expected->data)[i]);
        if (!(off <= worst)) {
            worst = off;
            at = i;
        }
    }
    double allowed = 2 * plain + 4 * FLT_EPSILON * largest;
    if (!(worst <= allowed))
        fail_msg("%s: %s[%zu] is off by %g; allowed are %g", what, array, at, worst, allowed);
}
