/* tests: what every test program needs besides cmocka. */
#include "support/support.h"

#include "base/cpu.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void test_message_holds(const char *message, const char *text) {
    if (strstr(message, text) == NULL)
        fail_msg("the message is \"%s\" and does not hold \"%s\"", message, text);
}

bool test_has_isa(const char *name) {
    plsh_error error;
    const char *isa;
    bool has = plsh_cpu_choose(&isa, name, &error) == PLSH_STATUS_OK;
    if (!has) print_message("skipped: %s\n", error.message);
    return has;
}

const char *test_shared(const char *file) {
    static char paths[8][1024];
    static unsigned next;
    char *path = paths[next++ % 8];
    const char *directory = getenv("PLSH_SHARED");
    if (directory == NULL || directory[0] == '\0') directory = PLSH_SHARED_DIRECTORY;
    snprintf(path, sizeof paths[0], "%s/%s", directory, file);
    if (access(path, R_OK) != 0) {
        print_message("skipped: no %s in the reference data (set PLSH_SHARED)\n", file);
        skip();
    }
    return path;
}

const char *test_shared_folder(const char *format, const char *name) {
    static char folders[4][1024];
    static unsigned next;
    char file[160], *folder = folders[next++ % 4];
    snprintf(file, sizeof file, format, name);
    snprintf(folder, sizeof folders[0], "%s", test_shared(file));
    *strrchr(folder, '/') = '\0';
    return folder;
}

plsh_npy test_shared_npy(const char *file) {
    plsh_error error;
    plsh_npy array;
    assert_ok(plsh_npy_read(test_shared(file), &array, &error));
    return array;
}

void test_every_allocation(plsh_status (*call)(void *context, plsh_error *error), void *context,
                           int least) {
    const long before = plsh_memory_live();
    int failed = 0;
    for (;; failed++) {
        plsh_error error = {0};
        plsh_memory_fail_after(failed);
        plsh_status status = call(context, &error);
        plsh_memory_fail_after(-1);
        if (plsh_memory_live() != before)
            fail_msg("%ld allocations are left when number %d fails", plsh_memory_live() - before,
                     failed);
        if (status == PLSH_STATUS_OK) break;
        if (status != PLSH_STATUS_NO_MEMORY)
            fail_msg("status %s when allocation %d fails: %s", plsh_status_name(status), failed,
                     error.message);
        if (error.status != PLSH_STATUS_NO_MEMORY || error.message[0] == '\0')
            fail_msg("no message when allocation %d fails", failed);
    }
    if (failed < least) fail_msg("only %d allocations, not %d", failed, least);
}

char test_folder[] = "train-test-XXXXXX";

int test_folder_make(void **state) {
    (void)state;
    return mkdtemp(test_folder) ? 0 : -1;
}

int test_folder_remove(void **state) {
    (void)state;
    char command[64];
    snprintf(command, sizeof(command), "rm -r '%s'", test_folder);
    return system(command) == 0 ? 0 : -1;
}

const char *test_path(const char *name) {
    static char paths[256][256];
    static int next;
    char *path = paths[next++ % 256];
    snprintf(path, sizeof(paths[0]), "%s/%s", test_folder, name);
    return path;
}

void test_write(const char *name, const char *text) {
    plsh_error error;
    assert_ok(plsh_file_save(test_path(name), text, strlen(text), &error));
}

char *test_read(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    bytes[*size] = '\0';
    fclose(file);
    return bytes;
}
