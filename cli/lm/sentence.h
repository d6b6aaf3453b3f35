/* plsh: rows for whole texts, as sentence-transformers makes them.
 *
 * A folder of that library says in modules.json what follows the encoder: a pooling of its rows,
 * dense layers, norms; in sentence_bert_config.json and tokenizer_config.json how long a text may
 * be; in config_sentence_transformers.json what is put before a text and how many columns are kept.
 * All of it is done; a module or a field that is not known is refused by its name. A folder without
 * modules.json and a GGUF have a pooling alone (1_Pooling/config.json, <architecture>.pooling_type;
 * the mean where they do not say), and their rows are normalised. */
#ifndef PLSH_SENTENCE_H
#define PLSH_SENTENCE_H

#include "plsh/model.h"
#include "plsh/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What becomes of the rows of a text. */
typedef enum plsh_pooling {
    PLSH_POOLING_MEAN,
    PLSH_POOLING_CLS,                  /* the first one */
    PLSH_POOLING_NONE,                 /* all of them, as they are */
    PLSH_POOLING_MAX,                  /* the largest of each column */
    PLSH_POOLING_MEAN_SQRT_LEN_TOKENS, /* their sum over the root of their number */
    PLSH_POOLING_WEIGHTEDMEAN,         /* row t weighs t + 1 */
    PLSH_POOLING_LASTTOKEN,
    PLSH_POOLING_COUNT
} plsh_pooling;

/* "mean", "cls", "none", "max", .., then NULL. */
PLSH_API const char *const *plsh_pooling_names(void);

typedef struct plsh_sentence plsh_sentence;

typedef struct plsh_sentence_facts {
    plsh_pooling pooling;
    int64_t columns;    /* of a row */
    int64_t longest;    /* a text may have so many tokens, special ones included; 0: any number */
    bool normalises;    /* the files ask for rows of length 1 */
    const char *prompt; /* what is put before every text; never NULL */
} plsh_sentence_facts;

/* `pooling` replaces the one that the files ask for; PLSH_POOLING_COUNT: theirs. With
 * PLSH_POOLING_NONE there is a row per token, and no module follows. Keeps the model, which has to
 * outlive it. */
PLSH_API plsh_status plsh_sentence_open(plsh_sentence **out, const plsh_model *model,
                                        plsh_pooling pooling, plsh_error *error);

/* NULL is fine. */
PLSH_API void plsh_sentence_close(plsh_sentence *sentence);

PLSH_API plsh_sentence_facts plsh_sentence_describe(const plsh_sentence *sentence);

/* The prompt of that name in config_sentence_transformers.json instead of its
 * default_prompt_name; "": none. */
PLSH_API plsh_status plsh_sentence_prompt(plsh_sentence *sentence, const char *name,
                                          plsh_error *error);

/* Appends the tokens of a text behind its prompt, special ones included. `truncate` leaves out
 * what a text has beyond `longest` tokens, from its end, as sentence-transformers does. */
PLSH_API plsh_status plsh_sentence_ids(const plsh_sentence *sentence,
                                       const plsh_tokenizer *tokenizer, const char *text,
                                       size_t length, bool truncate, plsh_token_ids *out,
                                       plsh_error *error);

/* row[columns] from the encoder's hidden states of a text; zeros for a text of no tokens. Not for
 * PLSH_POOLING_NONE. `normalise`: divided by its length in the end, whatever the files ask for. */
PLSH_API plsh_status plsh_sentence_row(const plsh_sentence *sentence, const float *hidden,
                                       int64_t tokens, bool normalise, float *row,
                                       plsh_error *error);

#ifdef __cplusplus
}
#endif

#endif
