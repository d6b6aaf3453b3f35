/* plsh/sentence.h - one vector (row) for a whole text, as sentence-transformers computes it.
 *
 * A folder of that library lists in modules.json the modules after the encoder: pooling, dense
 * layers, norms. sentence_bert_config.json and tokenizer_config.json have the maximum length of a
 * text, config_sentence_transformers.json has prompts and the number of columns to keep. All of
 * these are applied. An unknown module or field is refused; the message names it. A folder without
 * modules.json and a GGUF have a pooling alone (1_Pooling/config.json, <architecture>.pooling_type;
 * the mean if they have none), and their rows are normalised. */
#ifndef PLSH_SENTENCE_H
#define PLSH_SENTENCE_H

#include "plsh/model.h"
#include "plsh/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the rows of a text become one. */
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
    int64_t longest;    /* the most tokens of a text, special ones included; 0: any number */
    bool normalises;    /* the files ask for rows of length 1 */
    const char *prompt; /* put before every text; never NULL */
} plsh_sentence_facts;

/* `pooling` replaces the one that the files ask for; PLSH_POOLING_COUNT: theirs. With
 * PLSH_POOLING_NONE there is a row per token, and no module is applied. The model has to outlive
 * it. */
PLSH_API plsh_status plsh_sentence_open(plsh_sentence **out, const plsh_model *model,
                                        plsh_pooling pooling, plsh_error *error);

/* NULL is fine. */
PLSH_API void plsh_sentence_close(plsh_sentence *sentence);

PLSH_API plsh_sentence_facts plsh_sentence_describe(const plsh_sentence *sentence);

/* The prompt of that name in config_sentence_transformers.json instead of its
 * default_prompt_name; "": none. */
PLSH_API plsh_status plsh_sentence_prompt(plsh_sentence *sentence, const char *name,
                                          plsh_error *error);

/* Appends the tokens of the prompt and the text, special ones included. `truncate` cuts the end of
 * a text that has more than `longest` tokens, as sentence-transformers does. */
PLSH_API plsh_status plsh_sentence_ids(const plsh_sentence *sentence,
                                       const plsh_tokenizer *tokenizer, const char *text,
                                       size_t length, bool truncate, plsh_token_ids *out,
                                       plsh_error *error);

/* Whether rows are finally divided by their Euclidean norm: as the files say (with modules.json: if
 * it has a Normalize module; without: yes), always, or never. */
typedef enum plsh_normalisation {
    PLSH_NORMALISE_AS_ASKED,
    PLSH_NORMALISE_ALWAYS,
    PLSH_NORMALISE_NEVER
} plsh_normalisation;

/* row[columns] from the encoder's hidden states of a text; zeros for a text of no tokens. Not for
 * PLSH_POOLING_NONE. */
PLSH_API plsh_status plsh_sentence_row(const plsh_sentence *sentence, const float *hidden,
                                       int64_t tokens, plsh_normalisation normalisation, float *row,
                                       plsh_error *error);

/* Divides a row by its Euclidean norm; zeros stay. After the last columns of a row are left out,
 * the others need this again. */
PLSH_API void plsh_sentence_normalise(float *row, int64_t columns);

#ifdef __cplusplus
}
#endif

#endif
