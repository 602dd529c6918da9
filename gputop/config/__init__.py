"""Merges defaults, configuration file, environment and flags.

In this order, later ones win. Each setting is declared once: its type, its bounds and its description validate,
document and write the configuration file. The file, the environment variables (``GPUTOP_`` and the name in capitals)
and the flags carry the same names.
"""

# Annotations are values here, not text: each setting's type and bounds are read from its own.
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args, get_origin

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import replace

from gputop.model.foreign_values import LONGEST_QUOTE, finite_number, quoted, text_of
from gputop.model.sm import SmChoice
from gputop.system.safe_open import is_named_pipe, read_most, without_waiting

LEAST_INTERVAL_S = 0.25
"""NVML serialises inside the driver and GPM pairs need 0.1 s: nothing is asked more often than this."""
LARGEST_FILE = 1 << 20
FILE_ONLY = ("keys", "alert", "fleet")
"""Settings that no environment variable carries."""
NO_FLAG = ("columns", "keys", "show_secrets", "alert", "fleet")
"""Settings that no flag carries; ``dump --columns`` is unrelated."""
_WORDS = {"yes": True, "on": True, "no": False, "off": False, "": False}
"""Words for true and false that people type beside those that ``convert`` knows."""


class ConfigError(Exception):
    """A malformed setting or an unreadable file.

    One line with reason and fix.
    """


class Settings(Struct, frozen=True):
    """The user's settings; the text below each one documents it."""

    interval: Annotated[float, Meta(ge=LEAST_INTERVAL_S, le=3600.0, extra={"unit": "seconds"})] = (
        1.0
    )
    """Seconds between two measurements, at least 0.25."""
    gpus: str = ""
    """GPUs to watch: indices or UUIDs (or their beginnings), separated by commas. Empty: all."""
    visible: bool = False
    """Watch only the GPUs that CUDA_VISIBLE_DEVICES names."""
    theme: str = "auto"
    """auto, dark, light, high-contrast, colour-blind, ansi (the terminal's own sixteen colours) or mono."""
    ascii: bool = False
    """Draw with ASCII characters only, as is always done on the Linux console."""
    no_color: bool = False
    """Draw without colours; the NO_COLOR environment variable does the same."""
    mouse: bool = True
    """Let the mouse select and scroll."""
    read_only: bool = False
    """Never offer anything that changes another process."""
    span: Annotated[float, Meta(ge=10.0, le=86400.0, extra={"unit": "seconds"})] = 120.0
    """Seconds that a chart shows at first."""
    price: Annotated[float, Meta(ge=0.0, le=1e6)] = 0.0
    """Your price of one GPU-hour. 0: no money is ever shown."""
    redact: bool = False
    """Show and write users, hosts, jobs, paths and UUIDs as numbers, and command lines as the names of programs."""
    show_secrets: bool = False
    """Show secrets on command lines on this machine's own screen. Files, pictures and browsers never get them."""
    dcgm_url: str = ""
    """Address of a running dcgm-exporter's metrics. Empty: localhost:9400 is tried once."""
    server_url: str = ""
    """Addresses of inference servers' metrics (vLLM, SGLang, Triton, TGI), separated by commas. Another machine than
    this one can be named here alone, not on the command line."""
    dcgmi: bool = False
    """Run dcgmi dmon for GPUs without GPM; before Hopper it takes the profiling unit from ncu and nsys."""
    perf: bool = False
    """Measure SM activity by the hardware counters where nothing else does. No profiler can use them meanwhile; for
    ncu, nsys and DCGM they are given back."""
    perf_lib: str = ""
    """Folder of NVIDIA's counter libraries. Empty: the wheel that the extra perf installs."""
    sm_source: SmChoice = "auto"
    """Where SM activity comes from: the best source that works, or this one and no other."""
    bell: bool = False
    """Ring the terminal's bell on a new red verdict."""
    columns: tuple[str, ...] = ()
    """Columns of the process table by their keys, in this order. Empty: the usual ones."""
    hint: bool = True
    """Show the most useful keys in the last row of the screen."""
    key_preset: Literal["gputop", "nvitop", "htop"] = "gputop"
    """Keys as in gputop, nvitop or htop; [keys] overrides single actions."""
    keys: Mapping[str, str] = MappingProxyType({})
    """Keys of your own: action = "key,key". The help (?) shows the actions; an empty text removes an action's keys."""
    alert: tuple[Mapping[str, Any], ...] = ()
    """Alerts of your own, one table [[alert]] each: name, when, for, again, and run, the command to run when the
    condition holds on a GPU."""
    fleet: Mapping[str, Mapping[str, str | tuple[str, ...]]] = MappingProxyType({})
    """Clusters for `gputop fleet --cluster NAME`, one table [fleet.NAME] each: url, and if needed select, header_file,
    token_file, ca; or hosts, and if needed ssh_config, gputop."""


class Setting(Struct, frozen=True):
    """A declared setting: type, bounds and default."""

    name: str
    kind: Any
    meta: Meta
    default: Any

    @property
    def description(self) -> str:
        """Text below the setting."""
        return _descriptions()[self.name]


@cache
def _descriptions() -> Mapping[str, str]:
    import ast
    from inspect import getsource

    (declaration,) = ast.parse(getsource(Settings)).body
    assert isinstance(declaration, ast.ClassDef)
    found = {}
    for field, text in zip(declaration.body, declaration.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            assert isinstance(field.target, ast.Name)
            assert isinstance(text.value, ast.Constant)
            found[field.target.id] = " ".join(str(text.value.value).split())
    return found


def declared() -> Mapping[str, Setting]:
    """Every setting by its name, in the order of their declaration."""
    return {name: setting(name) for name in Settings.__struct_fields__}


@cache
def setting(name: str) -> Setting:
    """One of the ``Settings``.

    A start with one flag reads one annotation, not all.
    """
    annotation = Settings.__annotations__[name]
    kind, meta = (
        get_args(annotation) if hasattr(annotation, "__metadata__") else (annotation, Meta())
    )
    return Setting(name, kind, meta, getattr(Settings(), name))


def default_path() -> str:
    """Path of this user's configuration file.

    By the XDG Base Directory Specification. Always absolute, even where no home is known: a file in the current
    directory must not become settings.
    """
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(folder):
        folder = os.path.join("/", os.path.expanduser("~/.config"))
    return os.path.join(folder, "gputop", "config.toml")


def load(
    path: str | None, env: Mapping[str, str], flags: Mapping[str, Any], *, strict: bool = False
) -> tuple[Settings, list[str]]:
    """Settings and warnings.

    A file that was named must be readable; the default one may be missing. One in a folder that this user may not
    enter, as under ``sudo -u`` with the home of another, is none of this user's: a warning says so, unless ``strict``.
    Raises ConfigError for an unreadable or malformed file and for a value that a setting cannot take.
    """
    settings, warnings, _ = load_with_origins(path, env, flags, strict=strict)
    return settings, warnings


def load_with_origins(
    path: str | None, env: Mapping[str, str], flags: Mapping[str, Any], *, strict: bool = False
) -> tuple[Settings, list[str], Mapping[str, str]]:
    """Settings, warnings, and the origin of each changed setting.

    An origin is a file, a variable or a flag.
    """
    warnings: list[str] = []
    settings, values = Settings(), dict[str, Any]()
    named = path or env.get("GPUTOP_CONFIG")
    file = named or default_path()
    if named or strict or _is_within_reach(file):
        values = read(file, required=bool(named))
        settings = apply(settings, values, file if values else "", warnings)
    else:
        warnings.append(
            f"{file} is out of this user's reach, so nothing is configured; --config FILE names another"
        )
    names = set(Settings.__struct_fields__)
    from_env = {
        key[7:].lower(): value
        for key, value in env.items()
        if key.startswith("GPUTOP_") and key[7:].lower() in names.difference(FILE_ONLY)
    }
    settings = apply(settings, from_env, "the environment", warnings)
    known_flags = {
        k: v for k, v in flags.items() if k in names.difference(NO_FLAG) and v is not None
    }
    origins = {
        **dict.fromkeys(names.intersection(values), file),
        **{name: f"GPUTOP_{name.upper()}" for name in from_env},
        **{name: f"--{name.replace('_', '-')}" for name in known_flags},
    }
    return apply(settings, known_flags, "", warnings), warnings, origins


def _is_within_reach(path: str) -> bool:
    """Whether the folders above a file may be entered."""
    try:
        os.stat(path)
    except OSError as error:
        return not isinstance(error, PermissionError)
    return True


def read(path: str | os.PathLike[str], *, required: bool) -> dict[str, Any]:
    """Return the file's values; empty if an optional file is missing.

    Raises ConfigError.
    """
    if is_named_pipe(path):
        raise ConfigError(f"cannot read {path}: it is a named pipe; use --config FILE")
    try:
        # Bounded, because --config may name an endless device.
        with open(path, "rb", opener=without_waiting) as file:
            data = read_most(file, LARGEST_FILE + 1)
    except (FileNotFoundError, NotADirectoryError):
        if not required:
            return {}
        raise ConfigError(
            f"no configuration file at {path}: `gputop config --init` writes one"
        ) from None
    except (IsADirectoryError, TimeoutError) as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; use --config FILE") from None
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}; fix its permissions or use --config FILE"
        ) from None
    if len(data) > LARGEST_FILE:
        raise ConfigError(
            f"{path} is larger than 1 MiB, too large for a configuration file: use --config FILE"
        )
    return _parsed(path, data)


MOST_DIGITS = 4000
"""Digits of a whole number in a file; Python itself reads 4,300."""
MOST_PARTS = 100
"""Parts of a name such as ``fleet.prod.url``: time to parse one grows with the square of them."""


def _parsed(path: str | os.PathLike[str], data: bytes) -> dict[str, Any]:
    """Return the values of a file's text. Raises ConfigError."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {text_of(str(error))}") from None
    for number, line in enumerate(text.split("\n"), 1):
        if (fault := _unreadable(line)) is not None:
            raise ConfigError(f"{path} cannot be read: {fault} (line {number})")
    try:
        values: dict[str, Any] = tomllib.loads(text)
    except ValueError as error:
        # TOMLDecodeError is one.
        first_line = str(error).partition("\n")[0]
        raise ConfigError(f"{path} is not valid TOML: {text_of(first_line)}") from None
    except RecursionError:
        nested = "lists or tables within each other, deeper than any setting"
        raise ConfigError(f"{path} cannot be read: {nested}{_deepest_line(text)}") from None
    return values


def _unreadable(line: str) -> str | None:
    """Reason why Python's parser fails at a line, or never ends."""
    if len(line) < 2 * MOST_PARTS:
        return None
    if re.search(f"[0-9_]{{{MOST_DIGITS}}}", line):
        return f"a number of more than {MOST_DIGITS} digits"
    # Without spaces and quotes, with each word as one letter.
    shape = re.sub(r"\w+", "a", re.sub(r"[\s\"'-]+", "", line))
    if "a." * MOST_PARTS in shape:
        return f"a name of more than {MOST_PARTS} parts"
    return None


def _deepest_line(text: str) -> str:
    """The line where most brackets open, as the end of a message."""
    openings = [line.count("[") + line.count("{") for line in text.split("\n")]
    most = max(openings)
    return f" (line {openings.index(most) + 1})" if most > 1 else ""


def apply(
    settings: Settings, values: Mapping[str, Any], origin: str, warnings: list[str]
) -> Settings:
    """Settings with new values.

    ``origin`` names their source in messages. An unknown name is a warning with the nearest match. Raises ConfigError
    for a value that a setting cannot take.
    """
    changes: dict[str, Any] = {}
    unknown = [name for name in values if name not in Settings.__struct_fields__]
    warnings += [f"{origin}: {words}" for words in unknown_settings(unknown)]
    for name, value in values.items():
        if name not in Settings.__struct_fields__:
            continue
        try:
            changes[name] = _converted(setting(name), value)
        except ConfigError as error:
            raise ConfigError(f"{origin}: {error}" if origin else str(error)) from None
    return replace(settings, **changes)


MOST_TOLD = 10
"""Mistakes of one kind that are told one by one; of the others, how many they are."""


def unknown_settings(names: Sequence[str]) -> list[str]:
    """Return a line for each of the first unknown names, and one for the rest."""
    if not names:
        return []
    from gputop.model.expression import nearest

    lines = [
        f"unknown setting {quoted(name)} is ignored{nearest(name, declared())}"
        for name in names[:MOST_TOLD]
    ]
    return [*lines, *rest_of(names, "unknown settings are ignored")]


def rest_of(mistakes: Sequence[object], words: str) -> list[str]:
    """Return the line that counts the mistakes which are not told one by one."""
    more = len(mistakes) - MOST_TOLD
    return [f"{more} more {words}"] if more > 0 else []


def _converted(setting: Setting, value: Any) -> Any:
    """A value as the setting's type.

    Numbers and booleans may come as text: variables and flags have nothing else.
    """
    if isinstance(value, str):
        if setting.kind is bool:
            value = _WORDS.get(value.strip().lower(), value.strip())
        elif setting.kind is float:
            value = value.strip()
        elif setting.name == "columns":
            value = [part.strip() for part in value.split(",") if part.strip()]
    try:
        taken = convert(value, Annotated[setting.kind, setting.meta], strict=False)
    except (ValidationError, UnicodeEncodeError, OverflowError, RecursionError):
        # UnicodeEncodeError where a flag or a variable is not UTF-8.
        raise ConfigError(_refusal(setting, value)) from None
    if setting.name in ("theme", "columns", "alert", "fleet") and (
        why := _objection(setting.name, taken)
    ):
        raise ConfigError(why)
    return MappingProxyType(taken) if isinstance(taken, dict) else taken


_MUST_BE = {
    "columns": 'a list of texts such as ["pid", "command"]',
    "keys": 'a table [keys] of lines such as quit = "q,ctrl+c"',
    "alert": "tables, each of which begins with a line [[alert]]",
    "fleet": 'tables [fleet.NAME] of lines such as url = "https://prometheus.example"',
}


def _refusal(setting: Setting, value: Any) -> str:
    """Reason why a value has the wrong type or range."""
    name, kind, meta = setting.name.replace("_", "-"), setting.kind, setting.meta
    if get_origin(kind) is Literal:
        return _not_one_of(get_args(kind), value, name)
    if name == "keys" and isinstance(value, dict):
        action, bad = next(item for item in value.items() if not isinstance(item[1], str))
        named = text_of(action, LONGEST_QUOTE)
        return f'[keys] {named} must be a text such as "q,ctrl+c", not {quoted(bad)}'
    must_be = _MUST_BE.get(name) or {bool: "true or false", float: "a number"}.get(kind, "a text")
    if kind is float and finite_number(value, -LARGEST, LARGEST) is not None:
        must_be = (
            f"from {meta.ge:,g} to {meta.le:,.10g} {(meta.extra or {}).get('unit', '')}".rstrip()
        )
    # Alerts and clusters are not quoted: they may hold addresses with tokens in them.
    if name in ("alert", "fleet"):
        return f"{name} must be {must_be}"
    return f"{name} must be {must_be}, not {quoted(value)}"


LARGEST = sys.float_info.max


def _not_one_of(allowed: Iterable[str], value: object, kind: str) -> str:
    from gputop.model.expression import nearest

    hint = nearest(text_of(value), allowed)
    return f"no {kind} {quoted(value)}: choose one of {', '.join(allowed)}{hint}"


def _objection(name: str, value: Any) -> str | None:
    """Reason why a value of the right type is wrong, or None."""
    if name == "theme":
        from gputop.paint.theme import THEME_NAMES

        return None if value in THEME_NAMES else _not_one_of(THEME_NAMES, value, "theme")
    if name == "columns":
        return _wrong_column(value)
    if name == "fleet":
        from gputop.model.fleet_settings import fault_of

        return fault_of(value)
    from gputop.model.feature_table import ALERT_FAULTS, resolve

    return next(iter(resolve(ALERT_FAULTS)(value)), None)


def _wrong_column(chosen: tuple[str, ...]) -> str | None:
    """Reason why a list of columns is wrong, or None."""
    from gputop.model.expression import nearest
    from gputop.paint.process_columns import COLUMNS

    for column in chosen:
        if column not in COLUMNS:
            return f"no column {quoted(column)}{nearest(column, COLUMNS)}"
        if chosen.count(column) > 1:
            return f"column {column} is listed twice: leave one of them out"
    return None
