"""``--gpus`` on a recording: only these GPUs are read, with their processes and events."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gputop.commands.redaction import redactor_of
from gputop.config import Settings

if TYPE_CHECKING:
    from gputop.model.snapshot import Snapshot
    from gputop.recording.lens import Lens


def lens_of(args: argparse.Namespace, settings: Settings) -> Lens | None:
    """The lens on a recording: the GPUs of the command line, and the redaction that was asked for.

    The configuration file's GPUs are those of this machine, not of the recording.
    """
    redactor, wanted = redactor_of(settings), getattr(args, "gpus", None)
    return redactor if not wanted else OnlyGpus(wanted, redactor)


class OnlyGpus:
    """A lens that shows some GPUs. Which ones is found in the first frame; raises UsageError where it has none."""

    def __init__(self, spec: str, then: Lens | None = None) -> None:
        self._spec = spec
        self._then = then
        self._uuids: frozenset[str] | None = None

    def snapshot(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the chosen GPUs, then through the next lens. Raises UsageError for an unknown GPU."""
        from gputop.sources.selection import choose, with_gpus

        if self._uuids is None:
            statics = [gpu.static for gpu in snapshot.gpus]
            self._uuids = frozenset(statics[i].uuid for i in choose(statics, self._spec, None, "this recording"))
        shown = with_gpus(snapshot, self._uuids)
        return shown if self._then is None else self._then.snapshot(shown)

    def text(self, text: str) -> str:
        return text if self._then is None else self._then.text(text)
