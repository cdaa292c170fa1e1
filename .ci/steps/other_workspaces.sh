# shellcheck shell=bash
# Steps for separate workspaces: the servers that we compare ourselves with, and the deployment
# example.

# peers_cargo COMMAND...
peers_cargo() (
    cd benches/peers
    CARGO_TARGET_DIR=$target/peers cargo "$@"
)

peers_test() {
    peers_cargo test --package measure --package raw_epoll --package common --package backends \
        --package slow_http --locked "$@"
}

# Of the servers, only those with our code are checked: the others change with their versions only,
# and `measure` builds what it measures.
peers_build() {
    local manifest options=()
    for manifest in $(grep -l '/crates/' benches/peers/servers/*/Cargo.toml); do
        options+=(--package "$(basename "$(dirname "$manifest")")")
    done
    [ ${#options[@]} -gt 0 ]
    peers_cargo check "${options[@]}" --locked
    peers_test --no-run
}

libc=$(uname -m)-unknown-linux-musl
export libc

# Whether the program of the container file can be built: static, with libpq and OpenSSL from
# source.
builds_static() {
    has musl-gcc && has_targets "$libc"
}

# deployment_cargo COMMAND...: builds the program as the container file does if possible, so that
# all tests run it, and otherwise with the system's libpq. Neither its Rust nor its C is optimised.
deployment_cargo() (
    local command=$1 options=(--locked)
    shift
    export "CFLAGS_${libc//-/_}=-O0"
    ! builds_static || options+=(--features bundled --target "$libc")
    cd examples/deployment
    CARGO_TARGET_DIR=$target/deployment cargo "$command" "${options[@]}" "$@"
)

deployment_build() {
    deployment_cargo test --no-run
    deployment_cargo clippy --all-targets -- -D warnings
}

# The whole app behind haproxy, with PostgreSQL and Redis.
deployment_test() {
    # A test runs the static program in an empty root folder.
    ! builds_static || export STATIC_PROGRAM=$target/deployment/$libc/debug/deployment
    # The step of the tests has built gust. If it is missing, a test builds it.
    if [ -x "$target/debug/gust" ]; then
        export GUST=$target/debug/gust
    fi
    deployment_cargo test
}

deployment_builds() {
    builds_static \
        || absent "a static deployment" "musl-tools, or the standard library for musl, is missing"
    if builds_static || has pg_config; then
        step 900 "the deployment builds" deployment_build
    else
        skip "the deployment" "libpq is not installed"
    fi
}

deployment_runs() {
    ! { builds_static || has pg_config; } \
        || step 900 "the deployment: two instances behind haproxy" deployment_test
}
