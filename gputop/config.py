"""Defaults < configuration file < environment < flags, joined to one frozen Settings.

Each setting is declared once, with its documentation below it; the configuration file, the environment variables
(``GPUTOP_`` and the name in capitals) and the flags carry the same names.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

LEAST_INTERVAL_S = 0.25
"""NVML serialises inside the driver and GPM pairs need 0.1 s: nothing is asked more often than this."""
THEMES = ("auto", "dark", "light", "high-contrast", "colour-blind", "ansi", "mono")
LARGEST_FILE = 1 << 20
DENSITIES = ("standard", "compact")
FILE_ONLY = ("keys",)
"""Settings that no environment variable carries."""
NO_FLAG = ("columns", "keys")
"""Settings that no flag carries; ``dump --columns`` is another thing."""


class ConfigError(Exception):
    """A setting is malformed or the file is unreadable. One line of text: what is wrong, how to mend it."""


class Settings(Struct, frozen=True):
    """What the user chose."""

    interval: float = 1.0
    """Seconds between two measurements, at least 0.25."""
    gpus: str = ""
    """GPUs to watch: indices or UUIDs (or their beginnings), separated by commas. Empty: all."""
    visible: bool = False
    """Watch only the GPUs that CUDA_VISIBLE_DEVICES names."""
    theme: str = "auto"
    """auto, dark, light, high-contrast, colour-blind, ansi (the terminal's own sixteen colours) or mono."""
    ascii: bool = False
    """Draw with ASCII characters only."""
    no_color: bool = False
    """Draw without colours; the NO_COLOR environment variable does the same."""
    mouse: bool = True
    """Let the mouse select and scroll."""
    read_only: bool = False
    """Never offer anything that changes another process."""
    span: float = 120.0
    """Seconds that a chart shows at first."""
    price: float = 0.0
    """Your price of one GPU-hour. 0: no money is ever shown."""
    dcgm_url: str = ""
    """Address of a running dcgm-exporter's metrics. Empty: localhost:9400 is tried once."""
    dcgmi: bool = False
    """Run dcgmi dmon for GPUs without GPM; before Hopper it takes the profiling unit from ncu and nsys."""
    bell: bool = False
    """Ring the terminal's bell on a new red verdict."""
    density: str = "standard"
    """standard, or compact: smaller panes, more rows for processes."""
    columns: tuple[str, ...] = ()
    """Columns of the process table by their keys, in this order. Empty: the usual ones."""
    hint: bool = True
    """Show the first keys at the foot of the screen when it opens: for half a minute, or until a key is pressed."""
    keys: Mapping[str, str] = MappingProxyType({})
    """Keys of your own: action = "key,key". The help (?) shows the actions; an empty text takes an action its keys."""


class Reload(Struct, frozen=True):
    """What a changed file gives: new settings, or None where it cannot be used; and messages, one line each."""

    settings: Settings | None
    messages: list[str]


def default_path() -> Path:
    """Where the configuration file lives for this user."""
    from platformdirs import user_config_path

    return user_config_path("gputop") / "config.toml"


def load(path: str | None, env: Mapping[str, str], flags: Mapping[str, Any]) -> tuple[Settings, list[str]]:
    """(settings, warnings). A file that was named must be readable; the default one may be missing.

    Raises ConfigError for an unreadable or malformed file and for a value that a setting cannot take.
    """
    warnings: list[str] = []
    settings = Settings()
    named = path or env.get("GPUTOP_CONFIG")
    values = read(Path(named), required=True) if named else read(default_path(), required=False)
    settings = apply(settings, values, f"{named or default_path()}" if values else "", warnings)
    names = set(Settings.__struct_fields__)
    from_env = {
        key[7:].lower(): value
        for key, value in env.items()
        if key.startswith("GPUTOP_") and key[7:].lower() in names.difference(FILE_ONLY)
    }
    settings = apply(settings, from_env, "the environment", warnings)
    given = {k: v for k, v in flags.items() if k in names.difference(NO_FLAG) and v is not None}
    return apply(settings, given, "", warnings), warnings


def read(path: Path, *, required: bool) -> dict[str, Any]:
    """The file's values; without the file none, unless it is required. Raises ConfigError."""
    try:
        # Never more than that: --config may name a device without an end.
        with open(path, "rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except (FileNotFoundError, NotADirectoryError):
        if not required:
            return {}
        raise ConfigError(f"no configuration file at {path}: name one that exists, or leave --config out") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; mend its permissions or use --config FILE") from None
    if len(data) > LARGEST_FILE:
        raise ConfigError(f"{path} is larger than 1 MiB, which is no configuration: use --config FILE")
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        values: dict[str, Any] = tomllib.loads(data.decode("utf-8"))
        return values
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(f"{path} is not valid TOML: {first}") from None


def apply(settings: Settings, values: Mapping[str, Any], origin: str, warnings: list[str]) -> Settings:
    """The settings with these values in them; ``origin`` is where they come from, for messages.

    Raises ConfigError for a value that a setting cannot take; an unknown name is a warning with the nearest match.
    """
    changes: dict[str, Any] = {}
    kinds = {name: type(getattr(Settings(), name)) for name in Settings.__struct_fields__}
    for name, value in values.items():
        kind = kinds.get(name)
        if kind is None:
            warnings.append(f"{origin}: unknown setting {name!r} is ignored{_nearest(name, kinds)}")
            continue
        changes[name] = _convert(name, value, kind, f"{origin}: " if origin else "")
    return replace(settings, **changes)


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else ""


def _convert(name: str, value: Any, kind: type, where: str) -> Any:
    flag = name.replace("_", "-")
    if kind is bool:
        if isinstance(value, str) and value.lower() in ("1", "true", "yes", "on", "0", "false", "no", "off", ""):
            return value.lower() in ("1", "true", "yes", "on")
        if isinstance(value, bool):
            return value
        raise ConfigError(f"{where}{flag} must be true or false, not {value!r}")
    if kind is float:
        return _number(name, value, where)
    if kind is tuple:
        return _columns(value, where)
    if name == "keys":
        return _keys(value, where)
    if not isinstance(value, str):
        raise ConfigError(f"{where}{flag} must be a text, not {value!r}")
    if name == "theme" and value not in THEMES:
        raise ConfigError(f"{where}no theme {value!r}: choose one of {', '.join(THEMES)}")
    if name == "density" and value not in DENSITIES:
        raise ConfigError(f"{where}no density {value!r}: choose one of {', '.join(DENSITIES)}")
    return value


def _number(name: str, value: Any, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{where}{name} must be a number, not {value!r}") from None
    if isinstance(value, bool) or not math.isfinite(number):
        raise ConfigError(f"{where}{name} must be a number, not {value!r}")
    if name == "interval" and not LEAST_INTERVAL_S <= number <= 3600:
        raise ConfigError(f"{where}interval must be from {LEAST_INTERVAL_S} to 3600 seconds, not {value}")
    if name == "span" and not 10 <= number <= 86400:
        raise ConfigError(f"{where}span must be from 10 to 86400 seconds, not {value}")
    if name == "price" and number < 0:
        raise ConfigError(f"{where}price must not be negative")
    return number


def _columns(value: Any, where: str) -> tuple[str, ...]:
    """Keys of the process table's columns: a list, or a text with commas. Each is a catalogue key, or a total."""
    from gputop.paint.process_columns import COLUMNS as known

    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise ConfigError(f'{where}columns must be a list of texts such as ["pid", "command"], not {value!r}')
    chosen = tuple(part.strip() for part in parts if part.strip())
    for column in chosen:
        if column not in known:
            raise ConfigError(f"{where}no column {column!r}{_nearest(column, known)}")
        if chosen.count(column) > 1:
            raise ConfigError(f"{where}column {column} stands twice: leave one of them out")
    return chosen


def _keys(value: Any, where: str) -> Mapping[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(keys, str) for keys in value.values()):
        raise ConfigError(f'{where}keys must be a table [keys] of lines such as quit = "q,ctrl+c"')
    return MappingProxyType(dict(value))
