"""A command under its supervisor: 30 s, nothing of this process's environment but PATH, HOME and LANG."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from gputop.model.secrets import masked_text
from gputop.model.text import clean_text

LIMIT_S = 30.0
SPARE_S = 10.0
"""How much longer than the limit the supervisor may take before it counts as lost."""
USUAL_PATH = "/usr/local/bin:/usr/bin:/bin"
_HERE = Path(__file__).parent


class Ended(Struct, frozen=True):
    """How a command ended: its exit status, negative for a signal, or None; what went wrong; what it printed."""

    exit_code: int | None
    problem: str | None
    output: str = ""

    @property
    def has_failed(self) -> bool:
        """Whether it ended with a problem or an exit status other than 0."""
        return self.problem is not None or self.exit_code != 0

    def words(self) -> str:
        """``ended with 0``, ``was killed after 30 s``."""
        if self.problem is not None:
            return self.problem
        if self.exit_code is not None and self.exit_code < 0:
            return f"was ended by signal {-self.exit_code}"
        return f"ended with {self.exit_code}"


class Running:
    """A command under its supervisor: it runs to its end or its limit, even if this process ends."""

    def __init__(self, argv: Sequence[str], text: str, limit_s: float = LIMIT_S) -> None:
        """Start a command with a text on its stdin. ``ended`` tells what went wrong."""
        self._limit_s = limit_s + SPARE_S
        self._process: subprocess.Popen[bytes] | None = None
        self._problem: str | None = None
        env = environment(os.environ)
        given = {"argv": list(argv), "env": env, "input": text, "timeout_s": limit_s}
        try:
            self._process = subprocess.Popen(
                _python("supervisor.py"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=env,
                cwd="/",
                start_new_session=True,
            )
            assert self._process.stdin is not None
            with self._process.stdin as pipe:
                pipe.write(json.dumps(given).encode())
            self._process.stdin = None
        except OSError as error:
            self._problem = f"cannot be run: {error.strerror}"

    def ended(self) -> Ended:
        """How it ended. Call it off the tick: it blocks for up to ten seconds more than the limit."""
        process = self._process
        if process is None:
            return Ended(None, self._problem)
        try:
            answer = json.loads(process.communicate(timeout=self._limit_s)[0])
            return Ended(answer["exit"], answer["problem"], one_line(answer["output"]))
        except subprocess.TimeoutExpired:
            return Ended(None, f"was killed after {self._limit_s:g} s, together with its supervisor")
        except (OSError, ValueError, KeyError, TypeError):
            return Ended(None, self._problem or "how it ended is unknown: its supervisor is gone")
        finally:
            process.kill()
            process.wait()


def notification(addresses: Sequence[str], title: str, body: str) -> Running:
    """Start sending a notification by apprise, under the same limits. Neither argv nor environment holds an address."""
    # A relative path would depend on the current directory, which may belong to anybody.
    path = [part for part in sys.path if os.path.isabs(part)]
    given = {"path": path, "urls": list(addresses), "title": title, "body": body}
    return Running(_python("notifier.py"), json.dumps(given))


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that a command gets. Relative folders are left out of PATH: they may be anybody's."""
    given = {name: environ[name] for name in ("HOME", "LANG") if name in environ}
    path = ":".join(part for part in environ.get("PATH", "").split(":") if part.startswith("/"))
    return {"PATH": path or USUAL_PATH, **given}


def one_line(text: str) -> str:
    """What a command printed: its lines joined, control characters and secrets masked."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return masked_text(clean_text(" ⏎ ".join(lines)))


def _python(script: str) -> list[str]:
    """This Python on a file of this folder, isolated: it imports from nowhere but the standard library."""
    return [sys.executable or "python3", "-I", "-S", str(_HERE / script)]
