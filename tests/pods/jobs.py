"""Jobs of the tests: code that runs on the cluster, as text, since the pods have their own code."""

from __future__ import annotations

import base64
import textwrap

from infra.catalog.fabrics import GIB_FOLDER, INSTALLED


def running(code: str) -> list[str]:
    """Return the command that runs this code. Ray writes a job's command into its log, where it must not look like
    output."""
    return ["python", "-c", f"import base64; exec(base64.b64decode('{base64.b64encode(code.encode()).decode()}'))"]


PLACED = textwrap.dedent(
    """
    import ray
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Within
    ray.init()
    group = placement_group([{"GPU": 8}] * 2, strategy="STRICT_SPREAD")
    ray.get(group.ready())
    def on_each(task):
        wanted = (task.options(scheduling_strategy=Within(group, index)).remote(index) for index in range(2))
        return ray.get(list(wanted))
    """
)
"""Runs a task on each of two nodes with eight GPUs, by `on_each`."""

GANG = PLACED + textwrap.dedent(
    """
    @ray.remote(num_gpus=8, num_cpus=0)
    def where(index):
        return ray.util.get_node_ip_address()
    found = on_each(where)
    assert len(set(found)) == 2, found
    """
)
"""One task on each of two nodes."""

INSTALLED_GANG = PLACED + textwrap.dedent(
    f"""
    import os, psutil
    @ray.remote(num_gpus=8, num_cpus=0)
    def late(index):
        written = os.stat("{GIB_FOLDER}/{INSTALLED}").st_mtime
        began, ray_began = (psutil.Process(each).create_time() for each in (1, os.getppid()))
        assert written < ray_began, (written, ray_began)
        return written - began, os.environ.get("RDMA_RAY_STAND_IN")
    (first, one), (last, other) = sorted(on_each(late))
    assert first < 0 < last and one == other == "gib", (first, one, last, other)
    """
)
"""The same. On each node Ray has started after gIB was written, and with its settings; one container waited for it."""

NOTIFIED = textwrap.dedent(
    """
    import time, ray
    from ray._private.state import state
    ray.init()
    @ray.remote(num_gpus=8, num_cpus=0)
    class Held:
        def where(self):
            return ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id()
    held = Held.remote()
    address, node = ray.get(held.where.remote())
    print("BEGUN", address, flush=True)
    # Another test's lost node is listed as draining, too, until Ray finds out that it is dead.
    while not (deadline_ms := state.get_draining_nodes().get(node)):
        time.sleep(0.2)
    print("SECONDS", round(deadline_ms / 1000 - time.time()), flush=True)
    time.sleep(5)
    ray.get(held.where.remote())
    print("WRITTEN", flush=True)
    """
)
"""An actor holds a whole GPU node; the driver prints the time that it has once this node is draining, and uses some."""

TRIES = textwrap.dedent(
    """
    import time, ray
    ray.init()
    @ray.remote(num_cpus=0, resources={"node:__internal_head__": 0.001})
    class Tries:
        count = 0
        def next(self):
            self.count += 1
            return self.count
    @ray.remote(num_gpus=8, num_cpus=0, max_retries=-1)
    def patient(tries):
        number = ray.get(tries.next.remote())
        print("TRY", number, ray.util.get_node_ip_address(), flush=True)
        if number == 1:
            time.sleep(600)
        return number
    print("ENDED", ray.get(patient.remote(Tries.remote())), flush=True)
    """
)
"""One task that needs a whole GPU node, and ends only on its second try: its first node must fail."""

WAITING = textwrap.dedent(
    """
    import pathlib, sys, time
    print("FIRST WORDS", flush=True)
    while not pathlib.Path("/tmp/end").exists():
        time.sleep(0.2)
    print("LAST WORDS", flush=True)
    sys.exit(7)
    """
)
"""Runs until a file exists; ends with exit code 7."""

COUNTING = textwrap.dedent(
    """
    import itertools, pathlib, sys, time
    for number in itertools.count():
        print("LINE", number, flush=True)
        if pathlib.Path("/tmp/counted").exists():
            break
        time.sleep(0.1)
    print("LAST", number, flush=True)
    sys.exit(7)
    """
)
"""Prints lines until a file exists; ends with exit code 7."""

ASK = textwrap.dedent(
    """
    import sys, urllib.error, urllib.request
    url, *tokens = sys.argv[1:]
    for token in tokens:
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
        try:
            print("ANSWER", urllib.request.urlopen(request, timeout=20).status)
        except urllib.error.HTTPError as refused:
            print("ANSWER", refused.code)
    """
)
"""Requests a dashboard with each of these tokens ("" is none); prints the status of each answer."""

HELD = textwrap.dedent(
    """
    import os, pathlib, time, ray
    ray.init()
    @ray.remote(num_gpus=8, num_cpus=0)
    class Held:
        name = os.urandom(8).hex()
        def who(self):
            return ray.util.get_node_ip_address(), os.getpid(), self.name
    held = Held.remote()
    first = ray.get(held.who.remote())
    print("BEGUN", *first, flush=True)
    while not pathlib.Path("/tmp/continue").exists():
        time.sleep(0.2)
    assert ray.get(held.who.remote()) == first
    """
)
"""An actor holds a whole GPU node until a file exists on the head; fails if the actor has changed by then."""
