"""Makes the environment in which the peers of language models run: llama.cpp and transformers.

llama-cpp-python has no wheels: llama.cpp is compiled for this processor, without its parts for images,
which takes ten minutes. The sources of its converter are kept beside the environment."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tarfile
import venv

LLAMA = "llama-cpp-python==0.3.36"
PACKAGES = ("numpy", "torch==2.13.0", "transformers>=5,<6", "safetensors", "pyyaml", "requests")
HOME = pathlib.Path(__file__).resolve().parent.parent / "build" / "venv-lm"
LLAMA_SOURCES = HOME / "llama.cpp"


def run_pip(*arguments: str) -> None:
    environment = {"CMAKE_BUILD_PARALLEL_LEVEL": "2", "CMAKE_ARGS": "-DLLAVA_BUILD=OFF", **os.environ}
    subprocess.run([HOME / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check",
                    *arguments], check=True, env=environment)


def unpack_sources(archive: pathlib.Path) -> None:
    """Unpacks llama.cpp's converter from the sdist."""
    with tarfile.open(archive) as tar:
        for member in tar:
            head, found, tail = member.name.partition("/vendor/llama.cpp/")
            if found and member.isfile() and tail.startswith(("conversion/", "gguf-py/gguf/", "convert_hf")):
                member.name = tail
                tar.extract(member, LLAMA_SOURCES, filter="data")


def install() -> None:
    """Makes the environment if it does not exist."""
    wanted = " ".join((LLAMA, *PACKAGES))
    ready = HOME / "ready"
    if ready.exists() and ready.read_text(encoding="utf-8") == wanted:
        return
    print(f"{HOME}: installing {wanted}; llama.cpp is compiled", file=sys.stderr)
    venv.create(HOME, with_pip=True)
    downloads = HOME / "download"
    run_pip("download", "--no-deps", "--no-binary", ":all:", "--dest", str(downloads), LLAMA)
    archive = next(downloads.glob("*.tar.gz"))
    unpack_sources(archive)
    run_pip("install", str(archive), *PACKAGES)
    ready.write_text(wanted, encoding="utf-8")


def enter() -> None:
    """Restarts this program in the environment."""
    if pathlib.Path(sys.prefix) == HOME:
        return
    try:
        install()
    except subprocess.CalledProcessError as problem:
        sys.exit(f"{sys.argv[0]}: skipped, the peers cannot be installed: {problem}")
    python = HOME / "bin" / "python"
    os.execv(python, [str(python), *sys.argv])
