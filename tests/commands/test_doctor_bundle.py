"""`gputop doctor --bundle`: all that a report of a defect needs, without a name in it."""

from __future__ import annotations

import getpass
import gzip
import json
import os
import re
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputop.cli import main
from gputop.recording.reader import read_snapshots
from tests.nvml.stand_in import GIB, Process, Scenario, uuid_of

CODE = (
    "import sys; from gputop.commands import doctor_bundle as b; b.RECORDED_S = 2.0;"
    "from gputop.cli import main; sys.exit(main())"
)


def bundled(scenario: Scenario, path: Path, home: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    scenario.write()
    (home / "gputop.toml").write_text('theme = "light"\ndcgm_url = "http://me:hunter2hunter2@10.1.2.3:9400"\n')
    # Where no file can grow, Python would keep half a file of bytecode, and stumble over it the next time.
    environment = {**scenario.environment(), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-c", CODE, "--config", str(home / "gputop.toml"), "doctor", "--bundle", str(path)],
        env=environment, capture_output=True, text=True, timeout=60, check=False, **more,
    )  # fmt: skip


@pytest.mark.nvml
@pytest.mark.slow
def test_it_holds_doctor_a_recording_and_settings_and_no_name(
    nvml_scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    scenario, path = nvml_scenario(1), tmp_path / "report.tar.gz"
    scenario.gpus[0].processes = [Process(os.getpid(), GIB)]
    done = bundled(scenario, path, tmp_path)
    assert done.returncode == 0, done.stderr
    listed = done.stdout
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path / "out", filter="data")
        assert {member.uname or member.uid for member in archive.getmembers()} == {0}
    files = {file.name: file for file in (tmp_path / "out" / "gputop-report").iterdir()}
    assert set(files) == {"doctor.json", "doctor.txt", "settings.toml", "recording.gputop.jsonl.gz"}
    assert all(name in listed for name in files), "it is listed first"
    doctor = json.loads(files["doctor.json"].read_text())
    assert doctor["gpus"][0]["name"] == "NVIDIA H100 80GB HBM3"
    assert doctor["nvml"] == scenario.nvml, "a version is no address"
    assert len(list(read_snapshots(str(files["recording.gputop.jsonl.gz"])))) >= 2
    settings = files["settings.toml"].read_text()
    assert 'theme = "light"' in settings and "hunter2" not in settings
    names = [os.uname().nodename, uuid_of(0), str(tmp_path), "10.1.2.3"]
    names += [] if getpass.getuser() == "root" else [getpass.getuser()]
    for name, file in files.items():
        data = gzip.decompress(file.read_bytes()) if name.endswith(".gz") else file.read_bytes()
        for secret in names:
            assert not re.search(rb"(?<!\w)%s(?!\w)" % re.escape(secret.encode()), data), (name, secret)


@pytest.mark.parametrize(
    ("name", "said"),
    [("there.tar.gz", "exists and was not changed"), ("x.zip", "name it FILE.tar.gz"), ("no/x.tar.gz", "no directory")],
)
def test_a_place_that_cannot_be_written_is_told_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    (tmp_path / "there.tar.gz").write_text("mine")
    assert main(["doctor", "--bundle", str(tmp_path / name)]) == 2
    out, err = capsys.readouterr()
    assert said in err and err.count("\n") == 1 and out == ""
    assert (tmp_path / "there.tar.gz").read_text() == "mine"
