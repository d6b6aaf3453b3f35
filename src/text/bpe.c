/* text: byte pair encoding.
 *
 * Merging goes by rank, then from the left. A word is first cut where no merge can ever join its
 * symbols: a token that reaches over a cut would hold the two symbols beside it next to each other,
 * so pairs that occur in no merge are cuts. The pieces are short in any real text and are merged by
 * repeated linear search for the lowest rank; long pieces use a heap, in n log n. */
#include "text/bpe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "text/utf8.h"

enum {
    DIRECT = 0x3000,  /* characters whose ids are in a table: most alphabets */
    SHORT_PIECE = 48, /* the most symbols that are merged by search; from about this number on a
                         heap is faster */
};

#define NO_MERGE UINT32_MAX

typedef struct merge_slot {
    uint64_t pair; /* left << 32 | right, plus 1; 0: free */
    uint32_t rank;
    int32_t merged;
} merge_slot;

struct plsh_bpe {
    const plsh_vocabulary *vocabulary;
    char *unknown, *prefix, *suffix;
    bool fuse_unknown, byte_fallback, ignore_merges;
    int32_t unknown_id;
    int32_t direct[DIRECT], bytes[256];
    merge_slot *merges;
    size_t merge_slots;
    uint64_t *joined; /* bits by hash of a pair of symbols: clear where no merge joins them */
    size_t joined_bits;
    bool cuts; /* `joined` may be used */
};

/* ---- making ---- */

static plsh_status copy_text(char **out, const char *text, plsh_error *error) {
    if (text == NULL || *text == '\0') return PLSH_STATUS_OK;
    plsh_status status = plsh_allocate((void **)out, strlen(text) + 1, 1, "a token", error);
    if (status == PLSH_STATUS_OK) strcpy(*out, text);
    return status;
}

/* The ids of single characters, found by a loop over all tokens, which is fast for a small
 * vocabulary. */
static void fill_direct(plsh_bpe *bpe) {
    const plsh_vocabulary *all = bpe->vocabulary;
    for (uint32_t c = 0; c < DIRECT; c++) bpe->direct[c] = PLSH_NO_TOKEN;
    for (size_t i = 0; i < all->count; i++) {
        const struct plsh_vocabulary_entry *token = &all->entries[i];
        const char *bytes = all->strings.bytes + token->begin;
        char again[PLSH_UTF8_MOST];
        size_t size;
        if (token->length == 0 || plsh_utf8_size(bytes[0]) != token->length) continue;
        const uint32_t c = plsh_utf8_next(bytes, &size);
        if (c < DIRECT && plsh_utf8_put(again, c) == size && memcmp(again, bytes, size) == 0)
            bpe->direct[c] = token->id;
    }
}

static void fill_tables(plsh_bpe *bpe) {
    char name[8];
    fill_direct(bpe);
    for (int b = 0; b < 256 && bpe->byte_fallback; b++) {
        snprintf(name, sizeof name, "<0x%02X>", b);
        bpe->bytes[b] = plsh_vocabulary_find(bpe->vocabulary, name, 6);
    }
    bpe->unknown_id = bpe->unknown == NULL ? PLSH_NO_TOKEN
                                           : plsh_vocabulary_find(bpe->vocabulary, bpe->unknown,
                                                                  strlen(bpe->unknown));
}

plsh_status plsh_bpe_create(plsh_bpe **out, const plsh_vocabulary *vocabulary,
                            const plsh_bpe_options *options, size_t merges, plsh_error *error) {
    plsh_bpe *bpe;
    *out = NULL;
    plsh_status status = plsh_allocate((void **)&bpe, 1, sizeof *bpe, "a tokenizer", error);
    if (status != PLSH_STATUS_OK) return status;
    bpe->vocabulary = vocabulary;
    bpe->fuse_unknown = options->fuse_unknown;
    bpe->byte_fallback = options->byte_fallback;
    bpe->ignore_merges = options->ignore_merges;
    for (bpe->merge_slots = 16; bpe->merge_slots < 2 * merges;) bpe->merge_slots *= 2;
    status = plsh_allocate((void **)&bpe->merges, bpe->merge_slots, sizeof *bpe->merges, "merges",
                           error);
    if (status == PLSH_STATUS_OK) status = copy_text(&bpe->unknown, options->unknown, error);
    if (status == PLSH_STATUS_OK) status = copy_text(&bpe->prefix, options->prefix, error);
    if (status == PLSH_STATUS_OK) status = copy_text(&bpe->suffix, options->suffix, error);
    if (status != PLSH_STATUS_OK) {
        plsh_bpe_free(bpe);
        return status;
    }
    fill_tables(bpe);
    *out = bpe;
    return PLSH_STATUS_OK;
}

void plsh_bpe_free(plsh_bpe *bpe) {
    if (bpe == NULL) return;
    plsh_release(bpe->unknown);
    plsh_release(bpe->prefix);
    plsh_release(bpe->suffix);
    plsh_release(bpe->merges);
    plsh_release(bpe->joined);
    plsh_release(bpe);
}

static uint64_t pair_of(int32_t left, int32_t right) {
    return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
}

static merge_slot *merge_of(const plsh_bpe *bpe, int32_t left, int32_t right) {
    const uint64_t pair = pair_of(left, right);
    size_t slot = plsh_hash_number(pair) & (bpe->merge_slots - 1);
    while (bpe->merges[slot].pair != 0 && bpe->merges[slot].pair != pair)
        slot = (slot + 1) & (bpe->merge_slots - 1);
    return &bpe->merges[slot];
}

void plsh_bpe_merge(plsh_bpe *bpe, int32_t left, int32_t right, uint32_t rank, int32_t merged) {
    *merge_of(bpe, left, right) = (merge_slot){pair_of(left, right), rank, merged};
}

static int compare_pairs(const void *x, const void *y) {
    const plsh_bpe_pair *a = x, *b = y;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    if (a->merged != b->merged) return a->merged < b->merged ? -1 : 1;
    if (a->left != b->left) return a->left < b->left ? -1 : 1;
    return (a->right > b->right) - (a->right < b->right);
}

plsh_status plsh_bpe_list(const plsh_bpe *bpe, plsh_bpe_pair **out, size_t *count,
                          plsh_error *error) {
    plsh_bpe_pair *pairs;
    *count = 0;
    for (size_t i = 0; i < bpe->merge_slots; i++) *count += bpe->merges[i].pair != 0;
    plsh_status status = plsh_allocate((void **)&pairs, *count, sizeof *pairs, "merges", error);
    *out = pairs;
    if (status != PLSH_STATUS_OK) return status;
    for (size_t i = 0; i < bpe->merge_slots; i++) {
        const merge_slot *slot = &bpe->merges[i];
        if (slot->pair == 0) continue;
        *pairs++ = (plsh_bpe_pair){.left = (int32_t)((slot->pair - 1) >> 32),
                                   .right = (int32_t)((slot->pair - 1) & UINT32_MAX),
                                   .merged = slot->merged,
                                   .rank = slot->rank};
    }
    qsort(*out, *count, sizeof **out, compare_pairs);
    return PLSH_STATUS_OK;
}

/* ---- cuts ---- */

/* The first and the last symbol of a token; PLSH_NO_TOKEN: not known yet. */
typedef struct ends {
    int32_t first, last;
} ends;

/* Could this id be a symbol before any merge: a character, a byte, the unknown? */
static bool may_be_symbol(const plsh_bpe *bpe, int32_t id) {
    size_t length;
    const char *token = plsh_vocabulary_token(bpe->vocabulary, id, &length);
    if (token == NULL || length == 0 || id == bpe->unknown_id) return true;
    if (plsh_utf8_size(token[0]) >= length) return true;
    return length == 6 && memcmp(token, "<0x", 3) == 0;
}

static size_t joined_bit(const plsh_bpe *bpe, int32_t left, int32_t right) {
    return plsh_hash_number(pair_of(left, right)) & (bpe->joined_bits - 1);
}

/* Writes the ends of every token into ends[id]; false where a token has two derivations that
 * disagree, or one that never ends: then there are no cuts. */
static bool find_ends(const plsh_bpe *bpe, ends *all) {
    for (size_t i = 0; i < bpe->merge_slots; i++) {
        const int32_t merged = bpe->merges[i].merged;
        if (bpe->merges[i].pair == 0) continue;
        if (may_be_symbol(bpe, merged)) return false;
        all[merged] = (ends){PLSH_NO_TOKEN, PLSH_NO_TOKEN};
    }
    for (bool changed = true, missing = true; missing;) {
        if (!changed) return false;
        changed = missing = false;
        for (size_t i = 0; i < bpe->merge_slots; i++) {
            if (bpe->merges[i].pair == 0) continue;
            const uint64_t pair = bpe->merges[i].pair - 1;
            const ends *left = &all[pair >> 32], *right = &all[(uint32_t)pair];
            ends *merged = &all[bpe->merges[i].merged];
            if (left->first < 0 || right->last < 0) {
                missing = true;
            } else if (merged->first < 0) {
                *merged = (ends){left->first, right->last};
                changed = true;
            } else if (merged->first != left->first || merged->last != right->last) {
                return false;
            }
        }
    }
    return true;
}

plsh_status plsh_bpe_finish(plsh_bpe *bpe, plsh_error *error) {
    if (bpe->prefix != NULL || bpe->suffix != NULL || bpe->vocabulary->count == 0)
        return PLSH_STATUS_OK;
    const size_t size = (size_t)bpe->vocabulary->largest + 1;
    if (size / 64 > bpe->vocabulary->count) return PLSH_STATUS_OK; /* mostly gaps: not worth it */
    ends *all;
    plsh_status status = plsh_allocate((void **)&all, size, sizeof *all, "merges", error);
    if (status != PLSH_STATUS_OK) return status;
    for (size_t i = 0; i < size; i++) all[i] = (ends){(int32_t)i, (int32_t)i};
    bpe->cuts = find_ends(bpe, all);
    if (bpe->cuts) {
        /* About 8 bits per merge: about one pair in twelve is not cut although no merge joins it.
         */
        bpe->joined_bits = 8 * bpe->merge_slots / 2;
        status =
            plsh_allocate((void **)&bpe->joined, bpe->joined_bits / 64 + 1, 8, "merges", error);
    }
    for (size_t i = 0; bpe->cuts && status == PLSH_STATUS_OK && i < bpe->merge_slots; i++) {
        if (bpe->merges[i].pair == 0) continue;
        const uint64_t pair = bpe->merges[i].pair - 1;
        const size_t bit = joined_bit(bpe, all[pair >> 32].last, all[(uint32_t)pair].first);
        bpe->joined[bit / 64] |= (uint64_t)1 << bit % 64;
    }
    plsh_release(all);
    return status;
}

static bool is_cut(const plsh_bpe *bpe, int32_t left, int32_t right) {
    const size_t bit = joined_bit(bpe, left, right);
    return (bpe->joined[bit / 64] >> bit % 64 & 1) == 0;
}

/* ---- short pieces: the least rank, again and again ---- */

static size_t merge_short(const plsh_bpe *bpe, int32_t *symbols, size_t count) {
    uint32_t ranks[SHORT_PIECE];
    int32_t merged[SHORT_PIECE];
    for (size_t i = 0; i + 1 < count; i++) {
        const merge_slot *merge = merge_of(bpe, symbols[i], symbols[i + 1]);
        ranks[i] = merge->pair == 0 ? NO_MERGE : merge->rank;
        merged[i] = merge->merged;
    }
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (ranks[i] < ranks[best]) best = i;
        if (ranks[best] == NO_MERGE) break;
        symbols[best] = merged[best];
        for (size_t i = best + 1; i + 1 < count; i++) {
            symbols[i] = symbols[i + 1];
            ranks[i - 1] = ranks[i];
            merged[i - 1] = merged[i];
        }
        count--;
        for (size_t i = best > 0 ? best - 1 : 0; i <= best && i + 1 < count; i++) {
            const merge_slot *merge = merge_of(bpe, symbols[i], symbols[i + 1]);
            ranks[i] = merge->pair == 0 ? NO_MERGE : merge->rank;
            merged[i] = merge->merged;
        }
    }
    return count;
}

/* ---- long pieces: a heap of pairs over a list of symbols ---- */

typedef struct link {
    uint32_t before, after; /* NO_LINK: none */
    bool gone;
} link;

#define NO_LINK UINT32_MAX

typedef struct candidate {
    uint32_t rank, at;
    int32_t merged;
} candidate;

static bool is_before(const candidate *a, const candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(candidate *heap, size_t *count, candidate next) {
    size_t i = (*count)++;
    for (; i > 0 && is_before(&next, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = next;
}

static candidate heap_pop(candidate *heap, size_t *count) {
    const candidate top = heap[0], last = heap[--*count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= *count) break;
        if (child + 1 < *count && is_before(&heap[child + 1], &heap[child])) child++;
        if (!is_before(&heap[child], &last)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

static plsh_status grow(void **memory, size_t *capacity, size_t count, size_t size,
                        plsh_error *error) {
    if (count <= *capacity) return PLSH_STATUS_OK;
    plsh_release(*memory);
    *capacity = 0;
    plsh_status status = plsh_allocate(memory, count, size, "a long word", error);
    if (status == PLSH_STATUS_OK) *capacity = count;
    return status;
}

/* The pair that begins at `at`, if it can be merged. */
static void push_pair(const plsh_bpe *bpe, const int32_t *symbols, const link *links, uint32_t at,
                      candidate *heap, size_t *count) {
    if (at == NO_LINK || links[at].after == NO_LINK) return;
    const merge_slot *merge = merge_of(bpe, symbols[at], symbols[links[at].after]);
    if (merge->pair != 0) heap_push(heap, count, (candidate){merge->rank, at, merge->merged});
}

static plsh_status merge_long(const plsh_bpe *bpe, plsh_bpe_work *work, int32_t *symbols,
                              size_t *count, plsh_error *error) {
    const size_t n = *count;
    if (n > UINT32_MAX / 4)
        return plsh_fail(error, PLSH_STATUS_OVERFLOW, "a word of %zu characters", n);
    plsh_status status = grow(&work->links, &work->links_capacity, n, sizeof(link), error);
    /* Every merge takes one pair off and puts two on. */
    if (status == PLSH_STATUS_OK)
        status = grow(&work->heap, &work->heap_capacity, 2 * n, sizeof(candidate), error);
    if (status != PLSH_STATUS_OK) return status;
    link *links = work->links;
    candidate *heap = work->heap;
    size_t waiting = 0, kept = 0;
    for (uint32_t i = 0; i < n; i++)
        links[i] = (link){i > 0 ? i - 1 : NO_LINK, i + 1 < n ? i + 1 : NO_LINK, false};
    for (uint32_t i = 0; i < n; i++) push_pair(bpe, symbols, links, i, heap, &waiting);
    while (waiting > 0) {
        const candidate top = heap_pop(heap, &waiting);
        const uint32_t after = links[top.at].after;
        if (links[top.at].gone || after == NO_LINK) continue;
        const merge_slot *merge = merge_of(bpe, symbols[top.at], symbols[after]);
        if (merge->pair == 0 || merge->merged != top.merged) continue; /* one of them has changed */
        symbols[top.at] = top.merged;
        links[after].gone = true;
        links[top.at].after = links[after].after;
        if (links[after].after != NO_LINK) links[links[after].after].before = top.at;
        push_pair(bpe, symbols, links, links[top.at].before, heap, &waiting);
        push_pair(bpe, symbols, links, top.at, heap, &waiting);
    }
    for (uint32_t i = 0; i < n; i++)
        if (!links[i].gone) symbols[kept++] = symbols[i];
    *count = kept;
    return PLSH_STATUS_OK;
}

void plsh_bpe_work_free(plsh_bpe_work *work) {
    plsh_token_ids_free(&work->symbols);
    plsh_release(work->links);
    plsh_release(work->heap);
    *work = (plsh_bpe_work){0};
}

/* ---- words ---- */

/* The id of a character with the prefix and suffix of its place; `written` gets all of it. */
static int32_t find_symbol(const plsh_bpe *bpe, const char *bytes, size_t size, bool first,
                           bool last, plsh_text *written) {
    written->length = 0;
    if (!first && bpe->prefix != NULL) plsh_text_append(written, bpe->prefix, strlen(bpe->prefix));
    plsh_text_append(written, bytes, size);
    if (last && bpe->suffix != NULL) plsh_text_append(written, bpe->suffix, strlen(bpe->suffix));
    return written->bytes == NULL
               ? PLSH_NO_TOKEN
               : plsh_vocabulary_find(bpe->vocabulary, written->bytes, written->length);
}

/* The bytes of a character as tokens, where all of them are tokens. */
static bool fall_back(const plsh_bpe *bpe, const char *bytes, size_t size, plsh_token_ids *out,
                      plsh_status *status, plsh_error *error) {
    if (!bpe->byte_fallback) return false;
    for (size_t i = 0; i < size; i++)
        if (bpe->bytes[(unsigned char)bytes[i]] == PLSH_NO_TOKEN) return false;
    for (size_t i = 0; i < size && *status == PLSH_STATUS_OK; i++)
        *status = plsh_ids_append(out, bpe->bytes[(unsigned char)bytes[i]], error);
    return true;
}

/* The symbols of a word: a token for each character. An unknown character is held back, because its
 * unknown neighbours may be fused with it. Byte tokens are appended before it, as in the Hugging
 * Face library. */
static plsh_status take_symbols(const plsh_bpe *bpe, const char *bytes, size_t length,
                                plsh_token_ids *out, plsh_error *error) {
    const bool affixes = bpe->prefix != NULL || bpe->suffix != NULL;
    plsh_text written = {0};
    plsh_status status = PLSH_STATUS_OK;
    bool unknown = false;
    out->count = 0;
    for (size_t i = 0, size; i < length && status == PLSH_STATUS_OK; i += size) {
        const uint32_t c = plsh_utf8_next(bytes + i, &size);
        const char *piece = bytes + i;
        size_t piece_length = size;
        int32_t id;
        if (affixes) {
            id = find_symbol(bpe, piece, size, i == 0, i + size == length, &written);
            piece = written.bytes;
            piece_length = written.length;
            status = plsh_text_status(&written, error);
            if (status != PLSH_STATUS_OK) break;
        } else {
            id = c < DIRECT ? bpe->direct[c] : plsh_vocabulary_find(bpe->vocabulary, piece, size);
        }
        if (id != PLSH_NO_TOKEN) {
            if (unknown) status = plsh_ids_append(out, bpe->unknown_id, error);
            unknown = false;
            if (status == PLSH_STATUS_OK) status = plsh_ids_append(out, id, error);
        } else if (!fall_back(bpe, piece, piece_length, out, &status, error) &&
                   bpe->unknown != NULL) {
            if (bpe->unknown_id == PLSH_NO_TOKEN)
                status =
                    plsh_fail(error, PLSH_STATUS_FORMAT,
                              "the unknown token \"%s\" is not in the vocabulary", bpe->unknown);
            else if (unknown && !bpe->fuse_unknown)
                status = plsh_ids_append(out, bpe->unknown_id, error);
            unknown = true;
        }
    }
    if (unknown && status == PLSH_STATUS_OK) status = plsh_ids_append(out, bpe->unknown_id, error);
    plsh_text_free(&written);
    return status;
}

plsh_status plsh_bpe_encode(const plsh_bpe *bpe, plsh_bpe_work *work, const char *bytes,
                            size_t length, plsh_token_ids *out, plsh_error *error) {
    if (bpe->ignore_merges) {
        const int32_t whole = plsh_vocabulary_find(bpe->vocabulary, bytes, length);
        if (whole != PLSH_NO_TOKEN) return plsh_ids_append(out, whole, error);
    }
    plsh_status status = take_symbols(bpe, bytes, length, &work->symbols, error);
    int32_t *symbols = work->symbols.ids;
    const size_t total = work->symbols.count;
    for (size_t begin = 0, end; begin < total && status == PLSH_STATUS_OK; begin = end) {
        for (end = begin + 1; end < total; end++)
            if (bpe->cuts && is_cut(bpe, symbols[end - 1], symbols[end])) break;
        size_t count = end - begin;
        if (count > SHORT_PIECE)
            status = merge_long(bpe, work, symbols + begin, &count, error);
        else
            count = merge_short(bpe, symbols + begin, count);
        if (status == PLSH_STATUS_OK) status = plsh_ids_reserve(out, count, error);
        if (status != PLSH_STATUS_OK) break;
        memcpy(out->ids + out->count, symbols + begin, count * sizeof *symbols);
        out->count += count;
    }
    return status;
}
