#!/usr/bin/env bash
# Builds library and program as a part of another project with nothing but a C compiler, CMake and
# Random123: without pkg-config, and so without language models, and without OpenBLAS, ARPACK and MPI. They
# say so where those are asked for. Usage: minimal.sh SOURCE COMPILER
set -euo pipefail
source=$1 compiler=$2
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT

cmake -S "$source/tests/install/subproject" -B "$build" -G Ninja -DPLSH_SOURCE="$source" \
    -DCMAKE_C_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=Debug -DPLSH_BUILD_CLI=ON \
    -DPLSH_WITH_ARPACK=OFF -DPLSH_WITH_OPENBLAS=OFF -DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON \
    -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON >"$build/log"
cmake --build "$build" --target all plsh >"$build/log" || { cat "$build/log"; exit 1; }
program=$(find "$build" -name plsh -type f -perm -u+x)
if ldd "$build"/plsh/libplsh.so "$program" | grep -E 'arpack|blas|gsl|jansson|mpi|pcre|utf8'; then
    exit 1
fi
for library in plsh plsh_static; do "$build/subproject_$library"; done
"$program" bench --n 16 --dim 8 --heads 1 --reps 1 --methods dense | grep 'roof: unknown'
