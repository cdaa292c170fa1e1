# shellcheck shell=bash
# Steps over the packages of the workspace as they are: format, lints, documentation, tests, sizes.

format() {
    cargo fmt --all --check
    cargo fmt --all --check --manifest-path benches/peers/Cargo.toml
    cargo fmt --all --check --manifest-path examples/deployment/Cargo.toml
    local workspace
    for workspace in $fuzz_workspaces; do
        cargo fmt --check --manifest-path "$workspace/Cargo.toml"
    done
}

lints() {
    cargo clippy --workspace --all-targets --locked -- -D warnings
}

documentation() {
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
}

# The README's test command: unit, integration and doc tests.
tests() {
    cargo test --workspace --locked --no-fail-fast
}

# Builds the tests, the programs that they start, and what those compile that run the compiler, so
# that it is there when they run again with all others.
tests_build() {
    cargo test --workspace --locked --no-run
    cargo build --workspace --locked --bins --examples
    cargo test --workspace --locked --no-fail-fast --test public_api --test mistakes
}

# Builds the first command of the README in an empty target folder, as after a clone.
hello_is_small() {
    local size crates hello
    rm -rf "$target/hello"
    cargo build --release --locked --package hello --target-dir "$target/hello" 2>&1 \
        | tee "$logs/hello.log"
    crates=$(grep -c '^ *Compiling ' "$logs/hello.log")
    hello=$target/hello/release/hello
    size=$(stat -c %s "$hello" 2>/dev/null || stat -f %z "$hello")
    echo "hello has $size bytes of at most 1772000 and is built of $((crates)) crates of at most 40"
    [ "$size" -le 1772000 ]
    [ "$crates" -le 40 ]
}

# Builds the packages as they would be published, each from its own files.
packages() {
    local name file files crates=(filoplume-http1 filoplume-websocket filoplume-runtime)
    crates+=(filoplume filoplume-otlp gust)
    # Cargo does not unpack a package again if its version and its path are those of an earlier run.
    rm -rf "${CARGO_HOME:-$HOME/.cargo}"/registry/src/-*/{filoplume,gust}-*
    cargo package --locked --allow-dirty "${crates[@]/#/--package=}"
    for name in "${crates[@]}"; do
        # The files are listed first: `grep -q` ends early, and `tar` would fail with a broken pipe.
        files=$(tar -tzf "$target/package/$name"-[0-9]*.crate)
        for file in README.md LICENSE-MIT LICENSE-APACHE; do
            grep -q "/$file\$" <<<"$files" || { echo "$name has no $file"; return 1; }
        done
    done
}
