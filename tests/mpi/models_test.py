"""plsh-mpi runs and trains models as plsh does: the same files and figures with any number of ranks.
Usage: models_test.py MPIRUN PLSH PLSH_MPI WRITE_MODEL RANKS | resume | kill | stop | disagree | hosts | cut (MPIRUN is hosts.sh)"""
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

mpirun, plsh, plsh_mpi, write_model, what = sys.argv[1:6]
TRAIN = ["train", "--fresh", "model/config.json", "--tokenizer", "model", "--text", "text.txt",
         "--eval-text", "held.txt", "--eval-every", "8", "--context", "64", "--batch", "2",
         "--accumulate", "2", "--lr", "3e-3", "--attention", "plsh", "--samples", "4", "--sigma", "8",
         "--dropout", "0.1", "--threads", "1", "--quiet"]


def run(*arguments: str, ranks: int = 0) -> str:
    """The output of plsh, or of plsh-mpi with that many ranks."""
    command = [mpirun, *([] if what in ("hosts", "cut") else [str(ranks)]), plsh_mpi] if ranks else [plsh]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True)
    if done.returncode == 77:  # mpirun.sh: there is no mpirun
        print(done.stdout)
        sys.exit(77)
    assert done.returncode == 0, done.stderr
    return done.stdout


def numbers_of(file: str) -> tuple[bytes, tuple[float, ...]]:
    """The header of a .npy or .safetensors file of float32, and its numbers."""
    content = Path(file).read_bytes()
    size = (10 + int.from_bytes(content[8:10], "little") if file.endswith(".npy")
            else 8 + int.from_bytes(content[:8], "little"))
    return content[:size], struct.unpack(f"<{(len(content) - size) // 4}f", content[size:])


def compare_files(one: str, many: str, limit: float) -> None:
    (head, x), (other, y) = numbers_of(one), numbers_of(many)
    assert head == other, f"{many}: another header than {one}"
    off, most = max(abs(a - b) for a, b in zip(x, y)), max(map(abs, x))
    print(f"{many}: off by {off / most:.2g} of the largest number")
    assert off <= limit * most


def log_of(out: str) -> list[dict]:
    lines = [json.loads(line) for line in Path(out, "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "tokens_per_second"} for line in lines
            if "bytes_sent" not in line]


def compare_logs(one: str, many: str, limit: float) -> None:
    a, b = log_of(one), log_of(many)
    assert [(x["step"], [*x]) for x in a] == [(x["step"], [*x]) for x in b], f"{many}: other lines"
    worst = max(abs(x[k] - y[k]) / x[k] for x, y in zip(a, b) for k in ("loss", "eval_loss") if k in x)
    print(f"{many}: losses off by {worst:.2g}")
    assert worst <= limit


def table_of(text: str) -> list[dict]:
    return [{k: v for k, v in row.items() if k != "tokens_per_second"}
            for row in json.loads(text)["rows"]]


def check_costs(said: dict, ranks: int, sends: bool = True) -> None:
    assert said["peak_bytes"] > 0 and ("bytes_sent" in said) == ("waited" in said) == (ranks > 1), said
    assert ranks == 1 or ((said["bytes_sent"] > 0) == sends and said["waited"] >= 0), said


def test_ranks(ranks: int) -> None:
    """forward, perplexity and 20 steps of training against one process."""
    forward = ["forward", "--model", "model", "--text", "held.txt", "--threads", "1"]
    for name, count in (("one", 0), ("many", ranks)):
        run(*forward, "--logits", f"{name}-logits.npy", "--hidden", f"{name}-hidden.npy",
            "--gradients", f"{name}-gradients.safetensors", ranks=count)
    for kind in ("logits.npy", "hidden.npy", "gradients.safetensors"):
        compare_files(f"one-{kind}", f"many-{kind}", 1e-5)
    perplexity = ["perplexity", "--model", "model", "--text", "text.txt", "--context", "100,333",
                  "--limit-tokens", "1500", "--attention", "exact", "--sigma", "16", "--threads", "1",
                  "--json", "--quiet"]
    mesh = ["--mesh", f"2x{ranks // 2}"] if ranks % 2 == 0 else []
    said = run(*perplexity, *mesh, ranks=ranks)
    check_costs(json.loads(said), ranks, sends="2x1" not in mesh)  # one rank in a group has its rows
    check_costs(json.loads(run(*forward, "--json", ranks=ranks)), ranks)
    one, many = table_of(run(*perplexity)), table_of(said)
    for a, b in zip(one, many, strict=True):
        assert a.keys() == b.keys() and a["tokens"] == b["tokens"]
        assert all(abs(a[k] - b[k]) <= 1e-6 * abs(a[k]) for k in ("nll", "mrr", "entropy")), (a, b)
    run(*TRAIN, "--steps", "20", "--out", "one")
    run(*TRAIN, "--steps", "20", "--out", "many", ranks=ranks)
    compare_logs("one", "many", 1e-6)
    last = json.loads(Path("many/log.jsonl").read_text().splitlines()[-1])
    assert ("bytes_sent" in last) == (ranks > 1), last
    if ranks > 1:
        check_costs(last, ranks)
    files = [sorted(p.name for p in Path(out).iterdir()) for out in ("one", "many")]
    assert files[0] == files[1], files
    if ranks == 1:
        assert Path("one/model.safetensors").read_bytes() == Path("many/model.safetensors").read_bytes()
    if mesh:
        run(*TRAIN, "--steps", "20", "--out", "mesh", *mesh, ranks=ranks)
        compare_logs("one", "mesh", 1e-6)


def test_resume() -> None:
    """Ten steps of four ranks, five more of two, five more of one process: as one from the start."""
    run(*TRAIN, "--steps", "20", "--out", "one")
    run(*TRAIN, "--steps", "20", "--out", "whole", "--checkpoint-every", "5", "--keep", "9", ranks=4)
    for steps, ranks in ((10, 2), (15, 0), (5, 4)):
        shutil.copytree("whole", f"from-{steps}")
        for folder in Path(f"from-{steps}").glob("checkpoint-*"):
            if int(folder.name[-8:]) > steps:
                shutil.rmtree(folder)
        run(*TRAIN, "--steps", "20", "--out", f"from-{steps}", "--resume", ranks=ranks)
        compare_logs("one", f"from-{steps}", 1e-6)
    same = [Path(out, "model.safetensors").read_bytes() for out in ("whole", "from-5")]
    assert same[0] == same[1], "the same number of ranks goes on bit for bit"


def ranks_of(process: int, named: str = "plsh-mpi") -> list[int]:
    """The processes of plsh-mpi (named "": all) below mpirun, oldest first."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = stat.read_text().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue
        parents[int(stat.parent.name)] = (int(rest.split()[1]), name)

    def is_below(one: int) -> bool:
        return one == process or (one in parents and is_below(parents[one][0]))

    return sorted(p for p, (_, name) in parents.items() if named in ("", name) and is_below(p))


def end_one(out: str, victim: int, number: signal.Signals, at_checkpoint: int, says: str, *options: str,
            code_is: int | None = None) -> None:
    """Sends a signal to a rank as soon as there is a checkpoint of that step: all ranks end, and report it."""
    with open(f"said-{victim}", "w+") as said:
        job = subprocess.Popen([mpirun, "3", plsh_mpi, *TRAIN, "--steps", "40", "--checkpoint-every",
                                "4", "--out", out, "--resume", *options], stdout=subprocess.DEVNULL, stderr=said)
        while job.poll() is None and not Path(out, f"checkpoint-{at_checkpoint:08d}").exists():
            time.sleep(0.01)
        assert job.poll() is None, "it ended before it could be killed"
        ranks = ranks_of(job.pid)
        assert len(ranks) == 3, ranks
        begin = time.monotonic()
        os.kill(ranks[victim], number)
        code = job.wait(timeout=30)
        print(f"{number.name} to rank {victim}: mpirun ended with {code} after {time.monotonic() - begin:.1f} s")
        time.sleep(0.2)
        assert code != 0 and not any(Path(f"/proc/{p}/exe").exists() for p in ranks), "a rank lives on"
        said.seek(0)
        message = said.read()
        assert message.strip() and says in message, message
        assert code_is is None or code == code_is, code


def test_stop() -> None:
    """Stops a rank: after --timeout the others report it, once, and end with 1."""
    for victim, at in ((1, 4), (0, 12), (2, 20)):
        end_one("stopped", victim, signal.SIGSTOP, at, f"plsh train: rank {victim} of 3: no sign of life for 2 s",
                "--timeout", "2", code_is=1)
        assert Path(f"said-{victim}").read_text().count("no sign of life") == 1
    # One that is stopped for less than that is waited for.
    job = subprocess.Popen([mpirun, "3", plsh_mpi, *TRAIN, "--steps", "10", "--out", "short", "--timeout", "30"])
    while job.poll() is None and len(ranks_of(job.pid)) < 3:
        time.sleep(0.01)
    paused = ranks_of(job.pid)[1]
    os.kill(paused, signal.SIGSTOP)
    time.sleep(2)
    os.kill(paused, signal.SIGCONT)
    assert job.wait(timeout=120) == 0


def test_kill() -> None:
    run(*TRAIN, "--steps", "40", "--checkpoint-every", "4", "--out", "whole", ranks=3)
    end_one("killed", 2, signal.SIGKILL, 8, "")
    end_one("killed", 1, signal.SIGTERM, 16, "plsh train: stopped by a signal after step")
    end_one("killed", 0, signal.SIGKILL, 28, "")
    run(*TRAIN, "--steps", "40", "--checkpoint-every", "4", "--out", "killed", "--resume", ranks=3)
    assert log_of("whole") == log_of("killed"), "the logs differ"
    assert (Path("whole/model.safetensors").read_bytes() ==
            Path("killed/model.safetensors").read_bytes()), "the weights differ"


def test_cut() -> None:
    """Two hosts, and the link between them goes down: those of the first name ranks of the other, and all end. (mpirun itself
    waits for its daemon on the other host until TCP gives up.)"""
    with open("said", "w+") as said:
        job = subprocess.Popen([mpirun, plsh_mpi, *TRAIN, "--steps", "4000", "--checkpoint-every", "1", "--out", "cut",
                                "--timeout", "6"], stderr=said, env={**os.environ, "PLSH_TEST_CUT": "cut-now"})
        while job.poll() is None and not Path("cut", "checkpoint-00000001").exists():
            time.sleep(0.01)
        if job.poll() == 77:
            sys.exit(77)
        ranks = ranks_of(job.pid)
        assert job.poll() is None and len(ranks) == 4, ranks
        begin = time.monotonic()
        Path("cut-now").touch()
        while any(Path(f"/proc/{p}/exe").exists() for p in ranks) and time.monotonic() < begin + 60:
            time.sleep(0.1)
        left = [p for p in ranks if Path(f"/proc/{p}/exe").exists()]
        print(f"{len(left)} ranks are left after {time.monotonic() - begin:.1f} s")
        for process in reversed(ranks_of(job.pid, "")[1:]):
            os.kill(process, signal.SIGKILL)
        job.wait(timeout=60)
        said.seek(0)
        message = said.read()
        # On a busy machine the last messages of ranks 2 and 3 may be so far apart that only one is named.
        named = re.findall(r"plsh train: ranks? ([0-9, ]+) of 4: no sign of life for 6 s", message)
        assert not left and named and {rank for text in named for rank in text.split(", ")} <= {"2", "3"}, (left, message)


def refuse(says: str, good: list[str], bad: list[str], folder: str = ".") -> None:
    """Three ranks, of which rank 1 is called with other arguments, or in another folder: all fail at once,
    with one message."""
    command = [mpirun, "1", plsh_mpi, *good, ":", "-np", "1", "--wdir", os.path.abspath(folder), plsh_mpi, *bad,
               ":", "-np", "1", plsh_mpi, *good]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    said = [line for line in done.stderr.splitlines() if line.startswith("plsh ")]
    assert done.returncode == 1 and len(said) == 1 and says in said[0], (says, done)
    assert not done.stdout, done.stdout
    print(said[0])


def copy_model(name: str) -> None:
    """The model, but for one bit of its last weight."""
    shutil.copytree("model", name)
    weights = Path(name, "model.safetensors")
    content = bytearray(weights.read_bytes())
    content[-2] ^= 1
    weights.write_bytes(content)


def test_disagree() -> None:
    """One host has a stale copy of a file, or other options."""
    Path("short.txt").write_text(Path("held.txt").read_text()[:-20])
    Path("other.txt").write_text(Path("held.txt").read_text().replace("3", "4"))
    copy_model("stale")
    for command in (["forward"], ["perplexity", "--context", "50"]):
        good = [*command, "--model", "model", "--text", "held.txt", "--threads", "1"]
        for says, old, new in (("rank 1: other tokens than rank 0 has: ", "held.txt", "short.txt"),
                               ("rank 1: other tokens than rank 0 has", "held.txt", "other.txt"),
                               ("rank 1: other weights than rank 0 has", "model", "stale")):
            refuse(says, good, [new if word == old else word for word in good])
        biased = [*good, "--attention", "exact"]
        refuse("rank 1: other settings (--sigma=4) than rank 0 has", [*biased, "--sigma", "8"], [*biased, "--sigma", "4"])
    perplexity = ["perplexity", "--model", "model", "--text", "held.txt", "--threads", "1"]
    refuse("rank 1: other settings (--mesh=3x1) than", [*perplexity, "--mesh", "1x3"], [*perplexity, "--mesh", "3x1"])
    test_disagree_training()


def test_disagree_training() -> None:
    """`away` is what rank 1 sees: another text, then another run of the same options, then none."""
    train = [*TRAIN, "--steps", "4", "--checkpoint-every", "2", "--out", "run"]
    refuse("rank 1: other settings (--lr=0.1) than rank 0 has", train, [*train, "--lr", "0.1"])
    bad = subprocess.run([mpirun, "3", plsh_mpi, *train, "--mesh", "2x2"], capture_output=True, text=True)
    assert bad.returncode == 2 and "--mesh 2x2: data x sequence" in bad.stderr, bad
    assert not Path("run").exists(), "a folder is left by a run that was refused"
    os.mkdir("away")
    shutil.copytree("model", "away/model")
    shutil.copy("held.txt", "away")
    Path("away/text.txt").write_text(Path("text.txt").read_text().replace("learn", "loose"))
    run(*train)
    subprocess.run([plsh, *train], cwd="away", check=True)
    train.append("--resume")
    refuse("rank 1: other tokens of --text than rank 0 has", train, train, "away")
    shutil.copy("text.txt", "away")
    shutil.copy("short.txt", "away/held.txt")
    refuse("rank 1: other tokens of --eval-text than rank 0 has: ", train, train, "away")
    shutil.copy("held.txt", "away")
    refuse("rank 1: run/checkpoint-00000004 was made with another --text", train, train, "away")
    for folder in Path("away/run").glob("checkpoint-*"):
        shutil.rmtree(folder)
    refuse("rank 1: run/checkpoint-00000004 is missing", train, train, "away")


def test_hosts() -> None:
    """Two hosts with two ranks each, over TCP: the losses of one process."""
    run(*TRAIN, "--steps", "20", "--out", "one")
    run(*TRAIN, "--steps", "20", "--out", "many", "--mesh", "2x2", ranks=4)
    compare_logs("one", "many", 1e-6)


def main() -> None:
    subprocess.run([sys.executable, write_model, "model"], check=True)
    Path("text.txt").write_text("".join(f"line {i} of a text to learn\n" for i in range(400)))
    Path("held.txt").write_text("".join(f"line {i} of another one\n" for i in range(12)))
    if what == "resume":
        test_resume()
    elif what == "kill":
        test_kill()
    elif what == "stop":
        test_stop()
    elif what == "cut":
        test_cut()
    elif what == "disagree":
        test_disagree()
    elif what == "hosts":
        test_hosts()
    else:
        test_ranks(int(what))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        main()
