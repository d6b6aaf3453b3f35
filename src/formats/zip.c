/* formats: the entries of a zip archive that are stored as they are: what torch.save writes. */
#include "formats/zip.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

/* Sizes and signatures of the records (PKWARE's APPNOTE, 4.3). */
enum {
    END_SIZE = 22,
    END64_LOCATOR_SIZE = 20,
    ENTRY_SIZE = 46,
    LOCAL_SIZE = 30,
    COMMENT_MOST = 65535,
    EXTRA_ZIP64 = 1,
    FLAG_ENCRYPTED = 1
};
static const char end_signature[] = "PK\5\6", end64_signature[] = "PK\6\6",
                  locator_signature[] = "PK\6\7", entry_signature[] = "PK\1\2",
                  local_signature[] = "PK\3\4";
static const uint64_t in_extra = 0xffffffff; /* the number is in the extra field of 64 bits */

typedef struct directory {
    uint64_t entries, size, begin;
} directory;

/* ---- The end of the archive ---- */

/* The end record is last in the file, before a comment whose length it has. */
static bool find_end(plsh_reader *reader) {
    const size_t most =
        reader->size < END_SIZE + COMMENT_MOST ? reader->size : END_SIZE + COMMENT_MOST;
    for (size_t back = END_SIZE; back <= most; back++) {
        const unsigned char *at = reader->bytes + reader->size - back;
        if (memcmp(at, end_signature, 4) != 0) continue;
        if ((size_t)at[20] + ((size_t)at[21] << 8) != back - END_SIZE) continue;
        return plsh_reader_seek(reader, reader->size - back, "the end of the archive");
    }
    plsh_reader_fail(reader, PLSH_STATUS_FORMAT,
                     "a zip archive without its end: the file is truncated");
    return false;
}

/* `end` is where the ordinary end record is: a locator of the one of 64 bits may lie before it. */
static void read_end64(plsh_reader *reader, size_t end, directory *out) {
    if (end < END64_LOCATOR_SIZE) return;
    plsh_reader_seek(reader, end - END64_LOCATOR_SIZE, "the locator of the end");
    if (!plsh_reader_accept(reader, locator_signature)) return;
    plsh_reader_u32(reader, "the locator of the end");
    const uint64_t at = plsh_reader_u64(reader, "the locator of the end");
    plsh_reader_seek(reader, at, "the end of 64 bits");
    if (!plsh_reader_accept(reader, end64_signature)) {
        plsh_reader_fail(reader, PLSH_STATUS_FORMAT, "the end record of 64 bits is needed here");
        return;
    }
    plsh_reader_take(reader, 8 + 2 + 2 + 4 + 4 + 8, "the end of 64 bits");
    out->entries = plsh_reader_u64(reader, "the number of entries");
    out->size = plsh_reader_u64(reader, "the size of the directory");
    out->begin = plsh_reader_u64(reader, "the offset of the directory");
}

static directory read_end(plsh_reader *reader) {
    directory found = {0};
    if (!find_end(reader)) return found;
    const size_t end = reader->at;
    plsh_reader_take(reader, 4, "the end of the archive");
    const uint64_t disk = plsh_reader_number(reader, 2, "the number of the part");
    plsh_reader_take(reader, 4, "the end of the archive");
    found.entries = plsh_reader_number(reader, 2, "the number of entries");
    found.size = plsh_reader_u32(reader, "the size of the directory");
    found.begin = plsh_reader_u32(reader, "the offset of the directory");
    if (disk != 0 && disk != 0xffff)
        plsh_reader_fail(reader, PLSH_STATUS_UNSUPPORTED, "a zip archive in several parts");
    read_end64(reader, end, &found);
    if (plsh_reader_is_ok(reader) && (found.begin > end || found.size > end - found.begin ||
                                      found.entries > found.size / ENTRY_SIZE)) {
        reader->at = end;
        plsh_reader_fail(reader, PLSH_STATUS_FORMAT,
                         "a directory of %llu entries in %llu bytes at byte %llu is not in the "
                         "file",
                         (unsigned long long)found.entries, (unsigned long long)found.size,
                         (unsigned long long)found.begin);
    }
    return found;
}

/* ---- Entries ---- */

/* The numbers that do not fit in 32 bits, in the order of the format. */
static void read_extra(plsh_reader *reader, size_t length, uint64_t *size, uint64_t *stored,
                       uint64_t *offset) {
    const size_t end = reader->at + length;
    uint64_t *const numbers[] = {size, stored, offset};
    while (plsh_reader_is_ok(reader) && reader->at + 4 <= end) {
        const uint64_t kind = plsh_reader_number(reader, 2, "an extra field");
        const size_t bytes = (size_t)plsh_reader_number(reader, 2, "an extra field");
        const size_t next = reader->at + bytes;
        if (next > end) {
            plsh_reader_fail(reader, PLSH_STATUS_FORMAT, "an extra field longer than its entry");
            return;
        }
        for (int i = 0; kind == EXTRA_ZIP64 && i < 3; i++)
            if (*numbers[i] == in_extra && reader->at + 8 <= next)
                *numbers[i] = plsh_reader_u64(reader, "an extra field");
        plsh_reader_seek(reader, next, "an extra field");
    }
    plsh_reader_seek(reader, end, "an extra field");
}

/* The bytes of an entry follow its local header, whose name and extra field have lengths of their
 * own. */
static void find_bytes(plsh_reader *reader, uint64_t offset, uint64_t size, plsh_zip_entry *out) {
    plsh_reader_seek(reader, offset, "the header of an entry");
    if (!plsh_reader_accept(reader, local_signature)) {
        plsh_reader_fail(reader, PLSH_STATUS_FORMAT, "the header of the entry %.*s is needed here",
                         (int)(out->name_length < 60 ? out->name_length : 60), out->name);
        return;
    }
    plsh_reader_take(reader, LOCAL_SIZE - 4 - 4, "the header of an entry");
    const size_t name = (size_t)plsh_reader_number(reader, 2, "the header of an entry");
    const size_t extra = (size_t)plsh_reader_number(reader, 2, "the header of an entry");
    plsh_reader_take(reader, name + extra, "the header of an entry");
    out->begin = reader->at;
    out->size = (size_t)size;
    plsh_reader_take(reader, (size_t)size, "the bytes of an entry");
}

static void read_entry(plsh_reader *reader, plsh_zip_entry *out) {
    if (!plsh_reader_accept(reader, entry_signature)) {
        plsh_reader_fail(reader, PLSH_STATUS_FORMAT, "an entry of the directory is needed here");
        return;
    }
    plsh_reader_take(reader, 4, "an entry of the directory");
    const uint64_t flags = plsh_reader_number(reader, 2, "the flags of an entry");
    const uint64_t method = plsh_reader_number(reader, 2, "the method of an entry");
    plsh_reader_take(reader, 8, "an entry of the directory");
    uint64_t stored = plsh_reader_u32(reader, "the size of an entry");
    uint64_t size = plsh_reader_u32(reader, "the size of an entry");
    out->name_length = (size_t)plsh_reader_number(reader, 2, "the name of an entry");
    const size_t extra = (size_t)plsh_reader_number(reader, 2, "an entry of the directory");
    const size_t comment = (size_t)plsh_reader_number(reader, 2, "an entry of the directory");
    plsh_reader_take(reader, 8, "an entry of the directory");
    uint64_t offset = plsh_reader_u32(reader, "the offset of an entry");
    out->name = plsh_reader_take(reader, out->name_length, "the name of an entry");
    read_extra(reader, extra, &size, &stored, &offset);
    plsh_reader_take(reader, comment, "the comment of an entry");
    if (!plsh_reader_is_ok(reader)) return;
    if (method != 0 || flags & FLAG_ENCRYPTED || stored != size) {
        plsh_reader_fail(reader, PLSH_STATUS_UNSUPPORTED,
                         "the entry %.*s is compressed or encrypted; torch.save stores entries as "
                         "they are",
                         (int)(out->name_length < 60 ? out->name_length : 60), out->name);
        return;
    }
    const size_t next = reader->at;
    find_bytes(reader, offset, size, out);
    if (plsh_reader_is_ok(reader)) reader->at = next;
}

/* ---- Order ---- */

static int compare_names(const void *x, const void *y) {
    const plsh_zip_entry *a = x, *b = y;
    const size_t common = a->name_length < b->name_length ? a->name_length : b->name_length;
    const int order = memcmp(a->name, b->name, common);
    if (order != 0) return order;
    return (a->name_length > b->name_length) - (a->name_length < b->name_length);
}

static int compare_places(const void *x, const void *y) {
    const plsh_zip_entry *a = x, *b = y;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return (a->size > b->size) - (a->size < b->size);
}

/* Sorted by place, none reaches into the next; then sorted by name, none is there twice. */
static void check_entries(plsh_zip *zip, plsh_reader *reader) {
    plsh_zip_entry *e = zip->entries;
    qsort(e, zip->count, sizeof *e, compare_places);
    for (size_t i = 1; i < zip->count; i++) {
        reader->at = e[i].begin;
        if (e[i - 1].begin + e[i - 1].size > e[i].begin)
            plsh_reader_fail(reader, PLSH_STATUS_FORMAT, "the entries %.*s and %.*s overlap",
                             (int)(e[i - 1].name_length < 40 ? e[i - 1].name_length : 40),
                             e[i - 1].name, (int)(e[i].name_length < 40 ? e[i].name_length : 40),
                             e[i].name);
    }
    qsort(e, zip->count, sizeof *e, compare_names);
    for (size_t i = 1; i < zip->count; i++) {
        reader->at = e[i].begin;
        if (compare_names(&e[i - 1], &e[i]) == 0)
            plsh_reader_fail(reader, PLSH_STATUS_FORMAT, "the entry %.*s is there twice",
                             (int)(e[i].name_length < 60 ? e[i].name_length : 60), e[i].name);
    }
}

plsh_status plsh_zip_read(plsh_zip *zip, plsh_reader *reader, plsh_error *error) {
    *zip = (plsh_zip){0};
    const directory found = read_end(reader);
    plsh_status status = plsh_reader_status(reader, error);
    if (status != PLSH_STATUS_OK) return status;
    void *entries;
    status = plsh_allocate(&entries, (size_t)found.entries, sizeof(plsh_zip_entry),
                           "entries of a zip archive", error);
    if (status != PLSH_STATUS_OK) return status;
    zip->entries = entries;
    zip->count = (size_t)found.entries;
    plsh_reader_seek(reader, found.begin, "the directory");
    for (size_t i = 0; i < zip->count && plsh_reader_is_ok(reader); i++)
        read_entry(reader, &zip->entries[i]);
    if (plsh_reader_is_ok(reader)) check_entries(zip, reader);
    status = plsh_reader_status(reader, error);
    if (status != PLSH_STATUS_OK) plsh_zip_free(zip);
    return status;
}

void plsh_zip_free(plsh_zip *zip) {
    plsh_release(zip->entries);
    *zip = (plsh_zip){0};
}

const plsh_zip_entry *plsh_zip_find(const plsh_zip *zip, const char *name, size_t length) {
    const plsh_zip_entry wanted = {.name = name, .name_length = length};
    return bsearch(&wanted, zip->entries, zip->count, sizeof wanted, compare_names);
}
