/* model: sessions in folders: a file per layer, and how many tokens they are. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "model/session.h"
#include "plsh/io.h"

enum { PATH = 4096 };

/* folder/layer-000.cache */
static plsh_status cache_path(char path[PATH], const char *folder, int64_t layer,
                              plsh_error *error) {
    int length = snprintf(path, PATH, "%s/layer-%03lld.cache", folder, (long long)layer);
    if (length > 0 && length < PATH) return PLSH_STATUS_OK;
    return plsh_fail(error, PLSH_STATUS_INVALID, "the name of the session's folder is too long");
}

plsh_status plsh_session_load_cache(const plsh_cache_config *config, const char *folder, int64_t l,
                                    plsh_cache **cache, plsh_error *error) {
    char path[PATH];
    plsh_status status = cache_path(path, folder, l, error);
    return status ? status : plsh_cache_load(config, path, cache, error);
}

/* Removes what a save of `layers` layers left in a folder, and the folder. */
static void remove_folder(const char *folder, int64_t layers) {
    char path[PATH];
    for (int64_t l = 0; l < layers; l++) {
        if (!cache_path(path, folder, l, NULL)) unlink(path);
    }
    rmdir(folder);
}

static plsh_status save_into(const plsh_session *session, const char *folder, plsh_error *error) {
    char path[PATH];
    plsh_status status = PLSH_STATUS_OK;
    for (int64_t l = 0; !status && l < session->model->config.layers; l++) {
        status = cache_path(path, folder, l, error);
        if (!status) status = plsh_cache_save(session->cache[l], path, error);
    }
    return status;
}

/* The old folder steps aside, the new one takes its place, the old one goes. */
static plsh_status put_in_place(const char *made, const char *folder, const char *aside,
                                int64_t layers, plsh_error *error) {
    struct stat unused;
    bool had = stat(folder, &unused) == 0;
    if ((!had || rename(folder, aside) == 0) && rename(made, folder) == 0) {
        if (had) remove_folder(aside, layers);
        return PLSH_STATUS_OK;
    }
    return plsh_fail(error, PLSH_STATUS_IO, "%s: cannot be put in its place: %s", folder,
                     strerror(errno));
}

plsh_status plsh_session_save(const plsh_session *session, const char *folder, plsh_error *error) {
    char made[PATH], aside[PATH];
    int64_t layers = session->model->config.layers;
    if (session->broken) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "a step failed half way; nothing is saved");
    }
    int a = snprintf(made, PATH, "%s.part-%ld", folder, (long)getpid());
    int b = snprintf(aside, PATH, "%s.old-%ld", folder, (long)getpid());
    if (a < 0 || a >= PATH || b < 0 || b >= PATH) {
        return plsh_fail(error, PLSH_STATUS_INVALID, "the name of the folder is too long");
    }
    if (mkdir(made, 0777) != 0) {
        return plsh_fail(error, PLSH_STATUS_IO, "%s: cannot be made: %s", made, strerror(errno));
    }
    plsh_status status = save_into(session, made, error);
    if (!status) status = put_in_place(made, folder, aside, layers, error);
    if (status) remove_folder(made, layers);
    return status;
}

plsh_status plsh_session_load(plsh_session **out, const plsh_model *model,
                              const plsh_session_options *options, const char *folder,
                              plsh_error *error) {
    plsh_status status = plsh_session_make(out, model, options, folder, error);
    if (status) return status;
    int64_t length = plsh_session_length(*out);
    for (int64_t l = 1; l < model->config.layers; l++) {
        int64_t other = plsh_cache_length((*out)->cache[l]);
        if (other == length) continue;
        plsh_session_destroy(*out);
        *out = NULL;
        return plsh_fail(error, PLSH_STATUS_FORMAT,
                         "%s: layer %lld has %lld tokens, layer 0 has %lld", folder, (long long)l,
                         (long long)other, (long long)length);
    }
    return PLSH_STATUS_OK;
}
