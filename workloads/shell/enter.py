"""Program on a node for `rdma-ray shell` and `rdma-ray forward`: shows what runs there, or becomes a shell.

    python -I -S -c TEXT show TOKEN PORT
    python -I -S -c TEXT rank TOKEN JOB RANK [COMMAND …]
    python -I -S -c TEXT node TOKEN ADDRESS [COMMAND …]
    python -I -S -c TEXT pipe PORT

TOKEN is the file with Ray's token, which tells the clusters of a machine apart; empty in a pod. `show` prints a line of
JSON: the ranks, and the addresses that listen at PORT (0: none). `pipe` connects its streams to PORT of the loopback.
It travels in the command line (`reach.PROGRAM`), so that it also runs beside an older version: standard library only.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
TOKEN, JOB = "RAY_AUTH_TOKEN_PATH", "RDMA_RAY_JOB_ID"
MEMORY = "/memfd:rdma-ray-rank"  # workloads/rendezvous.py
SHELLS = ("sh", "bash", "dash")
LISTEN = "0A"  # state of a socket (linux: include/net/tcp_states.h)
Process = tuple[int, "dict[str, str]"]


def processes() -> Iterator[Process]:
    """Yield ID and variables of this user's processes. Another user could choose any variables."""
    for entry in sorted(PROC.glob("[0-9]*"), key=lambda found: int(found.name)):
        with suppress(OSError):
            if entry.stat().st_uid == os.geteuid():
                variables = os.fsdecode((entry / "environ").read_bytes()).split("\0")
                pairs = (variable.partition("=") for variable in variables)
                yield int(entry.name), published(entry) or {name: value for name, _, value in pairs if name}


def published(entry: Path) -> dict[str, str] | None:
    """Return the variables that a rank has published: Ray overwrites those of its workers in /proc."""
    for link in (entry / "fd").iterdir():
        with suppress(OSError):
            if str(link.readlink()).startswith(MEMORY):
                found = json.loads(link.read_bytes())
                # A fork has its parent's.
                if found["pid"] == int(entry.name):
                    variables: dict[str, str] = found["variables"]
                    return variables
    return None


def ranks(token: str) -> dict[tuple[str, int], Process]:
    """Return the process of each rank by job and rank: the first one of its tree that is not a shell."""
    found: dict[tuple[str, int], dict[int, dict[str, str]]] = {}
    for pid, variables in processes():
        job, rank = variables.get(JOB), variables.get("RANK", "")
        ours = not token or variables.get(TOKEN) == token
        # A shell of this program has RANK_PID.
        if job and ours and re.fullmatch("[0-9]{1,6}", rank) and "RANK_PID" not in variables:
            found.setdefault((job, int(rank)), {})[pid] = variables
    return {key: first(tree) for key, tree in found.items()}


def first(tree: dict[int, dict[str, str]]) -> Process:
    """Return the uppermost process of a rank. Below torchrun's wrapper or `sh -c`, it is what the shell started."""
    stats = {pid: stat(pid) for pid in tree}
    pid = min((pid for pid in tree if stats[pid][1] not in tree), default=min(tree))
    while stats[pid][0] in SHELLS and (below := [child for child in tree if stats[child][1] == pid]):
        pid = min(below)
    return pid, tree[pid]


def stat(pid: int) -> tuple[str, int]:
    """Return name and parent of a process; "" and 0 if it has ended."""
    with suppress(OSError):
        name, _, rest = (PROC / str(pid) / "stat").read_text(errors="replace").partition("(")[2].rpartition(") ")
        return name, int(rest.split()[1])
    return "", 0


def raylet(token: str, address: str) -> Process | None:
    """Return the process of Ray at an address, with the address of its cluster as RAY_ADDRESS."""
    for pid, variables in processes():
        if variables.get(TOKEN) == token and stat(pid)[0] == "raylet":
            words = os.fsdecode((PROC / str(pid) / "cmdline").read_bytes()).split("\0")
            options = dict(word.lstrip("-").split("=", 1) for word in words if word.startswith("--") and "=" in word)
            if options.get("node_ip_address") == address:
                return pid, {**variables, "RAY_ADDRESS": options.get("gcs-address", "")}
    return None


def listening(port: int) -> list[str]:
    """Return the addresses on which a process listens at a port."""
    found = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (PROC / "net" / table).read_text().splitlines()[1:]:
                _, local, _, state, *_ = line.split()
                address, _, number = local.partition(":")
                if state == LISTEN and int(number, 16) == port:
                    # Words of 32 bits in the machine's byte order (proc(5), /proc/net/tcp, read 2026-11).
                    words = (int(address[at : at + 8], 16) for at in range(0, len(address), 8))
                    found.add(str(ipaddress.ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words))))
    return sorted(found)


def become(process: Process, command: list[str], **more: str) -> None:
    """Replace this process by a command, or a shell, with the folder and the variables of another one."""
    pid, variables = process
    environment = {**variables, **more}
    if term := os.environ.get("TERM"):
        environment["TERM"] = term
    with suppress(OSError):
        os.chdir(PROC / str(pid) / "cwd")
        environment["PWD"] = str(Path.cwd())
    path, programs = environment.get("PATH", os.defpath), str(Path(sys.executable).parent)
    if programs not in path.split(os.pathsep):  # `ray` and `py-spy`, on a local stack
        environment["PATH"] = path = programs + os.pathsep + path
    words = command or ["bash" if shutil.which("bash", path=path) else "sh"]
    try:
        os.execvpe(words[0], words, environment)
    except OSError as error:
        print(f"cannot run {words[0]!r}: {error.strerror}", file=sys.stderr)
        raise SystemExit(127 if isinstance(error, FileNotFoundError) else 126) from None


def pipe(port: int) -> None:
    """Pass bytes between the standard streams and a port of the loopback until either side ends."""
    with socket.create_connection(("localhost", port)) as connection:

        def receive() -> None:
            while data := connection.recv(2**16):
                while data:
                    data = data[os.write(1, data) :]
            os._exit(0)

        threading.Thread(target=receive, daemon=True).start()
        while data := os.read(0, 2**16):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        threading.Event().wait()


def main(mode: str, *arguments: str) -> None:
    """Run a mode of the program."""
    if mode == "pipe":
        return pipe(int(arguments[0]))
    token, what, *words = arguments
    if mode == "show":
        rows = [
            {"job": job, "rank": rank, "world": variables.get("WORLD_SIZE", ""), "pid": pid}
            for (job, rank), (pid, variables) in ranks(token).items()
        ]
        node = os.environ.get("SLURMD_NODENAME", "")
        return print(json.dumps({"node": node, "ranks": rows, "listening": listening(int(what))}))
    if mode == "rank":
        found = ranks(token).get((what, int(words[0])))
        if found is None:
            raise SystemExit(f"rank {words[0]} of job {what} has ended")
        return become(found, words[1:], RANK_PID=str(found[0]))
    node_process = raylet(token, what)
    if node_process is None:
        raise SystemExit(f"no Ray runs at {what}")
    return become(node_process, words)


if __name__ == "__main__":
    main(*sys.argv[1:])
