"""The configuration file: where it is, a commented template, and what is wrong with the existing one."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from gputop.commands.config_file import assignment, problems
from gputop.commands.needs import Needs
from gputop.config import ConfigError, Settings, declared, default_path, load
from gputop.model.feature_table import hook
from gputop.model.quantity import wrapped
from gputop.model.secrets import masked_text
from gputop.output.messages import USAGE_ERROR, say

NEEDS = Needs(configuration=False)

HEAD = """\
# Settings of gputop. A line such as "#theme = ..." is a setting with its default: take the "#" away to change it.
# Environment variables (GPUTOP_INTERVAL=2) and flags (--interval 2) win over this file. `gputop config --check` says
# what is wrong with it. A running screen takes up theme, density and columns when the file is saved.
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
    config_form = command.add_mutually_exclusive_group()
    config_form.add_argument("--path", action="store_true", help="where the configuration file is, or would be")
    config_form.add_argument("--init", action="store_true", help="write one with every setting commented out")
    config_form.add_argument("--check", action="store_true", help="say what is wrong with it, line by line")


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
    settings, warnings = load(named, os.environ, vars(args))
    for warning in warnings:
        say(warning)
    for name in declared():
        value = getattr(settings, name)
        # An address may hold a password, and this output is pasted into tickets.
        sys.stdout.write(assignment(name, masked_text(value) if isinstance(value, str) else value))
    return 0


def _init(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # For its owner alone: an address in it may carry a password.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise ConfigError(f"{path} exists and was not changed; name another file with --config") from None
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(template())
    except OSError as error:
        # Half a file would be taken for the user's own by the next --init.
        path.unlink(missing_ok=True)
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
    sys.stdout.write(f"{path}\n")
    say("wrote every setting there, commented out; `gputop config --check` says what is wrong with it")
    return 0


def _check(path: Path) -> int:
    texts = problems(path)
    for text in texts:
        say(text)
    return USAGE_ERROR if texts else 0


def template() -> str:
    """A configuration file with every setting, its documentation and its default, all commented out."""
    parts = [HEAD]
    tables = {"keys": EXAMPLE, "alert": hook("examples", "alert")(os.getuid()), "fleet": CLUSTERS}
    for setting in declared().values():
        lines = [f"# {line}" for line in wrapped(setting.description, 116)]
        lines += [f"#{line}" for line in assignment(setting.name, setting.default).splitlines()]
        parts.append("\n".join(lines) + "\n" + tables.get(setting.name, ""))
    return "\n".join(parts)
