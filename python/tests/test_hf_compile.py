"""torch.compile(fullgraph=True), torch.export and static caches: wherever sdpa goes, plsh goes."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import plsh.hf  # noqa: E402
from alibi_models import FAMILIES, ids, padded, tiny, with_plsh  # noqa: E402
from test_hf import tiny as interface  # noqa: E402

plsh.hf.register()
KINDS = (*FAMILIES, "llama", "mistral")


def made(kind):
    if kind in FAMILIES:
        return with_plsh(tiny(kind, layers=1))
    return interface(kind, num_hidden_layers=1, sliding_window=16 if kind == "mistral" else None)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


@pytest.mark.parametrize("kind", KINDS)
def test_training_in_one_graph(kind):
    model, tokens = made(kind), ids(2, 40)

    def run(call):
        model.zero_grad()
        loss = call(tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        return [loss.detach(), *(p.grad.clone() for p in model.parameters())]

    wanted = run(model)
    for x, y in zip(run(torch.compile(model, fullgraph=True, backend="aot_eager")), wanted):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-5 * float(y.abs().max()))


@pytest.mark.parametrize("kind", FAMILIES)
def test_any_length_in_one_graph(kind):
    """dynamic=True: every number of the call may be symbolic, not the lengths alone."""
    model = made(kind)
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    for n in (24, 41):
        tokens, found = ids(2, n), []
        for call in (compiled, model):
            model.zero_grad()
            out = call(tokens, labels=tokens, use_cache=False)
            out.loss.backward()
            found.append([out.logits.detach(), *(p.grad.clone() for p in model.parameters())])
        for x, y in zip(*found):
            torch.testing.assert_close(x, y, rtol=0, atol=1e-5 * float(y.abs().max()))


@pytest.mark.parametrize("kind", FAMILIES)
def test_padding_in_one_graph(kind):
    model, (tokens, mask) = made(kind), padded("left")
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        wanted = model(tokens, attention_mask=mask, use_cache=False).logits
        found = compiled(tokens, attention_mask=mask, use_cache=False).logits
    torch.testing.assert_close(found[mask.bool()], wanted[mask.bool()], rtol=0, atol=1e-5)


def test_packed_sequences_in_one_graph():
    model, tokens = made("llama"), ids(1, 20)
    position = torch.cat([torch.arange(8), torch.arange(12)])[None]
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        for positions in (position, torch.arange(20)[None]):
            wanted = model(tokens, position_ids=positions, use_cache=False).logits
            found = compiled(tokens, position_ids=positions, use_cache=False).logits
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_static_cache(kind):
    """Token by token in one graph, without recompilation."""
    model, tokens = made(kind), ids(1, 12)
    cache = transformers.StaticCache(config=model.config, max_cache_len=32)
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    with torch.no_grad():
        wanted = model(tokens, use_cache=False).logits
        rows = [model(tokens[:, :6], past_key_values=cache).logits]
        for t in range(6, 12):
            mask = torch.zeros(1, 32, dtype=torch.int64)
            mask[:, :t + 1] = 1
            rows.append(compiled(tokens[:, t:t + 1], attention_mask=mask,
                                 past_key_values=cache).logits)
    torch.testing.assert_close(torch.cat(rows, dim=1), wanted, rtol=0, atol=2e-5)
    assert counter.frame_count == (2 if kind == "mistral" else 1)  # as with sdpa


@pytest.mark.parametrize("kind", KINDS)
def test_export(kind):
    model, tokens = made(kind), ids(2, 24)
    length = torch.export.Dim("length", min=4, max=128)
    exported = torch.export.export(model, (tokens,), {"use_cache": False}, strict=False,
                                   dynamic_shapes={"input_ids": {1: length}, "use_cache": None})
    with torch.no_grad():
        for n in (24, 37):
            tokens = ids(2, n)
            torch.testing.assert_close(exported.module()(tokens, use_cache=False).logits,
                                       model(tokens, use_cache=False).logits, rtol=0, atol=1e-5)
