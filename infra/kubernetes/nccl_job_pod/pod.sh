#!/bin/bash
# What every pod of an NCCL Job runs. "$@" is the whole mpirun command, which pod 0 runs; the others serve logins.
#
# Pod 0 waits until every other pod answers, runs mpirun, checks what it printed, and leaves its exit code in a file.
# Every other pod asks pod 0 for that code over ssh and waits for the answer, so that it ends with it, and notices when
# pod 0 is gone. It is a shell script because images with nccl-tests need not have Python.
set -uo pipefail
umask 077

readonly USAGE=64        # the pod's environment lacks something
readonly SSHD_FAILED=70  # sshd ended by itself
readonly NO_LAUNCHER=71  # pod 0 never answered
readonly TOO_FEW=72      # not every pod answered in time; the message names them
readonly PEER_LOST=73    # pod 0 was lost in the middle
readonly UNPROVEN=74     # mpirun says success, and its output does not show right data
readonly TOO_LONG=124    # the measurement was not over in time; timeout(1) says the same
readonly STOPPED=143     # somebody asked this pod to end

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

# The pod's own host name is a full one, so the others are in the same domain, whatever the cluster calls it.
own=$(hostname)
if [[ $own == *.* ]]; then domain=${own#*.}; else domain=$RDMA_RAY_SERVICE; fi
host() { printf '%s-%s.%s' "$RDMA_RAY_JOB" "$1" "$domain"; }

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=launcher.sh
source "$here/launcher.sh"
# shellcheck source=worker.sh
source "$here/worker.sh"

mkdir -p "$run" || exit "$USAGE"
# Its log goes to a file: between the rows of a table it would be in the way of whoever reads them.
# One that goes into the background by itself and says that all is well, serves from there.
bash -c "{ $RDMA_RAY_SSHD; } && exec sleep infinity" >"$run/sshd.log" 2>&1 </dev/null &
sshd=$!
working=
stopped=

serving() { kill -0 "$sshd" 2>/dev/null; }

sshd_failed() {
    say "sshd ended by itself: $(tail -n 5 "$run/sshd.log")"
    leave "$SSHD_FAILED"
}

# Whatever runs in the background gets the signal, too; `wait` returns at once, and whoever waited looks at $stopped.
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

# Why a host cannot be reached, for the message: its name first, since without one nothing else matters.
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
