/* cli: models that are named by their hub names. */
#include "cli/lm/model.h"

#include "cli/message.h"
#include "plsh/weights.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATHS = 8 }; /* more than a command has options that name models */

const char *cli_hub_resolve(const char *value) {
    static char *paths[PATHS];
    static size_t count;
    char path[PLSH_HUB_PATH];
    plsh_error error;
    if (access(value, F_OK) == 0 || !plsh_hub_is_name(value)) return value;
    if (plsh_hub_find(value, path, &error) != PLSH_STATUS_OK) {
        cli_fail_error(&error);
        return NULL;
    }
    char **kept = &paths[count++ % PATHS];
    free(*kept);
    *kept = strdup(path);
    if (*kept == NULL) cli_say("out of memory");
    return *kept;
}
