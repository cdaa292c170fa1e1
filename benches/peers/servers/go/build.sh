#!/bin/sh
# Builds one of the Go servers: build.sh NAME FOLDER. The folder gets `server` and `version`.
set -eu
cd "$(dirname "$0")"
go=$(command -v go || ls /usr/local/go/bin/go 2>/dev/null) || { echo "go is not installed" >&2; exit 1; }
case $1 in
go_net_http) package=net_http ;;
go_fasthttp) package=fasthttp ;;
esac
"$go" build -trimpath -ldflags '-s -w' -o "$2/server" "./$package"
if [ "$package" = fasthttp ]; then
    "$go" list -m -f 'fasthttp {{.Version}}' github.com/valyala/fasthttp | tr -d v >"$2/version"
else
    "$go" env GOVERSION | sed 's/^go/Go /' >"$2/version"
fi
