"""How clients reach the control plane: a kubeconfig without a secret in it.

Pure. The client asks the cloud's own command for a token each time, so none ends up in a file or in the state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from infra.catalog.pins import EXEC_CREDENTIAL_API


def kubeconfig(cluster: str, server: str, ca: str | None, ask: Mapping[str, Any]) -> str:
    """A kubeconfig as JSON, which is YAML.

    server: the API server's URL. ca: the cluster's certificate authority, base64; None for one that every system
    trusts. ask: the command that prints a token, as client-go's exec credentials name its parts.
    """
    reached = {"server": server, **({} if ca is None else {"certificate-authority-data": ca})}
    command = {"apiVersion": EXEC_CREDENTIAL_API, **ask, "interactiveMode": "IfAvailable"}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": cluster,
            "clusters": [{"name": cluster, "cluster": reached}],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
            "users": [{"name": cluster, "user": {"exec": command}}],
        }
    )
