"""Small models with the published names and structure of ALiBi families that have code of their own:
eager attention with the whole bias, [heads, n, n], as their code computes it."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from family_encoders import (
    JinaForSequenceClassification, JinaModel, MosaicForMaskedLM, MosaicForSequenceClassification, distances,
    eager, heads_of, joined, slopes_of,
)


# ---- Baichuan --------------------------------------------------------------------------------------

class RMSNorm(nn.Module):
    def __init__(self, size, epsilon):
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.ones(size)), epsilon

    def forward(self, x):
        return self.weight * x * (x.square().mean(-1, keepdim=True) + self.epsilon).rsqrt()


class BaichuanAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.W_pack = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, hidden_states, attention_mask=None, past_key_value=None, output_attentions=False,
                use_cache=False):
        q, k, v = self.W_pack(hidden_states).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        if past_key_value is not None:
            k, v = torch.cat((past_key_value[0], k), 2), torch.cat((past_key_value[1], v), 2)
        bias = attention_mask[..., -q.shape[2]:, :]
        o = self.o_proj(joined(eager(q, k, v, bias, q.shape[3] ** -0.5)))
        return o, None, (k, v) if use_cache else None


class BaichuanMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        for name, shape in (("gate_proj", (config.hidden_size, config.intermediate_size)),
                            ("up_proj", (config.hidden_size, config.intermediate_size)),
                            ("down_proj", (config.intermediate_size, config.hidden_size))):
            setattr(self, name, nn.Linear(*shape, bias=False))

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class BaichuanLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self_attn, self.mlp = BaichuanAttention(config), BaichuanMLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, hidden_states, attention_mask=None, past_key_value=None, output_attentions=False,
                use_cache=False):
        o, _, kept = self.self_attn(hidden_states=self.input_layernorm(hidden_states),
                                    attention_mask=attention_mask, past_key_value=past_key_value,
                                    output_attentions=output_attentions, use_cache=use_cache)
        hidden_states = hidden_states + o
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states)), kept


class BaichuanModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_head = config.num_attention_heads
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(BaichuanLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.alibi_mask, self.checkpointing = None, False

    def get_alibi_mask(self, tensor, seq_length_with_past):
        n = seq_length_with_past
        future = torch.full((n, n), -torch.inf, dtype=torch.float64).triu(1)
        return future - slopes_of(self.n_head)[:, None, None] * distances(n, n)

    def forward(self, input_ids=None, attention_mask=None, past_key_values=None, use_cache=False,
                output_attentions=False):
        x = self.embed_tokens(input_ids)
        n = x.shape[1] + (0 if past_key_values is None else past_key_values[0][0].shape[2])
        if self.training and (self.alibi_mask is None or self.alibi_mask.shape[-1] != n):
            self.alibi_mask = self.get_alibi_mask(x, n)
        mask = self.alibi_mask if self.training else self.get_alibi_mask(x, n)
        if attention_mask is not None:
            pairs = (attention_mask[:, :, None] * attention_mask[:, None]).bool()
            mask = mask[None].masked_fill(~pairs[:, None], torch.finfo(x.dtype).min)
        kept = []
        for number, layer in enumerate(self.layers):
            past = None if past_key_values is None else past_key_values[number]
            if self.checkpointing:
                x, last = torch.utils.checkpoint.checkpoint(layer, x, mask, None, use_reentrant=True)
            else:
                x, last = layer(x, attention_mask=mask, past_key_value=past,
                                output_attentions=output_attentions, use_cache=use_cache)
            kept.append(last)
        return self.norm(x), kept


class NormHead(nn.Module):
    def __init__(self, hidden, vocabulary):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocabulary, hidden))

    def forward(self, x):
        return F.linear(x, F.normalize(self.weight))


class BaichuanForCausalLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = BaichuanModel(config)
        self.lm_head = NormHead(config.hidden_size, config.vocab_size) if config.norm_head else \
            nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, input_ids, attention_mask=None, **more):
        x, kept = self.model(input_ids=input_ids, attention_mask=attention_mask, **more)
        return (self.lm_head(x), kept) if more.get("use_cache") else self.lm_head(x)


# ---- Jais, BTLM ------------------------------------------------------------------------------------

class Conv1D(nn.Module):
    def __init__(self, outputs, inputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * 0.02)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class AlibiPositionEmbeddingLayer(nn.Module):
    def __init__(self, heads, alibi_scaling=None):
        super().__init__()
        self.alibi_scaling = alibi_scaling
        self.slopes = nn.Parameter(slopes_of(heads)[:, None].float(), requires_grad=False)

    def forward(self, seq_length, key_length, cached_qk_len):
        keys, scaling = key_length + cached_qk_len, self.alibi_scaling or {}
        scale = scaling.get("factor") or max(1.0, keys / scaling.get("train_seq_len", keys))
        return -self.slopes[:, :, None] / scale * distances(seq_length, keys)


class JAISAttention(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.num_heads, self.layer_idx = config.n_head, layer_idx
        self.scale_attn_weights = config.scale_attn_weights
        self.scale_attn_by_inverse_layer_idx = config.scale_attn_by_inverse_layer_idx
        self.attn_scale_power = 1.0 if config.by_d else 0.5
        self.c_attn, self.c_proj = Conv1D(3 * config.n_embd, config.n_embd), Conv1D(config.n_embd, config.n_embd)
        self.attn_dropout, self.resid_dropout = nn.Dropout(config.attn_pdrop), nn.Dropout(config.resid_pdrop)

    def forward(self, hidden_states, layer_past=None, attention_mask=None, head_mask=None,
                encoder_hidden_states=None, encoder_attention_mask=None, use_cache=False,
                output_attentions=False, position_bias=None):
        q, k, v = self.c_attn(hidden_states).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        if layer_past is not None:
            k, v = torch.cat((layer_past[0], k), 2), torch.cat((layer_past[1], v), 2)
        scale = q.shape[3] ** -self.attn_scale_power if self.scale_attn_weights else 1.0
        if self.scale_attn_by_inverse_layer_idx:
            scale /= self.layer_idx + 1
        n, m = q.shape[2], k.shape[2]
        future = torch.full((n, m), -torch.inf).triu(1 + m - n)
        bias = position_bias[None] + future + (0 if attention_mask is None else attention_mask)
        o = self.resid_dropout(self.c_proj(joined(eager(q, k, v, bias, scale, self.attn_dropout))))
        return o, (k, v) if use_cache else None


class JAISMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_fc, self.c_fc2 = Conv1D(config.n_inner, config.n_embd), Conv1D(config.n_inner, config.n_embd)
        self.c_proj = Conv1D(config.n_embd, config.n_inner)

    def forward(self, x):
        return self.c_proj(self.c_fc(x) * F.silu(self.c_fc2(x)))


class JAISBlock(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.attn = JAISAttention(config, layer_idx)
        self.ln_2 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.mlp = JAISMLP(config)

    def forward(self, hidden_states, **arguments):
        o, kept = self.attn(self.ln_1(hidden_states), **arguments)
        hidden_states = hidden_states + o
        return hidden_states + self.mlp(self.ln_2(hidden_states)), kept


class JAISModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.h = nn.ModuleList(JAISBlock(config, n) for n in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.relative_pe = AlibiPositionEmbeddingLayer(config.n_head, getattr(config, "alibi_scaling", None))
        self.embeddings_scale = config.into

    def forward(self, input_ids, attention_mask=None, past_key_values=None, use_cache=False,
                output_attentions=False):
        x = self.wte(input_ids) * self.embeddings_scale
        past = 0 if past_key_values is None else past_key_values[0][0].shape[2]
        bias = self.relative_pe(x.shape[1], x.shape[1], past)
        if attention_mask is not None:
            attention_mask = (1.0 - attention_mask[:, None, None].to(x.dtype)) * torch.finfo(x.dtype).min
        kept = []
        for number, block in enumerate(self.h):
            x, last = block(x, layer_past=None if past_key_values is None else past_key_values[number],
                            attention_mask=attention_mask, use_cache=use_cache,
                            output_attentions=output_attentions, position_bias=bias)
            kept.append(last)
        return self.ln_f(x), kept


class JAISLMHeadModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.transformer, self.scale = JAISModel(config), config.out

    def forward(self, input_ids, attention_mask=None, **more):
        x, kept = self.transformer(input_ids, attention_mask, **more)
        logits = F.linear(x, self.transformer.wte.weight) * self.scale
        return (logits, kept) if more.get("use_cache") else logits


# ---- Refact ----------------------------------------------------------------------------------------

def get_alibi_biases(B, T, attn_heads, dev, dtype, causal=True):
    """slope * (j + 1), of the keys alone: the same softmax."""
    return (slopes_of(attn_heads)[:, None, None] * (torch.arange(T) + 1)).expand(B, -1, T, -1).to(dtype)


class LayerNormNoBias(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, None, self.eps)


class RefactAttention(nn.Module):
    """`old`: keys and values apart, as in the first revision."""

    def __init__(self, config):
        super().__init__()
        self.num_heads, dim = config.n_head, config.n_embd // config.n_head
        self.q = nn.Linear(config.n_embd, config.n_embd, bias=False)
        if config.old:
            self.k, self.v = (nn.Linear(config.n_embd, dim, bias=False) for _ in range(2))
        else:
            self.kv = nn.Linear(config.n_embd, 2 * dim, bias=False)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=False)

    def forward(self, hidden_states, layer_past=None, attention_mask=None, alibi=None, use_cache=False,
                output_attentions=False):
        q = heads_of(self.q(hidden_states), self.num_heads)
        k, v = self.kv(hidden_states).chunk(2, -1) if hasattr(self, "kv") else \
            (self.k(hidden_states), self.v(hidden_states))
        k, v = k[:, None], v[:, None]
        if layer_past is not None:
            k, v = torch.cat((layer_past[0], k), 2), torch.cat((layer_past[1], v), 2)
        bias = alibi.masked_fill(attention_mask, -10000.0)
        return self.c_proj(joined(eager(q, k, v, bias, q.shape[3] ** -0.5))), (k, v) if use_cache else None


class RefactMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        inner = 256 * -(-int(2 * 4 * config.n_embd / 3) // 256)
        self.gate_up_proj = nn.Linear(config.n_embd, 2 * inner, bias=False)
        self.c_proj = nn.Linear(inner, config.n_embd, bias=False)

    def forward(self, x):
        gate, up = self.gate_up_proj(x).chunk(2, -1)
        return self.c_proj(F.silu(gate) * up)


class GPTRefactBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = LayerNormNoBias(config.n_embd, config.layer_norm_epsilon)
        self.attn = RefactAttention(config)
        self.ln_2 = LayerNormNoBias(config.n_embd, config.layer_norm_epsilon)
        self.mlp = RefactMLP(config)

    def forward(self, hidden_states, layer_past=None, attention_mask=None, alibi=None, use_cache=False,
                output_attentions=False):
        o, kept = self.attn(self.ln_1(hidden_states), layer_past=layer_past, attention_mask=attention_mask,
                            alibi=alibi, use_cache=use_cache, output_attentions=output_attentions)
        hidden_states = hidden_states + o
        return hidden_states + self.mlp(self.ln_2(hidden_states)), kept


class GPTRefactModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.num_heads = config.n_head
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.h = nn.ModuleList(GPTRefactBlock(config) for _ in range(config.n_layer))

    @staticmethod
    def _make_mask(seq_len, past_key_values_length):
        return torch.ones(seq_len, seq_len + past_key_values_length, dtype=torch.bool).triu(
            1 + past_key_values_length)

    def forward(self, input_ids, past_key_values=None, attention_mask=None, use_cache=False,
                output_attentions=False):
        x, n = self.wte(input_ids), input_ids.shape[1]
        past = 0 if past_key_values is None else past_key_values[0][0].shape[2]
        mask = self._make_mask(n, past)
        if attention_mask is not None:
            mask = mask | (attention_mask[:, None, None] == 0)
        alibi = get_alibi_biases(x.shape[0], n + past, self.num_heads, None, x.dtype)[:, :, -n:, :]
        kept = []
        for number, block in enumerate(self.h):
            x, last = block(x, layer_past=None if past_key_values is None else past_key_values[number],
                            attention_mask=mask, alibi=alibi, use_cache=use_cache,
                            output_attentions=output_attentions)
            kept.append(last)
        return x, kept


class GPTRefactForCausalLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.transformer = GPTRefactModel(config)
        self.ln_f = LayerNormNoBias(config.n_embd, config.layer_norm_epsilon)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

    def forward(self, input_ids, attention_mask=None, **more):
        x, kept = self.transformer(input_ids, attention_mask=attention_mask, **more)
        logits = self.lm_head(self.ln_f(x))
        return (logits, kept) if more.get("use_cache") else logits


# ---- MPT of llm-foundry ----------------------------------------------------------------------------

class MPTAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        made = config.attn_config
        self.attn_impl, self.clip_qkv, self.qk_ln = "torch", made["clip_qkv"], made["qk_ln"]
        self.d_model, self.n_heads = config.d_model, config.n_heads
        self.kv_n_heads = made.get("kv_n_heads") or config.n_heads
        dim, bias = self.d_model // self.n_heads, not config.no_bias
        self.softmax_scale = made["softmax_scale"] or dim ** -0.5
        self.attn_dropout_p = made["attn_pdrop"]
        self.Wqkv = nn.Linear(self.d_model, self.d_model + 2 * self.kv_n_heads * dim, bias=bias)
        if self.qk_ln:
            self.q_ln = nn.LayerNorm(self.d_model, bias=bias)
            self.k_ln = nn.LayerNorm(self.kv_n_heads * dim, bias=bias)
        self.out_proj = nn.Linear(self.d_model, self.d_model, bias=bias)

    def forward(self, x, past_key_value=None, attn_bias=None, attention_mask=None, is_causal=True,
                needs_weights=False):
        qkv = self.Wqkv(x)
        if self.clip_qkv:
            qkv = qkv.clamp(-self.clip_qkv, self.clip_qkv)
        width = (qkv.shape[-1] - self.d_model) // 2
        q, k, v = qkv.split([self.d_model, width, width], -1)
        if self.qk_ln:
            q, k = self.q_ln(q), self.k_ln(k)
        q, k, v = heads_of(q, self.n_heads), heads_of(k, self.kv_n_heads), heads_of(v, self.kv_n_heads)
        if past_key_value:
            k, v = torch.cat((past_key_value[0].transpose(2, 3), k), 2), torch.cat((past_key_value[1], v), 2)
        kept = None if past_key_value is None else (k.transpose(2, 3), v)
        groups, n, m = self.n_heads // self.kv_n_heads, q.shape[2], k.shape[2]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        bias = attn_bias[..., -m:] + torch.full((n, m), -torch.inf).triu(1 + m - n)
        return self.out_proj(joined(eager(q, k, v, bias, self.softmax_scale))), None, kept


class MPTMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        inner = config.expansion_ratio * config.d_model
        self.up_proj = nn.Linear(config.d_model, inner, bias=not config.no_bias)
        self.down_proj = nn.Linear(inner, config.d_model, bias=not config.no_bias)

    def forward(self, x):
        return self.down_proj(F.gelu(self.up_proj(x)))


class MPTBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm_1 = nn.LayerNorm(config.d_model, bias=not config.no_bias)
        self.attn = MPTAttention(config)
        self.norm_2 = nn.LayerNorm(config.d_model, bias=not config.no_bias)
        self.ffn = MPTMLP(config)

    def forward(self, x, past_key_value=None, attn_bias=None, attention_mask=None, is_causal=True,
                output_attentions=False):
        o, _, kept = self.attn(self.norm_1(x), past_key_value=past_key_value, attn_bias=attn_bias,
                               attention_mask=attention_mask, is_causal=is_causal,
                               needs_weights=output_attentions)
        x = x + o
        return x + self.ffn(self.norm_2(x)), kept


class MPTModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        made = config.attn_config
        self.config, self.alibi, self.alibi_bias_max = config, made["alibi"], made["alibi_bias_max"]
        self.attn_uses_sequence_id = made["attn_uses_sequence_id"]
        self.wte = nn.Embedding(config.vocab_size, config.d_model)
        self.blocks = nn.ModuleList(MPTBlock(config) for _ in range(config.n_layers))
        self.norm_f = nn.LayerNorm(config.d_model, bias=not config.no_bias)

    def _attn_bias(self, device, dtype, attention_mask=None, sequence_id=None):
        size = 2048  # of the longest text
        bias = slopes_of(self.config.n_heads, self.alibi_bias_max)[:, None, None] * torch.arange(1 - size, 1)
        bias = bias[None].to(dtype)
        if attention_mask is not None:
            bias = bias[..., -attention_mask.shape[-1]:]
            bias = bias.masked_fill(~attention_mask[:, None, None].bool(), torch.finfo(dtype).min)
        if self.attn_uses_sequence_id and sequence_id is not None:
            bias = bias[..., -sequence_id.shape[-1]:].masked_fill(
                (sequence_id[:, :, None] != sequence_id[:, None])[:, None], torch.finfo(dtype).min)
        return bias, None

    def forward(self, input_ids, past_key_values=None, attention_mask=None, sequence_id=None,
                use_cache=False, output_attentions=False):
        x = self.wte(input_ids)
        bias, mask = self._attn_bias(device=x.device, dtype=x.dtype, attention_mask=attention_mask,
                                     sequence_id=sequence_id)
        if use_cache and past_key_values is None:
            past_key_values = [() for _ in self.blocks]
        kept = []
        for number, block in enumerate(self.blocks):
            x, last = block(x, past_key_value=None if past_key_values is None else past_key_values[number],
                            attn_bias=bias, attention_mask=mask, output_attentions=output_attentions)
            kept.append(last)
        return self.norm_f(x), kept


class MPTForCausalLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.transformer = MPTModel(config)

    def forward(self, input_ids, attention_mask=None, **more):
        x, kept = self.transformer(input_ids, attention_mask=attention_mask, **more)
        logits = F.linear(x, self.transformer.wte.weight)
        return (logits, kept) if more.get("use_cache") else logits


# ---- By the golden folder's name -------------------------------------------------------------------

BERT = {"hidden_size": 24, "num_attention_heads": 6, "num_hidden_layers": 2, "intermediate_size": 20,
        "vocab_size": 50, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "alibi_starting_size": 16,
        "attention_probs_dropout_prob": 0.0}
GPT = {"n_embd": 24, "n_head": 6, "n_layer": 2, "n_inner": 20, "vocab_size": 50, "layer_norm_epsilon": 1e-5,
       "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "attn_pdrop": 0.0,
       "resid_pdrop": 0.0}
BAICHUAN = {"hidden_size": 24, "num_attention_heads": 6, "num_hidden_layers": 2, "intermediate_size": 20,
            "vocab_size": 50, "rms_norm_eps": 1e-6}
MPT = {"d_model": 24, "n_heads": 6, "n_layers": 2, "vocab_size": 50, "expansion_ratio": 4, "no_bias": True,
       "attn_config": {"alibi": True, "alibi_bias_max": 8, "clip_qkv": None, "qk_ln": False,
                       "softmax_scale": None, "attn_pdrop": 0.0, "attn_uses_sequence_id": False}}
MUP = {"mup_embeddings_scale": 3.0, "mup_output_alpha": 2.0, "mup_width_scale": 0.5,
       "mup_scale_qk_dot_by_d": True}
SHAPES = {
    "dnabert2_mlm": (MosaicForMaskedLM, BERT), "dnabert2_cls": (MosaicForSequenceClassification, BERT),
    "jina": (JinaModel, BERT), "jina_code": (JinaModel, BERT),
    "jina_reranker": (JinaForSequenceClassification, BERT),
    "baichuan": (BaichuanForCausalLM, BAICHUAN), "baichuan2": (BaichuanForCausalLM, BAICHUAN),
    "jais13": (JAISLMHeadModel, {**GPT, "embeddings_scale": 3.0, "width_scale": 0.7,
                                 "scale_qk_dot_by_d": True}),
    "jais_mup": (JAISLMHeadModel, {**GPT, **MUP}), "btlm": (JAISLMHeadModel, {**GPT, **MUP}),
    "refact": (GPTRefactForCausalLM, GPT),
    "mpt_storywriter": (MPTForCausalLM, {**MPT, "attn_config": {**MPT["attn_config"], "clip_qkv": 2.0,
                                                                "alibi_bias_max": 16}}),
    "mpt_gqa": (MPTForCausalLM, {**MPT, "attn_config": {**MPT["attn_config"], "kv_n_heads": 2}}),
    "mpt_qkln_bias": (MPTForCausalLM, {**MPT, "no_bias": False,
                                       "attn_config": {**MPT["attn_config"], "qk_ln": True}}),
}


def make(name: str, config: dict | None = None, **changes):
    """A model of a family; without a configuration a small one, random, always the same."""
    kind, small = SHAPES[name]
    given = {**(small if config is None else config), **changes}
    extra = {"code": name == "jina_code", "norm_head": name == "baichuan2", "old": given.get("old", False),
             "num_labels": given.get("num_labels", 3),
             "into": given.get("mup_embeddings_scale", given.get("embeddings_scale")),
             "out": given["mup_output_alpha"] * given["mup_width_scale"] if "mup_output_alpha" in given
             else given.get("width_scale"),
             "by_d": given.get("mup_scale_qk_dot_by_d", given.get("scale_qk_dot_by_d"))}
    torch.manual_seed(0)
    model = kind(SimpleNamespace(**{**given, **extra}))
    if config is None:
        with torch.no_grad():  # larger weights than fresh ones: attention that is far from uniform
            for key, x in model.named_parameters():
                if x.dim() == 2 and "slopes" not in key:
                    x.normal_(0, 0.3)
    return model.eval()
