"""What the package carries: an sdist that builds on its own."""

import pathlib
import re
import sys
import tarfile

import pytest

from conftest import TOP

# scripts/test-python installs from an sdist where it has torch.
SDISTS = sorted((pathlib.Path(sys.prefix) / "sdist").glob("plsh-*.tar.gz"))


@pytest.mark.skipif(not SDISTS, reason="the package was not installed from an sdist")
def test_sdist_has_what_it_builds_from():
    with tarfile.open(SDISTS[-1]) as archive:
        files = {x.name.split("/", 1)[1]: x for x in archive.getmembers() if x.isfile()}
        assert not [x.name for x in archive.getmembers() if x.issym()]
        philox = archive.extractfile(files["random123/Random123/philox.h"]).read().decode()
        array = archive.extractfile(files["random123/Random123/array.h"]).read().decode()
    assert "Copyright" in philox  # the licence asks for it
    for name in re.findall(r'#include "(.*)"', philox + array):
        assert f"random123/Random123/{name}" in files, name
    for needed in ("LICENSE", "THIRD-PARTY.txt", "libplsh/cli/main.c", "libplsh/bench/roof.c",
                   "libplsh/experiments/figure-norms/published.tsv", "libplsh/src/model/session.c"):
        assert needed in files, needed
    assert not [x for x in files if x.startswith("libplsh/bench/results")]
    assert {x.name for x in (TOP / "python/src/plsh").glob("*.py")} <= {
        pathlib.Path(x).name for x in files if x.startswith("src/plsh/")}
