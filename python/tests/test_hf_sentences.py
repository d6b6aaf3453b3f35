"""SentenceTransformers on plsh: the vectors are the same."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")

import plsh.hf  # noqa: E402
from family_models import make  # noqa: E402

TEXTS = ["a b c", "d", "the text of a sentence that is longer than the others of its batch", ""]


class Encoder(torch.nn.Module):
    """An encoder, a tokenizer of characters and the mean, as a module of sentence-transformers."""

    def __init__(self, model, output):
        super().__init__()
        self.model, self.output = model, output

    def preprocess(self, inputs, *_, **__):
        rows = [[2, *(3 + ord(x) % 40 for x in text)] for text in inputs]
        n = max(map(len, rows))
        return {"input_ids": torch.tensor([x + [0] * (n - len(x)) for x in rows]),
                "attention_mask": torch.tensor([[1] * len(x) + [0] * (n - len(x)) for x in rows])}

    tokenize = preprocess

    def forward(self, features, **_):
        out = self.output(self.model(input_ids=features["input_ids"],
                                     attention_mask=features["attention_mask"]))
        there = features["attention_mask"][:, :, None]
        return {**features, "sentence_embedding": (out * there).sum(1) / there.sum(1)}


def bert():
    torch.manual_seed(0)
    return transformers.BertModel(transformers.BertConfig(
        vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32)).eval()


@pytest.mark.parametrize("name", ["bert", "jina", "jina_code", "dnabert2_mlm"])
def test_vectors(name):
    model = bert() if name == "bert" else make(name)
    if name == "dnabert2_mlm":
        model = model.bert
    pick = (lambda x: x.last_hidden_state) if name == "bert" else (lambda x: x)
    whole = sentence_transformers.SentenceTransformer(
        modules=[Encoder(model, pick)], device="cpu")
    own = whole.encode(TEXTS, normalize_embeddings=True)
    ours = plsh.hf.sentence_transformer(copy.deepcopy(whole))
    np.testing.assert_allclose(ours.encode(TEXTS, normalize_embeddings=True), own, rtol=0, atol=1e-6)
    inner = ours[0].model
    assert (inner.config._attn_implementation == "plsh_none") if name == "bert" else \
        "forward" in inner.encoder.layer[0].attention.self.__dict__
    with pytest.raises(TypeError, match="trust_remote_code: go with the name of a model"):
        plsh.hf.sentence_transformer(ours, trust_remote_code=True)


def test_loaded_by_name(tmp_path):
    """A folder of transformers' own: the tokenizer, the model, and one call."""
    tokenizers = pytest.importorskip("tokenizers")
    words = {x: n for n, x in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, "[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]",
                                         cls_token="[CLS]", sep_token="[SEP]").save_pretrained(tmp_path)
    bert().save_pretrained(tmp_path)
    own = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS[:3])
    ours = plsh.hf.sentence_transformer(str(tmp_path), device="cpu").encode(TEXTS[:3])
    np.testing.assert_allclose(ours, own, rtol=0, atol=1e-6)
