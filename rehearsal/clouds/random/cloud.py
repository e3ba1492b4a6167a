"""Simulated pulumi-random: a password and an id are generated once and kept in the state."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable

from rehearsal.engine.kind import Call, Cloud, Json, ResourceKind
from rehearsal.engine.values import digest

_ARGUMENTS = frozenset({"length", "special", "lower", "upper", "number", "numeric", "keepers", "overrideSpecial"})


def _password(call: Call) -> Json:
    if "result" in call.live:
        return {"result": call.live["result"], "bcryptHash": call.live["bcryptHash"]}
    alphabet = string.ascii_letters + string.digits
    result = "".join(secrets.choice(alphabet) for _ in range(int(call.inputs["length"])))
    return {"result": result, "bcryptHash": f"$2a$10${secrets.token_hex(20)}"}


def _id(call: Call) -> Json:
    """Return the id of a clone. It is the same in every rehearsal, but for a second clone that a test sets up."""
    return {"hex": digest(f"clone {call.state.setting('clone', 1)}", 2 * int(call.inputs["byteLength"]))}


def _kind(name: str, compute: Callable[[Call], Json], arguments: frozenset[str]) -> ResourceKind:
    type_ = f"random:index/{name[0].lower()}{name[1:]}:{name}"
    return ResourceKind(
        type=type_, identify=lambda _inputs, _config: "none", compute=compute, replace_on=arguments, remembered=False
    )


_KINDS = (
    _kind("RandomPassword", _password, _ARGUMENTS),
    _kind("RandomId", _id, frozenset({"byteLength", "keepers", "prefix"})),
)
CLOUD = Cloud(package="random", kinds={kind.type: kind for kind in _KINDS})
