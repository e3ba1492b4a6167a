#!/bin/bash
# Pod 0 of an NCCL Job: wait for the others, measure, check, and publish the exit code. Sourced by pod.sh.

readonly DISMISSAL_S=20 # seconds that the others have to fetch the exit code

launch() {
    await_all
    write_hostfile
    say "all $nodes pods answer; mpirun starts"
    measure "$@"
    local code=$?
    [[ -z $stopped ]] || code=$STOPPED
    case $code in
    0) prove || code=$UNPROVEN ;;
    "$TOO_LONG") say "the measurement was not over after $RDMA_RAY_RUN_S s" ;;
    "$STOPPED") say "this pod was asked to end" ;;
    *) say "mpirun ended with $code" ;;
    esac
    say "exit code $code"
    leave "$code"
}

# Wait until every name resolves and every sshd accepts a login; pod 0 needs only its name.
await_all() {
    local deadline=$((SECONDS + RDMA_RAY_WAIT_S)) reported=0 number missing still
    missing=$(seq 0 $((nodes - 1)))
    while :; do
        still=
        for number in $missing; do
            answers "$number" || still+=" $number"
        done
        missing=$still
        [[ -n $missing ]] || return 0
        if ((SECONDS >= deadline)); then
            say "not every pod came within $RDMA_RAY_WAIT_S s. Missing:"
            for number in $missing; do say "  $(why_not "$(host "$number")")"; done
            leave "$TOO_FEW"
        fi
        if ((SECONDS >= reported)); then
            say "waiting for pod$missing"
            reported=$((SECONDS + 60))
        fi
        pause 2
    done
}

answers() {
    local name
    name=$(host "$1")
    getent hosts "$name" >/dev/null || return 1
    (($1 == index)) && return
    "${ssh[@]}" "$name" true </dev/null >/dev/null 2>"$run/ssh.log" || return 1
    : >"$run/met-$1" # it fetches the exit code, even if its first login comes after a short measurement
}

write_hostfile() {
    local number
    for ((number = 0; number < nodes; number++)); do
        echo "$(host "$number") slots=$RDMA_RAY_GPUS"
    done >"$run/hosts"
}

# Run mpirun, with its output on stdout and in a file. NCCL's log stays on stderr: in one stream its lines would land
# inside the rows that nccl-tests writes in parts. Not `mpirun | tee`, which a signal cannot stop.
measure() {
    local mpirun=$1 exported=() name code tee
    shift
    # A login lacks the container's environment. mpirun passes on variables that start with OMPI_ automatically.
    while read -r name; do
        case $name in NCCL_* | FI_* | OFI_* | LD_LIBRARY_PATH | PATH) exported+=(-x "$name") ;; esac
    done < <(compgen -e)
    mkfifo "$run/output" || return 1
    tee "$run/log" <"$run/output" &
    tee=$!
    [[ -z $stopped ]] || return "$STOPPED"
    timeout --kill-after=30 "$RDMA_RAY_RUN_S" "$mpirun" "${exported[@]}" "$@" >"$run/output" </dev/null &
    working=$!
    wait "$working"
    code=$?
    # A signal ends the first wait, not mpirun.
    while kill -0 "$working" 2>/dev/null; do
        wait "$working"
        code=$?
    done
    working=
    # Output of processes that still hold the pipe after mpirun has ended does not matter.
    for ((name = 0; name < 50; name++)); do
        kill -0 "$tee" 2>/dev/null || break
        sleep 0.1
    done
    kill "$tee" 2>/dev/null
    return $code
}

# nccl-tests reports correct data exactly once: built without MPI, every rank would print its own table.
prove() {
    local right wrong
    right=$(grep -cE 'Out of bounds values : 0 OK' "$run/log")
    wrong=$(grep -cE 'Out of bounds values : [0-9]+ FAILED' "$run/log")
    if ((wrong > 0)); then
        say "wrong data: nccl-tests counted values out of bounds"
        return 1
    fi
    if ((right == 1)); then return 0; fi
    if ((right == 0)); then
        say "mpirun succeeded, but nccl-tests never printed \"Out of bounds values : 0 OK\""
    else
        say "$right results instead of one: this nccl-tests was built without MPI, so nothing went between the ranks"
    fi
    return 1
}

dismiss() {
    local deadline=$((SECONDS + DISMISSAL_S)) number waiting=yes
    echo "$1" >"$run/end.new" && mv "$run/end.new" "$run/end"
    while [[ -n $waiting ]] && ((SECONDS < deadline)) && serving; do
        waiting=
        for ((number = 1; number < nodes; number++)); do
            # A pod that neither answered nor logged in fetches nothing.
            [[ ! -e $run/met-$number || -e $run/seen-$number ]] || waiting=yes
        done
        [[ -z $waiting ]] || sleep 0.5
    done
}
