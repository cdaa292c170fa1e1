# shellcheck shell=bash
# What is compiled beside the tests: other systems, the oldest Rust, each feature alone.

# Prints each package of the workspace that has features: `PACKAGE FEATURE...`. `default` and `full`
# are left out, because they only name others. The list is read from cargo, so that a new feature is
# covered without an entry here.
package_features() {
    # Only a package has an `id` after its version, and features in braces.
    cargo metadata --format-version 1 --no-deps --locked \
        | grep -oE '"name":"[^"]*","version":"[^"]*","id"|"features":\{[^}]*\}' \
        | sed -E 's/"name":"([^"]*)".*/\1/; s/"features"://; s/\[[^]]*\]//g' \
        | sed -E 's/[^A-Za-z0-9_-]+/ /g' \
        | paste -d ' ' - - \
        | awk '{
            line = $1
            for (at = 2; at <= NF; at++) if ($at !~ /^(default|full)$/) line = line " " $at
            if (line != $1) print line
        }'
}

# Systems on which no tests run here.
unixes="x86_64-apple-darwin x86_64-unknown-freebsd aarch64-unknown-linux-musl"
windows="x86_64-pc-windows-msvc"

# Features with C code, which only a C compiler for the other system could compile: `cookies`,
# `jwt`, `tls` and those that build on them (ring), `sqlite`, and `compression` (zstd).
with_c_code=" compression cookies jwt redis sessions sqlite tls tls-dev "

# portable_features PACKAGE...: prints their features without C code, as `PACKAGE/FEATURE`.
portable_features() {
    local package features feature
    while read -r package features; do
        [[ " $* " == *" $package "* ]] || continue
        for feature in $features; do
            [[ $with_c_code == *" $feature "* ]] || echo "$package/$feature"
        done
    done < <(package_features)
}

# compiles_for "SYSTEM..." OPTION...: checks with a single call of cargo, so that it uses all
# processors.
compiles_for() {
    local system options=()
    for system in $1; do
        options+=(--target "$system")
    done
    shift
    RUSTFLAGS="-D warnings" cargo check --locked --target-dir "$target/portable" \
        "${options[@]}" "$@"
}

# Compiles the libraries with all features without C code. gust uses Unix sockets and reads CPU
# times, so it does not support Windows.
portability() {
    local what="compiling for other systems" features gust_features
    if ! has_targets $unixes $windows; then
        absent "$what" "their standard libraries are not installed and could not be fetched"
        return
    fi
    local names=(filoplume-http1 filoplume-websocket filoplume-runtime filoplume filoplume-otlp)
    local libraries=(--no-default-features "${names[@]/#/--package=}")
    features=$(portable_features "${names[@]}")
    gust_features=$(portable_features gust)
    step 600 "compiles for $unixes" compiles_for "$unixes" "${libraries[@]}" --package gust \
        --features "$features $gust_features"
    step 600 "compiles for $windows" compiles_for "$windows" "${libraries[@]}" \
        --features "$features"
}

# The oldest Rust that compiles the workspace: `rust-version` in `Cargo.toml`.
oldest=1.85.0
export oldest

# oldest_cargo COMMAND...
oldest_cargo() {
    local -x CARGO_TARGET_DIR=$target/oldest
    rustup run "$oldest" cargo "$@"
}

# The fault tests and the simulator take longest, and do not depend on the compiler.
oldest_tests() {
    oldest_cargo test -p filoplume-http1 -p filoplume-websocket -p filoplume-runtime --lib --tests \
        --locked "$@" -- --skip faults::exchanges --skip execution::simulator
}

has_oldest() {
    has rustup && rustup run "$oldest" rustc --version >/dev/null 2>&1
}

oldest_builds() {
    if ! has_oldest; then
        absent "oldest Rust" "$oldest is not installed and could not be fetched"
        return
    fi
    step 600 "Rust $oldest compiles it" oldest_cargo check --workspace --locked
    step 600 "Rust $oldest builds the tests of http1, websocket and runtime" \
        oldest_tests --no-run
}

oldest_runs() {
    ! has_oldest || step 600 "Rust $oldest runs the tests of http1, websocket and runtime" \
        oldest_tests
}

# Checks each package that has features without any, and with each alone. A warning is a failure.
# Flags for rustc would make cargo check all dependencies again, which the lints have checked.
each_feature() {
    local listed package features feature log=$logs/feature.log
    listed=$(package_features)
    # Without this line, a change of cargo's output could leave nothing to check.
    grep -q '^filoplume ' <<<"$listed"
    while read -r package features; do
        for feature in "" $features; do
            echo "-- $package ${feature:-without features}"
            cargo check --locked --package "$package" --no-default-features --features "$feature" \
                2>&1 | tee "$log"
            if grep -q '^warning' "$log"; then
                return 1
            fi
        done
    done <<<"$listed"
}
