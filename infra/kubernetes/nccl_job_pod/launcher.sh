#!/bin/bash
# Pod 0 of an NCCL Job: wait for the others, measure, check, and let the others know. Sourced by pod.sh.

readonly DISMISSAL_S=20 # how long the others may take to fetch the exit code

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

# Every pod has a name that resolves and an sshd that lets us in; pod 0 itself only needs the name.
await_all() {
    local deadline=$((SECONDS + RDMA_RAY_WAIT_S)) told=0 number missing still
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
        if ((SECONDS >= told)); then
            say "waiting for pod$missing"
            told=$((SECONDS + 60))
        fi
        pause 2
    done
}

answers() {
    local name
    name=$(host "$1")
    getent hosts "$name" >/dev/null || return 1
    (($1 == index)) || "${ssh[@]}" "$name" true </dev/null >/dev/null 2>"$run/ssh.log"
}

write_hostfile() {
    local number
    for ((number = 0; number < nodes; number++)); do
        echo "$(host "$number") slots=$RDMA_RAY_GPUS"
    done >"$run/hosts"
}

# mpirun's own exit code, with its output on stdout and in a file. Not `mpirun | tee`, which a signal cannot stop.
measure() {
    local mpirun=$1 exported=() name code tee
    shift
    # A login has none of the container's environment. mpirun passes on what begins with OMPI_ by itself.
    while read -r name; do
        case $name in NCCL_* | FI_* | OFI_* | LD_LIBRARY_PATH | PATH) exported+=(-x "$name") ;; esac
    done < <(compgen -e)
    mkfifo "$run/output" || return 1
    tee "$run/log" <"$run/output" &
    tee=$!
    [[ -z $stopped ]] || return "$STOPPED"
    timeout --kill-after=30 "$RDMA_RAY_RUN_S" "$mpirun" "${exported[@]}" "$@" >"$run/output" 2>&1 </dev/null &
    working=$!
    wait "$working"
    code=$?
    # A signal ends the first wait, not mpirun.
    while kill -0 "$working" 2>/dev/null; do
        wait "$working"
        code=$?
    done
    working=
    # Whatever still holds the pipe after mpirun has ended says nothing that counts.
    for ((name = 0; name < 50; name++)); do
        kill -0 "$tee" 2>/dev/null || break
        sleep 0.1
    done
    kill "$tee" 2>/dev/null
    return $code
}

# nccl-tests checked the data and found nothing wrong, once: without MPI in it, every rank would print its own table.
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
        say "mpirun succeeded, but nccl-tests never said \"Out of bounds values : 0 OK\""
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
            # Who never came fetches nothing.
            [[ ! -e $run/met-$number || -e $run/seen-$number ]] || waiting=yes
        done
        [[ -z $waiting ]] || sleep 0.5
    done
}
