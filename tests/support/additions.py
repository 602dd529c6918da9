"""One of each thing that people add to gputop, as small patches: what to touch, and nothing else.

A patch names a file, a piece of text that stands in it once, and what comes after that piece. A file that does not
exist is made. ``proof`` is a test, run in a copy of the tree that has all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Patch(NamedTuple):
    """``text`` after the only ``after`` in ``file``; a new file without ``after``."""

    file: str
    text: str
    after: str = ""


class Addition(NamedTuple):
    """What is added, the files that it may touch at most, how, and the test that proves it is there."""

    name: str
    most_files: int
    patches: tuple[Patch, ...]
    proof: str


SM_SOURCE = Addition(
    "a source of SM activity",
    4,
    (
        Patch("gputop/model/sm.py", ' "added",', after='SmSource = Literal["gpm", "dcgm-exporter", "dcgmi",'),
        Patch(
            "gputop/model/sm.py",
            """    "added": SmSourceRow(
        "Added", measured=True,
        works_on="GPUs of a test", asks="nobody", shown="`SM measured · Added`",
    ),
""",
            after="""        shown="`SM measured · dcgmi`",
    ),
""",
        ),
        Patch(
            "gputop/sources/activity/added.py",
            '''"""An SM source that a test adds."""

from __future__ import annotations

from typing import Literal

from gputop.sources.activity.fallback_chain import MeasuredActivity


class Added:
    """Measures 42 % of everything."""

    @property
    def name(self) -> Literal["added"]:
        return "added"

    def read(self, now: float) -> MeasuredActivity:
        return MeasuredActivity({"sm_active_pct": 42.0}, {}, 1.0, now)

    def close(self) -> None:
        """Holds nothing."""
''',
        ),
        Patch(
            "gputop/sources/activity/choose_sources.py",
            """        if static.name == "a GPU of a test":
            from gputop.sources.activity.added import Added

            sm_readers.append(Added())
""",
            after="        sm_readers: list[SmReader] = []\n",
        ),
        Patch(
            "gputop/sources/doctor_report.py",
            '            source_row("added", True, "always"),\n',
            after="            _dcgmi(gpu, dcgmi_uuids),\n",
        ),
    ),
    """
def test_an_sm_source_is_measured_shown_recorded_and_explained() -> None:
    sm_readers = SmReaders(1.0, "/proc").of(lambda: GpuStatic(0, "GPU-0", "a GPU of a test"))
    chain = FallbackChain([sm_reader for sm_reader in sm_readers if sm_reader.name == "added"])
    standing = chain.read(0.0)
    assert (standing.source, standing.activity.values) == ("added", {"sm_active_pct": 42.0})
    sample = gpu(sm_source="added", sm_active_pct=42.0)
    assert sm_provenance([sample]) == ("SM measured · Added", "level.green")
    assert read_back(snap(0, sample)).gpus[0].sm_source == "added"
    assert "`added`" in page_text("sources")
    snapshots = [snap(tick, gpu(sm_source="added")) for tick in range(60)]
    assert diagnosis_of(snapshots).efficiency_pct is not None
""",
)

OPT_IN_SM_SOURCE = Addition(
    "a source of SM activity that is never used unasked",
    6,
    (
        Patch("gputop/model/sm.py", ' "asked",', after='SmSource = Literal["gpm", "dcgm-exporter",'),
        Patch("gputop/model/sm.py", ' "asked",', after='SmChoice = Literal["auto", "gpm", "dcgm-exporter",'),
        Patch("gputop/model/sm.py", "    asked: bool = False\n", after='    sm_source: SmChoice = "auto"\n'),
        Patch(
            "gputop/model/sm.py",
            """    "asked": SmSourceRow(
        "Asked", measured=True,
        works_on="GPUs of a test", asks="only with `--asked`", shown="`SM measured · Asked`",
    ),
""",
            after="""        shown="`SM measured · DCGM`, with its averaging time and its age",
    ),
""",
        ),
        Patch(
            "gputop/sources/activity/asked.py",
            '''"""An SM source that a test adds, and that takes something from others."""

from __future__ import annotations

from typing import Literal

from gputop.sources.activity.fallback_chain import MeasuredActivity


class AskedReader:
    """Measures 24 % of everything."""

    @property
    def name(self) -> Literal["asked"]:
        return "asked"

    def read(self, now: float) -> MeasuredActivity:
        return MeasuredActivity({"sm_active_pct": 24.0}, {}, 1.0, now)

    def close(self) -> None:
        """Holds nothing."""
''',
        ),
        Patch(
            "gputop/sources/activity/choose_sources.py",
            """        if self._asked("asked", self.options.asked) and self._wants("asked"):
            from gputop.sources.activity.asked import AskedReader

            sm_readers.append(AskedReader())
""",
            after="            sm_readers.append(Dcgmi(self._dmon, static))\n",
        ),
        Patch(
            "gputop/sources/doctor_report.py",
            '            source_row("asked", sm.asked, "never used unasked", "gputop --asked"),\n',
            after="            _exporter(gpu, exporter),\n",
        ),
        Patch(
            "gputop/config/__init__.py",
            '    asked: Annotated[bool, Meta(description="Ask the source that a test has added.")] = False\n',
            after="""SM activity comes from: the best source that works, or this one and no other."),
    ] = "auto"
""",
        ),
        Patch(
            "gputop/commands/command_line.py",
            '    add("--asked", action="store_true", help="ask the source that a test has added")\n',
            after='(takes the profiling unit)")\n',
        ),
    ),
    """
def test_an_sm_source_that_takes_from_others_is_used_only_where_it_is_asked_for(tmp_path: Path) -> None:
    def names(options: SmOptions) -> list[str]:
        return [sm_reader.name for sm_reader in SmReaders(1.0, "/proc", options).of(lambda: gpu().static)]

    assert "asked" not in names(SmOptions())
    assert "asked" in names(sm_options(load(None, {}, {"asked": True})[0]))
    assert "asked" in names(sm_options(load(None, {"GPUTOP_SM_SOURCE": "asked"}, {})[0]))
    assert "asked" not in names(SmOptions(asked=True, sm_source="gpm"))
    assert live_parser().parse_args(["--asked"]).asked is True
    assert "asked" not in for_viewers(Settings())
    assert "--asked" in page_text("options")
    assert "`asked`" in page_text("settings") and "`asked`" in page_text("sources")
""",
)

GPU_METRIC = Addition(
    "a GPU metric",
    3,
    (
        Patch(
            "gputop/model/metrics.py",
            """    count("pcie_replays", "count", "REPLAYS", "packets that the PCIe link sent again", None,
          "nvmlDeviceGetPcieReplayCounter", history=True, seldom=True, glossary=True),
""",
            after="GPU_METRICS = table(\n",
        ),
        Patch(
            "gputop/model/snapshot.py",
            "    pcie_replays: int | None = None\n",
            after="    fan_pct: float | None = None\n",
        ),
        Patch(
            "gputop/sources/nvml/gpu_questions.py",
            '    Question(("pcie_replays",), ("nvmlDeviceGetPcieReplayCounter",), (), _as_is),\n',
            after='    Question(("fan_pct",), ("nvmlDeviceGetFanSpeed",), (), _as_is),\n',
        ),
    ),
    """
def test_a_gpu_metric_is_asked_shown_recorded_remembered_and_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlDeviceGetPcieReplayCounter", lambda _: 7)
    (question,) = (question for question in SELDOM if "pcie_replays" in question.keys)
    answers = MetricAnswers()
    assert question.ask_into(Handle("handle"), answers, 0.0)
    assert answers.values == {"pcie_replays": 7}
    snapshot = snap(0, gpu(pcie_replays=7))
    assert snapshot_data(snapshot)["gpus"][0]["pcie_replays"] == 7
    head, row, *_ = gpu_csv(snapshot).splitlines()
    assert dict(zip(head.split(","), row.split(","), strict=True))["pcie_replays"] == "7"
    assert read_back(snapshot).gpus[0].pcie_replays == 7
    history = Monitor(1.0).feed(snapshot).history
    assert history.recent("GPU-0", "pcie_replays", 10.0) == [(snapshot.t, 7.0)]
    assert "sent again" in text_of(help_rows(COLOUR, 120))
    shown = text_of(provenance_rows(snapshot, snapshot.gpus[0], 160, COLOUR))
    assert "REPLAYS" in shown and "nvmlDeviceGetPcieReplayCounter" in shown and "0-5 s" in shown
    assert "`pcie_replays`" in page_text("metrics")
    simulated = snapshot_at(T0, started=T0).gpus[0]
    assert simulated.pcie_replays is None
    assert simulated.unavailable["pcie_replays"] == "the demo does not simulate it"
""",
)

VERDICT = Addition(
    "a verdict",
    2,
    (
        Patch(
            "gputop/diagnosis/rules/busy.py",
            """ADDED = Rule(
    id="added",
    title="an added verdict",
    short="added",
    condition="util is 96.5 %, as a test has it",
    level="info",
    state="working",
    holds=lambda s: s.u == 96.5,
    tell=lambda s: RuleResult("info", (_numbers(s),), "take it away again", "take it away"),
)


""",
            after='    return line if s.tensor is None else f"{line}, tensor {pct(s.tensor)}"\n\n\n',
        ),
        Patch(
            "gputop/diagnosis/rules/__init__.py", "    ADDED,\n", after="from gputop.diagnosis.rules.busy import (\n"
        ),
        Patch("gputop/diagnosis/rules/__init__.py", "ADDED, ", after="END: tuple[Rule, ...] = ("),
    ),
    """
def test_a_verdict_is_given_with_its_evidence_and_explained() -> None:
    found = diagnosis_of([snap(tick, gpu(util=96.5, sm=60.0), [train()]) for tick in range(60)])
    assert (found.verdict, found.level, found.remedy) == ("added", "info", "take it away again")
    assert found.evidence
    assert "an added verdict" in text_of(help_rows(COLOUR, 120))
    assert "`added`" in page_text("verdicts")
""",
)

COMMAND = Addition(
    "a command",
    3,
    (
        Patch("tests/test_hostile_names.py", '    "added-one": "no name from outside",\n', after="ELSEWHERE = {\n"),
        Patch(
            "gputop/commands/registry.py",
            '    "added-one": Command("Watch", "what a test adds", "gputop.commands.added_one"),\n',
            after="\n_CORE = {\n",
        ),
        Patch(
            "gputop/commands/added_one.py",
            '''"""A command that a test adds."""

from __future__ import annotations

import argparse
import sys

from gputop.commands.needs import Needs
from gputop.config import Settings

NEEDS = Needs()


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--loud", action="store_true", help="say it louder")


def run(args: argparse.Namespace, settings: Settings) -> int:
    sys.stdout.write("ADDED\\n" if args.loud else f"added {settings.interval:g}\\n")
    return 0
''',
        ),
    ),
    """
def test_a_command_runs_is_listed_completed_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert (main(["added-one", "--loud"]), capsys.readouterr().out) == (0, "ADDED\\n")
    assert (main(["added-one", "-i", "2"]), capsys.readouterr().out) == (0, "added 2\\n")
    assert main(["help"]) == 0 and "added-one" in capsys.readouterr().out
    assert "--loud" in page_text("options")
    assert "added-one" in SCRIPTS.joinpath("zsh").read_text()
""",
)

PROCESS_METRIC = Addition(
    "a process metric",
    3,
    (
        Patch(
            "gputop/model/metrics.py",
            """    fact("other_threads", "count", "OTHER-THR", "threads beside the main one", "stat field 20"),
""",
            after="PROCESS_METRICS = table(\n",
        ),
        Patch(
            "gputop/model/snapshot.py",
            "    other_threads: int | None = None\n",
            after="    throttled_pct: float | None = None\n",
        ),
        Patch(
            "gputop/sources/processes/member.py",
            "            other_threads=stat.threads - 1,\n",
            after="            threads=stat.threads,\n",
        ),
    ),
    """
def test_a_process_metric_is_read_shown_recorded_and_explained(tmp_path: Path) -> None:
    samples = collector_of(one_job(tmp_path)).read(0.0, [JOB])
    assert {sample.pid: sample.other_threads for sample in samples}[100] is not None
    assert "other_threads" in unseen(JOB, "hidden").unavailable
    process = train(threads=11, other_threads=10)
    assert COLUMNS["other_threads"].show(process, ()).strip() == "10"
    assert passes(parse("other_threads>9"), process, (), "")
    snapshot = snap(0, gpu(), [process])
    assert read_back(snapshot).processes[0].other_threads == 10
    assert snapshot_data(snapshot)["processes"][0]["other_threads"] == 10
    assert "threads beside the main one" in page_text("metrics")
""",
)

HOST_METRIC = Addition(
    "a host metric",
    3,
    (
        Patch(
            "gputop/model/metrics.py",
            """    gauge("mem_left_bytes", "bytes", "MEM LEFT", "memory that is left", origin="/proc/meminfo"),
""",
            after="HOST_METRICS = table(\n",
        ),
        Patch(
            "gputop/model/snapshot.py",
            "    mem_left_bytes: float | None = None\n",
            after="    load1: float | None = None\n",
        ),
        Patch(
            "gputop/sources/host.py",
            "            mem_left_bytes=None if used is None or total is None else total - used,\n",
            after="            mem_total_bytes=total,\n",
        ),
    ),
    """
def test_a_host_metric_is_read_recorded_exported_and_explained() -> None:
    collector = HostCollector()
    try:
        assert (collector.read(0.0).mem_left_bytes or 0.0) > 0.0
    finally:
        collector.close()
    snapshot = snap(0, gpu(), host=replace(HOST, mem_left_bytes=3.0))
    assert read_back(snapshot).host.mem_left_bytes == 3.0
    assert snapshot_data(snapshot)["host"]["mem_left_bytes"] == 3.0
    assert "memory that is left" in page_text("metrics")
""",
)

LOADER_FRAMEWORK = Addition(
    "a loader framework",
    2,
    (
        Patch(
            "gputop/sources/processes/loaders.py",
            '    b"added_loader": "added",\n',
            after="_LOADERS: Mapping[bytes, str] = MappingProxyType({\n",
        ),
        Patch(
            "gputop/diagnosis/rules/feeding_rules.py",
            """    if s.loader_kind == "added":
        return f"raise added_workers (now {f.n})"
""",
            after='    """How to have more feeders of this kind."""\n',
        ),
    ),
    """
def test_a_loader_framework_is_recognised_and_has_its_own_remedy() -> None:
    found = identify(b"python", b"python -m added_loader", b"python train.py", True)
    assert (found.role, found.loader) == ("loader", "added")
    signals, feeders = SimpleNamespace(loader_kind="added"), SimpleNamespace(n=3)
    assert "added_workers (now 3)" in more_of(signals, feeders)
""",
)

BADGE = Addition(
    "a badge",
    2,
    (
        Patch(
            "gputop/diagnosis/rules/badges.py",
            """

def _added(s: Signals, verdict: str) -> Badge | None:
    return Badge("added_badge", "info", "added", "util is 95.5 %", "take it away") if s.u == 95.5 else None


ADDED_BADGE = BadgeRule("added_badge", "util is 95.5 %, as a test has it", "info", _added)
""",
            after='POWER_BRAKE = BadgeRule("power_brake", "external power brake in ≥ 10 % of 30 s", "red", _brake)\n',
        ),
        Patch("gputop/diagnosis/rules/__init__.py", "    badges.ADDED_BADGE,\n", after="    badges.ECC,\n"),
    ),
    """
def test_a_badge_is_given_alerted_on_and_explained() -> None:
    found = diagnosis_of([snap(tick, gpu(util=95.5, sm=60.0), [train()]) for tick in range(60)])
    assert [badge.evidence for badge in found.badges] == ["util is 95.5 %"]
    assert condition("badge:added_badge").holds(gpu(), found) is True
    assert "`added_badge`" in page_text("verdicts") and "`added_badge`" in page_text("alerts")
""",
)

ADDITIONS = (
    SM_SOURCE, OPT_IN_SM_SOURCE, GPU_METRIC, PROCESS_METRIC, HOST_METRIC, VERDICT, BADGE, LOADER_FRAMEWORK, COMMAND,
)  # fmt: skip

HEAD = '''"""What was added is everywhere: run in a copy of the tree by ``tests/test_additions.py``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.commands.completion import SCRIPTS
from gputop.commands.registry import page_of
from gputop.commands.command_line import live_parser
from gputop.config import ConfigError, Settings, load
from gputop.diagnosis.rules.feeding_rules import more_of
from gputop.diagnosis.types import GpuDiagnosis
from gputop.features.alerts.alert_judge import AlertChange
from gputop.features.alerts.alert_table import alerts_of, parse as condition
from gputop.features.alerts.firing import NotHanded, firing_of
from gputop.features.fleet.fleet_app import FleetApp
from gputop.features.fleet.fleet_view import SORTS, FleetView
from gputop.features.fleet.simulated_fleet import SimulatedFleet
from gputop.features.fleet.watch_thread import FleetWatch
from gputop.features.web.serve_command import for_viewers
from gputop.model.sm import SmOptions, sm_options
from gputop.model.snapshot import GpuStatic, ProcessSample, ProcessStatic, Snapshot
from gputop.monitor import Monitor
from gputop.output.snapshot_data import gpu_csv, snapshot_data
from gputop.output.document import markdown
from gputop.paint.glyphs import COLOUR
from gputop.paint.help_rows import help_rows
from gputop.paint.line import Row
from gputop.paint.process_columns import COLUMNS
from gputop.paint.process_filter import parse, passes
from gputop.paint.numbers import provenance_rows
from gputop.paint.theme import THEMES
from gputop.paint.view import View
from gputop.paint.words import sm_provenance
from gputop.recording.decode import Decoder
from gputop.recording.encode import Encoder
from gputop.sources.activity.fallback_chain import FallbackChain
from gputop.sources.activity.choose_sources import SmReaders
from gputop.sources.gpu_process import unseen
from gputop.sources.host import HostCollector
from gputop.sources.processes.loaders import identify
from gputop.sources.nvml.handle import Handle, MetricAnswers
from gputop.sources.nvml.gpu_questions import SELDOM
from gputop.sources.simulation.scenarios import SCENARIOS
from gputop.sources.simulation.simulated import snapshot_at
from gputop.tui.node_app import GputopApp
from gputop.tui.screens.pages import HelpScreen
from tests.diagnosis.test_simulated_verdicts import assert_as_expected, watch
from tests.e2e.case import all_cases
from tests.e2e.watching import run_group
from tests.faults.row import World
from tests.faults.table import rows
from tests.nvml.stand_in import Scenario
from tests.proc_trees.one_job import JOB, collector_of, one_job
from tests.support.exported import feed, gpu_of, read, snapshot_of, value
from tests.support.fake_app import Handed, playback_on
from tests.support.frames import demo_frame
from tests.support.scenes import HOST, T0, Watch, gpu, snap, train
from tests.support.steady_pilot import shown
from tests.tools.screenshots import pictures


def read_back(snapshot: Snapshot) -> Snapshot:
    encoder, decoder = Encoder(), Decoder()
    lines = (*encoder.key_lines(snapshot), *encoder.frame_lines(snapshot))
    return [found for line in lines if (found := decoder.feed(line)) is not None][-1]


def text_of(rows: list[Row]) -> str:
    return "\\n".join("".join(text for text, _ in row) for row in rows)


def page_text(topic: str) -> str:
    return markdown(page_of(topic), "a test")


def diagnosis_of(snapshots: list[Snapshot]) -> GpuDiagnosis:
    watch = Watch()
    watch.feed(snapshots)
    return watch.said[-1][1]
'''


def proofs(additions: Iterable[Addition]) -> str:
    """The file of tests for a copy that has these additions."""
    return "\n\n".join((HEAD.rstrip() + "\n", *(addition.proof.strip() + "\n" for addition in additions)))


def apply(root: Path, addition: Addition) -> None:
    """Patch a copy of the tree. Raises ValueError where a patch does not fit any more."""
    for patch in addition.patches:
        path = root / patch.file
        if not patch.after:
            if path.exists():
                raise ValueError(f"{patch.file} exists already")
            path.parent.mkdir(exist_ok=True)
            path.write_text(patch.text, encoding="utf-8")
            continue
        text = path.read_text(encoding="utf-8")
        if text.count(patch.after) != 1:
            raise ValueError(f"{patch.file} has not one {patch.after!r}: say anew where {addition.name} goes")
        before, _, rest = text.partition(patch.after)
        path.write_text(f"{before}{patch.after}{patch.text}{rest}", encoding="utf-8")
