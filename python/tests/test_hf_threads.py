"""One model used by several threads: every pass is served, and gives what it gives alone."""

import threading

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import plsh.hf  # noqa: E402
from alibi_models import FAMILIES, ids, tiny, with_plsh  # noqa: E402


@pytest.mark.parametrize("family", FAMILIES)
def test_threads_share_a_model(family):
    model, tokens, passes = with_plsh(tiny(family, layers=1)), ids(1, 16), 50
    begin, found, failed = threading.Barrier(4), [], []

    def run():
        begin.wait()
        for _ in range(passes):
            try:
                with torch.no_grad():
                    found.append(model(tokens, use_cache=False).logits)
            except NotImplementedError as refused:
                failed.append(refused)

    with torch.no_grad():
        wanted = model(tokens, use_cache=False).logits
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(found) == 4 * passes and all(torch.equal(x, wanted) for x in found)
