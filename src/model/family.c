/* model: the families of transformers, as rows of one description. */
#include "model/family.h"

#include <string.h>

/* Buffers that old files carry, and heads of other tasks. */
static const char *const ignored_rope[] = {"*.rotary_emb.inv_freq", NULL};
static const char *const ignored_bert[] = {"pooler.*", "cls.*", "*.position_ids", "bert.pooler.*",
                                           NULL}; /* heads that are used: encoder_heads.c */
static const char *const ignored_none[] = {NULL};
/* Masks, and a copy of the slopes. */
static const char *const ignored_jais[] = {"*.attn.bias", "*.attn.masked_bias",
                                           "*relative_pe.slopes", NULL};

#define LLAMA_NAMES                                                                                \
    [PLSH_ROLE_TOKENS] = "embed_tokens", [PLSH_ROLE_FINAL_NORM] = "norm",                          \
    [PLSH_ROLE_HEAD] = "lm_head", [PLSH_ROLE_ATTENTION_NORM] = "input_layernorm",                  \
    [PLSH_ROLE_Q] = "self_attn.q_proj", [PLSH_ROLE_K] = "self_attn.k_proj",                        \
    [PLSH_ROLE_V] = "self_attn.v_proj", [PLSH_ROLE_ATTENTION_OUT] = "self_attn.o_proj",            \
    [PLSH_ROLE_MLP_NORM] = "post_attention_layernorm", [PLSH_ROLE_GATE] = "mlp.gate_proj",         \
    [PLSH_ROLE_UP] = "mlp.up_proj", [PLSH_ROLE_DOWN] = "mlp.down_proj"

/* What Llama and the families after it share. */
#define LLAMA_TRAITS                                                                               \
    .causal = true, .norm = PLSH_NORM_RMS, .position = PLSH_POSITION_ROPE, .qkv = PLSH_QKV_SPLIT,  \
    .mlp = PLSH_MLP_GATED, .activation = PLSH_ACTIVATION_SILU, .prefix = "model.",                 \
    .layers = "layers.", .ignored = ignored_rope

/* What the families after GPT-2 share. */
#define GPT_TRAITS .causal = true, .norm = PLSH_NORM_LAYER, .prefix = "transformer."

#define BLOOM_NAMES                                                                                \
    [PLSH_ROLE_TOKENS] = "word_embeddings", [PLSH_ROLE_FINAL_NORM] = "ln_f",                       \
    [PLSH_ROLE_HEAD] = "lm_head", [PLSH_ROLE_ATTENTION_NORM] = "input_layernorm",                  \
    [PLSH_ROLE_QKV] = "self_attention.query_key_value",                                            \
    [PLSH_ROLE_ATTENTION_OUT] = "self_attention.dense",                                            \
    [PLSH_ROLE_MLP_NORM] = "post_attention_layernorm", [PLSH_ROLE_UP] = "mlp.dense_h_to_4h",       \
    [PLSH_ROLE_DOWN] = "mlp.dense_4h_to_h"

#define BAICHUAN_NAMES                                                                             \
    [PLSH_ROLE_TOKENS] = "embed_tokens", [PLSH_ROLE_FINAL_NORM] = "norm",                          \
    [PLSH_ROLE_HEAD] = "lm_head", [PLSH_ROLE_ATTENTION_NORM] = "input_layernorm",                  \
    [PLSH_ROLE_QKV] = "self_attn.W_pack", [PLSH_ROLE_ATTENTION_OUT] = "self_attn.o_proj",          \
    [PLSH_ROLE_MLP_NORM] = "post_attention_layernorm", [PLSH_ROLE_GATE] = "mlp.gate_proj",         \
    [PLSH_ROLE_UP] = "mlp.up_proj", [PLSH_ROLE_DOWN] = "mlp.down_proj"

/* Four models share one model_type: they differ in position and in the head. */
#define BAICHUAN(title, type, positions, normalised)                                               \
    {                                                                                              \
        .name = title, .model_type = type, .class_name = "BaichuanForCausalLM",                    \
        .architecture = "baichuan", .causal = true, .norm = PLSH_NORM_RMS, .position = positions,  \
        .qkv = PLSH_QKV_STACKED, .mlp = PLSH_MLP_GATED, .activation = PLSH_ACTIVATION_SILU,        \
        .normal_head = normalised, .split_gguf = true, .permuted_gguf = true, .prefix = "model.",  \
        .layers = "layers.", .name_of = {BAICHUAN_NAMES}, .ignored = ignored_rope                  \
    }

/* Jais and BTLM are one network. */
#define JAIS(title, type, class)                                                                   \
    {                                                                                              \
        .name = title, .model_type = type, .class_name = class, .architecture = "jais",            \
        .causal = true, .norm = PLSH_NORM_LAYER, .norm_bias = true,                                \
        .position = PLSH_POSITION_ALIBI, .qkv = PLSH_QKV_STACKED, .mlp = PLSH_MLP_GATED,           \
        .activation = PLSH_ACTIVATION_SILU, .transposed = true, .prefix = "transformer.",          \
        .layers = "h.",                                                                            \
        .name_of = {[PLSH_ROLE_TOKENS] = "wte",      [PLSH_ROLE_FINAL_NORM] = "ln_f",              \
                    [PLSH_ROLE_HEAD] = "lm_head",    [PLSH_ROLE_ATTENTION_NORM] = "ln_1",          \
                    [PLSH_ROLE_QKV] = "attn.c_attn", [PLSH_ROLE_ATTENTION_OUT] = "attn.c_proj",    \
                    [PLSH_ROLE_MLP_NORM] = "ln_2",   [PLSH_ROLE_GATE] = "mlp.c_fc2",               \
                    [PLSH_ROLE_UP] = "mlp.c_fc",     [PLSH_ROLE_DOWN] = "mlp.c_proj"},             \
        .ignored = ignored_jais                                                                    \
    }

#define REFACT_NAMES                                                                               \
    [PLSH_ROLE_TOKENS] = "wte", [PLSH_ROLE_FINAL_NORM] = "ln_f", [PLSH_ROLE_HEAD] = "lm_head",     \
    [PLSH_ROLE_ATTENTION_NORM] = "ln_1", [PLSH_ROLE_Q] = "attn.q",                                 \
    [PLSH_ROLE_ATTENTION_OUT] = "attn.c_proj", [PLSH_ROLE_MLP_NORM] = "ln_2",                      \
    [PLSH_ROLE_DOWN] = "mlp.c_proj"

#define REFACT(title, type, norms)                                                                 \
    {                                                                                              \
        .name = title, .model_type = type, .class_name = "GPTRefactForCausalLM",                   \
        .architecture = "refact", .causal = true, .norm = norms, .position = PLSH_POSITION_ALIBI,  \
        .qkv = PLSH_QKV_Q_AND_KV, .mlp = PLSH_MLP_GATED_FUSED, .activation = PLSH_ACTIVATION_SILU, \
        .bare_norm = true, .split_gguf = true, .prefix = "transformer.", .layers = "h.",           \
        .name_of =                                                                                 \
            {REFACT_NAMES, [PLSH_ROLE_KV] = "attn.kv", [PLSH_ROLE_UP] = "mlp.gate_up_proj"},       \
        .ignored = ignored_none                                                                    \
    }

#define BERT_NAMES                                                                                 \
    [PLSH_ROLE_TOKENS] = "embeddings.word_embeddings",                                             \
    [PLSH_ROLE_TYPES] = "embeddings.token_type_embeddings",                                        \
    [PLSH_ROLE_TOKENS_NORM] = "embeddings.LayerNorm",                                              \
    [PLSH_ROLE_ATTENTION_OUT] = "attention.output.dense",                                          \
    [PLSH_ROLE_ATTENTION_NORM] = "attention.output.LayerNorm"

#define BERT_QKV                                                                                   \
    [PLSH_ROLE_Q] = "attention.self.query", [PLSH_ROLE_K] = "attention.self.key",                  \
    [PLSH_ROLE_V] = "attention.self.value"

/* What BERT and the encoders after it share. */
#define BERT_TRAITS                                                                                \
    .norm = PLSH_NORM_LAYER, .norm_bias = true, .post_norm = true, .tokens_norm = true,            \
    .activation = PLSH_ACTIVATION_GELU, .prefix = "bert.", .layers = "encoder.layer.",             \
    .ignored = ignored_bert

const plsh_family plsh_families[] = {
    {LLAMA_TRAITS, .name = "Llama", .model_type = "llama", .class_name = "LlamaForCausalLM",
     .architecture = "llama", .permuted_gguf = true, .name_of = {LLAMA_NAMES}},
    {LLAMA_TRAITS, .name = "Mistral", .model_type = "mistral", .class_name = "MistralForCausalLM",
     .name_of = {LLAMA_NAMES}},
    {LLAMA_TRAITS, .name = "Qwen2", .model_type = "qwen2", .class_name = "Qwen2ForCausalLM",
     .architecture = "qwen2", .qkv_bias = true, .name_of = {LLAMA_NAMES}},
    {LLAMA_TRAITS, .name = "Qwen3", .model_type = "qwen3", .class_name = "Qwen3ForCausalLM",
     .architecture = "qwen3", .qk_norm = PLSH_QK_NORM_HEAD,
     .name_of = {LLAMA_NAMES, [PLSH_ROLE_Q_NORM] = "self_attn.q_norm",
                 [PLSH_ROLE_K_NORM] = "self_attn.k_norm"}},
    {GPT_TRAITS, .name = "BLOOM", .model_type = "bloom", .class_name = "BloomForCausalLM",
     .architecture = "bloom", .norm_bias = true, .tokens_norm = true,
     .position = PLSH_POSITION_ALIBI, .qkv = PLSH_QKV_INTERLEAVED, .mlp = PLSH_MLP_PLAIN,
     .activation = PLSH_ACTIVATION_GELU_TANH, .layers = "h.",
     .name_of = {BLOOM_NAMES, [PLSH_ROLE_TOKENS_NORM] = "word_embeddings_layernorm"},
     .ignored = ignored_none},
    {GPT_TRAITS, .name = "MPT", .model_type = "mpt", .class_name = "MptForCausalLM",
     .architecture = "mpt", .position = PLSH_POSITION_ALIBI, .qkv = PLSH_QKV_STACKED,
     .mlp = PLSH_MLP_PLAIN, .activation = PLSH_ACTIVATION_GELU, .layers = "blocks.",
     .name_of = {[PLSH_ROLE_TOKENS] = "wte",
                 [PLSH_ROLE_FINAL_NORM] = "norm_f",
                 [PLSH_ROLE_HEAD] = "lm_head",
                 [PLSH_ROLE_ATTENTION_NORM] = "norm_1",
                 [PLSH_ROLE_QKV] = "attn.Wqkv",
                 [PLSH_ROLE_Q] = "attn.Wq",
                 [PLSH_ROLE_K] = "attn.Wk",
                 [PLSH_ROLE_V] = "attn.Wv",
                 [PLSH_ROLE_Q_NORM] = "attn.q_ln",
                 [PLSH_ROLE_K_NORM] = "attn.k_ln",
                 [PLSH_ROLE_ATTENTION_OUT] = "attn.out_proj",
                 [PLSH_ROLE_MLP_NORM] = "norm_2",
                 [PLSH_ROLE_GATE] = "ffn.gate_proj",
                 [PLSH_ROLE_UP] = "ffn.up_proj",
                 [PLSH_ROLE_DOWN] = "ffn.down_proj"},
     .ignored = ignored_none},
    {GPT_TRAITS, .name = "Falcon", .model_type = "falcon", .class_name = "FalconForCausalLM",
     .norm_bias = true, .position = PLSH_POSITION_ALIBI_SCALED, .qkv = PLSH_QKV_INTERLEAVED,
     .mlp = PLSH_MLP_PLAIN, .activation = PLSH_ACTIVATION_GELU, .layers = "h.",
     .name_of = {BLOOM_NAMES}, .ignored = ignored_none},
    /* neither config.json nor a GGUF tells these four apart: plsh_config_baichuan
     * (config_remote.c) has the rules */
    BAICHUAN("Baichuan 13B", "baichuan-13b", PLSH_POSITION_ALIBI, false),
    BAICHUAN("Baichuan2 13B", "baichuan2-13b", PLSH_POSITION_ALIBI, true),
    BAICHUAN("Baichuan 7B", "baichuan-7b", PLSH_POSITION_ROPE, false),
    BAICHUAN("Baichuan2 7B", "baichuan2-7b", PLSH_POSITION_ROPE, true),
    JAIS("Jais", "jais", "JAISLMHeadModel"),
    JAIS("BTLM", "btlm", "BTLMLMHeadModel"),
    REFACT("Refact", "gpt_refact", PLSH_NORM_LAYER),
    /* what llama.cpp computes, although the model has a LayerNorm */
    REFACT("Refact with RMSNorm", "gpt_refact-rmsnorm", PLSH_NORM_RMS),
    {GPT_TRAITS, .name = "Refact of 2023",
     .model_type = "gpt_refact-2023", /* known by its tensors, see plsh_model_config_tensors */
     .class_name = "GPTRefactForCausalLM", .architecture = "refact",
     .position = PLSH_POSITION_ALIBI, .qkv = PLSH_QKV_SPLIT, .mlp = PLSH_MLP_GATED,
     .activation = PLSH_ACTIVATION_SILU, .bare_norm = true, .layers = "h.",
     .name_of = {REFACT_NAMES, [PLSH_ROLE_K] = "attn.k", [PLSH_ROLE_V] = "attn.v",
                 [PLSH_ROLE_GATE] = "mlp.linear_1", [PLSH_ROLE_UP] = "mlp.linear_3"},
     .ignored = ignored_none},
    {BERT_TRAITS, .name = "BERT", .model_type = "bert", .architecture = "bert",
     .position = PLSH_POSITION_LEARNED, .qkv = PLSH_QKV_SPLIT, .mlp = PLSH_MLP_PLAIN,
     .name_of = {BERT_NAMES, BERT_QKV, [PLSH_ROLE_POSITIONS] = "embeddings.position_embeddings",
                 [PLSH_ROLE_UP] = "intermediate.dense", [PLSH_ROLE_DOWN] = "output.dense",
                 [PLSH_ROLE_MLP_NORM] = "output.LayerNorm"}},
    {BERT_TRAITS, .name = "JinaBERT",
     .model_type = "jina-bert-v2", /* config.json says "bert": config.c tells them apart */
     .architecture = "jina-bert-v2", .position = PLSH_POSITION_ALIBI, .qkv = PLSH_QKV_SPLIT,
     .mlp = PLSH_MLP_GATED_FUSED,
     .name_of = {BERT_NAMES, BERT_QKV, [PLSH_ROLE_UP] = "mlp.gated_layers",
                 [PLSH_ROLE_DOWN] = "mlp.wo", [PLSH_ROLE_MLP_NORM] = "mlp.layernorm"}},
    {BERT_TRAITS, .name = "JinaBERT with BERT's MLP", .model_type = "jina-bert-v2-original",
     .position = PLSH_POSITION_ALIBI, .qkv = PLSH_QKV_SPLIT, .mlp = PLSH_MLP_PLAIN,
     .name_of = {BERT_NAMES, BERT_QKV, [PLSH_ROLE_UP] = "intermediate.dense",
                 [PLSH_ROLE_DOWN] = "output.dense", [PLSH_ROLE_MLP_NORM] = "output.LayerNorm"}},
    {BERT_TRAITS, .name = "JinaBERT code",
     .model_type = "jina-bert-v2-code", /* known by its tensors, see plsh_model_config_tensors */
     .architecture = "jina-bert-v2", .position = PLSH_POSITION_ALIBI, .qkv = PLSH_QKV_SPLIT,
     .qk_norm = PLSH_QK_NORM_WHOLE, .mlp = PLSH_MLP_UP_GATE_FUSED,
     .name_of =
         {BERT_NAMES, BERT_QKV, [PLSH_ROLE_Q_NORM] = "attention.self.layer_norm_q",
          [PLSH_ROLE_K_NORM] = "attention.self.layer_norm_k",
          [PLSH_ROLE_ATTENTION_NORM_2] = "layer_norm_1", [PLSH_ROLE_UP] = "mlp.up_gated_layer",
          [PLSH_ROLE_DOWN] = "mlp.down_layer", [PLSH_ROLE_MLP_NORM] = "layer_norm_2"}},
    {BERT_TRAITS, .name = "MosaicBERT",
     .model_type = "mosaic-bert", /* config.json says "bert" or nothing; DNABERT-2 is one */
     .position = PLSH_POSITION_ALIBI, .qkv = PLSH_QKV_STACKED, .mlp = PLSH_MLP_GATED_FUSED,
     .name_of =
         {BERT_NAMES, [PLSH_ROLE_QKV] = "attention.self.Wqkv", [PLSH_ROLE_UP] = "mlp.gated_layers",
          [PLSH_ROLE_DOWN] = "mlp.wo", [PLSH_ROLE_MLP_NORM] = "mlp.layernorm"}},
};

const size_t plsh_family_count = sizeof(plsh_families) / sizeof(*plsh_families);

const char *const plsh_family_gguf_names[PLSH_ROLE_COUNT] = {
    [PLSH_ROLE_TOKENS] = "token_embd",
    [PLSH_ROLE_POSITIONS] = "position_embd",
    [PLSH_ROLE_TYPES] = "token_types",
    [PLSH_ROLE_TOKENS_NORM] = "token_embd_norm",
    [PLSH_ROLE_FINAL_NORM] = "output_norm",
    [PLSH_ROLE_HEAD] = "output",
    [PLSH_ROLE_ATTENTION_NORM] = "attn_norm",
    [PLSH_ROLE_QKV] = "attn_qkv",
    [PLSH_ROLE_Q] = "attn_q",
    [PLSH_ROLE_K] = "attn_k",
    [PLSH_ROLE_V] = "attn_v",
    [PLSH_ROLE_Q_NORM] = "attn_q_norm",
    [PLSH_ROLE_K_NORM] = "attn_k_norm",
    [PLSH_ROLE_ATTENTION_OUT] = "attn_output",
    [PLSH_ROLE_ATTENTION_NORM_2] = "attn_norm_2",
    [PLSH_ROLE_MLP_NORM] = "ffn_norm",
    [PLSH_ROLE_GATE] = "ffn_gate",
    [PLSH_ROLE_UP] = "ffn_up",
    [PLSH_ROLE_DOWN] = "ffn_down",
};

const plsh_family *plsh_family_find(const char *model_type) {
    for (size_t i = 0; i < plsh_family_count; i++) {
        if (strcmp(plsh_families[i].model_type, model_type) == 0) return &plsh_families[i];
    }
    return NULL;
}

/* One '*' at the beginning or at the end stands for anything. */
static bool matches(const char *pattern, const char *name) {
    size_t length = strlen(pattern), have = strlen(name);
    if (pattern[0] == '*') {
        return have >= length - 1 && strcmp(name + have - (length - 1), pattern + 1) == 0;
    }
    if (length && pattern[length - 1] == '*') return strncmp(name, pattern, length - 1) == 0;
    return strcmp(name, pattern) == 0;
}

bool plsh_family_ignores(const plsh_family *family, const char *name) {
    for (const char *const *pattern = family->ignored; *pattern; pattern++) {
        if (matches(*pattern, name)) return true;
    }
    return false;
}
