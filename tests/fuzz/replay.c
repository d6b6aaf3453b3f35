/* fuzz: runs a target on every file of the folders given, with any compiler: the corpus as a test.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) return perror(path), 1;
    fseek(file, 0, SEEK_END);
    const long size = ftell(file);
    rewind(file);
    uint8_t *bytes = malloc((size_t)size + 1);
    const int failed =
        size < 0 || bytes == NULL || fread(bytes, 1, (size_t)size, file) != (size_t)size;
    fclose(file);
    if (failed) perror(path);
    if (!failed) LLVMFuzzerTestOneInput(bytes, (size_t)size);
    free(bytes);
    return failed;
}

int main(int argc, char **argv) {
    int failed = 0, count = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (folder == NULL) return perror(argv[i]), 1;
        for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
            if (entry->d_name[0] == '.') continue;
            failed += replay(argv[i], entry->d_name);
            count++;
        }
        closedir(folder);
    }
    printf("%d inputs, %d failed\n", count, failed);
    return failed > 0 || count == 0;
}
