/* formats: the entries of a zip archive that are stored as they are: what torch.save writes. */
#ifndef PLSH_FORMATS_ZIP_H
#define PLSH_FORMATS_ZIP_H

#include "base/reader.h"

typedef struct plsh_zip_entry {
    const char *name; /* in the file, without a zero at the end */
    size_t name_length;
    size_t begin, size; /* of its bytes, in the file */
} plsh_zip_entry;

typedef struct plsh_zip {
    plsh_zip_entry *entries; /* sorted by name; no two have the same */
    size_t count;
} plsh_zip;

/* The central directory at the end of the file, of 32 or 64 bits. The reader refuses entries that
 * are compressed or encrypted, lie outside the file, or overlap; archives in several parts; and
 * bytes after the end of the archive. It does not compute checksums, because then a model would be
 * read twice. On failure there is nothing to be freed. */
plsh_status plsh_zip_read(plsh_zip *zip, plsh_reader *reader, plsh_error *error);
void plsh_zip_free(plsh_zip *zip);

/* The entry of this name; NULL: there is none. */
const plsh_zip_entry *plsh_zip_find(const plsh_zip *zip, const char *name, size_t length);

#endif
