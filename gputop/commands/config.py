"""`gputop config`: the configuration file and the settings in force."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.command_line.registry import Needs
from gputop.config import (
    ConfigError,
    Settings,
    apply,
    declared,
    default_path,
    load_with_origins,
    read,
    unknown_settings,
)
from gputop.config.toml_lines import assignment
from gputop.model.clean_text import terminal_safe, wrapped
from gputop.model.feature_table import ALERT_EXAMPLES, ALERT_FAULTS, key_tables, resolve
from gputop.model.secrets import masked_text
from gputop.output.messages import USAGE_ERROR, say

if TYPE_CHECKING:
    from gputop.paint.keys import KeyProblem

NEEDS = Needs(configuration=False)

HEAD = """\
# Settings of gputop. A line such as "#theme = ..." is a setting with its default: take the "#" away to change it.
# Environment variables (GPUTOP_INTERVAL=2) and flags (--interval 2) win over this file. `gputop config --check` says
# what is wrong with it.
"""
EXAMPLE = """\
#quit = "q,x"
#pause = "p,ctrl+s"
"""
"""Below ``[keys]``, which comes last with the alerts and the clusters because TOML tables have to."""
CLUSTERS = """\
#[fleet.prod]
#url = "https://prometheus.example"
#select = 'cluster="prod"'
#header_file = "~/.config/gputop/prod.headers"   # a line such as X-Scope-OrgID: team, for you alone: chmod 600
#token_file = "~/.config/gputop/prod.token"
#ca = "/etc/ssl/example.pem"
#[fleet.lab]
#hosts = ["box1", "gpu[01-08]", "http://c:9401"]
"""


def arguments(command: argparse.ArgumentParser) -> None:
    choice = command.add_mutually_exclusive_group()
    choice.add_argument(
        "--path", action="store_true", help="where the configuration file is, or would be"
    )
    choice.add_argument(
        "--init", action="store_true", help="write one with every setting commented out"
    )
    choice.add_argument("--check", action="store_true", help="say what is wrong with it")


def run(args: argparse.Namespace, settings: Settings) -> int:
    named = getattr(args, "config", None) or os.environ.get("GPUTOP_CONFIG")
    path = Path(named or default_path())
    if args.path:
        sys.stdout.write(f"{path}\n")
        return 0
    if args.init:
        return _init(path)
    if args.check:
        return _check(path)
    settings, warnings, origins = load_with_origins(named, os.environ, vars(args))
    for warning in warnings:
        say(warning)
    sys.stdout.writelines(
        _with_origin(setting_line(settings, name), origins.get(name)) for name in declared()
    )
    return 0


def _with_origin(lines: str, origin: str | None) -> str:
    """A setting as TOML with its origin as a comment."""
    first, end, rest = lines.partition("\n")
    return f"{first}  # {terminal_safe(origin or 'default')}{end}{rest}" if first else lines


def setting_line(settings: Settings, name: str) -> str:
    """A setting in force as TOML.

    An address may hold a password, and this is pasted into tickets.
    """
    value = getattr(settings, name)
    return assignment(name, masked_text(value) if isinstance(value, str) else value)


def _init(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # For its owner alone: an address in it may carry a password.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise ConfigError(
            f"{path} exists and was not changed; name another file with --config"
        ) from None
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(template())
    except OSError as error:
        # Half a file would be taken for the user's own by the next --init.
        path.unlink(missing_ok=True)
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
    sys.stdout.write(f"{path}\n")
    say(
        "wrote every setting there, commented out; `gputop config --check` says what is wrong with it"
    )
    return 0


def _check(path: Path) -> int:
    texts = problems(path)
    for text in texts:
        say(text)
    return USAGE_ERROR if texts else 0


def template() -> str:
    """A configuration file with every setting commented out."""
    parts = [HEAD]
    tables = {"keys": EXAMPLE, "alert": resolve(ALERT_EXAMPLES)(), "fleet": CLUSTERS}
    for setting in declared().values():
        lines = [f"# {line}" for line in wrapped(setting.description, 116)]
        lines += [f"#{line}" for line in assignment(setting.name, setting.default).splitlines()]
        parts.append("\n".join(lines) + "\n" + tables.get(setting.name, ""))
    return "\n".join(parts)


def problems(path: Path) -> list[str]:
    """Return every mistake in the file, one line each.

    Raises ConfigError where the file is missing, unreadable or not TOML.
    """
    values = read(path, required=True)
    unknown = [name for name in values if name not in declared()]
    found: list[str] = []
    settings = Settings()
    for name, value in values.items():
        if name in unknown[:1]:
            found += unknown_settings(unknown)
        if name not in declared():
            continue
        try:
            settings = apply(settings, {name: value}, "", [])
        except ConfigError as error:
            is_tables = (
                name == "alert"
                and isinstance(value, list)
                and all(isinstance(row, dict) for row in value)
            )
            found += resolve(ALERT_FAULTS)(value) if is_tables else [str(error)]
    found += [problem.words for problem in key_problems(settings.keys)]
    return [f"{path}: {text}" for text in found]


def key_problems(user_keys: Mapping[str, str]) -> list[KeyProblem]:
    """Return the mistakes in the ``[keys]`` table."""
    from gputop.paint.keys import KEYS, REPLAY_KEYS, page_tables, rebound

    tables = (KEYS, REPLAY_KEYS, *page_tables(), *(table for _, table in key_tables()))
    problems: list[KeyProblem] = []
    for table in tables:
        elsewhere = {key.id for other in tables if other is not table for key in other}
        problems += rebound(table, user_keys, elsewhere - {key.id for key in table})[1]
    return list(dict.fromkeys(problems))
