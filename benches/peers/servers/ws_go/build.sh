#!/bin/sh
# Builds the WebSocket server on Go: build.sh NAME FOLDER. The folder gets `server` and `version`.
set -eu
cd "$(dirname "$0")"
go=$(command -v go || ls /usr/local/go/bin/go 2>/dev/null) || { echo "go is not installed" >&2; exit 1; }
"$go" build -trimpath -ldflags '-s -w' -o "$2/server" .
"$go" list -m -f 'gorilla/websocket {{.Version}}' github.com/gorilla/websocket | tr -d v >"$2/version"
