"""Simulated pulumi-random: a password is generated once and kept in the state."""

from __future__ import annotations

import secrets
import string

from rehearsal.engine.kind import Call, Cloud, Json, Kind

_ARGUMENTS = frozenset({"length", "special", "lower", "upper", "number", "numeric", "keepers", "overrideSpecial"})


def _password(call: Call) -> Json:
    if "result" in call.live:
        return {"result": call.live["result"], "bcryptHash": call.live["bcryptHash"]}
    alphabet = string.ascii_letters + string.digits
    result = "".join(secrets.choice(alphabet) for _ in range(int(call.inputs["length"])))
    return {"result": result, "bcryptHash": f"$2a$10${secrets.token_hex(20)}"}


CLOUD = Cloud(
    package="random",
    kinds={
        "random:index/randomPassword:RandomPassword": Kind(
            type="random:index/randomPassword:RandomPassword",
            identify=lambda _inputs, _config: "none",
            compute=_password,
            replace_on=_ARGUMENTS,
            remembered=False,
        )
    },
)
