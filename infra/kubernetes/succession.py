"""One component in the place of another, when a stack changes how it runs Ray.

The namespace, the token and the network policy are the same for both. Without this, the engine would make the new ones
first, and the namespace exists already.
"""

from __future__ import annotations

from pulumi import Alias, ResourceOptions


def in_place_of(type_: str, opts: ResourceOptions | None) -> ResourceOptions:
    """The caller's options, and that a component of `type_` with the same name was this one before.

    Children of the same type and name go over with it; the others are made, or deleted.
    """
    return ResourceOptions.merge(opts, ResourceOptions(aliases=[Alias(type_=type_)]))
