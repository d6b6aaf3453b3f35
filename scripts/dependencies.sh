#!/bin/sh
# Installs the Debian packages that targets of the Makefile need (run, test, lint, clang, experiments, web;
# without an argument: all), where it may; otherwise says what is missing and which part needs it, and
# leaves it at that: a build leaves out what it does not find. Does nothing where all of them are
# there. This is the one place that names them. `--list TARGET..` only prints their names.
# On a bare Debian 12 `make run` downloads 120 MB, all of them together 470 MB.
set -eu

# TARGETS | PART: PACKAGES
parts() {
    cat <<'EOF'
run test lint clang experiments | the library and the program: gcc libc6-dev cmake make librandom123-dev
run test lint clang experiments | faster builds: ninja-build
test | builds that were made before (.ci/run): ccache
run test lint clang experiments | spectral norms: libarpack2
run test lint clang experiments | language models: pkg-config libjansson-dev libpcre2-dev libutf8proc-dev
run test lint clang | plsh serve: libmicrohttpd-dev
run test experiments | the roof of plsh bench: libopenblas0
run test experiments | plots: gnuplot-nox
run experiments | plots of make run as PNG: librsvg2-bin python3
test lint clang experiments | attention over ranks of MPI: openmpi-bin libopenmpi-dev
test clang | tests: libcmocka-dev libgsl-dev g++ man-db groff-base python3
test | tests of the page of plsh report: chromium
test | tests on other processors: gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
test lint clang | tests by clang, its sanitizers and its fuzzer: clang libclang-rt-dev
test experiments | the Python package: python3 python3-venv python3-dev
lint | lint: clang-format clang-tidy shellcheck python3
web | the page for browsers: cmake ninja-build clang lld llvm wasi-libc libclang-rt-dev-wasm32 librandom123-dev python3
EOF
}

list=
if [ "${1:-}" = --list ]; then list=1 && shift; fi
all="run test lint clang experiments web"
targets=${*:-$all}
for target in $targets; do
    case " $all " in
    *" $target "*) ;;
    *) echo "$0: $target: one of $all" >&2 && exit 2 ;;
    esac
done

# PART: PACKAGES of the targets.
wanted() {
    parts | while IFS='|' read -r users part; do
        for target in $targets; do
            case " $users " in
            *" $target "*) echo "${part# }" && break ;;
            esac
        done
    done
}

if [ -n "$list" ]; then
    wanted | sed 's/.*: //' | tr ' ' '\n' | sort -u
    exit 0
fi

is_missing() {
    status=$(dpkg-query -W -f '${Status}' "$1" 2>/dev/null || true)
    [ "$status" != "install ok installed" ]
}

missing=
for package in $(wanted | sed 's/.*: //'); do
    if is_missing "$package"; then missing="$missing $package"; fi
done
[ -n "$missing" ] || exit 0

install() {
    command -v apt-get >/dev/null || return 1
    sudo=
    if [ "$(id -u)" -ne 0 ]; then
        sudo=sudo
        # May it install without asking, or is there a terminal to ask on?
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
    wanted | while IFS=: read -r part packages; do
        lacking=
        for package in $packages; do
            if is_missing "$package"; then lacking="$lacking $package"; fi
        done
        [ -z "$lacking" ] || echo "  for $part:$lacking"
    done
fi
