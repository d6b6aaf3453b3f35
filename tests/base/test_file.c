/* tests: files that are written whole or not at all. */
#include "support/support.h"

#include "plsh/io.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "plsh-test-file-XXXXXX";
static char path[128];

static int make_folder(void **state) {
    (void)state;
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(path, sizeof path, "%s/out", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    char command[160];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static int entries(void) {
    int count = 0;
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    for (struct dirent *e; (e = readdir(directory)) != NULL;) count += e->d_name[0] != '.';
    closedir(directory);
    return count;
}

static void assert_content(const char *file, const char *expected) {
    char content[64] = "";
    FILE *in = fopen(file, "r");
    assert_non_null(in);
    content[fread(content, 1, sizeof content - 1, in)] = '\0';
    fclose(in);
    assert_string_equal(content, expected);
}

static void test_appears_only_when_committed(void **state) {
    (void)state;
    plsh_error error;
    plsh_file *file;
    unlink(path);
    assert_ok(plsh_file_create(&file, path, &error));
    assert_ok(plsh_file_write(file, "first ", 6, &error));
    assert_int_equal(access(path, F_OK), -1);
    assert_ok(plsh_file_write(file, "second", 6, &error));
    assert_ok(plsh_file_commit(file, &error));
    assert_content(path, "first second");
    assert_int_equal(entries(), 1);
}

static void test_abandoned_leaves_the_old(void **state) {
    (void)state;
    plsh_error error;
    plsh_file *file;
    assert_ok(plsh_file_save(path, "old", 3, &error));
    assert_ok(plsh_file_create(&file, path, &error));
    assert_ok(plsh_file_write(file, "new", 3, &error));
    plsh_file_abandon(file);
    plsh_file_abandon(NULL);
    assert_content(path, "old");
    assert_int_equal(entries(), 1);
}

static void test_keeps_the_mode_and_follows_links(void **state) {
    (void)state;
    plsh_error error;
    char link[160];
    struct stat about;
    snprintf(link, sizeof link, "%s/link", folder);
    assert_ok(plsh_file_save(path, "old", 3, &error));
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(symlink("out", link), 0);
    assert_ok(plsh_file_save(link, "through", 7, &error));
    assert_content(path, "through");
    assert_int_equal(lstat(link, &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0640);
    unlink(link);
}

/* A link whose file does not exist yet: the file is made, the link stays. */
static void test_follows_dangling_links(void **state) {
    (void)state;
    plsh_error error;
    plsh_file *file;
    char first[160], second[160];
    struct stat about;
    snprintf(first, sizeof first, "%s/first", folder);
    snprintf(second, sizeof second, "%s/second", folder);
    unlink(path);
    assert_int_equal(symlink("second", first), 0);
    assert_int_equal(symlink("out", second), 0);
    assert_ok(plsh_file_create(&file, first, &error));
    assert_string_equal(plsh_file_path(file), path);
    assert_int_equal(access(plsh_file_temporary(file), F_OK), 0);
    assert_ok(plsh_file_write(file, "through", 7, &error));
    assert_ok(plsh_file_commit(file, &error));
    assert_content(path, "through");
    assert_int_equal(lstat(first, &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    unlink(second);
    assert_int_equal(symlink("first", second), 0);
    assert_fails(plsh_file_create(&file, first, &error), PLSH_STATUS_IO,
                 "first: cannot write: Too many levels");
    unlink(first);
    unlink(second);
}

/* A limit on the size of files stands for the full disk. */
static void test_full_disk_leaves_the_old(void **state) {
    (void)state;
    plsh_error error;
    assert_ok(plsh_file_save(path, "old", 3, &error));
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    char *bytes = calloc(1, 10000);
    assert_non_null(bytes);
    plsh_status status = plsh_file_save(path, bytes, 10000, &error);
    setrlimit(RLIMIT_FSIZE, &before);
    free(bytes);
    assert_int_equal(status, PLSH_STATUS_IO);
    test_message_holds(error.message, "out: cannot write: ");
    assert_content(path, "old");
    assert_int_equal(entries(), 1);
}

/* A pipe stays a pipe. (Not /dev/null: a mistake here, made as root, would replace it.) */
static void test_pipes_are_written_directly(void **state) {
    (void)state;
    plsh_error error;
    struct stat about;
    char pipe_path[160], got[8] = "";
    snprintf(pipe_path, sizeof pipe_path, "%s/pipe", folder);
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    int reader = open(pipe_path, O_RDWR);
    assert_true(reader >= 0);
    plsh_file *file;
    assert_ok(plsh_file_create(&file, pipe_path, &error));
    assert_null(plsh_file_temporary(file));
    assert_ok(plsh_file_write(file, "through", 7, &error));
    assert_ok(plsh_file_commit(file, &error));
    assert_int_equal(stat(pipe_path, &about), 0);
    assert_true(S_ISFIFO(about.st_mode));
    assert_int_equal(read(reader, got, 7), 7);
    assert_string_equal(got, "through");
    close(reader);
    unlink(pipe_path);
}

static void test_bad_paths_are_named(void **state) {
    (void)state;
    plsh_error error;
    plsh_file *file;
    assert_fails(plsh_file_create(&file, "", &error), PLSH_STATUS_INVALID, "empty");
    assert_null(file);
    assert_fails(plsh_file_create(&file, folder, &error), PLSH_STATUS_IO, "directory");
    assert_fails(plsh_file_create(&file, "/no/such/folder/x", &error), PLSH_STATUS_IO,
                 "/no/such/folder/x: cannot create");
    char *long_path = malloc(10000);
    assert_non_null(long_path);
    memset(long_path, 'a', 9999);
    long_path[9999] = '\0';
    assert_fails(plsh_file_create(&file, long_path, &error), PLSH_STATUS_IO, "longer than");
    free(long_path);
}

static plsh_status save(void *context, plsh_error *error) {
    return plsh_file_save(context, "text", 4, error);
}

static void test_every_allocation_may_fail(void **state) {
    (void)state;
    test_every_allocation(save, path, 1);
    assert_int_equal(entries(), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_appears_only_when_committed),
        cmocka_unit_test(test_abandoned_leaves_the_old),
        cmocka_unit_test(test_keeps_the_mode_and_follows_links),
        cmocka_unit_test(test_follows_dangling_links),
        cmocka_unit_test(test_full_disk_leaves_the_old),
        cmocka_unit_test(test_pipes_are_written_directly),
        cmocka_unit_test(test_bad_paths_are_named),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("file", tests, make_folder, remove_folder);
}
