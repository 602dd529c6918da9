"""`gputop prove`: run kernels of known width and compare."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.command_line.shared_options import redacted_source, redactor_of, stdout_is_text
from gputop.config import Settings
from gputop.features.prove.experiment import ProofVerdict, verdict
from gputop.features.prove.kernel_process import KernelsFailed
from gputop.features.prove.prove_report import HEAD, conclusion, data, headline, picture, row, text
from gputop.features.prove.prove_run import Experiment, Proof, Watched
from gputop.model.sm import sm_options
from gputop.model.snapshot import Event, Snapshot
from gputop.model.source import SourceError, UsageError
from gputop.output.messages import say
from gputop.output.snapshot_data import json_text
from gputop.sources.local import open_local
from gputop.sources.marks import send_mark
from gputop.system.safe_open import write_private

if TYPE_CHECKING:
    from gputop.recording.recorder import Recorder


INTERVAL_S = 0.5
SUFFIXES = (".svg", ".json", ".txt")


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--json", action="store_true", help="one JSON object with every sample, to paste"
    )
    command.add_argument(
        "-o", "--output", metavar="FILE", help="the table as FILE.svg, .json or .txt"
    )
    command.add_argument("--record", metavar="FILE", help="keep a recording of it")
    command.add_argument(
        "--report", metavar="FILE", help="what was measured, as JSON for docs/hardware.md: no names"
    )
    command.add_argument(
        "--force", action="store_true", help="even while other processes use the GPU"
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    path, report = _target(args.output), _target(args.report)
    if path is not None and path.suffix not in SUFFIXES:
        raise UsageError(
            f"cannot make a {path.suffix or 'file without suffix'}: name one of {', '.join(SUFFIXES)}"
        )
    if not args.json:
        stdout_is_text(settings)
    # A script that ends gputop by a signal must leave nothing on the GPU either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    proof = _proved(args, settings)
    # Why SM activity is not measured, with what would help.
    proof_verdict = verdict(proof.results, proof.at_rest.sm_reason or "")
    if report is not None:
        _report(report, settings, proof, proof_verdict)
    if args.json:
        _print(json_text(data(proof, proof_verdict)).rstrip("\n"))
    else:
        _print("\n".join(conclusion(proof_verdict)))
    if path is not None:
        write_private(path, _file(path.suffix, settings, proof, proof_verdict))
    return proof_verdict.exit_status


def _target(name: str | None) -> Path | None:
    """Path to write to. Raises UsageError without its directory."""
    target = None if name is None else Path(name)
    if target is not None and not target.parent.is_dir():
        raise UsageError(f"cannot write {target}: no directory {target.parent}")
    return target


def _proved(args: argparse.Namespace, settings: Settings) -> Proof:
    """Run the experiment and print its results as they come."""
    keeper = _Keeper()
    source = redacted_source(open_local(settings, INTERVAL_S, wakes=True), redactor_of(settings))
    watched = Watched(
        keeper.take, keeper.mark, lambda result: None if args.json else _print(row(result))
    )
    experiment = Experiment(source, watched)
    try:
        before = experiment.look(force=args.force)
        cuda = experiment.start_cuda()
        if args.record is not None:
            keeper.record(args.record)
        say(
            "runs kernels for about half a minute and takes 256 MiB of the GPU's memory; Ctrl+C stops at once"
        )
        if not args.json:
            first = headline(
                experiment.chosen(before), before.machine.driver, None, experiment.others(before)
            )
            _print("\n".join([*first, HEAD]))
        return experiment.run(before, cuda)
    except KernelsFailed as failed:
        raise SourceError(f"the kernels cannot run: {failed}") from failed
    finally:
        experiment.close()
        keeper.close()


def _file(suffix: str, settings: Settings, proof: Proof, proof_verdict: ProofVerdict) -> str:
    if suffix == ".json":
        return json_text(data(proof, proof_verdict))
    if suffix == ".txt":
        return text(proof, proof_verdict)
    from gputop.output.picture import svg
    from gputop.paint.theme import THEMES

    theme = THEMES["dark" if settings.theme == "auto" else settings.theme]
    return svg(picture(proof, proof_verdict), theme, "gputop prove")


def _report(path: Path, settings: Settings, proof: Proof, proof_verdict: ProofVerdict) -> None:
    """Write the file for docs/hardware.md, with doctor's sources."""
    from gputop.features.prove.prove_report import hardware_report
    from gputop.sources.doctor_report import examine

    doctor = examine(str(proof.at_rest.static.index), sm=sm_options(settings))
    source_rows = doctor["gpus"][0]["rungs"] if doctor["gpus"] else ()
    write_private(path, json_text(hardware_report(proof, proof_verdict, source_rows)))
    say(f"wrote {path}: the card, its driver and what was measured, without names")


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class _Keeper:
    """Keeps a recording and marks of the experiment."""

    def __init__(self) -> None:
        from gputop.monitor import Monitor
        from gputop.session.session import Session

        self._session = Session(Monitor(INTERVAL_S))
        self._recorder: Recorder | None = None

    def record(self, target: str) -> None:
        """Begin to record. Raises RecordingError.

        Only once it is known that the experiment can run.
        """
        from gputop.recording.recorder import Recorder

        self._recorder = Recorder(target)
        self._session.record(self._recorder)

    def take(self, snapshot: Snapshot) -> None:
        if self._recorder is not None:
            self._session.take(snapshot)

    def mark(self, words: str) -> None:
        now = time.time()
        send_mark(words, now)
        if self._recorder is not None:
            self._session.note(Event(now, "mark", words))

    def close(self) -> None:
        if self._recorder is not None:
            self._recorder.close()
            if self._recorder.error is not None:
                say(self._recorder.error)
            elif self._recorder.path is not None:
                say(f"recorded in {self._recorder.path}")
