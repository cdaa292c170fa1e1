# shellcheck shell=bash
# Steps that look for races: models of the algorithms, and ThreadSanitizer on the real code.

models() {
    RUSTFLAGS="--cfg loom" CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true \
        CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        cargo test -p filoplume-runtime --lib --release --locked \
        --target-dir "$target/loom" models \
        | tee "$logs/models.log"
    # Cargo succeeds if a filter matches no test.
    grep -qE '^test result: ok\. [1-9]' "$logs/models.log" || { echo "no model was run"; return 1; }
}

# Runs the engine's own tests with ThreadSanitizer. The models check the algorithms, and this checks
# the real code.
thread_sanitizer() {
    local host sysroot
    if ! has_nightly; then
        skip "ThreadSanitizer" "no nightly toolchain"
        return
    fi
    host=$(rustup run nightly rustc -vV | sed -n 's/^host: //p')
    sysroot=$(rustup run nightly rustc --print sysroot)
    if [ "$host" != x86_64-unknown-linux-gnu ]; then
        skip "ThreadSanitizer" "only run on x86-64 Linux"
        return
    fi
    if [ ! -d "$sysroot/lib/rustlib/src/rust/library" ] \
        && ! timeout 180 rustup component add rust-src --toolchain nightly \
            >"$logs/rust-src.log" 2>&1; then
        absent "ThreadSanitizer" \
            "the standard library's source is not installed and could not be fetched"
        return
    fi
    # `Cargo.lock` does not include the dependencies of the standard library, so there is no
    # `--locked`. The fault tests repeat the same code many times, which would take minutes here.
    step 900 "ThreadSanitizer" env RUSTFLAGS=-Zsanitizer=thread rustup run nightly \
        cargo test -Zbuild-std --target "$host" --target-dir "$target/tsan" \
        -p filoplume-runtime --lib --tests --no-fail-fast -- --skip faults::exchanges
}
