"""Defaults < configuration file < environment < flags, joined to one frozen Settings.

Each setting is declared once, with its documentation below it; the configuration file, the environment variables
(``GPUTOP_`` and the name in capitals) and the flags carry the same names.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

LEAST_INTERVAL_S = 0.25
"""NVML serialises inside the driver and GPM pairs need 0.1 s: nothing is asked more often than this."""
THEMES = ("auto", "dark", "light", "high-contrast", "colour-blind", "ansi", "mono")


class ConfigError(Exception):
    """A setting is malformed or the file is unreadable. One line of text: what is wrong, how to mend it."""


@dataclass(frozen=True, slots=True)
class Settings:
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
    bell: bool = False
    """Ring the terminal's bell on a new red verdict."""


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
    values = _from_file(Path(named), required=True) if named else _from_file(default_path(), required=False)
    settings = _apply(settings, values, f"{named or default_path()}" if values else "", warnings)
    names = {f.name for f in fields(Settings)}
    from_env = {
        key[7:].lower(): value for key, value in env.items() if key.startswith("GPUTOP_") and key[7:].lower() in names
    }
    settings = _apply(settings, from_env, "the environment", warnings)
    settings = _apply(settings, {k: v for k, v in flags.items() if k in names and v is not None}, "", warnings)
    return settings, warnings


def _from_file(path: Path, *, required: bool) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        if not required:
            return {}
        raise ConfigError(f"no configuration file at {path}: name one that exists, or leave --config out") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; mend its permissions or use --config FILE") from None
    if len(data) > 1 << 20:
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


def _apply(settings: Settings, values: Mapping[str, Any], origin: str, warnings: list[str]) -> Settings:
    changes: dict[str, Any] = {}
    kinds = {f.name: type(getattr(Settings(), f.name)) for f in fields(Settings)}
    for name, value in values.items():
        kind = kinds.get(name)
        if kind is None:
            import difflib

            near = difflib.get_close_matches(name, kinds, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            warnings.append(f"{origin}: unknown setting {name!r} is ignored{hint}")
            continue
        changes[name] = _convert(name, value, kind, origin)
    return replace(settings, **changes)


def _convert(name: str, value: Any, kind: type, origin: str) -> Any:
    where = f"{origin}: " if origin else ""
    flag = name.replace("_", "-")
    if kind is bool:
        if isinstance(value, str) and value.lower() in ("1", "true", "yes", "on", "0", "false", "no", "off", ""):
            return value.lower() in ("1", "true", "yes", "on")
        if isinstance(value, bool):
            return value
        raise ConfigError(f"{where}{flag} must be true or false, not {value!r}")
    if kind is float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise ConfigError(f"{where}{flag} must be a number, not {value!r}") from None
        if isinstance(value, bool) or not math.isfinite(number):
            raise ConfigError(f"{where}{flag} must be a number, not {value!r}")
        if name == "interval" and not LEAST_INTERVAL_S <= number <= 3600:
            raise ConfigError(f"{where}interval must be from {LEAST_INTERVAL_S} to 3600 seconds, not {value}")
        if name == "span" and not 10 <= number <= 86400:
            raise ConfigError(f"{where}span must be from 10 to 86400 seconds, not {value}")
        if name == "price" and number < 0:
            raise ConfigError(f"{where}price must not be negative")
        return number
    if not isinstance(value, str):
        raise ConfigError(f"{where}{flag} must be a text, not {value!r}")
    if name == "theme" and value not in THEMES:
        raise ConfigError(f"{where}no theme {value!r}: choose one of {', '.join(THEMES)}")
    return value
