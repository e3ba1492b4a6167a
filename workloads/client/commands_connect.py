"""`rdma-ray dashboard`, `serve` and `kubeconfig`: access with a browser, HTTP clients and kubectl."""

from __future__ import annotations

import shlex
import sys
import time
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from infra import listener
from infra.catalog.names import HEALTH
from infra.terminal import printable
from workloads.client.connection import Connection
from workloads.client.forward import Forward
from workloads.client.stack import read_outputs
from workloads.exits import Exit, WorkloadError
from workloads.options import Flat, StackOptions, option
from workloads.results.files import read_bytes, write_file

PAUSE_S = 2.0  # between checks of the port-forward
ANSWER_S = 10.0


def dashboard(
    *,
    open_browser: Annotated[bool, option(name="--open", help="Open it in a browser.")] = False,
    show_token: Annotated[bool, option(help="Print Ray's token, which the dashboard asks for once.")] = False,
    options: Flat[StackOptions] = StackOptions(),
) -> int:
    """Print the URL of Ray's dashboard, and keep it open.

    On a cloud, a port-forward to it lasts until Ctrl-C.

    Example: rdma-ray dashboard --stack gke --open
    Exit codes: 0 closed by Ctrl-C (without a port-forward: at once), 1 no
    connection.
    """
    with Connection(options) as stack:
        stack.api.version()
        forward = stack.forward
        url = forward.address() if forward else stack.outputs.ray.dashboard
        print(url, flush=True)
        if show_token:
            print(stack.outputs.ray.token.get_secret_value(), flush=True)
        else:
            print("it asks for Ray's token once: --show-token prints it", file=sys.stderr)
        if open_browser and not webbrowser.open(url):
            print("no browser found: open the URL yourself", file=sys.stderr)
        if forward is not None:
            keep_open(forward, stack.api.version)
    return Exit.OK


def serve(
    *,
    show_token: Annotated[bool, option(help="Print its token, for example as an OpenAI client's API key.")] = False,
    options: Flat[StackOptions] = StackOptions(),
) -> int:
    """Print the URL of the service, and keep it open.

    On a cloud, a port-forward to it lasts until Ctrl-C, and moves with an
    upgrade. It also prints a request for curl that reads the token from a
    private file, so that no list of processes shows it.

    Example: rdma-ray serve --stack gke-service
    Exit codes: 0 closed by Ctrl-C (without a port-forward: at once), 1 no
    connection, or the stack serves nothing.
    """
    with Connection(options) as stack:
        forward, token = stack.serving, stack.serve_token.get_secret_value()
        url = forward.address() if forward else str(stack.outputs.ray.serve)
        if forward is None:
            refuse_other_user(url)
        print(url, flush=True)
        if show_token:
            print(token, flush=True)
        if forward is None:
            return Exit.OK
        answers(forward)
        header = forward.folder / "token"
        write_file(header, f"Authorization: Bearer {token}\n", mode=0o600)
        # The token goes to no proxy of the user's environment.
        print(f"curl --noproxy '*' -H @{header} {url}", file=sys.stderr)
        keep_open(forward, lambda: answers(forward))
    return Exit.OK


def answers(forward: Forward) -> None:
    """Ask a proxy of Ray Serve whether it takes requests, through a new port-forward if the last one lost its pod.

    WorkloadError if none does.
    """
    address = forward.address()
    try:
        status, _ = listener.get(f"{address}{HEALTH}", None, ANSWER_S, known=forward.runs(address))
        if status == 200:
            return
        reason = f"HTTP {status}"
    except OSError as error:
        reason = str(error)
    forward.drop(address)
    raise WorkloadError(
        f"Ray Serve does not answer at {address} ({reason}): it is starting or ending, or has no healthy replica; see"
        " `rdma-ray doctor`"
    )


def refuse_other_user(url: str) -> None:
    """Raise WorkloadError if another user of this machine listens at an address. One without an answer passes."""
    place = urlsplit(url)
    if place.scheme != "http" or not place.hostname:
        return
    with suppress(OSError, ValueError):
        try:
            listener.connect(place.hostname, place.port or 80, ANSWER_S).close()
        except listener.ListenerError as error:
            raise WorkloadError(f"{error}; ray.serve of the stack's outputs has this address") from None


def keep_open(forward: Forward, check: Callable[[], object]) -> None:
    """Restart the port-forward on its port, and report each change, until Ctrl-C."""
    forward.keep_port = True
    print("Ctrl-C closes the connection", file=sys.stderr)
    with suppress(KeyboardInterrupt):
        said = ""
        while True:
            try:
                time.sleep(PAUSE_S)
                check()
                problem = ""
            except WorkloadError as error:
                problem = str(error)
            if problem != said:
                print(printable(problem or "connected again"), file=sys.stderr)
            said = problem


def kubeconfig(
    file: Annotated[Path, option(help="File to write.", metavar="FILE")] = Path("kubeconfig"),
    /,
    *,
    force: Annotated[bool, option(help="Replace a file with other content.")] = False,
    options: Flat[StackOptions] = StackOptions(),
) -> None:
    """Write the stack's kubeconfig to a private file.

    It prints the line that makes your shell's kubectl use it.

    Example: rdma-ray kubeconfig ~/gke.kubeconfig --stack gke
    Exit codes: 0 written, 1 no kubeconfig, or the file has other content.
    """
    outputs = read_outputs(options)
    if outputs.context is not None:
        raise WorkloadError(f"the stack has no kubeconfig: it uses the context {outputs.context} of your kubeconfig")
    if outputs.kubeconfig is None:
        raise WorkloadError(f"a stack of target {outputs.target} has no Kubernetes and thus no kubeconfig")
    content = outputs.kubeconfig.get_secret_value()
    if file.exists() and not force and read_bytes(file) != content.encode():
        raise WorkloadError(f"{file} exists with other content, such as other clusters: name another file, or --force")
    write_file(file, content, mode=0o600)
    print(f"export KUBECONFIG={shlex.quote(str(file.resolve()))}")
