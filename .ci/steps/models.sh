# shellcheck shell=bash
# The step that looks for races: models of the algorithms.

models() {
    RUSTFLAGS="--cfg loom" CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true \
        CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        cargo test -p filoplume-runtime --lib --release --locked \
        --target-dir "$target/loom" models \
        | tee "$logs/models.log"
    # Cargo succeeds if a filter matches no test.
    grep -qE '^test result: ok\. [1-9]' "$logs/models.log" || { echo "no model was run"; return 1; }
}
