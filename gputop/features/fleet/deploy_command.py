"""Everything that a cluster needs to watch its GPUs, as files to read, change and apply. Nothing is applied."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path, PurePath

from gputop.commands.needs import Needs
from gputop.config import Settings
from gputop.features.fleet.deploy import LOCAL_IMAGE, checked_image, files
from gputop.features.fleet.queries_command import named
from gputop.model.cards import own_price
from gputop.model.quantity import count
from gputop.model.source import UsageError
from gputop.output.messages import say

NEEDS = Needs("nothing")


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("folder", metavar="DIR", help="directory to write, made if it is not there")
    named(command)
    text = (
        "where the nodes pull the exporter's image, such as registry.example/team/gputop:1.0; see kubernetes/Dockerfile"
    )
    command.add_argument("--image", metavar="REF", default=LOCAL_IMAGE, help=text)
    command.add_argument("--force", action="store_true", help="overwrite what is there under the same names")


def run(args: argparse.Namespace, settings: Settings) -> int:
    folder = Path(args.folder)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a directory: name an empty one, or one that does not exist")
    try:
        if folder.is_dir() and any(folder.iterdir()) and not args.force:
            raise UsageError(f"{folder} is not empty: name another directory, or overwrite files there with --force")
        made = files(args.names, own_price(settings.price), checked_image(args.image))
        _refuse_linked_directories(folder, made)
        for path, text in made.items():
            _write(folder / path, text)
    except OSError as error:
        raise UsageError(f"cannot write {error.filename or folder}: {error.strerror}") from error
    say(f"{count(len(made), 'file')} in {folder}; the first lines of each say how to use it")
    return 0


def _refuse_linked_directories(folder: Path, paths: Iterable[str]) -> None:
    """Before anything is written: what is written through a link would lie outside. Raises UsageError."""
    below = {folder / parent for path in paths for parent in PurePath(path).parents} - {folder}
    for directory in sorted(below):
        if directory.is_symlink():
            raise UsageError(f"{directory} is a link to another directory: remove it, or name another directory")


def _write(target: Path, text: str) -> None:
    """A new file in place of whatever had its name: a link, hard or symbolic, is replaced, not written through.

    A write that fails leaves what was there before.
    """
    for folder in reversed([parent for parent in target.parents if not parent.exists()]):
        folder.mkdir()
        folder.chmod(0o755)
    unfinished = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        with unfinished.open("x", encoding="utf-8") as file:
            file.write(text)
        # Whatever the umask: Prometheus and Grafana read them as users of their own, and there is no secret in them.
        unfinished.chmod(0o755 if target.suffix == ".sh" else 0o644)
        unfinished.replace(target)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        # The error must name the file that was meant.
        raise OSError(error.errno, error.strerror, str(target)) from error
