"""Writes the archive of `gputop doctor --bundle`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gputop.commands.shared_options import redacted_source
from gputop.config import Settings, declared
from gputop.model.quantity import file_size
from gputop.model.redaction import Redactor
from gputop.model.source import SourceError, UsageError
from gputop.output.doctor_text import doctor_text
from gputop.output.messages import say
from gputop.output.snapshot_data import json_text

SUFFIX = ".tar.gz"
RECORDED_S = 60.0
"""A verdict needs ten samples, and half a minute shows what it rests on."""
RECORDING = "recording.gputop.jsonl.gz"


def checked(name: str) -> Path:
    """Return the archive's path.

    Raises UsageError, before anything is measured, for a path that cannot be written.
    """
    path = Path(name)
    if not path.name.endswith(SUFFIX):
        raise UsageError(f"--bundle writes an archive: name it FILE{SUFFIX}")
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} exists and was not changed: name another file")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"cannot write {path}: {path.parent} is no directory that this user may write to")
    return path


def write_bundle(path: Path, redacted: Callable[[Redactor], dict[str, Any]], settings: Settings) -> dict[str, Any]:
    """Record a minute, list the files and write the archive.

    ``redacted`` gives doctor's report, which is returned. Raises OSError where the archive cannot be written; nothing
    of it is left then.
    """
    import getpass

    from gputop.system.safe_open import write_private

    redactor = Redactor()
    # Whose machine it is stands in texts of any kind.
    redactor.host(os.uname().nodename)
    redactor.user(getpass.getuser())
    report = redacted(redactor)
    files = {"doctor.json": json_text(report).encode(), "doctor.txt": doctor_text(report).encode()}
    files["settings.toml"] = _settings(settings, redactor).encode()
    recording, why_not = _recorded(settings, redactor)
    if recording is not None:
        files[RECORDING] = recording
    say(f"{path.name} will hold, without names of users, hosts, jobs and paths:")
    for name, data in files.items():
        sys.stdout.write(f"  {name:<28} {file_size(len(data)):>9}   {_ABOUT[name]}\n")
    if why_not is not None:
        sys.stdout.write(f"  no recording: {redactor.text(why_not)}\n")
    sys.stdout.flush()
    write_private(path, _packed(files))
    say(f"wrote {path}; `tar tzf` lists it, and every file in it is text (the recording unpacked)")
    return report


_ABOUT: Mapping[str, str] = {
    "doctor.json": "what can be measured here, versions, the terminal",
    "doctor.txt": "the same for people",
    "settings.toml": "the settings that differ from the defaults, without secrets",
    RECORDING: f"{RECORDED_S:.0f} s of measurements and processes' states; commands are names of programs",
}


def _settings(settings: Settings, redactor: Redactor) -> str:
    """Return the user's settings as TOML."""
    from gputop.commands.config import setting_line

    changed = (name for name, setting in declared().items() if getattr(settings, name) != setting.default)
    lines = "".join(setting_line(settings, name) for name in changed)
    return "\n".join(redactor.text(line) for line in lines.splitlines()) + "\n"


def _recorded(settings: Settings, redactor: Redactor) -> tuple[bytes | None, str | None]:
    """Return a recorded minute of this machine, or why there is none."""
    import signal
    import tempfile
    import threading

    from gputop.session.record_run import record
    from gputop.sources.local import open_local
    from gputop.sources.marked import Marked

    stop = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    say(f"records for {RECORDED_S:.0f} s; Ctrl+C ends that earlier")
    try:
        with tempfile.TemporaryDirectory(prefix="gputop-bundle-") as folder:
            target = Path(folder, RECORDING)
            source = open_local(settings, own_process=False)
            done = record(redacted_source(Marked(source), redactor), str(target), stop=stop, seconds=RECORDED_S)
            if done.error is not None or not done.frames:
                return None, done.error or "no frame was recorded"
            return target.read_bytes(), None
    except SourceError as error:
        return None, str(error)
    finally:
        signal.signal(signal.SIGINT, before)


def _packed(files: Mapping[str, bytes]) -> bytes:
    """Return the archive; its members have no owner, which is a name."""
    import io
    import tarfile

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"gputop-report/{name}")
            member.size, member.mode = len(data), 0o600
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()
