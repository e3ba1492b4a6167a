"""`rdma-ray shell` and `rdma-ray forward`: a shell, or a port, in the head, on a node, or where a rank runs."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import sys
from contextlib import suppress
from typing import Annotated

from infra import listener
from infra.outputs import FORWARDED
from workloads.client.commands_connect import keep_open
from workloads.client.connection import Connection
from workloads.client.forward import Forward
from workloads.exits import Exit, WorkloadError
from workloads.options import Flat, StackOptions, option
from workloads.shell.reach import NodeReport, PodReach, Reach, SlurmReach, reach
from workloads.shell.relay import CONNECT_S, Relay
from workloads.shell.target import HEAD, Target, target_of

LAST_PORT = 65_535
Job = Annotated[
    str | None,
    option(name="--job", metavar="ID", help="Job of the rank. [default: the only one whose ranks run]"),
]


def shell(
    *where: Annotated[str, option(help="Node or rank. A command follows after `--`.", show=True)],
    job: Job = None,
    options: Flat[StackOptions] = StackOptions(),
) -> int:
    """Open a shell in the head, on a node, or where a rank runs.

    WHERE is `head` (the default), a node by its address or name in `status`, `top`
    and kubectl, or a rank such as `rank:3` or `3`. The shell of a rank has its
    working directory and its variables, and RANK_PID, the ID of its process. With
    COMMAND, it runs instead of a shell. With a terminal on stdin and stdout,
    Ctrl-C reaches the shell and what runs in it.

    Example: rdma-ray shell rank:3 -- sh -c 'py-spy dump --pid $RANK_PID'
    Exit codes: that of the shell or the command; 1 also without a connection.
    """
    # Before a command, `cli.prepared` leaves a `--`.
    at = where.index("--") if "--" in where else len(where)
    node, command = where[:at], where[at + 1 :]
    if len(node) > 1:
        raise WorkloadError(f"{' '.join(node)!r} is more than one node: write the command after `--`")
    with Connection(options) as stack:
        way = reach(stack)
        target = target_of(way, node[0] if node else HEAD, job)
        run = way.in_node(target.place, command) if target.rank is None else way.in_rank(target.rank, command)
        return way.run(target.place, run)


def forward(
    port: Annotated[int, option(help="Port of the process.", metavar="PORT")],
    where: Annotated[str, option(help="Node or rank, as for `shell`.", metavar="[WHERE]")] = HEAD,
    /,
    *,
    job: Job = None,
    local: Annotated[int, option(help="Port of this machine; 0 is a free one.", metavar="PORT")] = 0,
    options: Flat[StackOptions] = StackOptions(),
) -> int:
    """Forward a port of a node or a rank to this machine.

    It prints the address on 127.0.0.1, and lasts until Ctrl-C. The process may
    listen on 127.0.0.1 of its container only, as Jupyter and TensorBoard do.

    Example: rdma-ray forward 6006 rank:0 --stack gke
    Exit codes: 0 closed by Ctrl-C (a local stack whose port this machine has: at
    once), 1 nothing listens there, or no connection.
    """
    for name, number, least in (("PORT", port, 1), ("--local", local, 0)):
        if not least <= number <= LAST_PORT:
            raise WorkloadError(f"{name} {number}: write a port from {least} to {LAST_PORT}")
    with Connection(options) as stack:
        way = reach(stack)
        target = target_of(way, where, job, port)
        if isinstance(way, PodReach):
            return _forward_pod(way, target, port, local)
        if isinstance(way, SlurmReach):
            return _forward_slurm(way, target, port, local)
        return _forward_local(way, port, local)


def _forward_pod(way: PodReach, target: Target, port: int, local: int) -> int:
    _reachable(way, target, port)
    _free(local).close()
    with Forward(way.stack.kubectl, way.stack.outputs, port, pod=target.place.name, local=local) as tunnel:
        print(tunnel.address(), flush=True)
        keep_open(tunnel, tunnel.address)
    return Exit.OK


def _forward_slurm(way: SlurmReach, target: Target, port: int, local: int) -> int:
    address = target.place.addresses[0]
    beyond = [each for each in _listening(way, target, port) if not each.is_loopback]
    if any(each.is_unspecified or str(each) == address for each in beyond):
        return _relay(Relay(address, port), local)
    _reachable(way, target, port)
    step = way.step([target.place], way.program("pipe", str(port)))
    return _relay(Relay(target.place.name, port, step), local)


def _forward_local(way: Reach, port: int, local: int) -> int:
    """All nodes are this machine: the first of their addresses at which a process of this user listens counts."""
    for host in (FORWARDED, *(place.addresses[0] for place in way.places())):
        try:
            listener.connect(host, port, CONNECT_S).close()
        except listener.ListenerError as error:
            raise WorkloadError(str(error)) from None
        except OSError:
            continue
        if host == FORWARDED and local in (0, port):
            print(f"http://{host}:{port}", flush=True)
            return Exit.OK
        return _relay(Relay(host, port), local)
    raise WorkloadError(f"nothing listens at port {port} on this machine: start it first")


def _relay(relay: Relay, local: int) -> int:
    with _free(local) as server:
        print(f"http://{FORWARDED}:{server.getsockname()[1]}", flush=True)
        print("Ctrl-C closes the connection", file=sys.stderr)
        with suppress(KeyboardInterrupt):
            asyncio.run(relay.run(server))
    return Exit.OK


def _free(local: int) -> socket.socket:
    """Return a socket that listens at a port of this machine. WorkloadError if the port is taken."""
    try:
        return socket.create_server((FORWARDED, local))
    except OSError as error:
        reason = os.strerror(error.errno or 0)  # without Python's words about the address
        raise WorkloadError(f"--local {local}: {reason} on {FORWARDED}: choose another port, or leave it out") from None


def _reachable(way: Reach, target: Target, port: int) -> None:
    """Raise WorkloadError if nothing listens at a port of the target's loopback, to which a forward connects."""
    found = _listening(way, target, port)
    if not any(each.is_loopback or each.is_unspecified for each in found):
        raise WorkloadError(
            f"port {port} of {target.place.name} listens at {', '.join(map(str, found))} only, and a forward reaches"
            f" the loopback: let it listen at {FORWARDED} or 0.0.0.0"
        )


def _listening(way: Reach, target: Target, port: int) -> list[listener.Address]:
    """Return the addresses at which a process on the target's node listens. WorkloadError if there are none."""
    report = target.report or _ask(way, target, port)
    try:
        found = [ipaddress.ip_address(text) for text in report.listening]
    except ValueError as error:
        raise WorkloadError(f"{target.place.name}: the answer is not a report: {error}") from None
    if not found:
        raise WorkloadError(f"nothing listens at port {port} of {target.place.name}: start it there first")
    return [getattr(each, "ipv4_mapped", None) or each for each in found]


def _ask(way: Reach, target: Target, port: int) -> NodeReport:
    reports, silent = way.ask([target.place], port)
    if not reports:
        raise WorkloadError(silent[0])
    return reports[0][1]
