#!/bin/bash
# What every pod of an NCCL Job runs. "$@" is the whole mpirun command, which pod 0 runs; the others serve logins.
#
# Pod 0 waits until every other pod answers, runs mpirun, checks its output, and writes its exit code to a file. Every
# other pod waits for that code over ssh and ends with it, or detects that pod 0 is lost. This is a shell script because
# images with nccl-tests may lack Python.
set -uo pipefail
umask 077

readonly USAGE=64        # the pod's environment is incomplete
readonly SSHD_FAILED=70  # sshd ended unexpectedly
readonly NO_LAUNCHER=71  # pod 0 never answered
readonly TOO_FEW=72      # not every pod answered in time; the message names them
readonly PEER_LOST=73    # pod 0 was lost while the Job ran
readonly UNPROVEN=74     # mpirun succeeded, and its output does not show correct data
readonly TOO_LONG=124    # the measurement took too long; the exit code of timeout(1)
readonly STOPPED=143     # this pod was asked to end

say() {
    printf '[pod %s] %s\n' "${JOB_COMPLETION_INDEX:-?}" "$*" >&2
}

for name in JOB_COMPLETION_INDEX RDMA_RAY_JOB RDMA_RAY_SERVICE RDMA_RAY_NODES RDMA_RAY_GPUS RDMA_RAY_WAIT_S \
    RDMA_RAY_RUN_S RDMA_RAY_SSHD RDMA_RAY_SSH; do
    if [[ -z ${!name:-} ]]; then
        say "the environment lacks $name"
        exit "$USAGE"
    fi
done
if (($# == 0)); then
    say "no mpirun command was given"
    exit "$USAGE"
fi

readonly index=$JOB_COMPLETION_INDEX nodes=$RDMA_RAY_NODES
readonly run=${RDMA_RAY_RUN:-/run/rdma-ray}
read -ra ssh <<<"$RDMA_RAY_SSH"

# The pod's host name is fully qualified, so the other pods are in the same domain, whatever its name.
own=$(hostname)
if [[ $own == *.* ]]; then domain=${own#*.}; else domain=$RDMA_RAY_SERVICE; fi
host() { printf '%s-%s.%s' "$RDMA_RAY_JOB" "$1" "$domain"; }

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=launcher.sh
source "$here/launcher.sh"
# shellcheck source=worker.sh
source "$here/worker.sh"

mkdir -p "$run" || exit "$USAGE"
# Its log is a file: in the pod's log it would interrupt the table of results.
# An sshd that daemonizes and exits with 0 keeps serving.
bash -c "{ $RDMA_RAY_SSHD; } && exec sleep infinity" >"$run/sshd.log" 2>&1 </dev/null &
sshd=$!
working=
stopped=

serving() { kill -0 "$sshd" 2>/dev/null; }

sshd_failed() {
    say "sshd ended unexpectedly: $(tail -n 5 "$run/sshd.log")"
    leave "$SSHD_FAILED"
}

# The background process gets the signal too; `wait` returns at once, and its caller checks $stopped.
stop() {
    stopped=yes
    [[ -z $working ]] || kill -TERM "$working" 2>/dev/null
}
trap stop TERM INT

# A pause that a signal ends.
pause() {
    sleep "$1" &
    working=$!
    wait "$working"
    working=
    [[ -z $stopped ]] || { say "this pod was asked to end"; leave "$STOPPED"; }
    serving || sshd_failed
}

# Print why a host cannot be reached: first its name, since everything else needs it.
why_not() {
    local address reason
    if ! address=$(getent hosts "$1"); then
        echo "$1 (its name does not resolve: has its pod a node?)"
        return
    fi
    reason=$(grep '[a-z]' "$run/ssh.log" | tail -n 1 | tr -d '\r')
    echo "$1 (at ${address%% *}, no login: ${reason:-the connection broke off})"
}

leave() {
    trap '' TERM INT
    if ((index == 0)); then dismiss "$1"; fi
    kill "$sshd" 2>/dev/null
    exit "$1"
}

if ((index == 0)); then launch "$@"; else attend; fi
