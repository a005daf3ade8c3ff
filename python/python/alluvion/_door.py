"""What the doors to frameworks have in common: whose memory a framework gets on a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alluvion import current_resource

#: One resource, a stack for each device, or None for what is current when memory is asked for.
Resources = Any


def resource_of(resources: Resources, device: int) -> Any:
    """The resource that memory of a device comes from."""
    if resources is None:
        return current_resource(device)
    if isinstance(resources, Mapping):
        try:
            return resources[device]
        except KeyError:
            raise ValueError(f"there are stacks for the devices {sorted(resources)}, and none for device {device}") from None
    return resources


__all__ = ["Resources", "resource_of"]
