/* tests: what every test program needs besides cmocka. Include this instead of cmocka.h. */
#ifndef PLSH_TESTS_SUPPORT_H
#define PLSH_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plsh/io.h"
#include "plsh/status.h"

/* Is the program built with the address or the thread sanitizer? */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define TEST_SANITIZED
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define TEST_SANITIZED
#endif
#endif

/* Skips a test and says why. */
#define test_skip(why)                                                                             \
    do {                                                                                           \
        print_message("%s\n", why);                                                                \
        skip();                                                                                    \
    } while (0)

/* The call succeeds; otherwise its message is printed. Needs `plsh_error error` in scope. */
#define assert_ok(call)                                                                            \
    do {                                                                                           \
        if ((call) != PLSH_STATUS_OK) fail_msg("%s: %s", #call, error.message);                    \
    } while (0)

/* The call fails with this status and a message that holds `text`. */
#define assert_fails(call, expected, text)                                                         \
    do {                                                                                           \
        error.message[0] = '\0';                                                                   \
        assert_int_equal((call), (expected));                                                      \
        test_message_holds(error.message, (text));                                                 \
    } while (0)

void test_message_holds(const char *message, const char *text);

/* Can this machine run the instruction set of that name, or for NULL the one that PLSH_ISA names?
 * If not, says so: a main that needs it returns 77, a test skips. */
bool test_has_isa(const char *name);

/* The path of a file of the reference data (PLSH_SHARED, or the build's default) in a buffer that
 * is reused after eight calls. Skips the test, with a message, where the file is absent. */
const char *test_shared(const char *file);

/* The folder of such a file, named as by printf ("golden/%s/config.json", "bert"), in a buffer that
 * is reused after four calls. */
const char *test_shared_folder(const char *format, const char *name);

/* An array of the reference data, freed by plsh_npy_free; skips like test_shared. */
plsh_npy test_shared_npy(const char *file);

/* Runs `call` with the allocation number 0, 1, 2, .. failing until it succeeds: every failure has
 * to be PLSH_STATUS_NO_MEMORY with a message and to leave nothing behind. `call` frees what it
 * made before it returns. At least `least` allocations have to have been met. */
void test_every_allocation(plsh_status (*call)(void *context, plsh_error *error), void *context,
                           int least);

/* A folder of the test program's own: made and removed as set-up and tear-down of a group. */
extern char test_folder[];
int test_folder_make(void **state);
int test_folder_remove(void **state);

/* "folder/name", in a buffer that is reused after 256 calls; a text in the file of that name. */
const char *test_path(const char *name);
void test_write(const char *name, const char *text);

/* All bytes of a file and a zero byte after them, to be freed; the test fails if it cannot be read.
 */
char *test_read(const char *path, size_t *size);

#endif
