"""A Slurm cluster's programs, their packages, and its configuration. Standard library only, for `tools.ci`."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.kubernetes.containers import Missing

PACKAGES = "slurm-wlm munge iproute2"
PATH = f"/usr/sbin:/sbin:{os.environ.get('PATH', os.defpath)}"
NEEDS = f"A real Slurm needs root on Linux, with namespaces, and `apt-get install -y {PACKAGES}` (Debian, Ubuntu)"
_PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "scontrol", "ip", "unshare", "nsenter", "setpriv")

GPUS = 2
"""GPUs of each node: devices like /dev/null, which Slurm assigns. It refuses other files."""

# Unlike a site's, it has no accounting, and nodes report more CPUs than this machine has. linuxproc and task/none need
# no cgroups (slurm.conf(5), 22.05). Times are for a busy machine: KillWait is 30 by default, and UnkillableStepTimeout
# 60, after which a node is drained.
_CONF = """ClusterName=test
SlurmctldHost=login({controller})
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
MpiDefault=none
SwitchType=switch/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SlurmdParameters=config_overrides
MessageTimeout=60
KillWait=60
UnkillableStepTimeout=180
ReturnToService=2
SlurmdTimeout={timeout_s}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=60 DefaultTime=10 OverSubscribe=NO State=UP
"""


def found() -> None:
    """Raise Missing with the requirements if this is not root on Linux, or a program is missing."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise Missing(f"{NEEDS}: this is not root on Linux.")
    if missing := [name for name in _PROGRAMS if shutil.which(name, path=PATH) is None]:
        raise Missing(f"{NEEDS}: these are missing: {', '.join(missing)}.")


def gpus(folder: Path) -> str:
    """Create the devices of the GPUs, and return gres.conf."""
    for number in range(GPUS):
        os.mknod(folder / f"gpu{number}", stat.S_IFCHR, os.makedev(1, 3))
    return f"Name=gpu File={folder}/gpu[0-{GPUS - 1}]\n"


def configuration(folder: Path, addresses: Mapping[str, str], cpus: int, timeout_s: int) -> str:
    """Return slurm.conf.

    Args:
        addresses: Address by name of each machine, the last one slurmctld's.
        timeout_s: Seconds after which a node that does not answer is DOWN.
    """
    *nodes, (_, controller) = addresses.items()
    lines = [
        f"NodeName={name} NodeAddr={address} CPUs={cpus} RealMemory=16000 Gres=gpu:{GPUS}" for name, address in nodes
    ]
    return _CONF.format(folder=folder, controller=controller, timeout_s=timeout_s, nodes="\n".join(lines))
