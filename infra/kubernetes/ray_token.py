"""Ray's token: random, kept in a Secret of the cluster, from which every Ray pod reads it."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_random as random
from pulumi import ResourceOptions
from pulumi_kubernetes import core, meta

from infra.kubernetes.ray_manifest import TOKEN_KEY

TOKEN_LENGTH = 43
"""Letters and digits: 256 bits, as many as the operator's own tokens have."""


@dataclass(frozen=True, kw_only=True)
class RayToken:
    """The token's value, secret, and the Secret that holds it."""

    value: pulumi.Output[str]
    secret: core.v1.Secret


def ray_token(name: str, secret_name: str, namespace: pulumi.Input[str], opts: ResourceOptions) -> RayToken:
    """A new token in the Secret `secret_name` of `namespace`; `name` is what the stack calls both resources."""
    password = random.RandomPassword(name, length=TOKEN_LENGTH, special=False, opts=opts)
    secret = core.v1.Secret(
        name,
        metadata=meta.v1.ObjectMetaArgs(name=secret_name, namespace=namespace),
        string_data={TOKEN_KEY: password.result},
        opts=opts,
    )
    return RayToken(value=pulumi.Output.secret(password.result), secret=secret)
