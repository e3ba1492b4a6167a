"""Canonical quantities, as controllers in Go write them: 2048Gi is 2Ti, 1000 is 1k, and the number 4 is "4".

Kubernetes: apimachinery/pkg/api/resource, Quantity.CanonicalizeBytes; its documentation, read 2026-11.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from rehearsal.engine.values import UNKNOWN

_AMOUNTS = {"limits", "requests", "capacity"}
_AMOUNT = {"sizeLimit", "nominalQuota", "borrowingLimit", "lendingLimit"}
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_WRITTEN = re.compile(r"([+-]?[\d.]+)([A-Za-z]*|[eE][+-]?\d+)")


def amount(quantity: Any) -> Decimal:
    """Return a quantity as a number of its unit (bytes, cores, devices)."""
    text = str(quantity)
    for power, suffix in enumerate(_BINARY[1:], 1):
        if text.endswith(suffix):
            return Decimal(text.removesuffix(suffix)) * Decimal(1024**power)
    suffix = text[-1:] if text[-1:] in _DECIMAL and not text[-1:].isdigit() else ""
    return Decimal(text.removesuffix(suffix)).scaleb(3 * _DECIMAL.index(suffix) - 9)


def canonical(quantity: Any) -> Any:
    """Return one amount in canonical form. Other values stay unchanged."""
    match = None if quantity == UNKNOWN else _WRITTEN.fullmatch(str(quantity))
    if match is None or (match[2] not in _BINARY and match[2] not in _DECIMAL):
        return quantity
    whole = amount(quantity)
    # Below 1024, binary suffixes do not apply; such amounts have decimal ones.
    binary = match[2] in _BINARY[1:] and abs(whole) >= 1024
    units, step, number = (_BINARY, 1024, whole) if binary else (_DECIMAL, 1000, whole.scaleb(9))
    number, power = -(-number // 1), 0
    while number and number % step == 0 and power + 1 < len(units):
        number, power = number / step, power + 1
    return f"{number:f}{units[power] if number else ''}"


def rewritten(value: Any) -> Any:
    """Return an object with every amount in canonical form."""
    if isinstance(value, dict):
        return {key: _rewritten(key, below) for key, below in value.items()}
    return [rewritten(item) for item in value] if isinstance(value, list) else value


def _rewritten(key: str, below: Any) -> Any:
    if key in _AMOUNTS and isinstance(below, dict):
        return {resource: canonical(quantity) for resource, quantity in below.items()}
    if key in _AMOUNT and not isinstance(below, dict | list):
        return canonical(below)
    return rewritten(below)
