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

peers_build() {
    peers_cargo check --workspace --locked
    peers_test --no-run
}

libc=$(uname -m)-unknown-linux-musl
static_program=$target/deployment/$libc/debug/deployment
export libc static_program

# Builds the program of the container file, with libpq and OpenSSL from source, but not optimised. A
# test runs it in an empty root folder.
static_deployment() {
    cd examples/deployment
    cargo build --locked --features bundled --target "$libc" --target-dir "$target/deployment"
}

# deployment_cargo COMMAND...
deployment_cargo() (
    cd examples/deployment
    CARGO_TARGET_DIR=$target/deployment cargo "$@"
)

deployment_build() {
    deployment_cargo clippy --all-targets --locked -- -D warnings
    deployment_cargo test --locked --no-run
}

# The whole app behind haproxy, with PostgreSQL and Redis.
deployment_test() {
    if [ -x "$static_program" ]; then
        export STATIC_PROGRAM=$static_program
    fi
    # The step of the tests has built gust. If it is missing, a test builds it.
    if [ -x "$target/debug/gust" ]; then
        export GUST=$target/debug/gust
    fi
    deployment_cargo test --locked
}

deployment_builds() {
    if ! has pg_config; then
        skip "the deployment" "libpq is not installed"
        return
    fi
    if has musl-gcc && has_targets "$libc"; then
        step 900 "the deployment compiles to a static program" static_deployment
    else
        absent "a static deployment" "musl-tools, or the standard library for musl, is missing"
    fi
    step 900 "the deployment builds" deployment_build
}

deployment_runs() {
    ! has pg_config || step 900 "the deployment: two instances behind haproxy" deployment_test
}
