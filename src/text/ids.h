/* text: lists of ids that grow. */
#ifndef PLSH_TEXT_IDS_H
#define PLSH_TEXT_IDS_H

#include "plsh/tokenizer.h"

/* Room for `more` ids. */
plsh_status plsh_ids_reserve(plsh_token_ids *ids, size_t more, plsh_error *error);

static inline plsh_status plsh_ids_append(plsh_token_ids *ids, int32_t id, plsh_error *error) {
    if (ids->count == ids->capacity) {
        const plsh_status status = plsh_ids_reserve(ids, 1, error);
        if (status != PLSH_STATUS_OK) return status;
    }
    ids->ids[ids->count++] = id;
    return PLSH_STATUS_OK;
}

#endif
