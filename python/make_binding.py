"""Writes plsh/_binding.py from the public C headers.

The headers go through the C preprocessor and then to cffi, which writes a Python module that
knows every enum, struct and function in them (cffi's out-of-line ABI mode): nothing is declared
twice, so nothing can disagree, and neither Python's headers nor its ABI are involved.

    python make_binding.py --include ../include --output _binding.py -- cc -E -P
"""

import argparse
import pathlib
import subprocess
import tempfile

import cffi

# What the headers take from the system is known to cffi already, so these are empty here.
SYSTEM = ("stdbool.h", "stddef.h", "stdint.h")


def preprocess(include: pathlib.Path, command: list[str]) -> str:
    """The headers of libplsh and libplsh_lm as one text of plain C declarations."""
    with tempfile.TemporaryDirectory() as directory:
        empty = pathlib.Path(directory)
        for name in SYSTEM:
            (empty / name).write_text("")
        source = empty / "headers.c"
        source.write_text('#include "plsh/lm.h"\n')
        paths = ["-nostdinc", f"-I{empty}", f"-I{include}", "-DPLSH_API="]
        # Undefining __GNUC__ chooses the branches of standard C.
        run = subprocess.run(
            [*command, *paths, "-U__GNUC__", str(source)],
            check=True, capture_output=True, text=True,
        )
    return run.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--include", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("command", nargs="+", help="a C preprocessor")
    options = parser.parse_args()
    ffi = cffi.FFI()
    ffi.cdef(preprocess(options.include, options.command))
    ffi.set_source("plsh._binding", None)
    ffi.emit_python_code(str(options.output))


if __name__ == "__main__":
    main()
