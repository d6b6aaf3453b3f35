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

/* Feeds ids[0..count) to a new session, and scores the tokens from ids[from] on (from >= 1) into
 * `scores`. logits, where it is not NULL, takes [count][vocabulary]; hidden [count][hidden]. `done`
 * is called with the tokens that went through, for progress. Over ranks a group calls it together:
 * scores, logits and hidden are those of this rank's rows. */
int cli_score_window(const cli_lm *options, const cli_model *model, const int32_t *ids,
                     int64_t count, int64_t from, cli_scores *scores, float *logits, float *hidden,
                     void (*done)(int64_t tokens));

#endif
