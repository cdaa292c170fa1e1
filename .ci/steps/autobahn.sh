# shellcheck shell=bash
# WebSockets against the test suite of Autobahn.

# Cases of Autobahn that take about a minute: everything but limits and most of the compression.
# docs/websocket-conformance.md has the result of all.
autobahn_cases=('1.*' '2.*' '5.*' '6.1.*' '7.*' 12.1.1 13.1.1)

# Prints the path of Autobahn's program: that of the variable WSTEST, an installed one, or one that
# is installed below the target folder. The suite needs Python 2.7.
find_wstest() {
    local python base=$target/autobahn/python found
    found=${WSTEST:-$(command -v wstest || true)}
    if [ -n "$found" ]; then
        echo "$found"
        return
    fi
    found=$target/autobahn/wstest
    if [ ! -x "$found" ]; then
        for python in python2.7 ~/.pyenv/versions/2.7.*/bin/python2.7; do
            ! "$python" -c "" 2>/dev/null || break
        done
        "$python" -c "" 2>/dev/null \
            || { echo "neither \`wstest\` nor Python 2.7 is installed"; return 1; }
        mkdir -p "$base"
        PYTHONUSERBASE=$base timeout 300 "$python" -m pip install --user --quiet \
            --disable-pip-version-check autobahntestsuite==25.10.1 >"$logs/autobahn.log" 2>&1 \
            || { echo "the suite could not be installed within 300 s"; return 1; }
        printf '#!/bin/sh\nPYTHONUSERBASE="%s" exec "%s" "%s/bin/wstest" "$@"\n' \
            "$base" "$(command -v "$python")" "$base" >"$found"
        chmod +x "$found"
    fi
    # `wstest` does not start if a Python package is missing.
    timeout 60 "$found" --help >>"$logs/autobahn.log" 2>&1 \
        || { echo "$found does not start"; return 1; }
    echo "$found"
}

autobahn() {
    local wstest
    if wstest=$(find_wstest); then
        step 600 "Autobahn: ${autobahn_cases[*]}" .ci/autobahn "$wstest" "${autobahn_cases[@]}"
    else
        skip "Autobahn" "$wstest"
    fi
}
