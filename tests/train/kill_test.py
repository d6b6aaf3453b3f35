"""A run that is killed at random moments and resumed ends as one that was never stopped: the same
weights, moments, log and position in the data.
Usage: kill_test.py PLSH WRITE_MODEL [KILLS]"""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

plsh, write_model = sys.argv[1:3]
kills = int((sys.argv + ["20"])[3])
STEPS = 8 * kills


def command(out: str, *more: str) -> list[str]:
    return [plsh, "train", "--fresh", "model/config.json", "--tokenizer", "model",
            "--text", "text.txt", "--eval-text", "held.txt", "--eval-every", "7",
            "--context", "64", "--batch", "2", "--steps", str(STEPS), "--lr", "3e-3",
            "--attention", "plsh", "--samples", "4", "--sigma", "8", "--dropout", "0.1",
            "--checkpoint-every", "2", "--quiet", "--threads", "1", "--out", out, *more]


def log_of(out: str) -> list[dict]:
    lines = [json.loads(line) for line in Path(out, "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "tokens_per_second"} for line in lines]


def killed_while(out: str, wanted: bool, seconds: float) -> str:
    """Starts or resumes the run, kills it after `seconds`, or as soon as a checkpoint is being
    written. What it was doing: "writing", "training" or "finished"."""
    for part in Path(out).glob("checkpoint-*.part"):  # of a kill before
        shutil.rmtree(part)
    run = subprocess.Popen(command(out, "--resume"), stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE)
    begin = time.monotonic()
    while run.poll() is None:
        part = any(Path(out).glob("checkpoint-*.part")) if wanted else False
        if part or (not wanted and time.monotonic() - begin > seconds):
            run.send_signal(signal.SIGKILL)
            break
        if not wanted:
            time.sleep(0.002)
    run.wait()
    if run.returncode == 0:
        return "finished"
    assert run.returncode == -signal.SIGKILL, run.stderr.read().decode()
    return "writing" if any(Path(out).glob("checkpoint-*.part")) else "training"


def main() -> None:
    draw = random.Random(11)
    subprocess.run([sys.executable, write_model, "model"], check=True)
    Path("text.txt").write_text("".join(f"line {i} of a text to learn\n" for i in range(400)))
    Path("held.txt").write_text("".join(f"line {i} of another one\n" for i in range(10)))
    begin = time.monotonic()
    subprocess.run(command("whole"), check=True, stdout=subprocess.DEVNULL)
    length = time.monotonic() - begin
    doing: list[str] = []
    while len(doing) < kills and "finished" not in doing:  # on a busy machine a run may end before it is killed
        doing.append(killed_while("killed", len(doing) % 2 == 0, draw.uniform(0, 2 * length / kills)))
    assert "writing" in doing, doing
    subprocess.run(command("killed", "--resume"), check=True, stdout=subprocess.DEVNULL)
    last = f"checkpoint-{STEPS:08d}"
    for name in ("model.safetensors", f"{last}/model.safetensors", f"{last}/moments.safetensors"):
        assert Path("whole", name).read_bytes() == Path("killed", name).read_bytes(), name
    states = [json.loads(Path(out, last, "state.json").read_text()) for out in ("whole", "killed")]
    for key in ("step", "updates", "window", "skipped", "settings", "checksums"):
        assert states[0][key] == states[1][key], key
    assert log_of("whole") == log_of("killed"), "the logs differ"
    assert len(log_of("whole")) == STEPS + STEPS // 7 + 1
    left = list(Path("killed").glob("checkpoint-*.part"))
    assert not left, f"left: {left}"
    print(f"{len(doing)} runs: {doing.count('writing')} killed within the writing of a checkpoint, "
          f"{doing.count('training')} elsewhere; {length:.1f} s without any")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        main()
