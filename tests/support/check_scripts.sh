#!/usr/bin/env bash
# scripts/dependencies.sh gives every target its own packages; scripts/run-model needs no Python.
# Usage: check_scripts.sh SOURCE PLSH
set -euo pipefail
source=$1
plsh=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*" >&2 && exit 1; }

names() { "$source/scripts/dependencies.sh" --list "$@"; }
names run >"$work/run"
for package in gcc libc6-dev cmake librandom123-dev libpcre2-dev gnuplot-nox; do
    grep -qx "$package" "$work/run" || fail "make run does not install $package"
done
for package in chromium qemu-user gcc-aarch64-linux-gnu clang clang-tidy libgsl-dev libopenmpi-dev; do
    if grep -qx "$package" "$work/run"; then fail "make run installs $package"; fi
    names | grep -qx "$package" || fail "$package belongs to no target"
done
names test | grep -qx chromium || fail "make test does not install chromium"
names lint | grep -qx shellcheck || fail "make lint does not install shellcheck"
diff <(names) <(names run test lint clang experiments web) || fail "all is not all targets"
if names nothing 2>"$work/said"; then fail "an unknown target is taken"; fi
grep -q "nothing: one of run test lint clang experiments web" "$work/said" || fail "$(cat "$work/said")"
while read -r target; do
    names "$target" >/dev/null || fail "the Makefile has a target of no packages: $target"
done < <(sed -n 's/.*dependencies-\([a-z]*\) .*/\1/p' "$source/Makefile")

# Only these programs are found.
python3 "$source/tests/support/write_model.py" "$work/model"
mkdir "$work/bin"
for program in bash realpath dirname mkdir head grep sed cat; do
    ln -s "$(command -v "$program")" "$work/bin/$program"
done
PATH="$work/bin" PLSH="$plsh" OUT="$work/out" "$source/scripts/run-model" "$work/model" \
    >"$work/shown" 2>"$work/said" || fail "run-model: $(cat "$work/said")"
# Four attentions, each with five numbers.
rows=$(grep -Ec '^(original|exact|window|plsh).* [0-9.e+-]+ +[0-9.e+-]+ +[0-9.e+-]+ +[0-9.e+-]+ +[0-9.e+-]+$' "$work/shown")
[ "$rows" -eq 4 ] || fail "run-model: $rows rows of 4: $(cat "$work/shown" "$work/said")"
