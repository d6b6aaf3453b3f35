#!/usr/bin/env python3
"""experiments/compare.py on invented tables: the numbers of RESULT.md, and what is written by hand around them stays."""
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

here = Path(__file__).resolve().parent
compare = here / "../../experiments/compare.py"


def run(*arguments):
    return subprocess.run([sys.executable, str(compare), *map(str, arguments)], capture_output=True, text=True)


for wrong in ([], ["--check"], ["table-scratch", "table-lora"]):
    answer = run(*wrong)
    assert answer.returncode == 1 and "usage: compare.py" in answer.stderr and "Traceback" not in answer.stderr, answer.stderr


with tempfile.TemporaryDirectory() as scratch:
    folder = Path(scratch) / "table-scratch"
    shutil.copytree(here / "experiments/table-scratch", folder)
    run(folder).check_returncode()
    text = (folder / "RESULT.md").read_text()
    assert "| exact (3) | 96.50 ± 0.25 | 96.50 ± 0.25 | 96.50 ± 0.25 | 18.90 ± 0.01 | 18.80 ± 0.02 |" in text, text
    assert "Of the 3 orderings" in text and "3 hold here at ours, 3 of them by two deviations of the differences by seed." in text, text
    # 98.5 - 96.5 = 2 in units of sqrt(2) 0.25
    assert "| exact before original | +15.4 | +5.7 | +19.5 |" in text, text
    # By seed, window less exact: -0.5, -1.25, -1.25
    assert "| window (3) | -1.00 ± 0.43 | -1.00 ± 0.43 | -1.00 ± 0.43 |" in text, text
    # The summary is what the tests of the page read; its day stays while its numbers do.
    known = (here / "experiments/table-scratch/summary.tsv").read_text()
    assert (folder / "summary.tsv").read_text() == known, (folder / "summary.tsv").read_text()
    (folder / "RESULT.md").write_text("By hand.\n" + text + "More.\n")
    run(folder).check_returncode()
    again = (folder / "RESULT.md").read_text()
    assert again == "By hand.\n" + text + "More.\n", again
    (folder / "RESULT.md").write_text("No marks.\n")
    assert run(folder).returncode == 1 and (folder / "RESULT.md").read_text() == "No marks.\n"
    shutil.copy(here / "experiments/table-lora/runs.tsv", folder)
    day = known.splitlines()[0]
    (folder / "RESULT.md").unlink()
    run(folder).check_returncode()  # single runs
    single = (folder / "summary.tsv").read_text()
    assert day not in single and "original\t1\t20.0000\t-\t40.0000\t-" in single, single
    assert "| exact before original | +15.4 | -2.000 | -3.000 | no, one run |" in (folder / "RESULT.md").read_text()
print("compare: as expected")
