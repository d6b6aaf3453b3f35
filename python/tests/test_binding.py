"""The binding has everything the headers declare, and the package says its version once."""

import importlib.metadata
import re

import pytest

import plsh
from conftest import TOP
from plsh._library import ffi, lib

ALL = TOP / "include" / "plsh" / "plsh.h"  # libplsh's; libplsh_lm is not in the package
HEADERS = [TOP / "include" / x for x in re.findall(r'#include "(.*)"', ALL.read_text())] \
    if ALL.exists() else []


@pytest.mark.skipif(not HEADERS, reason="the headers are not beside the tests")
def test_every_function_is_bound_and_found():
    text = "\n".join(re.sub(r"/\*.*?\*/", "", x.read_text(), flags=re.S) for x in HEADERS)
    names = re.findall(r"PLSH_API[^;(]*?\b(plsh_\w+)\(", text)
    assert len(names) > 40
    for name in names:
        assert ffi.typeof(getattr(lib, name)).kind == "function", name


def test_version():
    assert plsh.__version__ == importlib.metadata.version("plsh")
