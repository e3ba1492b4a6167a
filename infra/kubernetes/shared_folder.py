"""A folder that every Ray pod sees under the same path, as the cloud mounts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class SharedFolder:
    """mount_path: where pods see it; annotations: what pods must carry; volume: the volume without its name."""

    mount_path: str
    annotations: Mapping[str, str]
    volume: Mapping[str, Any]
