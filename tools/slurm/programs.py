"""Programs of a Slurm cluster, and the packages that have them. Standard library only, for `tools.ci`."""

from __future__ import annotations

import os
import shutil
import sys

from tools.kubernetes.containers import Missing

PACKAGES = "slurm-wlm munge iproute2"
PATH = f"/usr/sbin:/sbin:{os.environ.get('PATH', os.defpath)}"
NEEDS = f"A real Slurm needs root on Linux, with namespaces, and `apt-get install -y {PACKAGES}` (Debian, Ubuntu)"
_PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "scontrol", "ip", "unshare", "nsenter", "setpriv")


def found() -> None:
    """Raise Missing with the requirements if this is not root on Linux, or a program is missing."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise Missing(f"{NEEDS}: this is not root on Linux.")
    if missing := [name for name in _PROGRAMS if shutil.which(name, path=PATH) is None]:
        raise Missing(f"{NEEDS}: missing are {', '.join(missing)}.")
