#!/usr/bin/env python3
"""Language models: plsh beside llama.cpp and transformers, on the same threads, in one run.

    bench/lm_peers.py --tables load,smollm2 --model SmolLM2-135M.Q4_1.gguf
    bench/lm_peers.py --tables roofs --model SmolLM2-135M.Q4_1.gguf      shares of memory and of sgemm
    bench/lm_peers.py --tables types --model SmolLM2-135M.Q4_1.gguf      seven types of weights, ways to multiply
    bench/lm_peers.py --tables batches --model SmolLM2-135M.Q4_1.gguf    several texts generated together
    bench/lm_peers.py --tables bloom       24 layers, hidden 1024, 16 heads, random weights
    bench/lm_peers.py --tables jina        4 layers, hidden 512, 8 heads, random weights: an encoder
    bench/lm_peers.py --rows rows.jsonl    keeps rows there; those it has are not measured again

Makes an environment of its own first (see lm_environment.py). Every row is measured in a process of
its own, short ones several times: the median counts. plsh and llama.cpp run the same GGUF;
transformers has float32 weights and SDPA, which BLOOM has not: there it goes in chunks of 1024 tokens,
without which 16k do not fit. llama.cpp keeps keys and values as halves, plsh as floats but for the row
that says so. "above" is the peak of memory above the weights: for plsh and llama.cpp the
process less the file, for torch what it took beyond the loaded model. A row that takes longer than --limit seconds or more memory than there is says so.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import lm_environment

Row = dict[str, Any]
ROOT = pathlib.Path(__file__).resolve().parent.parent
LENGTHS = {"smollm2": [512, 2048, 8192], "bloom": [8192, 16384], "jina": [512, 8192, 32768]}
PEERS = ("llama.cpp", "llama.cpp flash", "transformers")
OURS = {"plsh": [], "plsh avx2": ["--isa", "avx2"], "plsh window": ["--attention", "window"],
        "plsh sampled": ["--attention", "plsh"], "plsh halves": ["--kv", "float16"],
        "plsh float32": ["--compute", "float32"], "plsh bfloat16": ["--compute", "bfloat16"],
        "avx2 float32": ["--isa", "avx2", "--compute", "float32"]}
# The table "types" is one of these for each; files are made from the Q4_1, whose rows have no say in speed.
TYPES = {f"smollm2 {kind}": kind for kind in ("q4_0", "q4_1", "q8_0", "q4_k", "q6_k", "f16", "bf16")}
# Texts that are generated together, of these types of weights.
BATCHES = {f"batches {kind}": kind for kind in ("q4_1", "q8_0", "bf16")}
BATCH_SIZES, BATCH_TOKENS, BATCH_PROMPT = [1, 2, 4, 8, 16, 32], 64, "Once upon a time there was a"
NEW_TOKENS = 32
LONG = 5.0  # seconds: what takes longer is measured once
WORDS = {"bloom": 4096, "jina": 30528}


# ---- Files ---------------------------------------------------------------------------------------

def plsh(*arguments: Any, text: str = "") -> Row:
    """Runs the program; its JSON, and the seconds that the process took."""
    start = time.perf_counter()
    run = subprocess.run([os.environ.get("PLSH", str(ROOT / "build" / "plsh")), *map(str, arguments), "--json", "--quiet"],
                         input=text.encode(), stdout=subprocess.PIPE, check=False)
    if run.returncode:
        sys.exit(f"bench/lm_peers.py: plsh {' '.join(map(str, arguments))} failed")
    found: Row = json.loads(run.stdout)
    return {**found, "wall": time.perf_counter() - start}


def made(name: str, make: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """A file or folder in build/, made where it is not there."""
    path = ROOT / "build" / "lm-peers" / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        make(path)
    return path


def converted(model: pathlib.Path, kind: str, name: str) -> pathlib.Path:
    return made(name, lambda path: (plsh("convert", "--model", model, "--type", kind, "--out", path), None)[1])


def prompt(model: pathlib.Path, n: int) -> tuple[pathlib.Path, list[int]]:
    """A file of at most n tokens of this repository's own texts, nearly as many; and their ids."""
    files = ("README.md", "CONTRIBUTING.md", "docs/guide.md", "docs/mathematics.md", "docs/models.md")

    def ids_of_text(text: str) -> list[int]:
        found: list[int] = plsh("tokenize", "--tokenizer", model, text=text)["ids"]
        return found

    def write(path: pathlib.Path) -> None:
        text = "\n".join((ROOT / x).read_text(encoding="utf-8") for x in files)
        if len(ids_of_text(text)) < n:
            sys.exit(f"bench/lm_peers.py: the texts have fewer than {n} tokens")
        low, high = 0, len(text)
        while high - low > 1:  # the number of tokens hardly ever falls where the text grows
            middle = (low + high) // 2
            low, high = (middle, high) if len(ids_of_text(text[:middle])) <= n else (low, middle)
        path.write_text(text[:low], encoding="utf-8")
    file = made(f"prompt-{n}.txt", write)
    return file, ids_of_text(file.read_text(encoding="utf-8"))


def random_ids(table: str, n: int) -> pathlib.Path:
    import numpy as np

    def write(path: pathlib.Path) -> None:
        np.save(path, np.random.default_rng(1).integers(5, WORDS[table], n).astype(np.int32))
    return made(f"{table}-{n}.npy", write)


def make_bloom(path: pathlib.Path) -> None:
    import torch
    import transformers
    torch.manual_seed(0)
    transformers.BloomForCausalLM(transformers.BloomConfig(
        vocab_size=WORDS["bloom"], hidden_size=1024, n_layer=24, n_head=16)).save_pretrained(path)


def make_jina(path: pathlib.Path) -> None:
    import jina
    jina.save_random(path, WORDS["jina"])


def folder_of(table: str) -> pathlib.Path:
    return made(table, make_bloom if table == "bloom" else make_jina)


def file_of(table: str, model: pathlib.Path | None) -> pathlib.Path:
    """The GGUF that plsh and llama.cpp run."""
    if table in WORDS:
        return converted(folder_of(table), "f16", f"{table}-f16.gguf")
    if not model:
        sys.exit(f"bench/lm_peers.py: the table {table} needs --model FILE.gguf")
    kind = {**TYPES, **BATCHES}.get(table, "q4_1")
    return model if kind == "q4_1" else converted(model, kind, f"smollm2-{kind}.gguf")


# ---- plsh ----------------------------------------------------------------------------------------

def repeat(call: Callable[[], Row], reps: int) -> list[Row]:
    """The first one alone where it takes long, or else some after it."""
    first = call()
    return [first] if first["wall"] > LONG else [call() for _ in range(reps)]


def middle(rows: list[Row], field: str) -> float:
    return statistics.median(row[field] for row in rows)


def measure_plsh_batch(o: argparse.Namespace, file: pathlib.Path, n: int, more: list[Any]) -> Row:
    """Without the start of the program and the prompts: the difference of two numbers of new tokens."""
    prompts = made(f"batch-{n}.txt", lambda path: (path.write_text(f"{BATCH_PROMPT}\n" * n), None)[1])

    def seconds(tokens: int) -> float:
        row = plsh("generate", "--model", file, "--prompts", prompts, "--tokens", tokens, "--ignore-end", *more)
        return n * tokens / float(row["tokens_per_second"])
    times = [seconds(BATCH_TOKENS + 16) - seconds(16) for _ in range(o.reps)]
    return {"tokens": n * BATCH_TOKENS / statistics.median(times)}


def measure_plsh(o: argparse.Namespace, table: str, contender: str, n: int) -> Row:
    file = file_of(table, o.model)
    more = [*OURS[contender], "--threads", o.threads]
    if table in BATCHES:
        return measure_plsh_batch(o, file, n, more)
    if table == "load":
        rows = repeat(lambda: plsh("generate", "--model", file, "--prompt", "a", "--tokens", 1, *more), 9)
        return {"seconds": middle(rows, "wall")}
    if table.startswith("smollm2"):
        text = prompt(file, n)[0].read_text(encoding="utf-8")
        rows = repeat(lambda: plsh("generate", "--model", file, "--tokens", NEW_TOKENS, *more, text=text), o.reps)
        for row in rows:  # the first of the new tokens comes from the prompt's pass
            tokens = len(row["ids"])
            row["decode"] = (tokens - 1) / (tokens / row["tokens_per_second"]) if tokens > 1 else float("nan")
        return {"prefill": middle(rows, "prefill_tokens_per_second"), "decode": middle(rows, "decode"),
                "above": middle(rows, "peak_bytes") - file.stat().st_size}
    command = ("embed", "--pooling", "mean") if table == "jina" else ("forward",)
    rows = repeat(lambda: plsh(*command, "--model", file, "--ids", random_ids(table, n), *more), o.reps)
    return {"prefill": n / middle(rows, "seconds"), "above": middle(rows, "peak_bytes") - file.stat().st_size}


# ---- Peers, in processes of their own ------------------------------------------------------------

def timed(call: Callable[[], Any], reps: int) -> float:
    """Seconds: the median of some calls after a first one, or that alone where it takes long."""
    times = []
    for _ in range(reps + 1):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
        if times[0] > LONG:
            return times[0]
    return statistics.median(times[1:])


def ids_of(o: argparse.Namespace, table: str, n: int) -> Any:
    import numpy as np
    if table in WORDS:
        return np.load(random_ids(table, n))
    return np.array(prompt(file_of(table, o.model), n)[1], dtype=np.int32)


def measure_llama_batch(o: argparse.Namespace, file: pathlib.Path, n: int, flash: bool) -> Row:
    import llama
    ids = plsh("tokenize", "--tokenizer", file, text=BATCH_PROMPT)["ids"]
    model = llama.Llama(str(file), n * (len(ids) + BATCH_TOKENS), o.threads, flash=flash, sequences=n)
    for at, token in enumerate(ids):
        model.feed_each([token] * n, at)
    start = time.perf_counter()
    for i in range(BATCH_TOKENS):
        model.feed_each([int(row.argmax()) for row in model.outputs(n)], len(ids) + i)
    return {"tokens": n * BATCH_TOKENS / (time.perf_counter() - start)}


def measure_llama(o: argparse.Namespace, table: str, contender: str, n: int) -> Row:
    import llama

    from measure import begin_peak, memory
    file, flash = file_of(table, o.model), contender.endswith("flash")
    if table in BATCHES:
        return measure_llama_batch(o, file, n, flash)
    if table == "load":
        def load() -> None:
            llama.Llama(str(file), 512, o.threads, flash=flash).feed([5], 0, False)
        return {"seconds": timed(load, 3)}
    ids = ids_of(o, table, n)
    begin_peak()
    model = llama.Llama(str(file), n + NEW_TOKENS, o.threads, flash=flash, encoder=table == "jina")

    def prefill() -> None:
        if table != "jina":
            llama.c.llama_memory_clear(llama.c.llama_get_memory(model.context), True)
        model.feed(ids, 0, False)
    row: Row = {"prefill": len(ids) / timed(prefill, o.reps),
                "above": memory("VmHWM") - file.stat().st_size}
    if table.startswith("smollm2"):
        start = time.perf_counter()
        for i in range(NEW_TOKENS):
            model.feed([int(model.outputs(1)[0].argmax())], len(ids) + i, False)
        row["decode"] = NEW_TOKENS / (time.perf_counter() - start)
    return row


def measure_transformers(o: argparse.Namespace, table: str, n: int) -> Row:
    import torch
    import transformers

    from measure import begin_peak, memory
    torch.set_num_threads(o.threads)
    torch.set_flush_denormal(True)
    torch.set_grad_enabled(False)
    source = folder_of(table) if table in WORDS else converted(file_of(table, o.model), "f32", "smollm2")
    if table == "load":
        def load() -> None:
            transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)(torch.tensor([[5]]))
        return {"seconds": timed(load, 3)}
    ids = torch.tensor(ids_of(o, table, n), dtype=torch.long)[None]
    if table == "jina":
        import jina
        model = jina.load(source)
        before = begin_peak()
        return {"prefill": n / timed(lambda: model(ids), o.reps), "above": memory("VmHWM") - before}
    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    before, chunk = begin_peak(), 1024 if table == "bloom" else n
    found: Row = {}

    def prefill() -> None:
        found["cache"] = cache = transformers.DynamicCache()
        for at in range(0, ids.shape[1], chunk):
            found["out"] = model(ids[:, at:at + chunk], past_key_values=cache, use_cache=True, logits_to_keep=1)
    row: Row = {"prefill": ids.shape[1] / timed(prefill, o.reps), "above": memory("VmHWM") - before}
    if table.startswith("smollm2"):
        start = time.perf_counter()
        for _ in range(NEW_TOKENS):
            following = found["out"].logits[:, -1].argmax(-1, keepdim=True)
            found["out"] = model(following, past_key_values=found["cache"], use_cache=True)
        row["decode"] = NEW_TOKENS / (time.perf_counter() - start)
    return row


def measure_here(o: argparse.Namespace, table: str, contender: str, n: int) -> Row:
    """A peer's row, in this process: no more memory than there is."""
    from measure import memory
    allowed = int(0.85 * memory("MemAvailable"))
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
    try:
        if contender == "transformers":
            return measure_transformers(o, table, n)
        return measure_llama(o, table, contender, n)
    except (MemoryError, RuntimeError) as problem:
        return {"why": str(problem).split("\n", maxsplit=1)[0].replace(f"{ROOT}/", "")[:100]}


def measure_apart(o: argparse.Namespace, key: list[Any]) -> Row:
    command = [sys.executable, __file__, "--one", json.dumps(key), "--threads", str(o.threads), "--reps", str(o.reps)]
    command += ["--model", str(o.model)] if o.model else []
    try:
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=o.limit)
    except subprocess.TimeoutExpired:
        return {"why": f"takes longer than {o.limit:.0f} s"}
    if run.returncode:
        return {"why": f"ends with code {run.returncode}: out of memory, or see above"}
    found: Row = json.loads(run.stdout.splitlines()[-1])
    return found


# ---- Roofs ---------------------------------------------------------------------------------------

# OpenBLAS 0.3.21 does not know processors newer than itself, and takes its kernels of AVX2 there.
BLAS_CORES = {"avx512": "SkylakeX", "amx": "SkylakeX", "avx2": "Haswell"}


def measure_roofs(o: argparse.Namespace, kind: str, isa: str, compute: str) -> Row:
    """What decoding reads per second of what memory gives; what the linear layers of a prompt compute
    per second of what sgemm does with the same instructions, all other work of the pass counted in
    (attention is to the token itself)."""
    if isa in BLAS_CORES:
        os.environ["OPENBLAS_CORETYPE"] = BLAS_CORES[isa]
    file = file_of("roofs", o.model)
    if kind != "q4_1":
        file = converted(file, kind, f"smollm2-{kind}.gguf")
    more = ("--threads", o.threads, "--isa", isa)
    model = (*more, "--compute", compute)
    text = prompt(file, 512)[0].read_text(encoding="utf-8")
    alone = ("--attention", "window", "--window", 1, "--rope", "drop", "--tokens", 1)
    rows = []
    for _ in range(o.reps):  # in turns: the machine's own speed changes
        bench = plsh("bench", "--n", 65536, "--methods", "dense", "--pass", "decode", "--reps", 3, *more)
        line, sgemm = bench["rows"][0], 1e9 * bench["roof_gflops"]
        read = line["bytes"] / (line["seconds"] * line["roof_share"])
        new = plsh("generate", "--model", file, "--prompt", "The", "--tokens", 128, *model)
        decode = (len(new["ids"]) - 1) / (len(new["ids"]) / new["tokens_per_second"])
        prefill = plsh("generate", "--model", file, *alone, *model, text=text)["prefill_tokens_per_second"]
        rows.append({"read": read, "decode": decode, "of_read": decode * file.stat().st_size / read, "sgemm": sgemm,
                     "prefill": prefill, "of_sgemm": 2 * LINEAR_WEIGHTS * prefill / sgemm})
    return {field: middle(rows, field) for field in rows[0]}


# SmolLM2-135M: 30 layers of q, k, v, o and the gated MLP.
LINEAR_WEIGHTS = 30 * (2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1536)


# ---- Tables --------------------------------------------------------------------------------------

def keys_of(table: str, chosen: list[int] | None) -> list[list[Any]]:
    # Linear layers are the same under avx512bf16, which is a choice of attention.
    isas = [isa for isa in plsh("info")["isa_available"].split() if isa not in ("reference", "avx512bf16")]
    if table == "roofs":
        ways = [("f16", "float32"), ("f16", "bfloat16"), ("bf16", "bfloat16"), ("q8_0", "int8"), ("q4_k", "int8"), ("q4_1", "int8")]
        return [[table, kind, isa, compute] for isa in isas for kind, compute in ways
                if compute != "bfloat16" or isa != "avx2"]  # emulated there
    if table in BATCHES:
        ours = ["plsh", "plsh bfloat16"] if BATCHES[table] == "bf16" else ["plsh"]
        return [[table, contender, n] for n in BATCH_SIZES for contender in (*ours, *PEERS[:2])]
    lengths = (1,) if table == "load" else chosen or LENGTHS[table.split()[0]]
    ours = {"smollm2": list(OURS)[:5], "bloom": ["plsh", "plsh bfloat16"]}.get(table, ["plsh", "plsh avx2", "plsh bfloat16"])
    peers = PEERS
    if table in TYPES:  # int8 is what plsh takes by itself for the quantised ones
        plain = TYPES[table] in ("f16", "bf16")
        ours += ["plsh bfloat16", "plsh halves"] if plain else ["plsh halves"]
        peers = PEERS[:2]
    if isas[0] == "avx2":  # what plsh takes by itself
        ours = [x for x in ours if "avx2" not in x and "bfloat16" not in x]
    shortest = {"plsh halves": 2048 if table in TYPES else 8192}
    longest = {"plsh avx2": 512} if table in TYPES else {}
    return [[table, contender, n] for n in lengths for contender in (*ours, *peers)
            if shortest.get(contender, 0) <= n <= longest.get(contender, n)]


def print_roofs(rows: dict[str, Row]) -> None:
    print(f"{'weights':9}{'compute':10}{'isa':8}{'decode/s':>10}{'of memory':>11}{'prefill/s':>11}{'of sgemm':>10}   the roofs")
    for text, row in rows.items():
        table, kind, *way = json.loads(text)
        if table == "roofs":
            isa, compute = way
            print(f"{kind:9}{compute:10}{isa:8}{row['decode']:10.1f}{row['of_read']:11.2f}{row['prefill']:11.0f}{row['of_sgemm']:10.2f}"
                  f"   {row['read'] / 1e9:.1f} GB/s, {row['sgemm'] / 1e9:.0f} GFLOP/s")
    print()


def fastest(rows: dict[str, Row], table: str, n: int, field: str) -> float:
    return max((rows[key][field] for key in (json.dumps([table, x, n]) for x in PEERS)
                if field in rows.get(key, {})), default=float("nan"))


def rows_of(rows: dict[str, Row], table: str) -> Iterator[tuple[str, str, int, Row]]:
    """The beginning of a line, the contender, n and the row of each that has figures; prints why another has none."""
    for text, row in rows.items():
        name, contender, n, *_ = json.loads(text)
        if name != table:
            continue
        line = f"{table:13}{n:6}  {contender:16}"
        if "why" in row:
            print(line + "  " + row["why"])
        else:
            yield line, contender, n, row


def print_table(rows: dict[str, Row], table: str) -> None:
    """Tokens per second, and how many times the fastest peer's; memory."""
    print(f"{table:13}{'n':>6}  {'contender':16}{'prefill/s':>10}{'x peers':>9}{'decode/s':>10}{'x peers':>9}{'above MB':>10}")
    for line, contender, n, row in rows_of(rows, table):
        for field in ("prefill", "decode"):
            if field not in row:
                line += f"{'':19}"
                continue
            line += f"{row[field]:10.1f}"
            line += f"{row[field] / fastest(rows, table, n, field):9.2f}" if contender in OURS else f"{'':9}"
        print(line + f"{row['above'] / 1e6:10.0f}")
    print()


def print_batches(rows: dict[str, Row], table: str) -> None:
    """Tokens per second of all texts together, how many times those of one text, and of the fastest peer."""
    print(f"{table:13}{'texts':>6}  {'contender':16}{'tokens/s':>10}{'x one':>9}{'x peers':>9}")
    for line, contender, n, row in rows_of(rows, table):
        line += f"{row['tokens']:10.1f}{row['tokens'] / rows[json.dumps([table, contender, 1])].get('tokens', float('nan')):9.2f}"
        print(line + (f"{row['tokens'] / fastest(rows, table, n, 'tokens'):9.2f}" if contender in OURS else ""))
    print()


def print_load(rows: dict[str, Row]) -> None:
    print(f"{'load':9}{'':6}  {'contender':16}{'seconds until a first token is out, from the start':>50}")
    for text, row in rows.items():
        name, contender, *_ = json.loads(text)
        if name == "load":
            print(f"{'load':9}{'':6}  {contender:16}" + (row.get("why") or f"{row['seconds']:10.3f}"))
    print()


def main() -> None:
    lm_environment.enter()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default="load,smollm2,roofs,bloom,jina")
    parser.add_argument("--model", type=lambda x: pathlib.Path(x).resolve(), help="SmolLM2-135M as a Q4_1 GGUF")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--lengths", type=lambda x: [int(n) for n in x.split(",")], help="other ones, for a try")
    parser.add_argument("--limit", type=float, default=500.0, help="seconds that a peer's row may take")
    parser.add_argument("--rows", type=pathlib.Path, help="a file that keeps what was measured")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.one:
        print(json.dumps(measure_here(o, *json.loads(o.one))))
        return
    rows: dict[str, Row] = {}
    if o.rows and o.rows.exists():
        rows = dict(json.loads(x) for x in o.rows.read_text(encoding="utf-8").splitlines())
    several: dict[str, dict[str, str]] = {"types": TYPES, "batches": BATCHES}
    tables = [name for table in o.tables.split(",") for name in several.get(table, [table])]
    for key in (key for table in tables for key in keys_of(table, o.lengths)):
        text = json.dumps(key)
        if text in rows:
            continue
        print(f"  {text}", file=sys.stderr)
        if key[0] == "roofs":
            rows[text] = measure_roofs(o, *key[1:])
        else:
            rows[text] = measure_plsh(o, *key) if key[1] in OURS else measure_apart(o, key)
        if o.rows:
            with open(o.rows, "a", encoding="utf-8") as file:
                file.write(json.dumps([text, rows[text]]) + "\n")
    print(f"threads: {o.threads}\n")
    for table in tables:
        if table == "roofs":
            print_roofs(rows)
        elif table == "load":
            print_load(rows)
        elif table in BATCHES:
            print_batches(rows, table)
        else:
            print_table(rows, table)


if __name__ == "__main__":
    main()
