# shellcheck shell=bash
# Programs beside Rust that the tests use: which are present, and how the others are installed.

has() {
    command -v "$1" >/dev/null 2>&1
}

has_browser() {
    has chromium || has chromium-browser || has google-chrome || has chrome
}

# Debian does not put the server's programs into the path.
has_postgres() {
    compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null
}

has_nightly() {
    has rustup && rustup run nightly rustc --version >/dev/null 2>&1
}

has_program() {
    case $1 in
        chromium) has_browser ;;
        postgresql) has_postgres ;;
        nightly) has_nightly ;;
        *) has "$1" ;;
    esac
}

# Installs the programs that the tests need, and exports the list of those that are present: a test
# that skips although its program is present fails.
clients() {
    local missing=() program package
    has wrk || missing+=(wrk)
    has ab || missing+=(apache2-utils)
    has curl || missing+=(curl)
    has openssl || missing+=(openssl)
    has redis-server || missing+=(redis-server)
    has haproxy || missing+=(haproxy)
    has nginx || missing+=(nginx)
    has prometheus || missing+=(prometheus)
    has pg_config || missing+=(libpq-dev)
    has_postgres || missing+=(postgresql)
    has musl-gcc || missing+=(musl-tools)
    has_browser || missing+=(chromium)
    has script || missing+=(bsdutils)
    has setpriv || missing+=(util-linux)
    has systemd-analyze || missing+=(systemd)
    if [ ${#missing[@]} -gt 0 ] && [ "$(id -u)" -eq 0 ] && has apt-get; then
        timeout 180 apt-get update -qq >"$logs/apt.log" 2>&1 || true
        # One by one, so that a missing package does not prevent the others.
        for package in "${missing[@]}"; do
            DEBIAN_FRONTEND=noninteractive timeout 300 \
                apt-get install -y -qq --no-install-recommends "$package" \
                >>"$logs/apt.log" 2>&1 || true
        done
    fi
    export FILOPLUME_CI_HAS=""
    for program in wrk ab curl openssl redis-server haproxy nginx prometheus postgresql pg_config \
        chromium script setpriv systemd-analyze nightly; do
        if has_program "$program"; then
            FILOPLUME_CI_HAS+=" $program"
        else
            absent "$program" "not installed; tests that need it are skipped"
        fi
    done
}

# Installs what rustup has for the steps. This comes first, because two rustups at once would get in
# each other's way. A step that misses something says so.
toolchains() {
    has rustup || return 0
    timeout 300 rustup target add $unixes $windows "$libc" >"$logs/targets.log" 2>&1 || true
    rustup run "$oldest" rustc --version >/dev/null 2>&1 \
        || timeout 120 rustup toolchain install "$oldest" --profile minimal --no-self-update \
            >"$logs/oldest.log" 2>&1 || true
}

# has_targets SYSTEM...: whether the standard library is there for all of them.
has_targets() {
    local system folder
    folder=$(rustc --print sysroot)/lib/rustlib
    for system in "$@"; do
        [ -d "$folder/$system/lib" ] || return 1
    done
}

# Installs the Python package by which a test decodes exported spans, below the target folder.
# Without it, the test is skipped.
otlp_python() {
    local venv=$target/otlp-python
    if [ ! -x "$venv/bin/python" ]; then
        timeout 60 python3 -m venv "$venv" >"$logs/otlp-python.log" 2>&1 || return 0
    fi
    timeout 180 "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        'opentelemetry-proto>=1.30,<2' >>"$logs/otlp-python.log" 2>&1 || return 0
    export OTLP_PYTHON=$venv/bin/python
}
