/* tests: folders that are made, replaced and removed without following links. */
#include "support/support.h"

#include "base/folder.h"
#include "plsh/io.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "plsh-test-folder-XXXXXX";

/* A path in the folder of the tests; four at a time. */
static const char *in(const char *name) {
    static char paths[4][160];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void make(const char *name) { assert_int_equal(mkdir(in(name), 0777), 0); }

static void write_file(const char *name) {
    plsh_error error;
    assert_ok(plsh_file_save(in(name), name, strlen(name), &error));
}

static bool is_there(const char *name) {
    struct stat about;
    return lstat(in(name), &about) == 0;
}

static bool is_link(const char *name) {
    struct stat about;
    return lstat(in(name), &about) == 0 && S_ISLNK(about.st_mode);
}

static int entries(void) {
    int count = 0;
    DIR *list = opendir(folder);
    assert_non_null(list);
    for (const struct dirent *e; (e = readdir(list)) != NULL;)
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(list);
    return count;
}

/* Every test leaves nothing: what it did not remove is seen here. */
static int begin(void **state) {
    (void)state;
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int end(void **state) {
    (void)state;
    char command[160];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* "theirs" with a file, which links lead to. */
static void make_theirs(void) {
    make("theirs");
    write_file("theirs/file");
}

static void test_make(void **state) {
    (void)state;
    plsh_error error;
    bool made;
    assert_ok(plsh_folder_make(in("new"), &made, &error));
    assert_true(made);
    assert_ok(plsh_folder_make(in("new/"), &made, &error));
    assert_false(made);
    assert_ok(plsh_folder_make(in("other/"), NULL, &error));
    write_file("file");
    assert_fails(plsh_folder_make(in("file"), &made, &error), PLSH_STATUS_IO, "file: File exists");
    assert_fails(plsh_folder_make(in("no/where"), &made, &error), PLSH_STATUS_IO,
                 "no/where: No such file");
}

static void test_remove_follows_no_links(void **state) {
    (void)state;
    plsh_error error;
    make_theirs();
    make("ours");
    make("ours/below");
    write_file("ours/file");
    write_file("ours/below/file");
    assert_int_equal(symlink("../theirs", in("ours/link")), 0);
    assert_int_equal(symlink("../../theirs/file", in("ours/below/link")), 0);
    assert_ok(plsh_folder_remove(in("ours"), &error));
    assert_true(is_there("theirs/file"));
    assert_int_equal(entries(), 1);
    assert_int_equal(symlink("theirs", in("link")), 0);
    assert_ok(plsh_folder_remove(in("link"), &error));
    assert_true(is_there("theirs/file"));
    assert_int_equal(entries(), 1);
    assert_ok(plsh_folder_remove(in("nothing"), &error));
    assert_fails(plsh_folder_remove(in("theirs/file"), &error), PLSH_STATUS_IO, "Not a directory");
    assert_true(is_there("theirs/file"));
}

/* Only names of our own form; links are left alone. */
static void test_clean(void **state) {
    (void)state;
    static const char *const kept[] = {"mine.part",   "1-2.part",  "a.1-2.parts", "a.1-2.old",
                                       "b.1-2.part/", "c.12.part", "checkpoint-9"};
    static const char *const dated[] = {"runs.2026-01-05.old", "a.-3.old", "a.3-.part", "a.-.old"};
    make_theirs();
    make("a.3-4.part");
    write_file("a.3-4.part/file");
    make("a.3-4.old");
    write_file("a.5-6.part");
    for (size_t i = 0; i < sizeof dated / sizeof *dated; i++) make(dated[i]);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        if (strchr(kept[i], '/') == NULL) write_file(kept[i]);
    }
    assert_int_equal(symlink("theirs", in("b.1-2.part")), 0);
    plsh_folder_clean(folder, "other");
    assert_true(is_there("a.3-4.part/file"));
    plsh_folder_clean(folder, "");
    assert_true(is_link("b.1-2.part") && is_there("theirs/file"));
    assert_false(is_there("a.3-4.part") || is_there("a.3-4.old") || is_there("a.5-6.part"));
    for (size_t i = 0; i < sizeof dated / sizeof *dated; i++) assert_true(is_there(dated[i]));
    assert_int_equal(entries(),
                     1 + (int)(sizeof kept / sizeof *kept + sizeof dated / sizeof *dated));
}

static void test_put(void **state) {
    (void)state;
    plsh_error error;
    char made[160];
    make_theirs();
    for (int turn = 0; turn < 3; turn++) { /* over nothing, over a folder, over a link */
        if (turn == 2) {
            assert_ok(plsh_folder_remove(in("place"), &error));
            assert_int_equal(symlink("theirs", in("place")), 0);
        }
        assert_ok(plsh_folder_make_beside(made, sizeof made, in("place"), &error));
        assert_ok(plsh_folder_put(made, in("place"), &error));
        assert_true(is_there("place") && !is_link("place"));
        assert_int_equal(entries(), 2);
        write_file("place/file");
    }
    assert_true(is_there("theirs/file"));
    assert_fails(plsh_folder_put(in("nothing"), in("place"), &error), PLSH_STATUS_IO,
                 "cannot put it in its place");
    assert_true(is_there("place/file"));
    assert_int_equal(entries(), 2);
}

static void test_move_files(void **state) {
    (void)state;
    plsh_error error;
    make_theirs();
    make("made");
    make("made/below");
    make("place");
    write_file("made/file");
    write_file("made/below/file");
    write_file("place/other");
    assert_int_equal(symlink("../theirs/file", in("place/file")), 0);
    assert_ok(plsh_folder_move_files(in("made"), in("place"), &error));
    assert_true(is_there("place/file") && !is_link("place/file") && is_there("place/other"));
    assert_true(is_there("place/below/file"));
    assert_int_equal(entries(), 2);
    make("made");
    make("made/linked");
    write_file("made/linked/file2");
    assert_int_equal(symlink("../theirs", in("place/linked")), 0);
    assert_fails(plsh_folder_move_files(in("made"), in("place"), &error), PLSH_STATUS_IO,
                 "cannot put the files in it");
    assert_false(is_there("theirs/file2"));
}

/* A name of our own: a link is replaced. */
static void test_own_files(void **state) {
    (void)state;
    plsh_error error;
    char read[16] = "";
    make_theirs();
    assert_int_equal(symlink("theirs/file", in("link")), 0);
    assert_int_equal(symlink("nowhere", in("dangling")), 0);
    assert_ok(plsh_file_save_own(in("link"), "new", 3, &error));
    assert_ok(plsh_file_save_own(in("dangling"), "new", 3, &error));
    assert_false(is_link("link") || is_link("dangling") || is_there("nowhere"));
    FILE *file = fopen(in("theirs/file"), "r");
    assert_non_null(file);
    assert_non_null(fgets(read, sizeof read, file));
    fclose(file);
    assert_string_equal(read, "theirs/file");
    assert_fails(plsh_file_save_own(in("theirs"), "new", 3, &error), PLSH_STATUS_IO,
                 "not a regular file");
}

#define FOLDER_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(test_make),       FOLDER_TEST(test_remove_follows_no_links),
        FOLDER_TEST(test_clean),      FOLDER_TEST(test_put),
        FOLDER_TEST(test_move_files), FOLDER_TEST(test_own_files),
    };
    return cmocka_run_group_tests_name("folder", tests, NULL, NULL);
}
