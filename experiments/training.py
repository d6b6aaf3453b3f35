"""What the experiments that train have in common: the program and the data, runs side by side that go on where they were stopped, and
the rows of finished ones in a TSV file.

usage of each: run [--list | --summary] [--only NAMES] [--tiny] [PLSH]
The program is build/plsh unless given; the reference data is in ../shared, or where PLSH_SHARED points. --tiny is a test of the script: a
few short steps, whose rows and files go to the program's folder."""
import argparse
import datetime
import fcntl
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("PLSH_SHARED", ROOT.parent / "shared"))
SMOLLM2 = SHARED / "data/models/smollm2-135m-q4_1/SmolLM2-135M-Instruct.Q4_1.gguf"
STORIES = SHARED / "data/models/stories260k"  # small enough for a test
WIKITEXT = SHARED / "data/wikitext-2"


def sampled(s, *more):
    """Positional LSH as the paper has it."""
    return ["--attention", "plsh", "--samples", str(s), "--scheme", "binning", "--design", "iid", *more]


class Experiment:
    """A folder with a table of finished runs; `work` is where the runs are."""

    def __init__(self, script, description, table="runs.tsv", more=()):
        """`more`: options of its own, as (name, help)."""
        parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--list", action="store_true", help="what there is to do")
        parser.add_argument("--summary", action="store_true", help="the table of what is done")
        parser.add_argument("--tiny", action="store_true", help="a few short steps, to test the script")
        parser.add_argument("--only", help="the runs of these names alone, as exact,window")
        for name, text in more:
            parser.add_argument(name, help=text)
        parser.add_argument("plsh", nargs="?", default=str(ROOT / "build/plsh"))
        self.options = parser.parse_args()
        self.tiny, self.plsh = self.options.tiny, self.options.plsh
        here = Path(script).resolve().parent
        self.work = self.folder(here.name)
        self.tsv = (self.work if self.tiny else here) / table
        if self.tiny and not (self.options.list or self.options.summary):
            shutil.rmtree(self.work, ignore_errors=True)
        if not WIKITEXT.exists():
            print(f"{WIKITEXT} is not there: nothing is run")
            raise SystemExit(77)
        self.work.mkdir(parents=True, exist_ok=True)
        self.lock = threading.Lock()

    def folder(self, name):
        """Where the runs of an experiment are."""
        return Path(self.plsh).resolve().parent / (name + "-tiny") if self.tiny else ROOT / "build" / name

    def call(self, *arguments, threads=1):
        """The program, niced; what it prints as JSON."""
        command = ["nice", "-n", "10", self.plsh, *map(str, arguments), "--threads", str(threads), "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(done.stderr.strip() or f"{command} returned {done.returncode}")
        return done.stdout

    def call_json(self, *arguments, threads=1):
        return json.loads(self.call(*arguments, "--json", threads=threads))

    def train(self, out, *arguments):
        """Trains into `out`, from its last checkpoint on where there is one; the lines of its log that tell of steps."""
        self.call("train", "--out", out, "--resume", *arguments)
        log = [json.loads(line) for line in (Path(out) / "log.jsonl").read_text().splitlines()]
        return [line for line in log if "loss" in line]

    def score(self, model, text, lengths, *arguments):
        """Loss and accuracy of the same tokens at every length, in pairs."""
        return self.call_json("perplexity", "--model", model, "--text", text, "--context", ",".join(map(str, lengths)),
                              "--same-tokens", *arguments)["rows"]

    def read(self):
        """The rows so far."""
        lines = [line for line in self.tsv.read_text().splitlines() if not line.startswith("#")] if self.tsv.exists() else [""]
        return [dict(zip(lines[0].split("\t"), line.split("\t"))) for line in lines[1:]]

    def add(self, *rows):
        """Rows of a run that is done, all at once."""
        text = "".join("\t".join(map(str, row.values())) + "\n" for row in rows)
        folder = os.open(self.tsv.parent, os.O_RDONLY)
        with self.lock:
            fcntl.flock(folder, fcntl.LOCK_EX)  # of another process that adds to this table
            write_table(self.tsv, self.read() + list(rows))
            os.close(folder)
            print(text, end="", flush=True)

    def is_asked_for(self, name):
        return not self.options.only or name in self.options.only.split(",")

    def run(self, todo, describe, finish, side_by_side=2):
        """Does what is missing, each to its row; or lists it."""
        if self.options.list:
            return print("\n".join(describe(one) for one in todo))
        with ThreadPoolExecutor(side_by_side) as pool:
            for run in [pool.submit(finish, one) for one in todo]:
                run.result()
        if (self.tsv.parent / "published.tsv").exists():
            subprocess.run([sys.executable, str(ROOT / "experiments/compare.py"), str(self.tsv.parent)], check=True)


def write_table(path, rows):
    """A table with the day of its last change, whole or not at all."""
    lines = [f"# recorded {datetime.date.today()}", "\t".join(rows[0]), *("\t".join(map(str, row.values())) for row in rows)]
    part = path.with_suffix(".part")
    part.write_text("\n".join(lines) + "\n", encoding="utf-8")
    part.replace(path)


def scores(rows):
    """The cells of a row for what `score` gave."""
    cells = {}
    for row in rows:
        cells[f"ppl_{row['context']}"] = f"{row['perplexity']:.4f}"
        cells[f"acc_{row['context']}"] = f"{100 * row['accuracy']:.4f}"
    return {**cells, "scored": rows[0]["tokens"]}


def steps(log):
    """The cells of a row for what `train` gave; the loss is the mean of the last hundred steps, or of all where there are fewer."""
    seconds = log[0]["tokens"] * sum(1 / line["tokens_per_second"] for line in log)
    return {"last_losses": f"{statistics.mean(line['loss'] for line in log[-100:]):.5f}", "train_seconds": f"{seconds:.0f}"}


def print_summary(rows):
    """PPL and Acc at every length, mean and standard deviation over the seeds, as Markdown."""
    columns = [name for name in rows[0] if name.startswith(("ppl_", "acc_"))] if rows else []
    heads = [f"{name[:3].replace('ppl', 'PPL').replace('acc', 'Acc')} {int(name[4:]) / 1024:g}k" for name in columns]
    print("| attention | seeds | " + " | ".join(heads) + " |\n|---|---|" + "---|" * len(columns))
    for name in dict.fromkeys(row["name"] for row in rows):
        mine, cells = [row for row in rows if row["name"] == name], []
        for column in columns:
            values = [float(row[column]) for row in mine]
            deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.2f}{deviation}")
        print(f"| {name} | {len(mine)} | " + " | ".join(cells) + " |")
