#!/bin/sh
# Prepares nginx for a gigabyte: build.sh NAME FOLDER. The folder gets `server` and `version`. The
# server sends FILE, stores uploads at STORE, and speaks TLS if CERTIFICATE and KEY are in its
# environment.
set -eu
cd "$(dirname "$0")"
nginx=$(command -v nginx || ls /usr/sbin/nginx 2>/dev/null) || { echo "nginx is not installed" >&2; exit 1; }
cp nginx.conf "$2/"
cat >"$2/server" <<END
#!/bin/sh
folder=\$(mktemp -d "\$(dirname "\$0")/run.XXXXXX")
tls=
certificate=
if [ -n "\${CERTIFICATE:-}" ]; then
    tls=ssl
    certificate="ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate \$CERTIFICATE; ssl_certificate_key \$KEY;"
fi
sed -e "s/ADDRESS/\$1/" -e "s/TLS/\$tls/" -e "s#CERTIFICATE#\$certificate#" -e "s#FILE#\$FILE#" -e "s#STORE#\$STORE#" \\
    "\$(dirname "\$0")/nginx.conf" >"\$folder/nginx.conf"
exec "$nginx" -p "\$folder" -c "\$folder/nginx.conf" -e stderr
END
chmod +x "$2/server"
rm -rf "$2"/run.*
"$nginx" -v 2>&1 | sed 's|.*nginx/|nginx |' >"$2/version"
