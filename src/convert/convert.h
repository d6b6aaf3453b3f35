/* convert: declarations shared by the files of the conversion. */
#ifndef PLSH_CONVERT_CONVERT_H
#define PLSH_CONVERT_CONVERT_H

#include "model/config.h"
#include "plsh/convert.h"
#include "plsh/model.h"
#include "plsh/sentence.h"

/* tokenizer.json and tokenizer_config.json of a GGUF's tokenizer, where it has one; config.json of
 * its configuration; and the files of a folder that go with its weights, into another folder; and
 * one config.json alone. Their dtype is that of the weights beside them. */
plsh_status plsh_convert_write_tokenizer(const plsh_weights *weights, const char *out,
                                         plsh_error *error);
plsh_status plsh_convert_write_config(const plsh_weights *weights, const plsh_model_config *config,
                                      plsh_weight_type type, const char *out, plsh_error *error);
plsh_status plsh_convert_copy_files(const char *folder, plsh_weight_type type, const char *out,
                                    plsh_error *error);
/* 1_Pooling/config.json of an encoder's GGUF that says its pooling, and modules.json, by which
 * sentence-transformers finds it. */
plsh_status plsh_convert_write_pooling(const plsh_weights *weights, const plsh_model_config *config,
                                       const char *out, plsh_error *error);
/* Is there a field in config.json for all that a GGUF says? */
plsh_status plsh_convert_check_folder(const plsh_model_config *config, const char *what,
                                      plsh_error *error);
/* Removes a folder that the conversion made, after a failure. */
void plsh_convert_remove_folder(const char *out);
/* Learned slopes, and which attention it was trained with, where a folder has them. */
plsh_status plsh_convert_copy_learned(const char *folder, const char *out, plsh_error *error);
plsh_status plsh_convert_copy_config(const char *from, const char *to, plsh_weight_type type,
                                     plsh_error *error);

/* The metadata of a GGUF: the model's, and the tokenizer's from tokenizer.json, where there is one.
 */
plsh_status plsh_convert_model_metadata(plsh_weights_writer *writer,
                                        const plsh_model_config *config, const char *folder,
                                        plsh_pooling pooling, plsh_weight_type type,
                                        plsh_error *error);
plsh_status plsh_convert_tokenizer(plsh_weights_writer *writer, const plsh_model_config *config,
                                   const char *folder, plsh_error *error);

/* RoPE as Llama 3 scales it: the factors by which frequencies are divided, [half], as a GGUF has
 * them; and the numbers of a config.json that make these factors, put into `rope`. */
void plsh_convert_rope_factors(const plsh_rope_config *rope, int64_t half, float *out);
plsh_status plsh_convert_rope_recover(const float *factors, int64_t half, const char *what,
                                      plsh_rope_config *rope, plsh_error *error);

/* general.file_type and general.quantization_version of a GGUF of this type. */
plsh_status plsh_convert_type_metadata(plsh_weights_writer *writer, plsh_weight_type type,
                                       plsh_error *error);

#endif
