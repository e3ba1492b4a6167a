"""Job on a real Ray cluster through the dashboard's REST API, as a user submits one.

REST API of jobs: Ray 2.60, dashboard/modules/job/job_head.py.
"""

from __future__ import annotations

import base64
import textwrap
import uuid

import requests

from rehearsal.cluster.phases import PhaseError

FINAL = ("SUCCEEDED", "FAILED", "STOPPED")
_REQUEST_S = 60.0
_WORD = "ADDRESSES"
_CODE = textwrap.dedent(
    """
    import ray
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Within
    ray.init()
    nodes, share = {nodes}, {share}
    group = placement_group([share] * nodes, strategy="STRICT_SPREAD")
    ray.get(group.ready())
    @ray.remote(num_gpus=share.get("GPU", 0), num_cpus=share.get("CPU", 0))
    def where():
        return ray.util.get_node_ip_address()
    found = [where.options(scheduling_strategy=Within(group, index)).remote() for index in range(nodes)]
    print("{word}", *sorted(set(ray.get(found))))
    """
)


def code(nodes: int, gpus: int) -> str:
    """Return a program with one task per node, which takes all of its GPUs, and prints the nodes' addresses."""
    return _CODE.format(nodes=nodes, share={"GPU": gpus} if gpus else {"CPU": 1}, word=_WORD)


def addresses(log: str) -> list[str]:
    """Return the distinct addresses that the program printed; empty if it did not get that far."""
    lines = [line.split()[1:] for line in log.splitlines() if line.startswith(f"{_WORD} ")]
    return lines[-1] if lines else []


class Job:
    """Submitted job. `port` is a local port of the dashboard."""

    def __init__(self, port: int, token: str, program: str) -> None:
        self.id = f"rehearsal-{uuid.uuid4().hex[:6]}"
        self._port = port
        self._token = token
        # Ray writes the command into the log, where it must not look like output.
        encoded = base64.b64encode(program.encode()).decode()
        entrypoint = f"python -c \"import base64; exec(base64.b64decode('{encoded}'))\""
        _ask("POST", port, token, "", {"entrypoint": entrypoint, "submission_id": self.id})

    def status(self) -> str:
        """Ray's status: PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED."""
        return str(_ask("GET", self._port, self._token, self.id).json().get("status"))

    def log(self) -> str:
        """The job's output so far."""
        return log_of(self._port, self._token, self.id)


def log_of(port: int, token: str, job: str) -> str:
    """Return the output of a job so far."""
    return str(_ask("GET", port, token, f"{job}/logs").json().get("logs") or "")


def _ask(verb: str, port: int, token: str, path: str, body: object = None) -> requests.Response:
    headers = {"Authorization": f"Bearer {token}"}
    with requests.Session() as session:
        # Loopback needs neither a proxy of the user's environment nor a password of .netrc.
        session.trust_env = False
        address = f"http://127.0.0.1:{port}/api/jobs/{path}"
        try:
            answer = session.request(verb, address, headers=headers, json=body, timeout=_REQUEST_S)
        except requests.RequestException as problem:
            raise PhaseError(f"{verb} /api/jobs/{path}: {type(problem).__name__}: {problem}") from problem
    if answer.status_code != 200:
        raise PhaseError(f"{verb} /api/jobs/{path}: {answer.status_code} {answer.text[:500]}")
    return answer
