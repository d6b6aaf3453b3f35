/* cli: texts from files: lines, JSON lines, CSV, FASTA. */
#ifndef PLSH_CLI_LM_TEXTS_H
#define PLSH_CLI_LM_TEXTS_H

#include "cli/command.h"
#include "plsh/tokenizer.h"

typedef struct cli_texts_options {
    const char *text, *fasta, *column;
    int format; /* -1: by the name of the file */
    bool truncate;
    int64_t batch;
} cli_texts_options;

enum { CLI_TEXTS_COUNT = 6 };
extern const cli_option cli_texts_table[CLI_TEXTS_COUNT];

typedef struct cli_text {
    char *bytes; /* owned */
    size_t length;
    char *name;   /* of a sequence of --fasta, owned; otherwise NULL */
    int64_t line; /* where it begins, from 1 */
} cli_text;

typedef struct cli_texts {
    const char *path; /* "stdin" for it */
    cli_text *items;
    int64_t count, capacity;
} cli_texts;

/* Reads all of them. An empty file is refused. Sequences of --fasta lose blanks and become upper
 * case, as tokenizers of DNA expect it. On failure there is nothing to be freed. */
int cli_texts_read(const cli_texts_options *options, cli_texts *out);
void cli_texts_free(cli_texts *texts);

/* "lines.txt: line 3", "genome.fa: sequence chr1", for messages. */
enum { CLI_PLACE_SIZE = 256 };
void cli_texts_place(const cli_texts *texts, int64_t text, char out[CLI_PLACE_SIZE]);

/* spans[i]: how many characters of the sequence token i stands for; 0 for special tokens. The spans
 * add up to the length of the sequence. An unknown token stands for a character that the vocabulary
 * lacks, or for a run of them. */
int cli_texts_align(const cli_texts *texts, int64_t text, const plsh_tokenizer *tokenizer,
                    const int32_t *ids, size_t count, int64_t *spans);

#endif
