# shellcheck shell=bash
# What is counted and printed: the result of each step, what was skipped, and what was missing.

passed=0
failed=0
steps=0
summary=()
failures=()
skips=()
# The lane that this shell runs, or nothing.
lane=""

note() {
    summary+=("$1")
    printf '%s\n' "-- $1"
}

skip() {
    skips+=("$1: $2")
    note "skipped: $1: $2"
}

# Records a missing program, which is a failure on a CI service. A check that needs a program that
# was recorded before, such as nightly, calls `skip`, so that the program counts once.
absent() {
    if [ -n "${FILOPLUME_CI:-}" ]; then
        failed=$((failed + 1))
        note "FAILED: $1: $2"
    else
        skip "$1" "$2"
    fi
}

# Below this many KiB of free space, the builds of finished steps are deleted. All builds together
# need 20 GiB.
room=$((30 * 1024 * 1024))

# done_with FOLDER...: deletes folders below the target folder that no later step needs, if space is
# short. Otherwise they stay, and make the next run faster.
done_with() {
    local free
    free=$(df -Pk "$target" | awk 'NR == 2 { print $4 }')
    [ "$free" -ge "$room" ] || (cd "$target" && rm -rf -- "$@")
}

# Prints what failed tests wrote, or the end of the log if the step failed for another reason.
failures_in() {
    if grep -qE '^---- .* ----$' "$1"; then
        # libtest prints the outputs of failed tests between two lines `failures:`.
        awk '/^failures:$/ { inside = !inside; next } inside' "$1" | head -n 100
    else
        tail -n 20 "$1"
    fi
}

# step SECONDS NAME COMMAND...: runs a command with a time limit, reports how long it took and how
# much CPU time it used, and counts the tests in its output. A step of a lane has to wait for the
# processors, so its limit is five times as long.
step() {
    local limit=$1 name=$2 started=$SECONDS status ok=0 bad=0 line used
    shift 2
    steps=$((steps + 1))
    local log=$logs/$lane$steps.log
    [ -z "$lane" ] || limit=$((limit * 5))
    printf '\n== %s\n' "$name"
    # A separate shell, because `timeout` runs programs and not functions, and because `set -e` has
    # no effect in a command before `||`.
    status=0
    local TIMEFORMAT='%0U %0S'
    { time timeout --kill-after=10 "$limit" \
        bash -euo pipefail -c '"$@"' step "$@" >"$log" 2>&1; } 2>"$log.time" || status=$?
    used=$(awk '{ print $1 + $2 }' "$log.time")
    rm -f "$log.time"
    # Omits cargo's progress.
    local progress='Compiling|Checking|Documenting|Downloading|Downloaded|Installing|Updating'
    grep -vE "^ *($progress|Locking|Adding) " "$log" || true
    read -r ok bad < <(
        awk '/^test result:/ { ok += $4; bad += $6 } END { print ok + 0, bad + 0 }' "$log"
    )
    if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then
        bad=1
    fi
    passed=$((passed + ok))
    failed=$((failed + bad))
    [ "$status" -eq 0 ] || failures+=("$(failures_in "$log")")
    # Tests report when they are skipped: see tests/skip.
    while read -r line; do
        skip "a test" "${line#*SKIPPED: }"
    done < <(grep -oE 'SKIPPED: .*' "$log" | sort -u)
    local verdict="ok"
    case $status in
        0) ;;
        124 | 137) verdict="FAILED (longer than $limit s)" ;;
        *) verdict="FAILED ($status)" ;;
    esac
    note "$verdict: $name, $((SECONDS - started)) s (CPU $used s)"
}

# beside LANE COMMAND...: runs steps beside those that follow, until `join LANE`. They use what the
# others leave of the processors. What they print, `join` prints.
beside() {
    local name=$1
    shift
    (
        lane=$name
        passed=0 failed=0 summary=() failures=() skips=()
        chrt --idle --pid 0 "$BASHPID" 2>/dev/null || renice -n 19 "$BASHPID"
        "$@"
        results >"$logs/$name.results"
    ) >"$logs/$name.log" 2>&1 </dev/null &
    printf -v "lane_$name" %s "$!"
}

# Prints commands that add the results of this lane to those of the shell that runs them.
results() {
    local array
    echo "passed=\$((passed + $passed)) failed=\$((failed + $failed))"
    for array in summary failures skips; do
        # Before Bash 4.4, an empty array counts as unset.
        eval "[ \${#$array[@]} -eq 0 ] || printf '$array+=(%q)\n' \"\${$array[@]}\""
    done
}

# join LANE: waits for the steps of a lane, and counts them.
join() {
    local process=lane_$1 status=0
    wait "${!process}" || status=$?
    cat "$logs/$1.log"
    if [ "$status" -ne 0 ]; then
        failed=$((failed + 1))
        note "FAILED ($status): the steps of the lane $1 ended early"
        return
    fi
    # shellcheck source=/dev/null
    source "$logs/$1.results"
}
