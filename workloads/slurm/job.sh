# One step of Slurm starts one Ray node on each node of the allocation (workloads/slurm/node.py, docs/slurm.md).
# The folder of this job has Ray's token and the outputs for `rdma-ray … --outputs FILE`; it goes with the job.
umask 077
if ! mkdir -p -- "$storage" || ! storage=$(cd -- "$storage" && pwd -P); then
    echo "rdma-ray: storage $storage cannot be used on $SLURMD_NODENAME: name a folder that you can write, by --storage" >&2
    exit 1
fi
folder=$storage/job-$SLURM_JOB_ID

ended() {
    code=$?
    trap '' HUP INT TERM
    # Slurm has signaled the step's nodes as well. They leave nothing behind if they have the time (KillWait).
    wait
    rm -rf -- "$folder"
    exit "$code"
}
trap ended EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

rm -rf -- "$folder"
mkdir -- "$folder"
(od -An -tx1 -N32 /dev/urandom | tr -d ' \n') >"$folder/token"
# Name and address of each node, as Slurm itself reaches it.
scontrol --oneliner show node "$SLURM_JOB_NODELIST" |
    sed -n 's/^NodeName=\([^ ]*\) .* NodeAddr=\([^ ]*\) .*/\1 \2/p' >"$folder/nodes"

# Runs on each node: `node WORD …` starts Ray there, in a container if the step is in none.
node() {
    local code words=("$python" -u -m workloads.slurm.node "$folder" "$wait_s" "$@")
    # Slurm signals this shell as well, and kills what is left when it ends.
    trap : HUP INT TERM
    export PYTHONPATH=$package
    if [ -z "$engine" ]; then
        "${words[@]}"
    else
        contained "${words[@]}"
    fi
    code=$?
    # The head waits for this node: it reads here that it waits in vain.
    [ "$code" = 0 ] || echo "$code" 2>/dev/null >"$folder/failed-$SLURMD_NODENAME"
    return "$code"
}

# Runs a command in a container of docker or podman, which are outside of Slurm's control: the container ends when its
# standard input does, and with this shell.
contained() {
    local name=rdma-ray-$SLURM_JOB_ID-$SLURM_NODEID flags=(--rm -i --name "$name" --network=host --ipc=host) each code
    local tool=docker tag=$image
    command -v docker >/dev/null || tool=podman
    if ! command -v "$tool" >/dev/null; then
        echo "rdma-ray: $SLURMD_NODENAME has neither pyxis nor docker nor podman, which --image needs" >&2
        return 1
    fi
    case $image in
    *.tar | *.tar.gz | *.tgz)
        tag=$(tar -xOf "$image" manifest.json | tr ',' '\n' | sed -n 's/.*"RepoTags": *\["\([^"]*\)".*/\1/p' | head -n 1)
        if [ -z "$tag" ]; then
            echo "rdma-ray: $image names no image: write it by \`docker save NAME:TAG\`" >&2
            return 1
        fi
        "$tool" image inspect "$tag" >/dev/null 2>&1 || "$tool" load --input "$image" || return
        ;;
    *) "$tool" image inspect "$tag" >/dev/null 2>&1 || "$tool" pull "$tag" || return ;;
    esac
    for each in /dev/infiniband/* /dev/gdrdrv; do
        [ ! -e "$each" ] || flags+=("--device=$each")
    done
    # RDMA pins memory.
    flags+=(--ulimit=memlock=-1 --ulimit=stack=67108864 --user "$(id -u):$(id -g)")
    [ "$tool" = docker ] || flags+=(--userns=keep-id)
    if [ -e /dev/nvidiactl ]; then
        # The GPUs that Slurm gave to this job.
        case $tool in
        docker) flags+=("--gpus=\"device=${CUDA_VISIBLE_DEVICES:-all}\"") ;;
        podman) flags+=(--device=nvidia.com/gpu=all) ;;
        esac
    fi
    for each in "$storage" "$package" "${mounts[@]}"; do
        flags+=("--volume=${each%%:*}:${each#*:}")
    done
    flags+=("--workdir=$storage" --env=PYTHONPATH --env=HOME="$storage" --env=USER --env=CUDA_VISIBLE_DEVICES)
    while read -r each; do flags+=("--env=$each"); done < <(compgen -e | grep -E '^SLURM')
    # After SIGKILL of this shell, Slurm ends `sleep`, and with it the container's input.
    trap '"$tool" stop --time 15 "$name" >/dev/null 2>&1' TERM INT
    sleep infinity | "$tool" run "${flags[@]}" "$tag" "$@" &
    wait $!
    code=$?
    # `wait` returns for the signal, and a second time for the container.
    wait $! 2>/dev/null
    "$tool" rm --force "$name" >/dev/null 2>&1
    pkill -P $$ sleep 2>/dev/null
    return "$code"
}

engine=
flags=(--nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --cpu-bind=none)
# Since Slurm 22.05, a step does not inherit it (srun(1)).
[ -z "${SLURM_CPUS_PER_TASK-}" ] || flags+=(--cpus-per-task="$SLURM_CPUS_PER_TASK")
if [ -n "$image" ]; then
    archive=$(case $image in *.tar | *.tar.gz | *.tgz) echo yes ;; esac)
    if [ -z "$archive" ] && srun --help 2>&1 | grep -q -- --container-image; then
        shared=$storage:$storage,$package:$package
        for each in "${mounts[@]}"; do shared+=,${each%%:*}:${each#*:}; done
        flags+=(--container-image="$image" --container-mounts="$shared" --container-workdir="$storage")
    else
        engine=yes
    fi
fi

srun "${flags[@]}" bash -c "$(declare -p storage package python image wait_s mounts engine folder)
$(declare -f node contained)
"'node "$@"' node "${command[@]}" &
wait $!
