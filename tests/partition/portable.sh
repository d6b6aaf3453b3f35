#!/usr/bin/env bash
# Builds the library for aarch64 and sees under qemu-user that partitions are the same there, to
# the bit. Usage: portable.sh SOURCE NATIVE_PROGRAM; skipped (77) without compiler and emulator.
set -euo pipefail
source=$1 native=$2
compiler=aarch64-linux-gnu-gcc emulator=qemu-aarch64
for tool in $compiler $emulator; do
    command -v "$tool" >/dev/null || { echo "skipped: no $tool"; exit 77; }
done
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT

cmake -S "$source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_SYSTEM_NAME=Linux \
    -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_C_COMPILER=$compiler -DPLSH_BUILD_CLI=OFF \
    -DPLSH_BUILD_TESTS=OFF -DPLSH_WITH_ARPACK=OFF -DPLSH_WITH_LM=OFF -DPLSH_WERROR=ON >/dev/null
cmake --build "$build" >"$build/log" || { cat "$build/log"; exit 1; }
$compiler -O2 -static -I "$source/include" "$source/tests/partition/portable.c" "$build/libplsh.a" -pthread \
    -lm -o "$build/portable"

"$native" >"$build/native.txt"
$emulator "$build/portable" >"$build/emulated.txt"
[ "$(wc -l <"$build/native.txt")" -gt 30 ]
diff "$build/native.txt" "$build/emulated.txt"
