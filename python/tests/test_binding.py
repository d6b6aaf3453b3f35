"""The binding has everything the headers declare, and the package says its version once."""

import importlib.metadata
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import plsh
from conftest import TOP
from plsh._library import ffi, lib, models

INCLUDE = TOP / "include"


def headers(name):
    """What plsh.h (libplsh) or lm.h (libplsh_lm) includes."""
    text = (INCLUDE / "plsh" / name).read_text()
    return {x for x in re.findall(r'#include "(.*)"', text) if x != "plsh/plsh.h"}


@pytest.mark.skipif(not INCLUDE.is_dir(), reason="the headers are not beside the tests")
@pytest.mark.parametrize("name, library, most", [("plsh.h", lambda: lib, 40), ("lm.h", models, 90)])
def test_every_function_is_bound_and_found(name, library, most):
    try:
        library = library()
    except plsh.UnsupportedError as missing:
        pytest.skip(str(missing))
    text = "\n".join(re.sub(r"/\*.*?\*/", "", (INCLUDE / x).read_text(), flags=re.S)
                     for x in headers(name))
    names = re.findall(r"PLSH_API[^;(]*?\b(plsh_\w+)\(", text)
    assert len(names) > most
    for function in names:
        assert ffi.typeof(getattr(library, function)).kind == "function", function


def test_version():
    assert plsh.__version__ == importlib.metadata.version("plsh")


def test_library_beside_the_binding(tmp_path):
    """As an editable install has it: the sources in one folder, what was built in another."""
    sources, built = tmp_path / "src" / "plsh", tmp_path / "built" / "plsh"
    sources.mkdir(parents=True)
    built.mkdir(parents=True)
    for path in pathlib.Path(plsh.__file__).parent.glob("*.py"):
        if path.name != "_binding.py":
            shutil.copy(path, sources)
    for path in pathlib.Path(plsh._binding.__file__).parent.iterdir():
        if path.name == "_binding.py" or path.name.startswith("libplsh."):
            shutil.copy(path, built)
    code = f"""
import importlib.abc, importlib.util, sys
class Redirect(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "plsh._binding":
            return importlib.util.spec_from_file_location(name, {str(built / "_binding.py")!r})
sys.path.insert(0, {str(sources.parent)!r})
sys.meta_path.insert(0, Redirect())
import plsh
assert plsh.__file__.startswith({str(sources)!r}), plsh.__file__
print(plsh.alibi(4.0)(4))
"""
    run = subprocess.run([sys.executable, "-S", "-c", f"import sys; sys.path = {sys.path!r}\n{code}"],
                         capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("0.367")
