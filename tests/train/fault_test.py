"""Training with a file system that fails: every call that changes a file fails in turn (EIO, ENOSPC), or the process is
killed in its place. A run whose call failed ends with exit code 1 and one line that says why; --resume then ends with the
bits of a run that was never disturbed, and nothing half written is left.
Usage: fault_test.py PLSH FAULT_LIBRARY WRITE_MODEL [--all]    without --all every few calls only"""
import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

plsh, library, write_model = (str(Path(path).resolve()) for path in sys.argv[1:4])
stride = 1 if "--all" in sys.argv else 29
LAST = "checkpoint-00000003"
# What a run does without: files that could not be deleted are deleted by the next one, and where two names cannot be
# exchanged they are renamed one after the other.
FORGIVEN = ("unlink", "unlinkat", "rmdir", "renameat2")
# The second goes on from the first step of a run that is whole, over its later checkpoints.
SCENARIOS = {"from the beginning": ["--resume"], "over later checkpoints": ["--resume", "--from", "run/checkpoint-00000001"]}


def train(*more: str, **environment: str) -> subprocess.CompletedProcess:
    command = [plsh, "train", "--fresh", "model/config.json", "--tokenizer", "model", "--text", "text.txt", "--context", "16",
               "--steps", "3", "--lr", "3e-3", "--checkpoint-every", "1", "--keep", "2", "--quiet", "--threads", "1",
               "--out", "run", *more]
    # without gnuplot: a plot that fails is a remark
    return subprocess.run(command, capture_output=True, text=True, env={"PATH": "", **environment})


def log_of(run: str) -> list[dict]:
    lines = [json.loads(line) for line in Path(run, "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "tokens_per_second"} for line in lines]


def state_of(run: str) -> dict:
    state = json.loads(Path(run, LAST, "state.json").read_text())
    return {k: v for k, v in state.items() if k not in ("log_bytes", "checksum")}  # speeds have fewer digits or more


def begin(scenario: str) -> None:
    shutil.rmtree("run", ignore_errors=True)
    if scenario == "over later checkpoints":
        shutil.copytree("whole", "run")
        shutil.copytree("first", "run/checkpoint-00000001", dirs_exist_ok=True)


def check_same(where: str) -> None:
    for name in ("model.safetensors", f"{LAST}/model.safetensors", f"{LAST}/moments.safetensors", "config.json"):
        assert Path("whole", name).read_bytes() == Path("run", name).read_bytes(), f"{where}: {name} differs"
    assert state_of("whole") == state_of("run"), f"{where}: {LAST}/state.json differs"
    lines = log_of("run")
    # From the beginning every step is logged. One that was killed on its way from an earlier checkpoint goes on from the
    # latest, whose lines it had cut off.
    assert lines == log_of("whole") or "later" in where and all(line in log_of("whole") for line in lines), f"{where}: {lines}"
    names = sorted(path.name for path in Path("run").iterdir())
    assert names == sorted(path.name for path in Path("whole").iterdir()), f"{where}: {names}"


def disturb(scenario: str, number: int, name: str, how: int) -> None:
    where = f"{scenario}, call {number} ({name}), {errno.errorcode.get(how, 'kill')}"
    begin(scenario)
    run = train(*SCENARIOS[scenario], LD_PRELOAD=library, PLSH_FAULT=f"{number}:{how}")
    if how == 0:
        assert run.returncode == -9, f"{where}: exit {run.returncode}: {run.stderr}"
    elif run.returncode != 0 or name not in FORGIVEN:
        assert run.returncode == 1, f"{where}: exit {run.returncode}: {run.stderr}"
        assert run.stderr.count("\n") == 1 and os.strerror(how) in run.stderr, f"{where}: it said {run.stderr!r}"
    again = train("--resume")
    assert again.returncode == 0, f"{where}, resumed: {again.stderr}"
    check_same(where)


def main() -> None:
    subprocess.run([sys.executable, write_model, "model"], check=True)
    Path("text.txt").write_text("".join(f"line {i} of a text to learn\n" for i in range(20)))
    assert train("--keep", "9").returncode == 0  # of one run: a checkpoint says how long its log is
    os.rename("run/checkpoint-00000001", "first")
    os.rename("run", "whole")
    faults = 0
    for scenario, more in SCENARIOS.items():
        begin(scenario)
        run = train(*more, LD_PRELOAD=library, PLSH_FAULT_LOG="calls")
        assert run.returncode == 0, run.stderr
        names = Path("calls").read_text().split()
        assert {"open", "write", "fsync", "rename", "mkdir", "unlinkat", "fflush"} <= set(names), set(names)
        for kind, how in enumerate((0, errno.EIO, errno.ENOSPC)):
            for number in range(1 + kind * stride // 3, len(names) + 1, stride):
                disturb(scenario, number, names[number - 1], how)
                faults += 1
        print(f"{scenario}: {len(names)} calls")
    print(f"{faults} faults")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        main()
