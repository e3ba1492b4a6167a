"""Entry point of a pod."""

from __future__ import annotations

import asyncio
import signal
import sys

from .exits import STOPPED
from .head import Head
from .part import GRACE_S, OverError
from .pod import Pod, pod_of
from .worker import Worker


async def run(pod: Pod) -> int:
    """Run this pod from start to end; return its exit code."""
    part: Head | Worker = Head(pod) if pod.index == 0 else Worker(pod)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, part.end, STOPPED, "this pod was asked to end")
    try:
        code = await part.run()
        why = "the entry point ended"
    except OverError as over:
        code, why = over.code, str(over)
    pod.say(f"{why}; exit code {code}")
    await part.dismiss(code, why)
    await part.stop(GRACE_S)
    return code


if __name__ == "__main__":
    sys.exit(asyncio.run(run(pod_of(sys.argv[1:]))))
