/* cli: the folder of a run of plsh train. */
#include "cli/lm/train_folder.h"

#include "cli/message.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char weights_name[] = "model.safetensors", lock_name[] = ".lock",
                  initial_name[] = ".initial";
static const char *const tokenizer_names[] = {"tokenizer.json", "tokenizer_config.json"};

int cli_train_path(char out[CLI_TRAIN_PATH], const char *folder, const char *name) {
    int length = snprintf(out, CLI_TRAIN_PATH, "%s/%s", folder, name);
    return length > 0 && length < CLI_TRAIN_PATH ? CLI_DONE
                                                 : cli_fail("%.200s..: a long name", folder);
}

/* ---- New weights ----------------------------------------------------------------------------- */

static int copy_file(const char *from, const char *folder, const char *name) {
    char to[CLI_TRAIN_PATH];
    char *bytes;
    size_t length;
    plsh_error error;
    int code = cli_train_path(to, folder, name);
    if (code == CLI_DONE) code = cli_text_read(from, &bytes, &length);
    if (code != CLI_DONE) return code;
    if (plsh_file_save(to, bytes, length, &error) != PLSH_STATUS_OK) code = cli_fail_error(&error);
    free(bytes);
    return code;
}

/* Copies tokenizer.json, and the file that names its special tokens, to the new weights. */
static int copy_tokenizer(const char *path, const char *out) {
    struct stat about;
    char from[CLI_TRAIN_PATH];
    if (stat(path, &about) != 0) return cli_fail("%s: %s", path, strerror(errno));
    if (!S_ISDIR(about.st_mode)) {
        size_t length = strlen(path);
        if (length > 5 && strcmp(path + length - 5, ".gguf") == 0) {
            cli_note("the tokenizer of %s is not copied to %s: it is not a tokenizer.json", path,
                     out);
            return CLI_DONE;
        }
        return copy_file(path, out, tokenizer_names[0]);
    }
    int code = CLI_DONE;
    for (size_t i = 0; code == CLI_DONE && i < CLI_COUNT(tokenizer_names); i++) {
        code = cli_train_path(from, path, tokenizer_names[i]);
        if (code == CLI_DONE && access(from, R_OK) == 0)
            code = copy_file(from, out, tokenizer_names[i]);
    }
    return code;
}

static bool has_weights(const char *folder) {
    char path[CLI_TRAIN_PATH];
    return cli_train_path(path, folder, weights_name) == CLI_DONE && access(path, R_OK) == 0;
}

int cli_train_folder_weights(char out[CLI_TRAIN_PATH], const char *folder) {
    int code = cli_train_path(out, folder, initial_name);
    if (code == CLI_DONE && !has_weights(out)) snprintf(out, CLI_TRAIN_PATH, "%s", folder);
    return code;
}

/* Checkpoints hold all weights: a resumed run needs only the shapes, which are in the folder. The
 * weights are written last: if they exist, all files do. */
static int make_fresh(cli_train_folder *f, const cli_train_settings *given) {
    const cli_train_data *data = &given->data;
    char folder[CLI_TRAIN_PATH];
    plsh_error error;
    int code = cli_train_folder_weights(folder, data->out);
    const bool own = f->goes_on && given->records.from == NULL;
    if (code != CLI_DONE || (own && has_weights(folder))) return code;
    code = cli_train_path(folder, data->out, initial_name);
    if (code != CLI_DONE) return code;
    f->initial = true;
    if (plsh_folder_remove(folder, &error) != PLSH_STATUS_OK ||
        plsh_folder_make(folder, NULL, &error) != PLSH_STATUS_OK)
        return cli_fail_error(&error);
    if (data->tokenizer != NULL) code = copy_tokenizer(data->tokenizer, folder);
    if (code == CLI_DONE &&
        plsh_train_initialise(data->fresh, given->lm.common.seed, folder, &error) != PLSH_STATUS_OK)
        code = cli_fail_error(&error);
    return code;
}

/* ---- The folder ------------------------------------------------------------------------------ */

/* One run at a time: the system releases the lock when the process ends for any reason. */
static int lock_folder(cli_train_folder *f) {
    char path[CLI_TRAIN_PATH];
    int code = cli_train_path(path, f->path, lock_name);
    if (code != CLI_DONE) return code;
    f->lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (f->lock < 0) return cli_fail("%s: %s", path, strerror(errno));
    if (flock(f->lock, LOCK_EX | LOCK_NB) == 0) return CLI_DONE;
    if (errno != EWOULDBLOCK) return cli_fail("%s: %s", path, strerror(errno));
    return cli_fail("%s: another run is using this folder; wait for it, or choose another --out",
                    f->path);
}

/* Files that a run writes at the end, and files that would change its beginning. */
static int refuse_model(const cli_train_folder *f) {
    static const char *const names[] = {weights_name, "model.safetensors.index.json",
                                        "adapter_model.safetensors", "slopes.npy"};
    char path[CLI_TRAIN_PATH];
    int code = CLI_DONE;
    for (size_t i = 0; code == CLI_DONE && i < CLI_COUNT(names); i++) {
        code = cli_train_path(path, f->path, names[i]);
        if (code == CLI_DONE && access(path, F_OK) == 0)
            return cli_fail(
                "%s exists, and is not from a run that can continue: choose another --out, "
                "or move it away",
                path);
    }
    return code;
}

static bool is_same_folder(const char *a, const char *b) {
    struct stat first, second;
    return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

static int check_base(const cli_train_data *data) {
    if (data->base == NULL || !is_same_folder(data->base, data->out)) return CLI_DONE;
    return cli_fail("--out: %s is the folder of --base, which it would overwrite; choose another",
                    data->out);
}

/* Existing checkpoints will be pruned as those of this run, so they must belong to it. */
static int check_checkpoints(const cli_train_settings *given, bool has) {
    const char *out = given->data.out, *from = given->records.from;
    char parent[CLI_TRAIN_PATH];
    if (!has) return CLI_DONE;
    if (!given->records.resume)
        return cli_fail("%s has the checkpoints of another run: --resume continues it, or "
                        "choose another --out",
                        out);
    if (from == NULL || cli_train_path(parent, from, "..") != CLI_DONE || access(from, F_OK) != 0 ||
        is_same_folder(parent, out))
        return CLI_DONE;
    return cli_fail("--from: %s is not in %s, which has checkpoints of its own; leave --from out "
                    "to continue those, or choose another --out",
                    from, out);
}

int cli_train_folder_open(cli_train_folder *f, const cli_train_settings *given) {
    const char *out = given->data.out;
    f->path = out;
    int code = check_base(&given->data);
    if (code != CLI_DONE) return code;
    struct stat about;
    plsh_error error;
    if (stat(out, &about) == 0 && !S_ISDIR(about.st_mode))
        return cli_fail("--out: %s is not a folder; choose another name", out);
    if (plsh_folder_make(out, &f->made, &error) != PLSH_STATUS_OK)
        return cli_fail("--out: %s", error.message);
    code = lock_folder(f);
    if (code != CLI_DONE) return code;
    plsh_folder_clean(out, "");
    const bool resume = given->records.resume, has = plsh_checkpoint_last(out, -1) >= 0;
    code = check_checkpoints(given, has);
    if (code != CLI_DONE) return code;
    f->goes_on = resume && (has || given->records.from != NULL);
    if (!has) code = refuse_model(f);
    if (code != CLI_DONE || given->data.fresh == NULL) return code;
    return make_fresh(f, given);
}

int cli_train_folder_finish(const cli_train_folder *f) {
    char path[CLI_TRAIN_PATH];
    plsh_error error;
    int code = cli_train_path(path, f->path, initial_name);
    if (code == CLI_DONE && plsh_folder_remove(path, &error) != PLSH_STATUS_OK)
        code = cli_fail_error(&error);
    return code;
}

/* Keeps the file of tokens, which may have taken long to make, and therefore the folder. */
static void remove_made(const cli_train_folder *f) {
    char path[CLI_TRAIN_PATH];
    if (cli_train_path(path, f->path, lock_name) == CLI_DONE) unlink(path);
    rmdir(f->path);
}

void cli_train_folder_close(cli_train_folder *f) {
    if (f->initial && !f->begun) cli_train_folder_finish(f);
    if (f->made && !f->begun) remove_made(f);
    if (f->lock >= 0) close(f->lock);
    f->lock = -1;
}
