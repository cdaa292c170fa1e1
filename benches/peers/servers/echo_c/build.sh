#!/bin/sh
# Builds one of the echo servers in C and C++: build.sh NAME FOLDER. The folder gets `server` and `version`.
set -eu
cd "$(dirname "$0")"
needs() {
    command -v "$1" >/dev/null || { echo "$1 is not installed" >&2; exit 1; }
    [ -e "/usr/include/$2" ] || { echo "$3 is not installed" >&2; exit 1; }
}
case $1 in
echo_libuv)
    needs cc uv.h libuv1-dev
    cc -O2 -Wall -Wextra -Werror -o "$2/server" libuv.c -luv
    echo "libuv $(dpkg-query -W -f '${Version}' libuv1-dev)" >"$2/version"
    ;;
echo_asio)
    needs c++ asio.hpp libasio-dev
    c++ -std=c++17 -O2 -Wall -Wextra -DASIO_STANDALONE -o "$2/server" asio.cpp -pthread
    echo "asio $(dpkg-query -W -f '${Version}' libasio-dev)" >"$2/version"
    ;;
esac
