/* text: added tokens. */
#include "text/added.h"

#include <string.h>

#include "base/memory.h"
#include "text/unicode.h"

void plsh_added_free(plsh_added *added) {
    plsh_release(added->tokens);
    plsh_text_free(&added->forms);
    plsh_vocabulary_free(&added->contents);
    plsh_vocabulary_free(&added->specials);
    plsh_vocabulary_free(&added->places);
    plsh_release(added->plain.nodes);
    plsh_release(added->normalized.nodes);
    *added = (plsh_added){0};
}

/* Room for one more thing of `size` bytes in an array that doubles. */
static plsh_status grow(void **array, size_t count, size_t *capacity, size_t size,
                        plsh_error *error) {
    void *grown;
    if (count < *capacity) return PLSH_STATUS_OK;
    const size_t wanted = count < 8 ? 16 : 2 * count;
    plsh_status status = plsh_allocate(&grown, wanted, size, "added tokens", error);
    if (status != PLSH_STATUS_OK) return status;
    if (count > 0) memcpy(grown, *array, count * size);
    plsh_release(*array);
    *array = grown;
    *capacity = wanted;
    return PLSH_STATUS_OK;
}

static uint32_t child_of(const plsh_added_tree *tree, uint32_t node, unsigned char byte) {
    if (node == 0) return tree->first[byte];
    uint32_t child = tree->nodes[node].child;
    while (child != 0 && tree->nodes[child].byte != byte) child = tree->nodes[child].sibling;
    return child;
}

static plsh_status tree_add(plsh_added_tree *tree, const char *bytes, size_t length, uint32_t token,
                            plsh_error *error) {
    uint32_t node = 0;
    plsh_status status =
        grow((void **)&tree->nodes, tree->count, &tree->capacity, sizeof *tree->nodes, error);
    if (status != PLSH_STATUS_OK) return status;
    if (tree->count == 0) tree->count = 1; /* the root */
    for (size_t i = 0; i < length; i++) {
        const unsigned char byte = (unsigned char)bytes[i];
        uint32_t child = child_of(tree, node, byte);
        if (child == 0) {
            status = grow((void **)&tree->nodes, tree->count, &tree->capacity, sizeof *tree->nodes,
                          error);
            if (status != PLSH_STATUS_OK) return status;
            child = (uint32_t)tree->count++;
            tree->nodes[child] =
                (struct plsh_added_node){.sibling = tree->nodes[node].child, .byte = byte};
            tree->nodes[node].child = child;
            if (node == 0) tree->first[byte] = child;
        }
        node = child;
    }
    if (length > 0) tree->nodes[node].token = token + 1;
    return PLSH_STATUS_OK;
}

const char *plsh_added_written(const plsh_added *added, int32_t id, size_t *length) {
    char key[sizeof id];
    memcpy(key, &id, sizeof id);
    const int32_t place = plsh_vocabulary_find(&added->places, key, sizeof key);
    if (place == PLSH_NO_TOKEN) return NULL;
    *length = added->tokens[place].form_length;
    return added->forms.bytes == NULL ? "" : added->forms.bytes + added->tokens[place].form;
}

plsh_status plsh_added_add(plsh_added *added, plsh_added_token token, const char *content,
                           size_t length, const char *form, size_t form_length, plsh_error *error) {
    plsh_status status =
        grow((void **)&added->tokens, added->count, &added->capacity, sizeof *added->tokens, error);
    if (status == PLSH_STATUS_OK)
        status = plsh_vocabulary_add(&added->contents, content, length, token.id, error);
    if (status == PLSH_STATUS_OK && token.special)
        status = plsh_vocabulary_add(&added->specials, content, length, token.id, error);
    char key[sizeof token.id];
    memcpy(key, &token.id, sizeof key);
    if (status == PLSH_STATUS_OK)
        status = plsh_vocabulary_add(&added->places, key, sizeof key, (int32_t)added->count, error);
    if (status == PLSH_STATUS_OK)
        status = tree_add(token.normalized ? &added->normalized : &added->plain, form, form_length,
                          (uint32_t)added->count, error);
    token.form = added->forms.length;
    token.form_length = form_length;
    plsh_text_append(&added->forms, form, form_length);
    if (status == PLSH_STATUS_OK) status = plsh_text_status(&added->forms, error);
    if (status == PLSH_STATUS_OK) added->tokens[added->count++] = token;
    return status;
}

/* The longest token that begins at `at`; NULL: none. */
static const plsh_added_token *match(const plsh_added_search *search, const char *bytes, size_t at,
                                     size_t length, size_t *end) {
    const plsh_added *added = search->added;
    const plsh_added_tree *tree = search->tree;
    const plsh_added_token *found = NULL;
    uint32_t node = 0;
    for (size_t i = at; i < length; i++) {
        node = child_of(tree, node, (unsigned char)bytes[i]);
        if (node == 0) break;
        if (tree->nodes[node].token == 0) continue;
        if (search->plain && added->tokens[tree->nodes[node].token - 1].special) continue;
        found = &added->tokens[tree->nodes[node].token - 1];
        *end = i + 1;
    }
    return found;
}

static bool is_word_before(const char *bytes, size_t at) {
    size_t size;
    return at > 0 && plsh_unicode_is(PLSH_CLASS_WORD,
                                     plsh_utf8_next(bytes + plsh_utf8_before(bytes, at), &size));
}

static bool is_word_at(const char *bytes, size_t at, size_t length) {
    size_t size;
    return at < length && plsh_unicode_is(PLSH_CLASS_WORD, plsh_utf8_next(bytes + at, &size));
}

static size_t skip_blanks_back(const char *bytes, size_t at, size_t least) {
    while (at > least) {
        size_t size;
        const size_t before = plsh_utf8_before(bytes, at);
        if (!plsh_unicode_is(PLSH_CLASS_WHITESPACE, plsh_utf8_next(bytes + before, &size))) break;
        at = before;
    }
    return at;
}

static size_t skip_blanks(const char *bytes, size_t at, size_t length) {
    size_t size;
    while (at < length && plsh_unicode_is(PLSH_CLASS_WHITESPACE, plsh_utf8_next(bytes + at, &size)))
        at += size;
    return at;
}

plsh_status plsh_added_cut(const plsh_added_search *search, const char *bytes, size_t length,
                           plsh_added_piece *piece, void *context) {
    const plsh_added_tree *tree = search->tree;
    size_t done = 0; /* the text before it was returned */
    plsh_status status = PLSH_STATUS_OK;
    for (size_t at = 0, end = 0; tree->count > 1 && at < length && status == PLSH_STATUS_OK;
         at = end) {
        end = at + 1;
        if (tree->first[(unsigned char)bytes[at]] == 0) continue;
        const plsh_added_token *token = match(search, bytes, at, length, &end);
        if (token == NULL) continue;
        if (token->single_word && (is_word_before(bytes, at) || is_word_at(bytes, end, length)))
            continue;
        size_t begin = at;
        if (token->lstrip) { /* blanks that the token before took stay with it */
            begin = done < at ? skip_blanks_back(bytes, at, done) : done;
        }
        const size_t stop = token->rstrip ? skip_blanks(bytes, end, length) : end;
        if (begin >= stop) continue; /* all of it was taken */
        if (done < begin) status = piece(context, bytes, done, begin, PLSH_NO_TOKEN);
        if (status == PLSH_STATUS_OK) status = piece(context, bytes, begin, stop, token->id);
        done = stop;
    }
    if (done < length && status == PLSH_STATUS_OK)
        status = piece(context, bytes, done, length, PLSH_NO_TOKEN);
    return status;
}
