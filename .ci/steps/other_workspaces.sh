# shellcheck shell=bash
# Steps for separate workspaces: the servers that we compare ourselves with, and the deployment
# example.

peers() {
    cd benches/peers
    cargo check --workspace --locked --target-dir "$target/peers"
    cargo test --package measure --package raw_epoll --package common --package backends \
        --package slow_http --locked --target-dir "$target/peers"
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

# The whole app behind haproxy, with PostgreSQL and Redis.
deployment() {
    if [ -x "$static_program" ]; then
        export STATIC_PROGRAM=$static_program
    fi
    # The step of the tests has built gust. If it is missing, a test builds it.
    if [ -x "$target/debug/gust" ]; then
        export GUST=$target/debug/gust
    fi
    cd examples/deployment
    cargo clippy --all-targets --locked --target-dir "$target/deployment" -- -D warnings
    cargo test --locked --target-dir "$target/deployment"
}
