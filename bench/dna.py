"""DNA of any length: a DNABERT-2-shaped encoder (12 layers, 768 columns, random weights) beside plain torch.

    python3 bench/dna.py --plsh build/plsh [--bases 100000] [--lengths 2000,20000] [--threads 2]

plsh embeds a FASTA file of --bases random bases. torch computes the same encoder as its authors' code does without
Triton: the scores of all heads, an array [heads, n, n], get the bias, another such array, and are normalised. It runs
on the first --lengths bases only, each in a process of its own, because its memory grows with the square.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

LAYERS, HIDDEN, HEADS, WIDE, WORDS, EPS = 12, 768, 12, 3072, 4096, 1e-12
SPECIAL = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]


def write_tokenizer(folder: pathlib.Path) -> None:
    """A tokenizer with tokens of 5 bases, about the length of DNABERT-2's BPE tokens of a genome."""
    vocabulary = SPECIAL + list("ACGT") + ["".join(bases) for bases in itertools.product("ACGT", repeat=5)]
    special = [{"id": i, "content": token, "special": True, "normalized": False, "single_word": False,
                "lstrip": False, "rstrip": False} for i, token in enumerate(SPECIAL)]
    around = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
              {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": special, "normalizer": None, "decoder": None,
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[ACGT]{5}"}, "behavior": "Isolated", "invert": False},
        "model": {"type": "BPE", "unk_token": "[UNK]", "merges": [], "ignore_merges": True,
                  "vocab": {token: i for i, token in enumerate(vocabulary)}},
        "post_processor": {"type": "TemplateProcessing", "single": around, "pair": around + around[1:],
                           "special_tokens": {token: {"id": token, "ids": [i], "tokens": [token]}
                                              for i, token in enumerate(SPECIAL)}}}), encoding="utf-8")


def write_model(folder: pathlib.Path) -> None:
    import torch
    from safetensors.torch import save_file

    shapes = {"embeddings.word_embeddings.weight": (WORDS, HIDDEN),
              "embeddings.token_type_embeddings.weight": (2, HIDDEN)}
    norms = ["embeddings.LayerNorm"]
    for i in range(LAYERS):
        at = f"encoder.layer.{i}."
        for name, out, inner in (("attention.self.Wqkv", 3 * HIDDEN, HIDDEN), ("attention.output.dense", HIDDEN, HIDDEN),
                                 ("mlp.wo", HIDDEN, WIDE)):
            shapes |= {f"{at}{name}.weight": (out, inner), f"{at}{name}.bias": (out,)}
        shapes[f"{at}mlp.gated_layers.weight"] = (2 * WIDE, HIDDEN)
        norms += [f"{at}attention.output.LayerNorm", f"{at}mlp.layernorm"]
    for name in norms:
        shapes |= {f"{name}.weight": (HIDDEN,), f"{name}.bias": (HIDDEN,)}
    generator = torch.Generator().manual_seed(0)
    weights = {f"bert.{name}": torch.randn(shape, generator=generator) * 0.02 + float("orm.weight" in name)
               for name, shape in shapes.items()}
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["BertForMaskedLM"], "alibi_starting_size": 512, "hidden_act": "gelu", "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": WIDE, "layer_norm_eps": EPS,
        "vocab_size": WORDS, "type_vocab_size": 2, "max_position_embeddings": 512}), encoding="utf-8")


def slopes() -> list[float]:
    """The series of 8 heads, then every other one of 16: ALiBi's rule for a count that is no power of two."""
    below = 2 ** int(math.log2(HEADS))

    def series(count: int) -> list[float]:
        return [2.0 ** (-8.0 * (h + 1) / count) for h in range(count)]
    return series(below) + series(2 * below)[0::2][:HEADS - below]


def run_torch(folder: pathlib.Path, ids: list[int], threads: int) -> dict:
    import torch
    from safetensors.torch import load_file
    from torch.nn.functional import gelu, layer_norm, linear

    torch.set_num_threads(threads)
    w = {name.removeprefix("bert."): value for name, value in load_file(folder / "model.safetensors").items()}

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        return layer_norm(x, (HIDDEN,), w[name + ".weight"], w[name + ".bias"], EPS)

    def dense(name: str, x: torch.Tensor) -> torch.Tensor:
        return linear(x, w[name + ".weight"], w.get(name + ".bias"))

    begin = time.perf_counter()
    with torch.no_grad():
        place = torch.arange(len(ids), dtype=torch.float32)
        bias = (place[:, None] - place).abs_() * -torch.tensor(slopes())[:, None, None]
        x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0]
        x = norm("embeddings.LayerNorm", x)
        for i in range(LAYERS):
            at = f"encoder.layer.{i}."
            q, k, v = dense(f"{at}attention.self.Wqkv", x).view(-1, 3, HEADS, HIDDEN // HEADS).permute(1, 2, 0, 3)
            scores = torch.matmul(q, k.transpose(1, 2)) / math.sqrt(HIDDEN // HEADS)
            o = torch.matmul((scores + bias).softmax(-1), v).transpose(0, 1).reshape(x.shape)
            x = norm(f"{at}attention.output.LayerNorm", dense(f"{at}attention.output.dense", o) + x)
            gate, up = dense(f"{at}mlp.gated_layers", x).split(WIDE, dim=-1)
            x = norm(f"{at}mlp.layernorm", dense(f"{at}mlp.wo", gelu(gate) * up) + x)
        row = x.mean(0)
        row = (row / row.norm()).tolist()
    return {"seconds": time.perf_counter() - begin, "row": row}


def call(command: list[str]) -> tuple[dict, float]:
    """The JSON output of the program, and its seconds of processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return out, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def report(what: str, bases: int, tokens: int, wall: float, cpu: float, peak: float, error: str) -> None:
    print(f"{what:8} {bases:8} {tokens:8} {wall:10.1f} {cpu:10.1f} {peak / 2**20:10.0f}  {error}", flush=True)


def embed(given: argparse.Namespace, folder: pathlib.Path, sequence: str) -> tuple[dict, float, list[float]]:
    (folder / "dna.fa").write_text(f">random\n{sequence}\n", encoding="utf-8")
    out, cpu = call([str(given.plsh), "embed", "--model", str(folder), "--fasta", str(folder / "dna.fa"), "--json", "--quiet",
                     "--threads", str(given.threads)])
    return out, cpu, out["embeddings"][0]


def compare(given: argparse.Namespace, folder: pathlib.Path) -> None:
    draw = random.Random(2)
    sequence = "".join(draw.choices("ACGT", k=given.bases))
    print(f"{'':8} {'bases':>8} {'tokens':>8} {'seconds':>10} {'cpu':>10} {'peak MiB':>10}  largest difference of the embedding")
    for length in given.lengths:
        out, cpu, row = embed(given, folder, sequence[:length])
        report("plsh", length, out["tokens"], out["seconds"], cpu, out["peak_bytes"], "")
        ids = subprocess.run([str(given.plsh), "tokenize", "--tokenizer", str(folder), "--special", "--json", "--quiet"],
                             input=sequence[:length].encode(), check=True, stdout=subprocess.PIPE).stdout
        (folder / "ids.json").write_bytes(ids)
        other, cpu = call([sys.executable, __file__, "--torch", str(folder), "--threads", str(given.threads)])
        error = max(abs(a - b) for a, b in zip(row, other["row"]))
        report("torch", length, out["tokens"], other["seconds"], cpu, other["peak_bytes"], f"{error:.1e}")
    out, cpu, _ = embed(given, folder, sequence)
    report("plsh", given.bases, out["tokens"], out["seconds"], cpu, out["peak_bytes"], "")
    print(f"the bias of {out['tokens']} tokens alone would take torch {HEADS * out['tokens'] ** 2 * 4 / 2**30:.1f} GiB")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--plsh", type=pathlib.Path, default=pathlib.Path("build/plsh"))
    parser.add_argument("--bases", type=int, default=100_000)
    parser.add_argument("--lengths", type=lambda text: [int(x) for x in text.split(",")], default=[2000, 20_000])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--torch", type=pathlib.Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.torch:
        ids = json.loads((given.torch / "ids.json").read_text(encoding="utf-8"))["ids"]
        out = run_torch(given.torch, ids, given.threads)
        out["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps(out))
        return
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        write_tokenizer(folder)
        write_model(folder)
        compare(given, folder)


main()
