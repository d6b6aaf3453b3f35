#!/usr/bin/env python3
"""GGUF files between plsh and llama.cpp: do both read the same model from them?

    bench/lm_gguf.py

The models are small, with random weights, each a folder as Hugging Face has it. `plsh convert` writes them as GGUF in
all its types, and plsh and llama.cpp run every file: logits (hidden states of encoders) are compared.
llama.cpp's own converter writes them too, and plsh runs its files beside the folders. A difference is a root
mean square relative to that of the numbers; ALLOWED has the limits, and the program fails above them. llama.cpp
rounds more than plsh: it looks up GELU in a table of float16, rounds activations to float16 for weights in
float16, and to blocks of 8 bits for quantised weights. Makes its environment first (see lm_environment.py),
and is skipped where that is impossible.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import lm_environment

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLACE = ROOT / "build" / "lm-gguf"
ALLOWED = {"f32": 1e-3, "f16": 3e-3, "bf16": 2e-2, "q8_0": 4e-2, "q4_1": 6e-2}
WORDS, TOKENS = 320, 40
ENCODERS = ("bert", "jina")


def make_folders() -> dict[str, Callable[[pathlib.Path], None]]:
    import torch
    import transformers as t

    import jina
    rope: dict[str, Any] = {"vocab_size": WORDS, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                            "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2}
    models: dict[str, tuple[Any, Any]] = {
        "llama": (t.LlamaForCausalLM, t.LlamaConfig(**rope, attention_bias=True)),
        "mistral": (t.MistralForCausalLM, t.MistralConfig(**rope, sliding_window=None)),
        "qwen3": (t.Qwen3ForCausalLM, t.Qwen3Config(**rope, head_dim=32, tie_word_embeddings=True)),
        "bloom": (t.BloomForCausalLM, t.BloomConfig(vocab_size=WORDS, hidden_size=192, n_layer=2, n_head=6,
                                                    initializer_range=0.2)),
        "mpt": (t.MptForCausalLM, t.MptConfig(vocab_size=WORDS, d_model=128, n_layers=2, n_heads=4, max_seq_len=256,
                                              initializer_range=0.2)),
        "bert": (t.BertModel, t.BertConfig(vocab_size=WORDS, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                                           intermediate_size=128, initializer_range=0.2))}

    def save(make: Any, config: Any, path: pathlib.Path) -> None:
        torch.manual_seed(0)
        model = make(config)
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(weight, std=0.2)  # zero otherwise, which would hide their order
        model.save_pretrained(path)
    found: dict[str, Callable[[pathlib.Path], None]] = {
        name: (lambda path, pair=pair: save(*pair, path)) for name, pair in models.items()}
    found["jina"] = lambda path: jina.save_random(path, WORDS)
    return found


def run_plsh(name: str, model: pathlib.Path, ids: Any) -> Any:
    import numpy as np
    np.save(PLACE / "ids.npy", ids)
    what = "--hidden" if name in ENCODERS else "--logits"
    program = os.environ.get("PLSH", str(ROOT / "build" / "plsh"))
    subprocess.run([program, "forward", "--model", model, "--ids", PLACE / "ids.npy", what, PLACE / "out.npy", "--quiet"],
                   check=True, stdout=subprocess.DEVNULL)
    return np.load(PLACE / "out.npy")


def run_llama(name: str, model: pathlib.Path, ids: Any) -> Any:
    import llama
    runner = llama.Llama(str(model), 64, 2, batch=64, exact_cache=True, encoder=name in ENCODERS)
    runner.feed(ids, 0, True)
    return runner.outputs(len(ids))


def convert_with_plsh(folder: pathlib.Path, kind: str, out: pathlib.Path) -> None:
    program = os.environ.get("PLSH", str(ROOT / "build" / "plsh"))
    subprocess.run([program, "convert", "--model", folder, "--type", kind, "--out", out, "--quiet"], check=True)


def convert_with_llama(folder: pathlib.Path, out: pathlib.Path) -> None:
    """llama.cpp's converter, with a stand-in for the tokenizer, which these models lack."""
    for path in (lm_environment.LLAMA_SOURCES, lm_environment.LLAMA_SOURCES / "gguf-py"):
        if str(path) not in sys.path:
            sys.path.insert(0, str(path))
    import conversion
    import gguf
    import torch
    fields = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    name = fields["architectures"][0].replace("Mpt", "MPT")  # as its authors' own code called it
    kind = conversion.get_model_class(name)

    class WithoutTokenizer(kind):  # type: ignore[misc, valid-type]
        model_arch = kind.model_arch

        def set_vocab(self) -> None:
            self._set_vocab_none()
            if "type_vocab_size" in fields:
                self.gguf_writer.add_token_type_count(fields["type_vocab_size"])
    with torch.inference_mode():
        WithoutTokenizer(folder, gguf.LlamaFileType.ALL_F32, out, eager=True).write()


def difference(a: Any, b: Any) -> float:
    return float(((a - b) ** 2).mean() ** 0.5 / (b ** 2).mean() ** 0.5)


def main() -> None:
    lm_environment.enter()
    import numpy as np
    PLACE.mkdir(parents=True, exist_ok=True)
    ids = np.random.default_rng(1).integers(5, WORDS, TOKENS).astype(np.int32)
    print(f"{'model':9}" + "".join(f"{kind:>10}" for kind in ALLOWED) + f"{'its converter':>16}")
    failed = 0
    for name, make in make_folders().items():
        folder = PLACE / name
        if not folder.exists():
            make(folder)
        line = f"{name:9}"
        for kind, allowed in ALLOWED.items():
            file = PLACE / f"{name}-{kind}.gguf"
            convert_with_plsh(folder, kind, file)
            found = difference(run_llama(name, file, ids), run_plsh(name, file, ids))
            failed += not found < allowed
            line += f"{found:9.1e}{' ' if found < allowed else '!'}"
        file = PLACE / f"{name}-llama.gguf"
        convert_with_llama(folder, file)
        found = difference(run_plsh(name, file, ids), run_plsh(name, folder, ids))
        failed += not found < 1e-5
        print(line + f"{found:15.1e}{' ' if found < 1e-5 else '!'}", flush=True)
    if failed:
        sys.exit(f"bench/lm_gguf.py: {failed} differences are too large (!)")


if __name__ == "__main__":
    main()
