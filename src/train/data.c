/* train: a text as a mapped file of tokens, and its windows.
 *
 * The file: a header of 64 bytes, then int32 ids, little endian. It is reused if its header has the
 * same order and the same checksums of text, tokenizer and ids. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/checksum.h"
#include "base/mapping.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "formats/path.h"
#include "plsh/io.h"
#include "plsh/tokenizer.h"
#include "plsh/train.h"

enum { PURPOSE_ROWS = 0x726f7773 };

typedef struct token_header {
    char magic[8];
    uint64_t text, tokenizer; /* checksums of the text and tokenizer that gave the ids */
    uint64_t seed;            /* of rows that were shuffled */
    uint64_t ids;             /* their checksum, */
    uint64_t count;           /* and how many */
    uint64_t largest;         /* id */
    uint64_t shuffled;        /* 1: rows were; 0: in the order of the text */
} token_header;

static const char magic[8] = "PLSHTOK1";

struct plsh_corpus {
    plsh_mapping file;
    token_header header;
    const int32_t *ids;
    bool reused;
};

/* ---- Files of tokens ------------------------------------------------------------------------- */

static bool has_magic(const plsh_mapping *file) {
    return file->size >= sizeof(magic) && memcmp(file->bytes, magic, sizeof(magic)) == 0;
}

/* Do the size and the checksum of the file agree with its header? */
static plsh_status read_tokens(plsh_corpus *c, const char *path, plsh_error *error) {
    token_header *h = &c->header;
    if (!has_magic(&c->file) || c->file.size < sizeof(*h)) {
        return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: no file of tokens", path);
    }
    memcpy(h, c->file.bytes, sizeof(*h));
    const size_t size = c->file.size - sizeof(*h);
    if (size % sizeof(int32_t) || h->count != size / sizeof(int32_t)) {
        return plsh_fail(error, PLSH_STATUS_FORMAT,
                         "%s: %zu bytes of ids; its header says %llu ids", path, size,
                         (unsigned long long)h->count);
    }
    c->ids = (const int32_t *)(const void *)(c->file.bytes + sizeof(*h));
    uint64_t largest = 0;
    for (uint64_t i = 0; i < h->count; i++) {
        if (c->ids[i] < 0) {
            return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: token %llu is %d; 0 or more", path,
                             (unsigned long long)i, (int)c->ids[i]);
        }
        if ((uint64_t)c->ids[i] > largest) largest = (uint64_t)c->ids[i];
    }
    if (plsh_checksum(c->ids, size) != h->ids || largest != h->largest) {
        return plsh_fail(error, PLSH_STATUS_FORMAT,
                         "%s: damaged: its checksum is another; remove it, and it is made anew",
                         path);
    }
    return PLSH_STATUS_OK;
}

static plsh_status map_tokens(plsh_corpus *c, const char *path, plsh_error *error) {
    plsh_status status = plsh_mapping_open(&c->file, path, error);
    if (!status) status = read_tokens(c, path, error);
    if (status) plsh_mapping_close(&c->file);
    return status;
}

static plsh_status write_tokens(const char *path, token_header *h, const plsh_token_ids *ids,
                                plsh_error *error) {
    plsh_file *file;
    memcpy(h->magic, magic, sizeof(magic));
    h->count = ids->count;
    h->ids = plsh_checksum(ids->ids, ids->count * sizeof(int32_t));
    for (size_t i = 0; i < ids->count; i++) {
        if ((uint64_t)ids->ids[i] > h->largest) h->largest = (uint64_t)ids->ids[i];
    }
    plsh_status status = plsh_file_create_own(&file, path, error);
    if (status) return status;
    status = plsh_file_write(file, h, sizeof(*h), error);
    if (!status && ids->count) {
        status = plsh_file_write(file, ids->ids, ids->count * sizeof(int32_t), error);
    }
    if (!status) return plsh_file_commit(file, error);
    plsh_file_abandon(file);
    return status;
}

/* ---- Rows, shuffled -------------------------------------------------------------------------- */

typedef struct row {
    const char *bytes;
    size_t length;
} row;

static bool is_blank(const row *r) {
    for (size_t i = 0; i < r->length; i++) {
        if (!strchr(" \t\r\n", r->bytes[i])) return false;
    }
    return true;
}

/* The lines of a text, newline included, without the blank ones; rows may be NULL, to count. */
static size_t find_rows(const plsh_mapping *text, row *rows) {
    size_t count = 0;
    const char *at = (const char *)text->bytes, *end = at + text->size;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *next = newline ? newline + 1 : end;
        row found = {at, (size_t)(next - at)};
        if (!is_blank(&found)) {
            if (rows) rows[count] = found;
            count++;
        }
        at = next;
    }
    return count;
}

/* Fisher-Yates shuffle; the bias of the modulus is below rows / 2^64. */
static void shuffle(row *rows, size_t count, uint64_t seed) {
    plsh_stream stream = {.seed = seed, .purpose = PURPOSE_ROWS};
    for (size_t i = count; i > 1; i--) {
        size_t other = (size_t)(plsh_random_at(stream, i).word[0] % i);
        row kept = rows[i - 1];
        rows[i - 1] = rows[other];
        rows[other] = kept;
    }
}

/* The rows of a text in a random order, a blank between them. */
static plsh_status shuffle_text(const plsh_mapping *text, uint64_t seed, char **out, size_t *length,
                                plsh_error *error) {
    row *rows;
    size_t count = find_rows(text, NULL), used = 0;
    plsh_status status = plsh_allocate((void **)&rows, count, sizeof(row), "rows", error);
    if (status) return status;
    status = plsh_allocate((void **)out, text->size + count + 1, 1, "a shuffled text", error);
    if (!status) {
        find_rows(text, rows);
        shuffle(rows, count, seed);
        for (size_t i = 0; i < count; i++) {
            if (i) (*out)[used++] = ' ';
            memcpy(*out + used, rows[i].bytes, rows[i].length);
            used += rows[i].length;
        }
        *length = used;
    }
    plsh_release(rows);
    return status;
}

/* ---- Making ---------------------------------------------------------------------------------- */

/* Reads the bytes of the tokenizer's file. */
static plsh_status checksum_tokenizer(const char *path, uint64_t *out, plsh_error *error) {
    plsh_mapping file;
    char *inside = NULL;
    plsh_status status = PLSH_STATUS_OK;
    if (plsh_path_is_folder(path)) status = plsh_path_join(&inside, path, "tokenizer.json", error);
    if (!status) status = plsh_mapping_open(&file, inside ? inside : path, error);
    plsh_release(inside);
    if (status) return status;
    *out = plsh_checksum(file.bytes, file.size);
    plsh_mapping_close(&file);
    return PLSH_STATUS_OK;
}

static plsh_status tokenise(const plsh_corpus_options *o, const plsh_mapping *text,
                            token_header *header, plsh_error *error) {
    plsh_tokenizer *tokenizer;
    plsh_token_ids ids = {0};
    char *shuffled = NULL;
    size_t length = text->size;
    plsh_status status = plsh_tokenizer_open(&tokenizer, o->tokenizer, error);
    if (status) return status;
    if (o->shuffle_rows) status = shuffle_text(text, o->seed, &shuffled, &length, error);
    if (!status) {
        const char *bytes = shuffled ? shuffled : (const char *)text->bytes;
        status = plsh_tokenizer_encode(tokenizer, bytes, length, false, &ids, error);
    }
    if (!status) status = write_tokens(o->tokens, header, &ids, error);
    plsh_token_ids_free(&ids);
    plsh_release(shuffled);
    plsh_tokenizer_free(tokenizer);
    return status;
}

/* Names what differs: text, tokenizer or order; NULL: nothing. */
static const char *stale(const token_header *h, const token_header *wanted) {
    if (h->text != wanted->text) return "from another text than";
    if (h->tokenizer != wanted->tokenizer) return "by another tokenizer from";
    if (h->seed != wanted->seed || h->shuffled != wanted->shuffled) return "in another order from";
    return NULL;
}

/* Opens the file of an earlier call if it equals what this call would make. Otherwise the file is
 * replaced, or refused with `keep`. A file of another kind is never overwritten: it may be the text
 * itself. */
static plsh_status reuse(plsh_corpus *c, const plsh_corpus_options *o, const token_header *wanted,
                         plsh_error *error) {
    const char *path = o->tokens;
    if (!plsh_path_exists(path)) return PLSH_STATUS_OK;
    plsh_status status = plsh_mapping_open(&c->file, path, error);
    if (status) return status;
    if (!has_magic(&c->file)) {
        status = plsh_fail(error, PLSH_STATUS_INVALID,
                           "%s exists and is not a file of tokens; it is not overwritten: name "
                           "another file for the tokens",
                           path);
    } else if (!read_tokens(c, path, o->keep ? error : NULL)) {
        const char *how = stale(&c->header, wanted);
        c->reused = how == NULL;
        if (how && o->keep) {
            status = plsh_fail(error, PLSH_STATUS_INVALID,
                               "%s was made %s %s; it is not overwritten: give what it was made "
                               "with, or name another file for the tokens",
                               path, how, o->text);
        }
    } else if (o->keep) {
        status = PLSH_STATUS_FORMAT; /* damaged, as error says */
    }
    if (!c->reused) plsh_mapping_close(&c->file);
    return status;
}

static plsh_status make_tokens(plsh_corpus *c, const plsh_corpus_options *o,
                               const plsh_mapping *text, plsh_error *error) {
    if (!o->tokenizer || !o->tokens) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "%s is a text: a tokenizer and a place for its tokens are needed",
                         o->text);
    }
    token_header wanted = {.text = plsh_checksum(text->bytes, text->size),
                           .seed = o->shuffle_rows ? o->seed : 0,
                           .shuffled = o->shuffle_rows};
    plsh_status status = checksum_tokenizer(o->tokenizer, &wanted.tokenizer, error);
    if (!status) status = reuse(c, o, &wanted, error);
    if (status || c->reused) return status;
    status = tokenise(o, text, &wanted, error);
    return status ? status : map_tokens(c, o->tokens, error);
}

/* Opens a file of tokens given as the text. It cannot be shuffled or tokenised again. */
static plsh_status take_tokens(plsh_corpus *c, const plsh_corpus_options *o, plsh_error *error) {
    uint64_t tokenizer = 0;
    if (o->shuffle_rows) {
        return plsh_fail(error, PLSH_STATUS_INVALID,
                         "%s is a file of tokens, whose rows cannot be shuffled; give the text",
                         o->text);
    }
    plsh_status status = map_tokens(c, o->text, error);
    if (status || !o->tokenizer) return status;
    status = checksum_tokenizer(o->tokenizer, &tokenizer, error);
    if (!status && tokenizer != c->header.tokenizer) {
        status =
            plsh_fail(error, PLSH_STATUS_INVALID,
                      "%s: these tokens were not made by the tokenizer %s", o->text, o->tokenizer);
    }
    if (status) plsh_mapping_close(&c->file);
    return status;
}

plsh_status plsh_corpus_open(plsh_corpus **out, const plsh_corpus_options *options,
                             plsh_error *error) {
    plsh_corpus *c;
    plsh_mapping text = {0};
    *out = NULL;
    plsh_status status = plsh_allocate((void **)&c, 1, sizeof(*c), "a text's tokens", error);
    if (!status) status = plsh_mapping_open(&text, options->text, error);
    if (!status) {
        status = has_magic(&text) ? take_tokens(c, options, error)
                                  : make_tokens(c, options, &text, error);
    }
    plsh_mapping_close(&text);
    if (status) {
        plsh_release(c);
        return status;
    }
    *out = c;
    return PLSH_STATUS_OK;
}

bool plsh_corpus_is_tokens(const char *path) {
    plsh_mapping file = {0};
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode)) return false; /* a pipe is read once */
    bool is = !plsh_mapping_open(&file, path, NULL) && has_magic(&file);
    plsh_mapping_close(&file);
    return is;
}

void plsh_corpus_close(plsh_corpus *c) {
    if (!c) return;
    plsh_mapping_close(&c->file);
    plsh_release(c);
}

/* ---- Accessors ------------------------------------------------------------------------------- */

int64_t plsh_corpus_count(const plsh_corpus *c) { return (int64_t)c->header.count; }
const int32_t *plsh_corpus_ids(const plsh_corpus *c) { return c->ids; }
int32_t plsh_corpus_largest(const plsh_corpus *c) { return (int32_t)c->header.largest; }
uint64_t plsh_corpus_checksum(const plsh_corpus *c) { return c->header.ids; }
bool plsh_corpus_reused(const plsh_corpus *c) { return c->reused; }

void plsh_corpus_windows(const plsh_corpus *c, int64_t context, int64_t first, int64_t count,
                         int32_t *ids) {
    const int64_t windows = plsh_corpus_count(c) / context;
    int64_t at = first % windows;
    for (int64_t w = 0; w < count; w++) {
        memcpy(ids + w * context, c->ids + at * context, (size_t)context * sizeof(int32_t));
        at = at + 1 < windows ? at + 1 : 0;
    }
}
