"""Jobs that the tests submit: what runs on the cluster, as text, since the pods have their own code."""

from __future__ import annotations

import base64
import textwrap


def running(code: str) -> list[str]:
    """The command that runs this code. Ray writes a job's command into its log, where it must not look like output."""
    return ["python", "-c", f"import base64; exec(base64.b64decode('{base64.b64encode(code.encode()).decode()}'))"]


GANG = textwrap.dedent(
    """
    import ray
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Within
    ray.init()
    group = placement_group([{"GPU": 8}] * 2, strategy="STRICT_SPREAD")
    ray.get(group.ready())
    @ray.remote(num_gpus=8, num_cpus=0)
    def where():
        return ray.util.get_node_ip_address()
    found = ray.get([where.options(scheduling_strategy=Within(group, index)).remote() for index in range(2)])
    assert len(set(found)) == 2, found
    print("ADDRESSES", *found)
    """
)
"""One task on each of two nodes with eight GPUs; prints their addresses."""

PATIENT = textwrap.dedent(
    """
    import os, time, ray
    ray.init()
    @ray.remote(num_gpus=8, num_cpus=0, max_retries=-1)
    def patient(seconds):
        print("BEGUN", ray.util.get_node_ip_address(), flush=True)
        time.sleep(seconds)
        return ray.util.get_node_ip_address()
    print("ENDED", ray.get(patient.remote(float(os.environ["PATIENCE_S"]))), flush=True)
    """
)
"""One task that needs a whole GPU node for PATIENCE_S seconds, and is tried again when its node is lost."""

ASK = textwrap.dedent(
    """
    import sys, urllib.error, urllib.request
    url, token = sys.argv[1:]
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        print("ANSWER", urllib.request.urlopen(request, timeout=20).status)
    except urllib.error.HTTPError as refused:
        print("ANSWER", refused.code)
    """
)
"""Asks a dashboard with a token; prints the status of its answer."""
