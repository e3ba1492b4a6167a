"""The stack file, typed and validated: one model per target, discriminated by `target`.

`infra.settings.load.load` reads the stack that Pulumi runs.
"""

from infra.settings.cloud import CloudSettings
from infra.settings.cluster import ClusterSettings
from infra.settings.eks import EksSettings
from infra.settings.gke import GkeSettings
from infra.settings.kubernetes import KubernetesSettings
from infra.settings.load import Settings, from_stack_file, parse, warnings
from infra.settings.local import LocalSettings
from infra.settings.problems import Problem, SettingsError

__all__ = ["CloudSettings", "ClusterSettings", "EksSettings", "GkeSettings", "KubernetesSettings", "LocalSettings"]
__all__ += ["Problem", "Settings", "SettingsError", "from_stack_file", "parse", "warnings"]
