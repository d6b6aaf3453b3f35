/* base: the words for the values of an enum. */
#include "base/name.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>

plsh_status plsh_name_find(const char *what, const char *const *names, const char *name, int *place,
                           plsh_error *error) {
    char list[160] = "";
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], name) == 0) {
            *place = i;
            return PLSH_STATUS_OK;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    return plsh_fail(error, PLSH_STATUS_INVALID, "%s '%.40s' is unknown; one of %s", what, name,
                     list);
}
