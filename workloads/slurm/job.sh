# One step of Slurm starts one Ray node on each node of the allocation (workloads/slurm/node.py, docs/slurm.md).
# The folder of this job has Ray's token and the outputs for `rdma-ray … --outputs FILE`; it goes with the job.
# With $run, the allocation is the user's: what he requested for his own steps, such as tasks per node, is not for this
# one (srun(1), "input environment variables").
umask 077
[ -z "$run" ] || for each in $(compgen -e SLURM_) $(compgen -e SRUN_); do
    case $each in
    SLURM_JOB_* | SLURM_CONF* | SLURM_CLUSTER* | SLURM_WORKING_CLUSTER | SLURM_MEM_PER_NODE | SLURM_MEM_PER_CPU) ;;
    *) unset "$each" ;;
    esac
done
if ! mkdir -p -- "$storage" || ! storage=$(cd -- "$storage" && pwd -P); then
    echo "rdma-ray: storage $storage cannot be used on ${SLURMD_NODENAME-$HOSTNAME}: choose a folder that you can write with --storage" >&2
    exit 1
fi
folder=$storage/job-$SLURM_JOB_ID${run:+-$run}

# Whoever can rename a folder on this path could show clients other outputs, and get what they send there.
place=$storage why=
while :; do
    if ! read -r owner mode <<<"$(stat --format='%u %f' -- "$place")" || [ -z "$mode" ]; then
        why="cannot be examined"
    elif [ "$place" = "$storage" ] && ((owner != 0 && owner != EUID)); then
        why="belongs to user $owner"
    elif ((16#$mode & 0002)) && { [ "$place" = "$storage" ] || ((!(16#$mode & 01000))); }; then
        why="can be changed by all users ($(stat --format=%A -- "$place"))"
    fi
    [ -z "$why" ] && [ "$place" != / ] || break
    place=${place%/*}
    place=${place:-/}
done
if [ -n "$why" ]; then
    echo "rdma-ray: storage $storage refused: $place $why: choose a folder that only you can write with --storage" >&2
    exit 1
fi

# Removes this job's folder. Not what a link or another user's folder at its place contains, and no other file.
remove_folder() {
    [ ! -L "$folder" ] && [ -O "$folder" ] || return 0
    rm -f -- "$folder"/{token,nodes,head.json,outputs.json,.head.json,.outputs.json} "$folder"/failed-*
    rmdir -- "$folder"
} 2>/dev/null

# Prints the ID of the step of this script in the user's allocation.
step_id() {
    squeue --noheader --steps --jobs="$SLURM_JOB_ID" --format='%i %j' | sed -n "s/ rdma-ray-$run\$//p"
}

# Ends that step. srun itself would have it killed at once; the second Ctrl-C does that.
end_step() {
    local id
    kill -0 "$step" || return 0
    trap 'kill "$step"' INT
    id=$(step_id)
    if [ -n "$id" ]; then scancel --signal=TERM "$id"; else kill "$step"; fi
    while kill -0 "$step"; do wait "$step"; done
} 2>/dev/null

step=''
ended() {
    code=$?
    trap '' HUP INT TERM
    [ -z "$run" ] || [ -z "$step" ] || end_step
    # Slurm has signaled the step's nodes as well. They leave nothing behind if they have the time (KillWait).
    wait
    remove_folder
    exit "$code"
}
trap ended EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Of an earlier job with this ID: Slurm begins again at 1.
remove_folder
if ! mkdir -- "$folder" 2>/dev/null; then
    echo "rdma-ray: $folder refused: it is a $(stat --format='%F of user %U' -- "$folder"), not of this job" >&2
    exit 1
fi
(od -An -tx1 -N32 /dev/urandom | tr -d ' \n') >"$folder/token"
# Name and address of each node, as Slurm itself reaches it.
scontrol --oneliner show node "$hosts" |
    sed -n 's/^NodeName=\([^ ]*\) .* NodeAddr=\([^ ]*\) .*/\1 \2/p' >"$folder/nodes"

# Runs on each node: `node WORD …` starts Ray there, in a container if the step is in none.
node() {
    local code words=("$python" -P -u -m workloads.slurm.node "$folder" "$wait_s" "$machine" "$fabric" "$@")
    # Slurm signals this shell as well, and kills what is left when it ends.
    trap : HUP INT TERM
    export PYTHONPATH=$package
    if [ -z "$engine" ]; then
        "${words[@]}"
    else
        contained "${words[@]}"
    fi
    code=$?
    if [ "$SLURM_PROCID" = 0 ]; then
        # The cluster has ended. The script itself waits for srun, which waits for a host that has lost its power.
        remove_folder
    elif [ "$code" != 0 ]; then
        # The head waits for this node: it reads here that it waits in vain.
        echo "$code" 2>/dev/null >"$folder/failed-$SLURMD_NODENAME"
    fi
    return "$code"
}

# Runs a command in a container of docker or podman, which are outside of Slurm's control. Signals reach it by the
# client. When Slurm kills the client, the container's standard input ends, and node.py ends with it.
contained() {
    # Users of docker share its names: the end is not a name that another container may have.
    local name=rdma-ray-$SLURM_JOB_ID-$SLURM_NODEID-$(od -An -tx4 -N4 /dev/urandom | tr -d ' \n')
    local tool=docker each number=0 input visible=${CUDA_VISIBLE_DEVICES-}
    command -v docker >/dev/null || tool=podman
    if ! command -v "$tool" >/dev/null; then
        echo "rdma-ray: $SLURMD_NODENAME has neither pyxis nor docker nor podman, which --image needs" >&2
        return 1
    fi
    if ! "$tool" image inspect "$tag" >/dev/null 2>&1; then
        if [ -n "$archive" ]; then "$tool" load --input "$archive"; else "$tool" pull "$tag"; fi || return
    fi
    # RDMA pins memory; Ray's processes share memory, and are many.
    local flags=(--rm -i "--name=$name" --network=host --ipc=host --pids-limit=-1 --ulimit=memlock=-1)
    if [ "$tool" = docker ]; then flags+=("--user=$(id -u):$(id -g)"); else flags+=(--userns=keep-id); fi
    for each in /dev/infiniband/* /dev/gdrdrv; do
        [ ! -e "$each" ] || flags+=("--device=$each")
    done
    # The GPUs of this job only. In docker's container they have other numbers.
    if [ -n "$visible" ]; then
        for each in ${visible//,/ }; do
            [ "$tool" = docker ] || flags+=("--device=nvidia.com/gpu=$each")
            number=$((number + 1))
        done
        [ "$tool" != docker ] || flags+=("--gpus=\"device=$visible\"")
        flags+=("--env=CUDA_VISIBLE_DEVICES=$(seq -s, 0 $((number - 1)))")
    fi
    for each in "$storage" "$package" "${mounts[@]}"; do
        flags+=("--volume=${each%%:*}:${each#*:}")
    done
    flags+=("--workdir=$storage" "--env=HOME=$storage" --env=PYTHONPATH --env=RDMA_RAY_CONTAINED=1)
    for each in $(compgen -e SLURM); do flags+=("--env=$each"); done
    # A pipe that this shell holds open.
    exec {input}<> <(:)
    "$tool" run "${flags[@]}" "$tag" "$@" <&"$input"
    local code=$?
    "$tool" rm --force "$name" >/dev/null 2>&1
    return "$code"
}

engine='' archive='' tag=$image
flags=(--nodes="$size" --ntasks="$size" --ntasks-per-node=1 --cpu-bind=none)
[ -z "$run" ] || flags+=(--nodelist="$hosts" --job-name="rdma-ray-$run" --input=none)
[ -z "$overlap" ] || flags+=(--overlap)
[ "$gpus" = 0 ] || flags+=(--gres="gpu:$gpus")
# Since Slurm 22.05, a step does not inherit it (srun(1)).
[ -z "${SLURM_CPUS_PER_TASK-}" ] || flags+=(--cpus-per-task="$SLURM_CPUS_PER_TASK")
case $image in
'') ;;
*.tar | *.tar.gz | *.tgz)
    engine=yes archive=$image
    tag=$(tar -xOf "$archive" manifest.json | tr ',' '\n' | sed -n 's/.*"RepoTags": *\["\([^"]*\)".*/\1/p' | head -n 1)
    if [ -z "$tag" ]; then
        echo "rdma-ray: --image $archive names no image: write it by \`docker save NAME:TAG\`" >&2
        exit 1
    fi
    ;;
*)
    # pyxis is a plugin of srun.
    if srun --help 2>&1 | grep -q -- --container-image; then
        shared=$storage:$storage,$package:$package
        for each in "${mounts[@]}"; do shared+=,${each%%:*}:${each#*:}; done
        flags+=(--container-image="$image" --container-mounts="$shared" --container-workdir="$storage")
    else
        engine=yes
    fi
    ;;
esac

# A cluster that stays has no hold on `$(rdma-ray slurm run)`.
output=1
[ -z "$run" ] || [ ${#command[@]} != 0 ] || output=2
srun "${flags[@]}" bash -c "$(declare -p storage package python wait_s machine fabric mounts engine archive tag folder)
$(declare -f node contained remove_folder)
"'node "$@"' node "${command[@]}" >&"$output" &
step=$!
if [ -n "$run" ] && [ ${#command[@]} = 0 ]; then
    until [ -e "$folder/outputs.json" ] || ! kill -0 "$step" 2>/dev/null; do sleep 0.5; done
    if [ -e "$folder/outputs.json" ]; then
        trap - EXIT
        echo "rdma-ray: the cluster ends with the allocation, or by \`scancel $(step_id)\`" >&2
        echo "$folder/outputs.json"
        exit
    fi
fi
wait "$step"
