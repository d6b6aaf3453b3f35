/* formats: the index of a model in several safetensors files: which tensor is in which. */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "formats/file.h"
#include "formats/json.h"
#include "formats/path.h"

/* A plain name: an index leads to no other folder. */
static bool is_plain(const json_t *file) {
    const char *name = json_string_value(file);
    return name && name[0] != '\0' && name[0] != '.' && !strchr(name, '/') &&
           strlen(name) == json_string_length(file);
}

static plsh_status add_file(plsh_weights_index *index, json_t *seen, const char *folder,
                            const json_t *file, plsh_error *error) {
    const char *name = json_string_value(file);
    if (json_object_get(seen, name)) return PLSH_STATUS_OK;
    if (json_object_set_new(seen, name, json_integer((json_int_t)index->count)) != 0)
        return plsh_fail(error, PLSH_STATUS_NO_MEMORY, "no memory for the names of files");
    plsh_status status = plsh_path_join(&index->files[index->count], folder, name, error);
    if (status == PLSH_STATUS_OK) index->count++;
    return status;
}

static plsh_status collect_files(plsh_weights_index *index, json_t *map, const char *folder,
                                 const char *path, plsh_error *error) {
    void *files;
    plsh_status status =
        plsh_allocate(&files, json_object_size(map), sizeof(char *), "names of files", error);
    if (status != PLSH_STATUS_OK) return status;
    index->files = files;
    json_t *seen = json_object();
    if (!seen) return plsh_fail(error, PLSH_STATUS_NO_MEMORY, "no memory for the names of files");
    const char *name;
    json_t *file;
    json_object_foreach(map, name, file) {
        if (!is_plain(file))
            status = plsh_fail(error, PLSH_STATUS_FORMAT,
                               "%s: tensor '%.60s': the name of a file beside the index is needed",
                               path, name);
        else
            status = add_file(index, seen, folder, file, error);
        if (status != PLSH_STATUS_OK) break;
    }
    json_decref(seen);
    return status;
}

plsh_status plsh_weights_index_read(plsh_weights_index *index, const char *folder, const char *path,
                                    plsh_error *error) {
    *index = (plsh_weights_index){0};
    plsh_mapping mapping;
    plsh_status status = plsh_mapping_open(&mapping, path, error);
    if (status != PLSH_STATUS_OK) return status;
    json_t *root;
    status = plsh_weights_json_parse((const char *)mapping.bytes, mapping.size, path, &root, error);
    plsh_mapping_close(&mapping);
    if (status != PLSH_STATUS_OK) return status;
    index->json = root;
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        status = plsh_fail(error, PLSH_STATUS_FORMAT, "%s: \"weight_map\" must name tensors", path);
    else
        status = collect_files(index, map, folder, path, error);
    if (status != PLSH_STATUS_OK) plsh_weights_index_close(index);
    return status;
}

plsh_status plsh_weights_index_check(const plsh_weights_index *index, const plsh_weights *weights,
                                     const char *path, plsh_error *error) {
    const char *name;
    json_t *file;
    json_object_foreach(json_object_get(index->json, "weight_map"), name, file) {
        if (!plsh_weights_find(weights, name))
            return plsh_fail(error, PLSH_STATUS_FORMAT, "%s: tensor '%.60s' is not in %.60s", path,
                             name, json_string_value(file));
    }
    return PLSH_STATUS_OK;
}

void plsh_weights_index_close(plsh_weights_index *index) {
    for (size_t i = 0; i < index->count; i++) plsh_release(index->files[i]);
    plsh_release(index->files);
    json_decref(index->json);
    *index = (plsh_weights_index){0};
}
