#!/bin/sh
# Installs the Debian packages that plsh is built, tested and plotted with. Does nothing where
# all of them are there. This is the one place that names them.
set -eu

packages="
    gcc clang cmake ninja-build make pkg-config
    libomp-dev libopenblas-dev libarpack2-dev librandom123-dev
    libjansson-dev libpcre2-dev libutf8proc-dev
    libcmocka-dev libgsl-dev
    clang-format clang-tidy shellcheck
    gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
    gnuplot-nox librsvg2-bin man-db groff-base
    python3 python3-venv python3-dev
"

missing=
for package in $packages; do
    status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
    [ "$status" = "install ok installed" ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

echo "installing:$missing"
sudo=
[ "$(id -u)" -eq 0 ] || sudo=sudo
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # a list of words
{
    $sudo apt-get -qq update
    $sudo apt-get -qq -y --no-install-recommends install $missing >/dev/null
}
