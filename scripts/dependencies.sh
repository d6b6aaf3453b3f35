#!/bin/sh
# Installs the Debian packages that plsh is built, tested and plotted with, where it may; otherwise
# says what is missing and which part needs it, and leaves it at that: a build leaves out what it does
# not find. Does nothing where all of them are there. This is the one place that names them.
set -eu

parts() {
    cat <<'EOF'
the library and the program: gcc cmake make librandom123-dev
faster builds: ninja-build
spectral norms: libarpack2
language models: pkg-config libjansson-dev libpcre2-dev libutf8proc-dev
attention over ranks of MPI: openmpi-bin libopenmpi-dev
the roof of plsh bench: libopenblas0
plots of make run: gnuplot-nox librsvg2-bin
tests: libcmocka-dev libgsl-dev g++ man-db groff-base python3
tests of the page of plsh report: chromium
tests on other processors: gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
tests by clang, its sanitizers and its fuzzer: clang libclang-rt-dev
the Python package: python3 python3-venv python3-dev
lint: clang-format clang-tidy shellcheck
EOF
}

is_missing() {
    status=$(dpkg-query -W -f '${Status}' "$1" 2>/dev/null || true)
    [ "$status" != "install ok installed" ]
}

missing=
for package in $(parts | sed 's/.*: //'); do
    if is_missing "$package"; then missing="$missing $package"; fi
done
[ -n "$missing" ] || exit 0

install() {
    command -v apt-get >/dev/null || return 1
    sudo=
    if [ "$(id -u)" -ne 0 ]; then
        sudo=sudo
        # May it, without asking, or is there somebody to ask?
        sudo -n true 2>/dev/null || { command -v sudo >/dev/null && [ -t 0 ]; } || return 1
    fi
    echo "installing:$missing"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086 # a list of words
    $sudo apt-get -qq update &&
        $sudo apt-get -qq -y --no-install-recommends install $missing >/dev/null
}

if ! install; then
    echo "not installed here, by the names of Debian's packages:"
    parts | while IFS=: read -r part packages; do
        lacking=
        for package in $packages; do
            if is_missing "$package"; then lacking="$lacking $package"; fi
        done
        [ -z "$lacking" ] || echo "  for $part:$lacking"
    done
fi
