#!/bin/sh
# Prepares the echo server of Node: build.sh NAME FOLDER. The folder gets `server` and `version`.
set -eu
cd "$(dirname "$0")"
command -v node >/dev/null || { echo "node is not installed" >&2; exit 1; }
cp main.js "$2/"
printf '#!/bin/sh\nexec node "$(dirname "$0")/main.js" "$@"\n' >"$2/server"
chmod +x "$2/server"
echo "Node $(node --version | tr -d v)" >"$2/version"
