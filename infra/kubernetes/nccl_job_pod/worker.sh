#!/bin/bash
# Every other pod of an NCCL Job: serve logins, and end with the exit code of pod 0. Sourced by pod.sh.

readonly ATTEMPTS=3 # logins that fail in a row, after one that worked, until pod 0 counts as lost

# One login for the life of pod 0: it answers at once, and then with the exit code when there is one.
readonly QUESTION='cd "${RDMA_RAY_RUN:-/run/rdma-ray}" && : >met-INDEX && echo met &&
until [ -s end ]; do sleep 1; done && cat end && : >seen-INDEX'

attend() {
    local deadline=$((SECONDS + RDMA_RAY_WAIT_S)) met='' failed=0 code first
    first=$(host 0)
    say "serving logins; the measurement runs on $first"
    while :; do
        ask "$first"
        code=$(sed -n 2p "$run/answer")
        if [[ $code =~ ^[0-9]+$ ]]; then
            say "pod 0 ended with $code"
            leave "$code"
        fi
        if [[ -s $run/answer ]]; then
            met=yes
            failed=1
        elif [[ -n $met ]]; then
            failed=$((failed + 1))
        elif ((SECONDS >= deadline)); then
            say "no word from pod 0 within $RDMA_RAY_WAIT_S s: $(why_not "$first")"
            leave "$NO_LAUNCHER"
        fi
        if ((failed >= ATTEMPTS)); then
            say "pod 0 is lost: $(why_not "$first")"
            leave "$PEER_LOST"
        fi
        pause 2
    done
}

ask() {
    : >"$run/answer"
    getent hosts "$1" >/dev/null || return 0
    "${ssh[@]}" "$1" "${QUESTION//INDEX/$index}" </dev/null >"$run/answer" 2>"$run/ssh.log" &
    working=$!
    while :; do
        wait -n "$working" "$sshd"
        [[ -z $stopped ]] || { say "this pod was asked to end"; leave "$STOPPED"; }
        serving || sshd_failed
        kill -0 "$working" 2>/dev/null || break
    done
    working=
}
