#!/usr/bin/env python3
"""How well SmolLM2 predicts a text: in every type of weights, multiplied in every way, beside llama.cpp.

    bench/lm_perplexity.py --model SmolLM2-135M.Q4_1.gguf --text wiki.test.raw
    bench/lm_perplexity.py --contenders int8,bfloat16 ..     without llama.cpp
    bench/lm_perplexity.py --rows rows.jsonl         keeps rows there; those it has are not measured again

Independent windows of --context tokens; every token of a window but the first is scored. The files of the
other types are made from the Q4_1, so a type that is finer than it has the Q4_1's errors too. "change" is the relative change of the
perplexity from float32's of the same file. llama.cpp, in an environment of its own (see lm_environment.py), has
the same tokens, and float32 keys and values.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import subprocess
import sys
from typing import Any

import lm_environment
import lm_peers

Row = dict[str, Any]
KINDS = list(lm_peers.TYPES.values())
PLAIN = ("f16", "bf16")
PEER = "llama.cpp"


def file_of(o: argparse.Namespace, kind: str) -> pathlib.Path:
    return lm_peers.file_of(f"smollm2 {kind}", o.model)


def ids_of(o: argparse.Namespace) -> pathlib.Path:
    """The first whole windows of the text, as tokens."""
    import numpy as np

    def write(path: pathlib.Path) -> None:
        text = o.text.read_text(encoding="utf-8")[:8 * o.tokens]  # a token has about 4 characters
        ids = lm_peers.plsh("tokenize", "--tokenizer", o.model, text=text)["ids"][:o.tokens]
        np.save(path, np.array(ids[:len(ids) // o.context * o.context], dtype=np.int32))
    return lm_peers.made(f"perplexity-{o.tokens}.npy", write)


def measure_plsh(o: argparse.Namespace, kind: str, compute: str) -> dict[str, Row]:
    """In bfloat16 and int8 the program measures float32 beside."""
    found = lm_peers.plsh("perplexity", "--model", file_of(o, kind), "--ids", ids_of(o), "--context", o.context,
                          "--compute", compute, "--threads", o.threads)
    row: Row = found["rows"][0]
    if not found["compute"].startswith(compute):
        sys.exit(f"bench/lm_perplexity.py: {kind} in {compute}: plsh computed in {found['compute']}")
    rows = {compute: row["nll"], **({"float32": row["float32_nll"]} if "float32_nll" in row else {})}
    return {name: {"nll": nll, "tokens": row["tokens"]} for name, nll in rows.items()}


def measure_llama(o: argparse.Namespace, kind: str) -> Row:
    import numpy as np

    import llama
    ids, total, count, batch = np.load(ids_of(o)), 0.0, 0, 256
    model = llama.Llama(str(file_of(o, kind)), o.context, o.threads, batch=batch, exact_cache=True)
    for first in range(0, len(ids), o.context):
        window = ids[first:first + o.context]
        llama.c.llama_memory_clear(llama.c.llama_get_memory(model.context), True)
        for at in range(0, len(window), batch):
            some, following = window[at:at + batch], window[at + 1:at + batch + 1]
            model.feed(some, at, True)
            logits = model.outputs(len(some))[:len(following)].astype(np.float64)
            most = logits.max(axis=1)
            sums = most + np.log(np.exp(logits - most[:, None]).sum(axis=1))
            total += float((sums - logits[np.arange(len(following)), following]).sum())
            count += len(following)
    return {"nll": total / count, "tokens": count}


def measure_apart(o: argparse.Namespace, kind: str) -> Row:
    command = [sys.executable, __file__, "--one", kind, "--threads", o.threads, "--model", o.model, "--text", o.text,
               "--tokens", o.tokens, "--context", o.context]
    run = subprocess.run([str(x) for x in command], stdout=subprocess.PIPE, text=True, check=True)
    found: Row = json.loads(run.stdout.splitlines()[-1])
    return found


def computes_of(kind: str) -> list[str]:
    """The default is the last: float32 for plain numbers and int8 for quantised ones."""
    return ["bfloat16", "float32"] if kind in PLAIN else ["float32", "bfloat16", "int8"]


def print_rows(rows: dict[str, Row]) -> None:
    print(f"{'weights':9}{'plsh computes in':18}{'perplexity':>11}{'change':>9}   {'default':9}{'llama.cpp':>10}{'change':>9}")
    for kind in KINDS:
        reference = rows.get(json.dumps([kind, "float32"]))
        for compute in computes_of(kind):
            row = rows.get(json.dumps([kind, compute]))
            if not row or not reference:
                continue
            change = math.expm1(row["nll"] - reference["nll"])
            default = compute == computes_of(kind)[-1]
            line = f"{kind:9}{compute:18}{math.exp(row['nll']):11.3f}{100 * change:+8.2f}%   {'yes' if default else '':9}"
            peer = rows.get(json.dumps([kind, PEER]))
            if default and peer:
                line += f"{math.exp(peer['nll']):10.3f}{100 * math.expm1(peer['nll'] - reference['nll']):+8.2f}%"
            print(line.rstrip())
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=lambda x: pathlib.Path(x).resolve(), required=True, help="SmolLM2-135M as a Q4_1 GGUF")
    parser.add_argument("--text", type=lambda x: pathlib.Path(x).resolve(), required=True)
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--contenders", default=f"int8,bfloat16,float32,{PEER}")
    parser.add_argument("--rows", type=pathlib.Path, help="a file that keeps what was measured")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if PEER in o.contenders:
        lm_environment.enter()
    if o.one:
        print(json.dumps(measure_llama(o, o.one)))
        return
    rows: dict[str, Row] = {}
    if o.rows and o.rows.exists():
        rows = dict(json.loads(x) for x in o.rows.read_text(encoding="utf-8").splitlines())
    wanted = o.contenders.split(",")
    for kind, compute in ([kind, x] for x in wanted for kind in KINDS if x == PEER or x in computes_of(kind)):
        if json.dumps([kind, compute]) in rows:
            continue
        print(f"  {kind} {compute}", file=sys.stderr)
        found = {PEER: measure_apart(o, kind)} if compute == PEER else measure_plsh(o, kind, compute)
        for name, row in found.items():
            rows[json.dumps([kind, name])] = row
            if o.rows:
                with open(o.rows, "a", encoding="utf-8") as file:
                    file.write(json.dumps([json.dumps([kind, name]), row]) + "\n")
    print(f"{rows[json.dumps(['q4_1', 'float32'])]['tokens']} tokens scored, windows of {o.context}\n")
    print_rows(rows)


if __name__ == "__main__":
    main()
