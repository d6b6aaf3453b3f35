"""Docstrings and examples run."""

import doctest
import importlib
import pathlib
import re
import runpy

import pytest

EXAMPLES = sorted((pathlib.Path(__file__).resolve().parents[1] / "examples").glob("*.py"))
NEEDS = {"plsh.torch": ("torch",), "plsh.torch._attention": ("torch",),
         "plsh.torch._positions": ("torch",), "positions": ("torch",),
         "plsh.torch.nn": ("torch",), "plsh.flex": ("torch",), "plsh._torch_cache": ("torch",),
         "plsh._context_parallel": ("torch",), "plsh._ranks": ("torch",),
         "plsh.torch._drop_in": ("torch",), "plsh.hf._adapters": ("torch", "transformers"),
         "plsh.hf._cache": ("torch", "transformers"), "plsh.hf": ("torch", "transformers"),
         "train_transformer": ("torch",), "flex_partition": ("torch",),
         "context_parallel": ("torch",), "data_parallel": ("torch",), "huggingface": ("torch", "transformers")}


@pytest.mark.parametrize("name", [
    "plsh", "plsh._attention", "plsh._cache", "plsh._decay", "plsh._partition", "plsh._theory",
    "plsh._torch_cache", "plsh._context_parallel", "plsh._ranks", "plsh.torch",
    "plsh.torch._attention", "plsh.torch._positions", "plsh.torch.nn", "plsh.flex", "plsh.hf._cache", "plsh.hf",
    "plsh.hf._adapters", "plsh.torch._drop_in",
])
def test_docstrings(name):
    for needed in NEEDS.get(name, ()):
        pytest.importorskip(needed)
    results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0 and results.attempted > 0


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples(path, capsys):
    for word, needed in NEEDS.items():
        if path.stem.startswith(word):
            for module in needed:
                pytest.importorskip(module)
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


def test_guide():
    guide = pathlib.Path(__file__).resolve().parents[2] / "docs" / "guide.md"
    blocks = re.findall(r"^```python\n(.*?)^```", guide.read_text(), re.M | re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, str(guide), "exec"), {})
