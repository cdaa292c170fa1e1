cd /tmp/wt_web; export CARGO_TARGET_DIR=/tmp/w13/target
cargo fmt -p filoplume
cargo clippy -p filoplume --all-targets --all-features -- -D warnings 2>&1 | grep -E "^(error|warning)" -A8 | head -60
RUSTDOCFLAGS="-D warnings" cargo doc -p filoplume --no-deps --all-features 2>&1 | grep -E "^(error|warning)" -A8 | head -40
cargo test -p filoplume --all-features --lib --test it -- --skip compile_errors 2>&1 | grep -E "^test result|^test .*FAILED|^error|^failures" | head -30
cargo check --workspace --all-targets 2>&1 | grep -E "^(error|warning)" -A6| head -40
cd .ci/tidy && cargo test --test tidy 2>&1 | grep -E "^test result|FAILED|panicked|^crates|^docs" | head
date
