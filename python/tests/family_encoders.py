"""Small encoders with the published names and structure of MosaicBERT, DNABERT-2 and Jina's models: eager
attention with the whole bias, [heads, n, n], as their code computes it."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F


def slopes_of(heads: int, largest: float = 8.0) -> torch.Tensor:
    """In head order: 2^(-A k / c), k = 1 .. c, then 2^(-A (2k - 1) / 2c)."""
    c = 2 ** math.floor(math.log2(heads))
    first = [2 ** (-largest * k / c) for k in range(1, c + 1)]
    more = [2 ** (-largest * (2 * k - 1) / (2 * c)) for k in range(1, heads - c + 1)]
    return torch.tensor(first + more, dtype=torch.float64)


def distances(queries: int, keys: int) -> torch.Tensor:
    return (torch.arange(queries)[:, None] + keys - queries - torch.arange(keys)[None]).abs()


def heads_of(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def eager(q, k, v, bias, scale, dropout=None):
    weights = (q @ k.transpose(2, 3) * scale + bias.to(q.dtype)).softmax(-1)
    return (weights if dropout is None else dropout(weights)) @ v


def joined(o):
    return o.transpose(1, 2).flatten(2)


class Embeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, ids):
        return self.LayerNorm(self.word_embeddings(ids) + self.token_type_embeddings.weight[0])


class SelfOutput(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden, residual):
        return self.LayerNorm(self.dense(hidden) + residual)


class GatedMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gated_layers = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.wo = nn.Linear(config.intermediate_size, config.hidden_size)
        self.layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden):
        gate, up = self.gated_layers(hidden).chunk(2, -1)
        return self.layernorm(self.wo(F.gelu(gate) * up) + hidden)


class Pooler(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden):
        return self.dense(hidden[:, 0]).tanh()


class Table(nn.Module):
    """An encoder that keeps its bias, symmetric, as a table."""

    def __init__(self, config, layer):
        super().__init__()
        self.num_attention_heads = config.num_attention_heads
        self.layer = nn.ModuleList(layer(config) for _ in range(config.num_hidden_layers))

    def rebuild_alibi_tensor(self, size, device=None):
        self._current_alibi_size = size
        self.alibi = (-slopes_of(self.num_attention_heads)[:, None, None] * distances(size, size))[None]
        return self.alibi


# ---- MosaicBERT, DNABERT-2 -------------------------------------------------------------------------

class MosaicSelf(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.num_attention_heads = config.num_attention_heads
        self.p_dropout = config.attention_probs_dropout_prob
        self.dropout = nn.Dropout(self.p_dropout)
        self.Wqkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)

    def forward(self, hidden_states, cu_seqlens, max_seqlen_in_batch, indices, attn_mask, bias):
        batch, n = attn_mask.shape
        qkv = self.Wqkv(hidden_states)
        whole = qkv.new_zeros(batch * n, qkv.shape[-1]).index_copy(0, indices, qkv).unflatten(0, (batch, n))
        q, k, v = whole.unflatten(-1, (3, self.num_attention_heads, -1)).permute(2, 0, 3, 1, 4)
        o = eager(q, k, v, bias, q.shape[3] ** -0.5, self.dropout)
        return joined(o).flatten(0, 1)[indices]


class MosaicAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self, self.output = MosaicSelf(config), SelfOutput(config)

    def forward(self, input_tensor, cu_seqlens, max_s, subset_idx=None, indices=None, attn_mask=None,
                bias=None):
        o = self.self(input_tensor, cu_seqlens, max_s, indices, attn_mask, bias)
        if subset_idx is not None:
            o, input_tensor = o[subset_idx], input_tensor[subset_idx]
        return self.output(o, input_tensor)


class MosaicLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention, self.mlp = MosaicAttention(config), GatedMLP(config)

    def forward(self, hidden_states, cu_seqlens, seqlen, subset_idx=None, indices=None, attn_mask=None,
                bias=None):
        return self.mlp(self.attention(hidden_states, cu_seqlens, seqlen, subset_idx, indices, attn_mask,
                                       bias))


class MosaicEncoder(Table):
    def __init__(self, config):
        super().__init__(config, MosaicLayer)
        self.rebuild_alibi_tensor(size=config.alibi_starting_size)

    def forward(self, hidden_states, attention_mask, output_all_encoded_layers=True, subset_mask=None):
        batch, n = attention_mask.shape
        if self._current_alibi_size < n:
            self.rebuild_alibi_tensor(size=n)
        bias = (1.0 - attention_mask[:, None, None].double()) * -10000.0 + self.alibi[:, :, :n, :n]
        there = attention_mask.bool()
        indices = there.flatten().nonzero().flatten()
        edges = F.pad(there.sum(1).cumsum(0), (1, 0)).to(torch.int32)
        hidden, made = hidden_states.flatten(0, 1)[indices], []
        for number, layer in enumerate(self.layer):
            last = number + 1 == len(self.layer)
            subset = subset_mask[there].nonzero().flatten() if last and subset_mask is not None else None
            hidden = layer(hidden, edges, n, subset, indices, attn_mask=attention_mask, bias=bias)
            if output_all_encoded_layers and subset is None:
                made.append(hidden)
        if subset_mask is None:
            hidden = hidden.new_zeros(batch * n, hidden.shape[-1]).index_copy(
                0, indices, hidden).unflatten(0, (batch, n))
        return made if output_all_encoded_layers else [hidden]


class MosaicModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embeddings, self.encoder = Embeddings(config), MosaicEncoder(config)

    def forward(self, input_ids, attention_mask=None, subset_mask=None):
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return self.encoder(self.embeddings(input_ids), mask, output_all_encoded_layers=False,
                            subset_mask=subset_mask)[-1]


class MosaicForMaskedLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.bert = MosaicModel(config)
        transform = nn.Module()
        transform.dense = nn.Linear(config.hidden_size, config.hidden_size)
        transform.LayerNorm = nn.LayerNorm(config.hidden_size, eps=1e-12)
        predictions = nn.Module()
        predictions.transform = transform
        predictions.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        predictions.decoder.weight = self.bert.embeddings.word_embeddings.weight
        self.cls = nn.Module()
        self.cls.predictions = predictions

    def forward(self, input_ids, attention_mask=None):
        head, x = self.cls.predictions, self.bert(input_ids, attention_mask)
        return head.decoder(head.transform.LayerNorm(F.gelu(head.transform.dense(x))))


class MosaicForSequenceClassification(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.bert = MosaicModel(config)
        self.bert.pooler = Pooler(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, input_ids, attention_mask=None):
        return self.classifier(self.bert.pooler(self.bert(input_ids, attention_mask)))


# ---- Jina ------------------------------------------------------------------------------------------

class JinaSelf(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden = config.hidden_size
        self.num_attention_heads, self.is_decoder = config.num_attention_heads, False
        self.query, self.key, self.value = (nn.Linear(hidden, hidden) for _ in range(3))
        if config.code:
            self.layer_norm_q = nn.LayerNorm(hidden, eps=config.layer_norm_eps)
            self.layer_norm_k = nn.LayerNorm(hidden, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def forward(self, hidden_states, attention_mask=None, head_mask=None, encoder_hidden_states=None,
                encoder_attention_mask=None, past_key_value=None, output_attentions=False, bias=None):
        q, k, v = self.query(hidden_states), self.key(hidden_states), self.value(hidden_states)
        if hasattr(self, "layer_norm_q"):
            q, k = self.layer_norm_q(q), self.layer_norm_k(k)
        q, k, v = (heads_of(x, self.num_attention_heads) for x in (q, k, v))
        return (joined(eager(q, k, v, attention_mask + bias, q.shape[3] ** -0.5, self.dropout)),)


class JinaAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self, self.output = JinaSelf(config), SelfOutput(config)

    def forward(self, hidden_states, attention_mask=None, head_mask=None, output_attentions=False,
                bias=None):
        o = self.self(hidden_states, attention_mask, head_mask, None, None, None, output_attentions, bias)
        return self.output(o[0], hidden_states)


class JinaCodeMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up_gated_layer = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.down_layer = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden):
        up, gate = self.up_gated_layer(hidden).chunk(2, -1)
        return self.down_layer(up * F.gelu(gate))


class JinaLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.code, self.attention = config.code, JinaAttention(config)
        self.mlp = JinaCodeMLP(config) if config.code else GatedMLP(config)
        if config.code:
            self.layer_norm_1 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
            self.layer_norm_2 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden_states, attention_mask=None, head_mask=None, encoder_hidden_states=None,
                encoder_attention_mask=None, bias=None, past_key_value=None, output_attentions=False):
        a = self.attention(hidden_states, attention_mask, head_mask, output_attentions, bias)
        if not self.code:
            return (self.mlp(a),)
        y = self.layer_norm_1(hidden_states + a)
        return (self.layer_norm_2(y + self.mlp(y)),)


class JinaEncoder(Table):
    """`table`: the bias is kept, as older revisions do; otherwise made in each pass."""

    def __init__(self, config):
        super().__init__(config, JinaLayer)
        self.table = getattr(config, "table", False)
        if self.table:
            self.register_buffer("alibi", self.rebuild_alibi_tensor(size=16), persistent=False)

    def rebuild_alibi_tensor(self, size, device=None):
        self._current_alibi_size = size
        return (-slopes_of(self.num_attention_heads)[:, None, None] * distances(size, size))[None]

    def forward(self, hidden_states, attention_mask=None, head_mask=None, output_attentions=False,
                return_dict=True):
        n = hidden_states.shape[1]
        if not self.table:
            bias = self.rebuild_alibi_tensor(size=n, device=hidden_states.device).to(hidden_states.dtype)
        else:
            if self._current_alibi_size < n:
                self.register_buffer("alibi", self.rebuild_alibi_tensor(size=n), persistent=False)
            bias = self.alibi[:, :, :n, :n]
        for layer in self.layer:
            hidden_states = layer(hidden_states, attention_mask, None if head_mask is None else head_mask,
                                  None, None, bias, None, output_attentions)[0]
        return hidden_states


class JinaModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embeddings, self.encoder = Embeddings(config), JinaEncoder(config)
        self.pooler = Pooler(config)

    def forward(self, input_ids, attention_mask=None, head_mask=None, output_attentions=False):
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        x = self.embeddings(input_ids)
        added = (1.0 - mask[:, None, None].to(x.dtype)) * torch.finfo(x.dtype).min
        return self.encoder(x, added, head_mask, output_attentions)


class JinaForSequenceClassification(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.bert = JinaModel(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, input_ids, attention_mask=None):
        return self.classifier(self.bert.pooler(self.bert(input_ids, attention_mask)))
