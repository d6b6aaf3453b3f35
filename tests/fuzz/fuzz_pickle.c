/* fuzz: files of torch.save: a pickle in an archive that is made right, or the whole file.
 *
 * Byte 0 of an input says which: 0: the rest is the file; otherwise the rest is the pickle, and an
 * archive is made around it with storages 0 (six float32) and 1 (four bfloat16). Whatever opens
 * lies inside the file, and opens the same twice. */
#include <stdlib.h>
#include <string.h>

#include "plsh/weights.h"

enum { OVERHEAD = 1024 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct writer {
    uint8_t *bytes;
    size_t at, begin[3];
} writer;

static void put_number(writer *w, uint64_t number, int width) {
    for (int i = 0; i < width; i++) w->bytes[w->at++] = (uint8_t)(number >> 8 * i);
}

static void put_bytes(writer *w, const void *bytes, size_t size) {
    if (size > 0) memcpy(w->bytes + w->at, bytes, size);
    w->at += size;
}

static void put_entry(writer *w, int i, const char *name, const void *bytes, size_t size) {
    w->begin[i] = w->at;
    put_bytes(w, "PK\3\4", 4);
    memset(w->bytes + w->at, 0, 22);
    w->at += 22;
    const size_t pad = (64 - (w->at + 4 + strlen(name)) % 64) % 64;
    put_number(w, strlen(name), 2);
    put_number(w, pad, 2);
    put_bytes(w, name, strlen(name));
    memset(w->bytes + w->at, 'Z', pad);
    w->at += pad;
    put_bytes(w, bytes, size);
}

static void put_directory_entry(writer *w, int i, const char *name, size_t size) {
    put_bytes(w, "PK\1\2", 4);
    memset(w->bytes + w->at, 0, 16);
    w->at += 16;
    put_number(w, size, 4);
    put_number(w, size, 4);
    put_number(w, strlen(name), 2);
    memset(w->bytes + w->at, 0, 12);
    w->at += 12;
    put_number(w, w->begin[i], 4);
    put_bytes(w, name, strlen(name));
}

/* The archive around a pickle; the bytes begin on a boundary of 8. */
static size_t make_archive(uint8_t *out, const uint8_t *pickle, size_t size) {
    static const char *const names[] = {"m/data.pkl", "m/data/0", "m/data/1"};
    const size_t sizes[] = {size, 24, 8};
    const uint8_t numbers[24] = {0, 0, 128, 63};
    writer w = {.bytes = out};
    for (int i = 0; i < 3; i++) put_entry(&w, i, names[i], i ? numbers : pickle, sizes[i]);
    const size_t begin = w.at;
    for (int i = 0; i < 3; i++) put_directory_entry(&w, i, names[i], sizes[i]);
    const size_t directory = w.at - begin;
    put_bytes(&w, "PK\5\6", 4);
    put_number(&w, 0, 4);
    put_number(&w, 3, 2);
    put_number(&w, 3, 2);
    put_number(&w, directory, 4);
    put_number(&w, begin, 4);
    put_number(&w, 0, 2);
    return w.at;
}

static uint64_t walk(const plsh_weights *weights, const uint8_t *bytes, size_t size) {
    uint64_t sum = plsh_weights_count(weights);
    for (size_t i = 0; i < plsh_weights_count(weights); i++) {
        const plsh_tensor *tensor = plsh_weights_at(weights, i);
        const uint8_t *data = tensor->data;
        if (plsh_weights_find(weights, tensor->name) != tensor) abort();
        if (tensor->size == 0) continue;
        if (data < bytes || tensor->size > size || data + tensor->size > bytes + size) abort();
        sum += data[0] + data[tensor->size - 1];
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    uint8_t *file = aligned_alloc(64, (size + OVERHEAD + 63) / 64 * 64);
    if (!file) return 0;
    size_t length = size - 1;
    if (data[0] == 0)
        memcpy(file, data + 1, length);
    else
        length = make_archive(file, data + 1, size - 1);
    plsh_weights *weights[2];
    plsh_status status[2];
    for (int i = 0; i < 2; i++)
        status[i] = plsh_weights_parse(&weights[i], file, length, "input", NULL);
    if (status[0] != status[1] || (status[0] == PLSH_STATUS_OK) != (weights[0] != NULL)) abort();
    if (weights[0] && walk(weights[0], file, length) != walk(weights[1], file, length)) abort();
    plsh_weights_close(weights[0]);
    plsh_weights_close(weights[1]);
    free(file);
    return 0;
}
