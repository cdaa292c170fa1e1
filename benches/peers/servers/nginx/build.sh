#!/bin/sh
# Prepares nginx: build.sh NAME FOLDER. The folder gets `server` and `version`.
set -eu
cd "$(dirname "$0")"
nginx=$(command -v nginx || ls /usr/sbin/nginx 2>/dev/null) || { echo "nginx is not installed" >&2; exit 1; }
cp nginx.conf "$2/"
cat >"$2/server" <<END
#!/bin/sh
# Each start has a folder of its own, so that two do not share a pid file.
folder=\$(mktemp -d "\$(dirname "\$0")/run.XXXXXX")
sed "s/ADDRESS/\$1/" "\$(dirname "\$0")/nginx.conf" >"\$folder/nginx.conf"
exec "$nginx" -p "\$folder" -c "\$folder/nginx.conf" -e stderr
END
chmod +x "$2/server"
rm -rf "$2"/run.*
"$nginx" -v 2>&1 | sed 's|.*nginx/|nginx |' >"$2/version"
