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
# the real code. `Cargo.lock` does not include the dependencies of the standard library, so there is
# no `--locked`. The fault tests repeat the same code many times, which would take minutes here.
sanitized_tests() {
    RUSTFLAGS=-Zsanitizer=thread rustup run nightly \
        cargo test -Zbuild-std --target x86_64-unknown-linux-gnu --target-dir "$target/tsan" \
        -p filoplume-runtime --lib --tests --no-fail-fast "$@" -- --skip faults::exchanges
}

# Whether ThreadSanitizer can run here.
has_thread_sanitizer() {
    has_nightly && has_rust_source \
        && [[ $(rustc -vV) == *"host: x86_64-unknown-linux-gnu"* ]]
}

thread_sanitizer_builds() {
    if ! has_nightly; then
        skip "ThreadSanitizer" "no nightly toolchain"
    elif ! has_rust_source; then
        absent "ThreadSanitizer" \
            "the standard library's source is not installed and could not be fetched"
    elif ! has_thread_sanitizer; then
        skip "ThreadSanitizer" "only run on x86-64 Linux"
    else
        step 900 "tests for ThreadSanitizer build" sanitized_tests --no-run
    fi
}

thread_sanitizer_runs() {
    ! has_thread_sanitizer || step 900 "ThreadSanitizer" sanitized_tests
}
