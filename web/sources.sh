#!/bin/sh
# Fetches Debian's sources of the libraries that language models need, for the page: FOLDER/jansson-source, ..
# Does nothing where they are there. apt gives their addresses and checksums; its lists are the folder's own, so this needs no
# root. Without apt or a network it says so, and the page is made without language models.
# usage: sources.sh FOLDER
set -eu
mkdir -p "$1"
cd "$1"
libraries="jansson pcre2 utf8proc"
missing=
for name in $libraries; do
    [ -d "$name-source" ] || missing="$missing $name"
done
[ -n "$missing" ] || exit 0

give_up() { echo "the page is made without language models: $1" && exit 0; }
command -v apt-get >/dev/null || give_up "no apt-get here"
mkdir -p apt/lists/partial apt/cache/archives/partial apt/sources
for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
    [ -f "$file" ] || continue
    sed 's/^Types: deb$/Types: deb-src/; s/^deb /deb-src /' "$file" >"apt/sources/$(basename "$file")"
done
[ ! -f apt/sources/sources.list ] || mv apt/sources/sources.list apt/sources/debian.list
apt() { apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$PWD/apt/sources" \
    -o Dir::State::lists="$PWD/apt/lists" -o Dir::Cache="$PWD/apt/cache" "$@"; }
apt update || give_up "the lists of sources cannot be read"
for name in $missing; do
    line=$(apt --print-uris --download-only source "$name" | grep -F '.orig.tar.' | grep -v '\.asc' | tail -n 1)
    [ -n "$line" ] || give_up "no sources of $name"
    address=${line#\'} && address=${address%%\'*}
    # shellcheck disable=SC2086 # 'ADDRESS' FILE SIZE CHECKSUM
    set -- $line
    /usr/lib/apt/apt-helper -qq download-file "$address" "$PWD/$2" "$4" >/dev/null || give_up "$name cannot be fetched"
    mkdir "part-$name"
    tar -xf "$2" -C "part-$name"
    mv "part-$name"/* "$name-source" && rmdir "part-$name" # complete, or not there
    rm "$2"
done
rm -r apt
