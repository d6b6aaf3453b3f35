/* convert: declarations shared by the files of the conversion. */
#ifndef PLSH_CONVERT_CONVERT_H
#define PLSH_CONVERT_CONVERT_H

#include "model/config.h"
#include "plsh/convert.h"
#include "plsh/model.h"
#include "plsh/sentence.h"

/* The first writes tokenizer.json and tokenizer_config.json from a GGUF's tokenizer, if it has one.
 * The second writes config.json from a GGUF's configuration. The third copies the files that belong
 * to the weights of a folder into another folder. `type`: of the weights beside them, for the field
 * dtype. */
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
/* Fails if a GGUF has values for which config.json has no field. */
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

/* The scaling of RoPE in Llama 3. plsh_convert_rope_factors computes the factors by which
 * frequencies are divided, [half], as a GGUF stores them. plsh_convert_rope_recover finds the
 * numbers of a config.json that give these factors. */
void plsh_convert_rope_factors(const plsh_rope_config *rope, int64_t half, float *out);
plsh_status plsh_convert_rope_recover(const float *factors, int64_t half, const char *what,
                                      plsh_rope_config *rope, plsh_error *error);

/* general.file_type and general.quantization_version of a GGUF of this type. */
plsh_status plsh_convert_type_metadata(plsh_weights_writer *writer, plsh_weight_type type,
                                       plsh_error *error);

#endif
