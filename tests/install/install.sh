#!/usr/bin/env bash
# Installs a build into an empty folder and uses it from there as another project does: through
# find_package and pkg-config, shared and static. Usage: install.sh BUILD SOURCE COMPILER
set -euo pipefail
build=$1 source=$2 compiler=$3
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT

cmake --install "$build" --prefix "$prefix/plsh" >/dev/null
mv "$prefix/plsh" "$prefix/moved" # what was installed must not know where that was
root=$prefix/moved
libraries=$(dirname "$(find "$root" -name plsh.pc)")/..

echo "-- files"
version=$("$root/bin/plsh" --version | cut -d' ' -f2)
for file in bin/plsh include/plsh/plsh.h share/man/man1/plsh.1 share/man/man1/plsh-info.1 \
    share/bash-completion/completions/plsh share/plsh/experiments/figure-output/summary.tsv; do
    test -s "$root/$file" || { echo "not installed: $file"; exit 1; }
done
for header in "$source"/include/plsh/*.h; do
    if [ "$header" = "$source/include/plsh/mpi.h" ] && [ ! -e "$libraries/pkgconfig/plsh_mpi.pc" ]; then
        continue
    fi
    cmp "$header" "$root/include/plsh/$(basename "$header")"
done
MANWIDTH=80 man --warnings -l "$root/share/man/man1/plsh.1" >/dev/null

echo "-- headers, each on its own, in C and C++"
test -e "$libraries/pkgconfig/plsh_mpi.pc" || test ! -e "$root/include/plsh/mpi.h"
for header in "$root"/include/plsh/*.h; do
    case $header in
    */mpi.h) # by the compiler that knows where MPI's own header is
        # (which also names libraries to link: clang would warn that it does not use them)
        OMPI_CC=$compiler MPICH_CC=$compiler mpicc -std=c17 -Wall -Wextra -Wpedantic -Werror \
            -Wno-unused-command-line-argument -fsyntax-only -I "$root/include" -x c "$header"
        continue
        ;;
    esac
    "$compiler" -std=c17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I "$root/include" \
        -x c "$header"
    if command -v c++ >/dev/null; then
        c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I "$root/include" \
            -x c++ "$header"
    fi
done

echo "-- find_package"
cmake -S "$source/tests/install/consumer" -B "$prefix/consumer" -DCMAKE_PREFIX_PATH="$root" \
    -DCMAKE_C_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$prefix/consumer" >/dev/null
for library in plsh plsh_static plsh_shared; do "$prefix/consumer/consumer_$library"; done
if [ -e "$libraries/pkgconfig/plsh_lm.pc" ]; then
    for library in plsh_lm plsh_lm_static plsh_lm_shared; do
        "$prefix/consumer/consumer_$library"
    done
fi

if [ -e "$libraries/pkgconfig/plsh_mpi.pc" ]; then
    for library in plsh_mpi plsh_mpi_static plsh_mpi_shared; do
        "$source/tests/mpi/mpirun.sh" 2 "$prefix/consumer/consumer_$library"
    done
fi

echo "-- find_package in C++ alone"
if command -v c++ >/dev/null; then
    cmake -S "$source/tests/install/consumer_cxx" -B "$prefix/cxx" -DCMAKE_PREFIX_PATH="$root" \
        -DCMAKE_BUILD_TYPE=Release >/dev/null
    cmake --build "$prefix/cxx" >/dev/null
    for library in plsh_static plsh_shared; do "$prefix/cxx/consumer_$library"; done
fi

echo "-- pkg-config"
export PKG_CONFIG_PATH=$libraries/pkgconfig LD_LIBRARY_PATH=$libraries
[ "$(pkg-config --modversion plsh)" = "$version" ]
# shellcheck disable=SC2046 # lists of flags
{
    "$compiler" "$source/tests/install/consumer/consumer.c" $(pkg-config --cflags --libs plsh) \
        -o "$prefix/shared"
    "$compiler" "$source/tests/install/consumer/consumer.c" $(pkg-config --cflags plsh) \
        $(pkg-config --static --libs plsh | sed 's/-lplsh/-l:libplsh.a/') -o "$prefix/static"
}
"$prefix/shared"
LD_LIBRARY_PATH='' "$prefix/static"
if [ -e "$libraries/pkgconfig/plsh_lm.pc" ]; then
    # shellcheck disable=SC2046 # lists of flags
    {
        "$compiler" "$source/tests/install/consumer/consumer_lm.c" \
            $(pkg-config --cflags --libs plsh_lm) -o "$prefix/lm-shared"
        "$compiler" "$source/tests/install/consumer/consumer_lm.c" $(pkg-config --cflags plsh_lm) \
            $(pkg-config --static --libs plsh_lm |
                sed 's/-lplsh_lm/-l:libplsh_lm.a/; s/-lplsh /-l:libplsh.a /g') -o "$prefix/lm-static"
    }
    "$prefix/lm-shared"
    LD_LIBRARY_PATH='' "$prefix/lm-static"
fi
if [ -e "$libraries/pkgconfig/plsh_mpi.pc" ]; then
    # shellcheck disable=SC2046 # lists of flags
    OMPI_CC=$compiler MPICH_CC=$compiler mpicc "$source/tests/install/consumer/consumer_mpi.c" \
        $(pkg-config --cflags --libs plsh_mpi) -o "$prefix/mpi-shared"
    "$source/tests/mpi/mpirun.sh" 2 "$prefix/mpi-shared"
fi
! LD_LIBRARY_PATH='' "$prefix/shared" 2>/dev/null # it is the shared library that it uses
