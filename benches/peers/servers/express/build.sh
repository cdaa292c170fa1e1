#!/bin/sh
# Installs Express beside its server: build.sh NAME FOLDER. The folder gets `server` and `version`.
own=$(dirname "$0")
exec "$own/../node_http/install.sh" "$own" "$2" express Express
