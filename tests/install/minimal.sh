#!/usr/bin/env bash
# Builds the library alone, without ARPACK, and sees that it says so where that is asked for.
# Usage: minimal.sh SOURCE COMPILER
set -euo pipefail
source=$1 compiler=$2
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT

cmake -S "$source" -B "$build" -G Ninja -DCMAKE_C_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=Debug \
    -DPLSH_BUILD_CLI=OFF -DPLSH_BUILD_TESTS=OFF -DPLSH_WITH_ARPACK=OFF -DPLSH_WITH_LM=OFF >/dev/null
cmake --build "$build" >/dev/null
if ldd "$build/libplsh.so" | grep -E 'arpack|blas|gsl|jansson'; then exit 1; fi
"$compiler" -I "$source/include" "$source/tests/install/consumer/minimal.c" -L "$build" -lplsh \
    -o "$build/minimal"
LD_LIBRARY_PATH=$build "$build/minimal"
