/* cli: scoring a text: the model's prediction of every token. */
#ifndef PLSH_CLI_LM_SCORE_H
#define PLSH_CLI_LM_SCORE_H

#include "cli/lm/model.h"

typedef struct cli_scores {
    int64_t tokens;                  /* scored */
    double nll, entropy, reciprocal; /* sums */
    int64_t first, top10, top100;    /* how often the token was among them */
    int64_t broken; /* the first token of a window whose logits are not finite; 0: none */
} cli_scores;

/* A window of a text to score. Over ranks, logits and hidden are those of this rank's rows. */
typedef struct cli_window {
    const int32_t *ids;
    int64_t count;
    int64_t from;                 /* the first token that is scored, at least 1 */
    float *logits;                /* [count][vocabulary], or NULL */
    float *hidden;                /* [count][hidden], or NULL */
    void (*done)(int64_t tokens); /* or NULL: called as tokens went through, for progress */
} cli_window;

/* Feeds a window to a new session and adds the scores of its tokens. Over ranks a group calls it
 * together, and the scores are those of this rank's rows. */
int cli_score_window(const cli_lm *options, const cli_model *model, const cli_window *window,
                     cli_scores *scores);

#endif
