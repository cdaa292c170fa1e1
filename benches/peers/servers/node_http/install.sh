#!/bin/sh
# Installs a framework beside its server: install.sh SERVER FOLDER PACKAGE NAME. SERVER is the folder
# of the server's source. FOLDER gets `server` and `version`.
set -eu
cd "$1"
for program in node npm; do
    command -v $program >/dev/null || { echo "$program is not installed" >&2; exit 1; }
done
cp package.json package-lock.json main.js ../node_http/common.js "$2/"
cd "$2"
# What is there already is left as it is, so that the network is needed once.
if ! cmp -s package-lock.json installed-lock.json; then
    npm ci --no-audit --no-fund --silent
    cp package-lock.json installed-lock.json
fi
printf '#!/bin/sh\nexec env NODE_ENV=production node "$(dirname "$0")/main.js" "$@"\n' >server
chmod +x server
echo "$4 $(node -p "require('$3/package.json').version")" >version
