# shellcheck shell=bash
# Builds the fuzz targets and runs each for a few seconds.

# The fuzz targets are separate workspaces, beside the crates that they fuzz.
fuzz_workspaces="crates/http1/fuzz crates/websocket/fuzz crates/runtime/fuzz"
fuzz_workspaces+=" crates/filoplume/fuzz"
export fuzz_workspaces

# How long each fuzz target runs. docs/testing.md describes longer runs.
export fuzz_seconds=3

# Builds the fuzz targets like cargo-fuzz, which need not be installed. AddressSanitizer is left to
# longer runs, because no crate here has unsafe code.
fuzz_build() {
    local host workspace
    # Runs are short, so building fast is worth more than running fast.
    local -x CARGO_PROFILE_RELEASE_OPT_LEVEL=0
    host=$(rustup run nightly rustc -vV | sed -n 's/^host: //p')
    for workspace in $fuzz_workspaces; do
        RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
            -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
            -Cllvm-args=-sanitizer-coverage-pc-table \
            -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions" \
            rustup run nightly cargo build --release --locked \
            --manifest-path "$workspace/Cargo.toml" --target "$host" --target-dir "$target/fuzz"
    done
    rm -rf "$target/fuzz/bin"
    ln -s "$target/fuzz/$host/release" "$target/fuzz/bin"
}

# Writes the conformance corpus as seeds for the fuzz targets.
fuzz_seeds() {
    rm -rf "$target/fuzz/seeds"
    FUZZ_SEEDS=$target/fuzz/seeds \
        cargo test -q -p filoplume-http1 --locked --test corpus the_corpus_has_seeds
}

# fuzz_run WORKSPACE TARGET: runs a fuzz target, beginning with the inputs of its last run, the
# seeds beside it and those of the corpus. The random seed is fixed, so that the result depends only
# on the change. Longer runs look for new inputs. The processors may be busy with other steps, so an
# input is too slow only if it takes a minute.
fuzz_run() {
    local corpus=$target/fuzz/corpus/$2 inputs seeds
    mkdir -p "$corpus"
    inputs=("$corpus")
    for seeds in "$1/seeds/$2" "$target/fuzz/seeds/$2"; do
        [ ! -d "$seeds" ] || inputs+=("$seeds")
    done
    if ! "$target/fuzz/bin/$2" -seed=1 -max_total_time="$fuzz_seconds" -timeout=60 \
        -rss_limit_mb=1024 -artifact_prefix="$corpus-" -verbosity=0 -print_final_stats=1 \
        "${inputs[@]}" >"$logs/fuzz-$2.log" 2>&1; then
        cat "$logs/fuzz-$2.log"
        return 1
    fi
    grep -E '^stat::(number_of_executed_units|peak_rss_mb)' "$logs/fuzz-$2.log"
}

fuzzing() {
    if ! has_nightly; then
        skip "fuzzing" "no nightly toolchain"
        return
    fi
    if ! has c++ && ! has g++ && ! has clang++; then
        absent "fuzzing" "no C++ compiler for libFuzzer"
        return
    fi
    step 600 "fuzz targets build" fuzz_build
    [ -e "$target/fuzz/bin" ] || return 0
    step 300 "fuzz seeds from the corpus" fuzz_seeds
    local workspace file name
    for workspace in $fuzz_workspaces; do
        for file in "$workspace"/fuzz_targets/*.rs; do
            name=$(basename "$file" .rs)
            step 120 "fuzz $name for $fuzz_seconds s" fuzz_run "$workspace" "$name"
        done
    done
}
