/* text: tokens and their ids. */
#include "text/vocabulary.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

static uint64_t hash_bytes(const char *bytes, size_t length) {
    uint64_t hash = 0x9E3779B97F4A7C15u ^ length;
    for (; length >= 8; bytes += 8, length -= 8) {
        uint64_t eight;
        memcpy(&eight, bytes, 8);
        hash = (hash ^ eight) * 0x9FB21C651E98DF25u;
        hash ^= hash >> 32;
    }
    uint64_t rest = 0;
    for (size_t i = 0; i < length; i++) rest = rest << 8 | (unsigned char)bytes[i];
    return plsh_hash_number(hash ^ rest);
}

static size_t slot_of_string(const plsh_vocabulary *v, const char *bytes, size_t length) {
    size_t slot = hash_bytes(bytes, length) & (v->slots - 1);
    for (; v->by_string[slot] != 0; slot = (slot + 1) & (v->slots - 1)) {
        const struct plsh_vocabulary_entry *entry = &v->entries[v->by_string[slot] - 1];
        if (entry->length == length && memcmp(v->strings.bytes + entry->begin, bytes, length) == 0)
            break;
    }
    return slot;
}

static size_t slot_of_id(const plsh_vocabulary *v, int32_t id) {
    size_t slot = plsh_hash_number((uint64_t)id) & (v->slots - 1);
    while (v->by_id[slot] != 0 && v->entries[v->by_id[slot] - 1].id != id)
        slot = (slot + 1) & (v->slots - 1);
    return slot;
}

plsh_status plsh_vocabulary_reserve(plsh_vocabulary *v, size_t count, plsh_error *error) {
    if (count <= v->capacity) return PLSH_STATUS_OK;
    if (count > UINT32_MAX / 4)
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "a vocabulary of %zu tokens", count);
    plsh_vocabulary grown = {.count = v->count, .capacity = count, .slots = 16};
    while (grown.slots < 2 * count) grown.slots *= 2;
    plsh_status status =
        plsh_allocate((void **)&grown.entries, count, sizeof *grown.entries, "vocabulary", error);
    if (status == PLSH_STATUS_OK)
        status = plsh_allocate((void **)&grown.by_string, grown.slots, sizeof *grown.by_string,
                               "vocabulary", error);
    if (status == PLSH_STATUS_OK)
        status = plsh_allocate((void **)&grown.by_id, grown.slots, sizeof *grown.by_id,
                               "vocabulary", error);
    if (status != PLSH_STATUS_OK) {
        plsh_vocabulary_free(&grown);
        return status;
    }
    grown.strings = v->strings;
    grown.longest = v->longest;
    grown.largest = v->largest;
    for (size_t i = 0; i < v->count; i++) {
        grown.entries[i] = v->entries[i];
        const struct plsh_vocabulary_entry *entry = &v->entries[i];
        grown.by_string[slot_of_string(&grown, v->strings.bytes + entry->begin, entry->length)] =
            (uint32_t)i + 1;
        const size_t slot = slot_of_id(&grown, entry->id);
        if (grown.by_id[slot] == 0) grown.by_id[slot] = (uint32_t)i + 1;
    }
    v->strings = (plsh_text){0};
    plsh_vocabulary_free(v);
    *v = grown;
    return PLSH_STATUS_OK;
}

void plsh_vocabulary_free(plsh_vocabulary *v) {
    plsh_text_free(&v->strings);
    plsh_release(v->entries);
    plsh_release(v->by_string);
    plsh_release(v->by_id);
    *v = (plsh_vocabulary){0};
}

plsh_status plsh_vocabulary_add(plsh_vocabulary *v, const char *bytes, size_t length, int32_t id,
                                plsh_error *error) {
    plsh_status status = PLSH_STATUS_OK;
    if (v->count == v->capacity)
        status = plsh_vocabulary_reserve(v, v->count < 8 ? 16 : 2 * v->count, error);
    if (status != PLSH_STATUS_OK) return status;
    const size_t slot = slot_of_string(v, bytes, length);
    if (v->by_string[slot] == 0) {
        const size_t begin = v->strings.length;
        plsh_text_append(&v->strings, bytes, length);
        status = plsh_text_status(&v->strings, error);
        if (status != PLSH_STATUS_OK) return status;
        v->entries[v->count++] = (struct plsh_vocabulary_entry){begin, length, id};
        v->by_string[slot] = (uint32_t)v->count;
    }
    const uint32_t entry = v->by_string[slot];
    v->entries[entry - 1].id = id;
    const size_t place = slot_of_id(v, id);
    if (v->by_id[place] == 0) v->by_id[place] = entry;
    if (length > v->longest) v->longest = length;
    if (v->count == 1 || id > v->largest) v->largest = id;
    return PLSH_STATUS_OK;
}

int32_t plsh_vocabulary_find(const plsh_vocabulary *v, const char *bytes, size_t length) {
    if (v->count == 0 || length > v->longest) return PLSH_NO_TOKEN;
    const uint32_t entry = v->by_string[slot_of_string(v, bytes, length)];
    return entry == 0 ? PLSH_NO_TOKEN : v->entries[entry - 1].id;
}

const char *plsh_vocabulary_token(const plsh_vocabulary *v, int64_t id, size_t *length) {
    *length = 0;
    if (v->count == 0 || id < 0 || id > INT32_MAX) return NULL;
    const uint32_t entry = v->by_id[slot_of_id(v, (int32_t)id)];
    if (entry == 0) return NULL;
    *length = v->entries[entry - 1].length;
    return v->strings.bytes == NULL ? "" : v->strings.bytes + v->entries[entry - 1].begin;
}
