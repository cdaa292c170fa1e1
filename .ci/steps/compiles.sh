# shellcheck shell=bash
# What is compiled beside the tests: other systems, the oldest Rust, each feature alone.

# Systems on which no tests run here.
unixes="x86_64-apple-darwin x86_64-unknown-freebsd aarch64-unknown-linux-musl"
windows="x86_64-pc-windows-msvc"

# compiles_for "SYSTEM..." OPTION...: checks with a single call of cargo, so that it uses all
# processors.
compiles_for() {
    local system options=()
    for system in $1; do
        options+=(--target "$system")
    done
    shift
    RUSTFLAGS="-D warnings" cargo check --locked --target-dir "$target/portable" "${options[@]}" "$@"
}

# gust without TLS, whose C code only a C compiler for the other system could check. It uses Unix
# sockets and reads CPU times, so it does not support Windows.
portability() {
    if ! has rustup || ! timeout 180 rustup target add $unixes $windows >"$logs/targets.log" 2>&1; then
        skip "compiling for other systems" "their standard libraries could not be fetched"
        return
    fi
    local libraries=(-p filoplume-http1 -p filoplume-websocket -p filoplume-runtime -p filoplume -p filoplume-otlp)
    step 600 "compiles for $unixes" compiles_for "$unixes" "${libraries[@]}"
    step 600 "gust compiles for $unixes" compiles_for "$unixes" -p gust --no-default-features --features top
    step 600 "compiles for $windows" compiles_for "$windows" "${libraries[@]}"
}

oldest_rust() {
    local version=1.85.0
    if ! has rustup; then
        skip "oldest Rust" "no rustup"
        return
    fi
    if ! rustup run "$version" rustc --version >/dev/null 2>&1 \
        && ! timeout 120 rustup toolchain install "$version" --profile minimal --no-self-update >"$logs/oldest.log" 2>&1; then
        skip "oldest Rust" "$version is not installed and could not be fetched"
        return
    fi
    step 600 "Rust $version compiles it" \
        rustup run "$version" cargo check --workspace --locked --target-dir "$target/oldest"
    # The fault tests take longer than all others, and do not depend on the compiler.
    step 600 "Rust $version runs the tests of http1, websocket and runtime" \
        rustup run "$version" cargo test -p filoplume-http1 -p filoplume-websocket -p filoplume-runtime --lib --tests --locked \
        --target-dir "$target/oldest" -- --skip faults::exchanges
}

# Checks the framework without features, and with each feature alone. A warning is a failure.
each_feature() {
    local feature features
    local -x RUSTFLAGS="-D warnings" CARGO_TARGET_DIR=$target/features
    features=$(cargo metadata --format-version 1 --no-deps --locked \
        | grep -o '"name":"filoplume","version".*' | grep -o '"features":{[^}]*}' | head -n 1 \
        | grep -oE '"[a-z0-9-]+":\[' | tr -d '":[' | grep -vxE 'default|full')
    [ -n "$features" ]
    cargo check --locked -p filoplume --no-default-features
    for feature in $features; do
        echo "-- $feature"
        cargo check --locked -p filoplume --no-default-features --features "$feature"
    done
}
