"""plsh-mpi attend and bench over ranks: the files and lines of plsh.

    program_test.py PLSH PLSH_MPI MPIRUN.SH"""

import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

plsh, plsh_mpi, mpirun = sys.argv[1:4]
ARRAYS = ["out", "lse", "certify", "dq", "dk", "dv", "ddecay"]


def read(path):
    """shape, numbers of a float32 .npy file"""
    data = path.read_bytes()
    assert data[:6] == b"\x93NUMPY" and b"'<f4'" in data, path
    length = struct.unpack("<H", data[8:10])[0]
    header = eval(data[10 : 10 + length])  # a dict that this program wrote
    body = data[10 + length :]
    return header["shape"], struct.unpack(f"<{len(body) // 4}f", body)


def run(command, code=0):
    done = subprocess.run(command, text=True, capture_output=True, timeout=120)
    assert done.returncode == code, (command, done.returncode, done.stdout, done.stderr)
    return done


def attend(command, folder, arguments):
    paths = {name: folder / f"{name}.npy" for name in ARRAYS}
    options = [word for name, path in paths.items() for word in (f"--{name}", str(path))]
    done = run([*command, "attend", *arguments, *options, "--json", "--threads", "1"])
    return json.loads(done.stdout), {name: read(path) for name, path in paths.items()}


def compare(found, expected, what):
    assert found[0] == expected[0], (what, found[0], expected[0])
    for i, (a, b) in enumerate(zip(found[1], expected[1])):
        if what == "certify":  # a rank that holds few values has a smaller bound; pieces are cut otherwise
            assert a <= b + 1e-3 * (1 + abs(b)), (what, i, a, b)
        else:
            assert abs(a - b) <= 2e-5 * (1 + abs(b)), (what, i, a, b)


def check_attend(ranks, inputs, arguments):
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as many:
        command = [mpirun, str(ranks), plsh_mpi]
        said, expected = attend([plsh], Path(one), [*inputs, *arguments])
        over, found = attend(command, Path(many), [*inputs, *arguments])
        for name in ARRAYS:
            compare(found[name], expected[name], name)
        assert over["ranks"] == ranks and over["bytes_sent"] > 0, over
        assert [h["method"] for h in over["heads"]] == [h["method"] for h in said["heads"]]
        assert len(list(Path(many).iterdir())) == len(ARRAYS)


def main():
    with tempfile.TemporaryDirectory() as folder:
        shape, do = "4,600,16", Path(folder) / "do.npy"
        run([plsh, "attend", "--random", shape, "--seed", "5", "--out", str(do)])
        inputs = ["--random", shape, "--do", str(do), "--sigma", "3,8,20,40", "--causal"]
        for ranks, method in [(2, "exact"), (3, "plsh"), (4, "auto"), (2, "none"), (3, "window")]:
            check_attend(ranks, inputs, ["--method", method])
        for ranks in (2, 3):
            row = run([mpirun, str(ranks), plsh_mpi, "bench", "--n", "300", "--heads", "2", "--reps", "1", "--json",
                       "--pass", "forward,backward", "--methods", "dense,exact,plsh", "--threads", "1"])
            for line in json.loads(row.stdout)["rows"]:
                assert line["sent"] > 0 and (line["method"] == "plsh" or line["max_error"] < 1e-5), line
        # What the first rank does besides is no time that the others waited in the pass.
        row = run([mpirun, "2", plsh_mpi, "bench", "--n", "16384", "--heads", "2", "--dim", "16", "--reps", "1", "--json", "--pass",
                   "forward,backward", "--methods", "window", "--window", "16", "--sigma", "2", "--threads", "1"])
        for line in json.loads(row.stdout)["rows"]:
            assert 0 <= line["waited"] <= line["seconds"], line
        # One message, no matter which rank fails, and nothing is written.
        out = Path(folder) / "none.npy"
        done = run([mpirun, "3", plsh_mpi, "attend", "--q", "absent.npy", "--k", "x", "--v", "x", "--out", str(out)], 1)
        assert done.stderr.count("plsh attend: ") == 1 and "absent.npy" in done.stderr, done.stderr
        assert not out.exists()
        done = run([mpirun, "2", plsh_mpi, "bench", "--pass", "decode", "--n", "64"], 2)
        assert "decode runs in one process" in done.stderr, done.stderr
    print("ok")


main()
