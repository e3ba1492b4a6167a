"""The simulated AWS: every kind with its rules, and the functions. Which API refuses what is in `kinds_…`."""

from __future__ import annotations

from rehearsal.clouds.aws import kinds_account, kinds_cluster, kinds_network
from rehearsal.clouds.aws.functions import FUNCTIONS
from rehearsal.clouds.aws.trouble import TROUBLE
from rehearsal.clouds.kind import Cloud

_KINDS = (*kinds_network.KINDS, *kinds_cluster.KINDS, *kinds_account.KINDS)

CLOUD = Cloud(
    package="aws",
    kinds={kind.type: kind for kind in _KINDS},
    functions=FUNCTIONS,
    # A provider of another region finds nothing of what it made.
    replace_on=frozenset({"region"}),
    trouble=TROUBLE,
)
