"""Harmless texts in structs from outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.quantity import clean_text


def cleaned(value: Any) -> Any:
    """Replace control characters in every text of a struct.

    Nested structs and collections are included.
    """
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Struct):
        fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
        changes = {name: harmless for name, field in fields if (harmless := cleaned(field)) is not field}
        return replace(value, **changes) if changes else value
    if isinstance(value, tuple):
        items = tuple(map(cleaned, value))
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    if isinstance(value, Mapping) and value:
        return {clean_text(key): cleaned(item) for key, item in value.items()}
    return value


def is_clean(line: bytes) -> bool:
    """Return whether a JSON line needs no cleaning.

    No text of such a line can hold a control character. JSON has control characters as escapes alone; others that are
    not harmless are no ASCII.
    """
    return line.isascii() and b"\\" not in line and b"\x7f" not in line
