#!/usr/bin/env python3
"""Speed on a machine on which other programs run: plsh, its build with OpenMP, llama.cpp and torch.

    bench/busy.py --model SmolLM2-135M-Instruct.Q4_1.gguf     twenty minutes, on a machine that is quiet otherwise
    BEFORE=old/plsh bench/busy.py --model ...                 with an older program, as "before"
    bench/busy.py --rows rows.jsonl ...                       keeps the rows there, and measures only those that are missing
    bench/busy.py --contenders plsh --tasks decode --reps 1   a part of it

On --threads threads, a prompt of 512 tokens (prefill), new tokens after it (decode), attention of 8 heads of 64 on
4096 tokens with ALiBi, dense (attend), and a step of training of the small Qwen3 of bench/training.py on 1024
tokens (train). Tokens per second: alone, beside one and two busy loops for each processor (pinned with --pin), and
beside an endless `plsh generate` of the same program on the same threads (itself). Every figure is the median of
--reps runs; contenders and conditions take turns. The fair share of the processor's time is 1/2 beside one busy
loop or another program with as many threads, and 1/3 beside two. The last figure is the speed divided by that share
of the speed alone. llama.cpp runs the same file; torch has float32 weights. They run in the environment of
bench/lm_environment.py, or in that of the folder PEERS (with bin/python).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from measure import Rows, run_apart

Row = dict[str, float]
ROOT = pathlib.Path(__file__).resolve().parent.parent
CONDITIONS = {"alone": 1.0, "one": 1 / 2, "two": 1 / 3, "itself": 1 / 2}  # and the fair share
TASKS = {"generate": ("prefill", "decode"), "attend": ("attend",), "train": ("train",)}
CONTENDERS = {"plsh": tuple(TASKS), "before": tuple(TASKS), "llama.cpp": ("generate",), "torch": tuple(TASKS)}
PROMPT, FEW, MANY = 512, 32, 256  # tokens; MANY new ones where FEW take less than a second
HEADS, DIM, KEYS = 8, 64, 4096
CONTEXT, STEPS = 1024, 4
SECONDS = 20.0  # a peer's new tokens end then


# ---- The rest of the machine ---------------------------------------------------------------------

def busy_loop(processor: int | None) -> subprocess.Popen[bytes]:
    pin = ["taskset", "-c", str(processor)] if processor is not None else []
    return subprocess.Popen([*pin, "sh", "-c", "while :; do :; done"])


def generate_endlessly(o: argparse.Namespace, program: str) -> subprocess.Popen[bytes]:
    command = [program, "generate", "--model", str(o.model), "--prompt", "The", "--tokens", "1000000", "--ignore-end",
               "--attention", "window", "--threads", str(o.threads), "--quiet"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def neighbours(o: argparse.Namespace, condition: str, program: str) -> Iterator[None]:
    """The competing processes: started here, and ended afterwards."""
    processors = sorted(os.sched_getaffinity(0))[:o.threads]
    each = {"one": 1, "two": 2}.get(condition, 0)
    running = [busy_loop(p if o.pin else None) for p in processors for _ in range(each)]
    if condition == "itself":
        running = [generate_endlessly(o, program)]
    try:
        time.sleep(1.0 if running else 0.0)
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


# ---- plsh ----------------------------------------------------------------------------------------

def plsh(program: str, *arguments: Any, text: str = "") -> dict[str, Any]:
    run = subprocess.run([program, *map(str, arguments), "--json", "--quiet"], input=text.encode(),
                         stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def generate_plsh(o: argparse.Namespace, program: str, folder: pathlib.Path) -> Row:
    text = (folder / "prompt.txt").read_text(encoding="utf-8")
    for tokens in (FEW, MANY):
        found = plsh(program, "generate", "--model", o.model, "--tokens", tokens, "--ignore-end", "--threads", o.threads, text=text)
        seconds = tokens / found["tokens_per_second"]
        if seconds > 1:
            break
    return {"prefill": found["prefill_tokens_per_second"], "decode": (tokens - 1) / seconds}


def attend_plsh(o: argparse.Namespace, program: str, folder: pathlib.Path) -> Row:
    found = plsh(program, "attend", "--random", f"{HEADS},{KEYS},{DIM}", "--method", "dense", "--threads", o.threads)
    return {"attend": KEYS / found["seconds"]}


def train_plsh(o: argparse.Namespace, program: str, folder: pathlib.Path) -> Row:
    import training
    given = argparse.Namespace(plsh=program, threads=o.threads)
    done = training.plsh_steps(str(folder), "plsh exact", CONTEXT, STEPS, given)
    return {"train": CONTEXT / statistics.median(seconds for seconds, _ in done[1:])}


# ---- Peers, in processes of their own ------------------------------------------------------------

def prompt_ids(folder: pathlib.Path) -> list[int]:
    ids: list[int] = json.loads((folder / "prompt.json").read_text(encoding="utf-8"))
    return ids


def count_tokens(step: Callable[[], None]) -> float:
    """New tokens per second."""
    begin = time.perf_counter()
    for done in range(MANY):
        step()
        seconds = time.perf_counter() - begin
        if seconds > SECONDS or (seconds > 1 and done + 1 >= FEW):
            break
    return (done + 1) / seconds


def generate_llama(o: argparse.Namespace, folder: pathlib.Path) -> Row:
    import llama
    import numpy as np
    ids = np.array(prompt_ids(folder), dtype=np.int32)
    model = llama.Llama(str(o.model), len(ids) + MANY, o.threads)
    model.feed(ids[:8], 0, False)
    llama.c.llama_memory_clear(llama.c.llama_get_memory(model.context), True)
    begin = time.perf_counter()
    model.feed(ids, 0, False)
    prefill = len(ids) / (time.perf_counter() - begin)
    position = [len(ids)]

    def step() -> None:
        model.feed(np.array([int(model.outputs(1)[0].argmax())]), position[0], False)
        position[0] += 1
    return {"prefill": prefill, "decode": count_tokens(step)}


def generate_torch(o: argparse.Namespace, folder: pathlib.Path) -> Row:
    import torch
    import transformers
    torch.set_grad_enabled(False)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "f32", dtype=torch.float32).eval()
    ids = torch.tensor([prompt_ids(folder)])
    model(ids[:, :8])
    cache = transformers.DynamicCache()
    begin = time.perf_counter()
    found = {"out": model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)}
    prefill = ids.shape[1] / (time.perf_counter() - begin)

    def step() -> None:
        following = found["out"].logits[:, -1].argmax(-1, keepdim=True)
        found["out"] = model(following, past_key_values=cache, use_cache=True)
    return {"prefill": prefill, "decode": count_tokens(step)}


def attend_torch(o: argparse.Namespace, folder: pathlib.Path) -> Row:
    import torch
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, HEADS, KEYS, DIM) for _ in range(3))
    slopes = torch.tensor([2.0 ** (-8 * (h + 1) / HEADS) for h in range(HEADS)])
    place = torch.arange(KEYS, dtype=torch.float32)
    mask = -slopes[:, None, None] * (place[None, None, :] - place[None, :, None]).abs()
    begin = time.perf_counter()
    torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[None])
    return {"attend": KEYS / (time.perf_counter() - begin)}


def train_torch(o: argparse.Namespace, folder: pathlib.Path) -> Row:
    import training
    done = training.torch_steps(str(folder), "torch ALiBi", CONTEXT, STEPS, SECONDS)
    return {"train": CONTEXT / statistics.median(seconds for seconds, _ in done[1:] or done)}


def measure_peer(o: argparse.Namespace) -> None:
    """One row, in this process: JSON on stdout."""
    contender, task = o.one.split(":")
    folder = pathlib.Path(o.folder)
    if contender == "torch":
        import torch
        torch.set_flush_denormal(True)
        torch.set_num_threads(o.threads)
        calls = {"generate": generate_torch, "attend": attend_torch, "train": train_torch}
        print(json.dumps(calls[task](o, folder)))
    else:
        print(json.dumps(generate_llama(o, folder)))


# ---- Rows ----------------------------------------------------------------------------------------

def measure(o: argparse.Namespace, contender: str, task: str, condition: str, folder: pathlib.Path) -> Row:
    program = o.programs.get(contender, o.programs["plsh"])
    with neighbours(o, condition, program):
        if contender in o.programs:
            calls = {"generate": generate_plsh, "attend": attend_plsh, "train": train_plsh}
            return calls[task](o, program, folder)
        return run_apart(__file__, "--one", f"{contender}:{task}", "--folder", folder, "--threads", o.threads,
                         "--model", o.model, python=o.python)


def write_inputs(o: argparse.Namespace, folder: pathlib.Path) -> None:
    """The prompt, the weights as floats for torch, and the model and text that are trained."""
    text = "\n".join((ROOT / x).read_text(encoding="utf-8") for x in ("CONTRIBUTING.md", "docs/guide.md"))[:3 * PROMPT]
    found = plsh(o.programs["plsh"], "tokenize", "--tokenizer", o.model, text=text)["ids"]
    (folder / "prompt.txt").write_text(text, encoding="utf-8")
    (folder / "prompt.json").write_text(json.dumps(found), encoding="utf-8")
    if "torch" in o.contenders and "generate" in o.tasks:
        plsh(o.programs["plsh"], "convert", "--model", o.model, "--type", "f32", "--out", folder / "f32")
    if "train" in o.tasks:
        script = f"import training, pathlib; training.write_model(pathlib.Path({str(folder)!r})); " \
                 f"training.write_text(pathlib.Path({str(folder)!r}, '{CONTEXT}.txt'), {CONTEXT}, {STEPS + 1})"
        subprocess.run([o.python, "-c", script], check=True, cwd=ROOT / "bench")


def measure_all(o: argparse.Namespace, rows: Rows, folder: pathlib.Path) -> None:
    for rep in range(o.reps):
        for condition in o.conditions:
            for task in o.tasks:
                for contender in o.contenders:
                    key = [contender, task, condition, rep]
                    skipped = condition == "itself" and (contender not in o.programs or task != "generate")
                    if json.dumps(key) in rows or skipped or task not in CONTENDERS[contender]:
                        continue
                    row = measure(o, contender, task, condition, folder)
                    figures = ", ".join(f"{name} {value:.1f}" for name, value in row.items())
                    print(f"  {contender}, {condition}, {rep + 1} of {o.reps}: {figures}", file=sys.stderr)
                    rows.keep(key, row)


def print_table(o: argparse.Namespace, rows: dict[str, Row]) -> None:
    print(f"tokens per second on {o.threads} threads, and in parts of the fair share of those alone; the median of {o.reps}")
    print(f"{'':8} {'contender':10}" + "".join(f"{c:>9}{'' if c == 'alone' else '   share'}" for c in o.conditions))
    for task in o.tasks:
        for name in TASKS[task]:
            for contender in o.contenders:
                if task not in CONTENDERS[contender]:
                    continue
                line, alone = f"{name:8} {contender:10}", float("nan")
                for condition in o.conditions:
                    found = [rows[key][name] for key in (json.dumps([contender, task, condition, rep]) for rep in range(o.reps))
                             if key in rows]
                    rate = statistics.median(found) if found else float("nan")
                    alone = rate if condition == "alone" else alone
                    share = "" if condition == "alone" else f"{rate / (alone * CONDITIONS[condition]):8.2f}"
                    line += (f"{rate:9.1f}{share}" if found else f"{'-':>9}{'' if condition == 'alone' else '       -'}")
                print(line)


def choose(text: str, known: Any, what: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in known:
            sys.exit(f"bench/busy.py: no {what} \"{name}\"; {', '.join(known)}")
    return names


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True, help="SmolLM2 in Q4_1")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--conditions", default=",".join(CONDITIONS))
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--pin", action="store_true", help="busy loops stay on their processors")
    parser.add_argument("--rows")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    o = parse()
    if o.one:
        return measure_peer(o)
    o.tasks = choose(o.tasks, TASKS, "task")
    o.conditions = choose(o.conditions, CONDITIONS, "condition")
    o.contenders = choose(o.contenders, CONTENDERS, "contender")
    o.programs = {"plsh": os.environ.get("PLSH", str(ROOT / "build" / "plsh"))}
    if os.environ.get("BEFORE"):
        o.programs["before"] = os.environ["BEFORE"]
    elif "before" in o.contenders:
        print("before is left out: BEFORE names no program", file=sys.stderr)
        o.contenders.remove("before")
    o.python = sys.executable
    if "train" in o.tasks or set(o.contenders) - set(o.programs):
        if os.environ.get("PEERS"):
            o.python = str(pathlib.Path(os.environ["PEERS"]) / "bin" / "python")
        else:
            import lm_environment
            lm_environment.enter()
    rows = Rows(o.rows)
    with tempfile.TemporaryDirectory() as name:
        write_inputs(o, pathlib.Path(name))
        measure_all(o, rows, pathlib.Path(name))
    print_table(o, rows)


if __name__ == "__main__":
    main()
