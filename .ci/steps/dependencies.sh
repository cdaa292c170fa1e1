# shellcheck shell=bash
# Licences, sources and advisories of the dependencies.

dependencies() {
    local minor deny=cargo-deny
    minor=$(rustc --version | sed -E 's/^rustc 1\.([0-9]+).*/\1/')
    if ! has cargo-deny; then
        deny=$target/tools/bin/cargo-deny
    fi
    if ! has "$deny"; then
        if [ "$minor" -lt 88 ]; then
            skip "dependencies" "cargo-deny needs Rust 1.88"
            return
        fi
        local started=$SECONDS
        if ! CARGO_PROFILE_DEV_DEBUG=0 timeout 900 \
            cargo install cargo-deny --locked --debug --root "$target/tools" \
            --target-dir "$target/tools" >"$logs/deny.log" 2>&1; then
            absent "dependencies" "cargo-deny could not be installed within 900 s"
            return
        fi
        note "ok: cargo-deny installed, $((SECONDS - started)) s"
    fi
    step 120 "licences, bans and sources of dependencies" \
        "$deny" --all-features check bans licenses sources
    if has git && timeout 20 git ls-remote -q https://github.com/rustsec/advisory-db HEAD >/dev/null 2>&1; then
        step 300 "advisories" "$deny" --all-features check advisories
    else
        skip "advisories" "the advisory database cannot be reached"
    fi
}
