"""The fleet's first page: what it wastes, where, on what, and what helps, on one screen."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from gputop.features.fleet.fleet_reading import LastHour
from gputop.features.fleet.judge.fleet_frame import FleetFrame, fleet_frame
from gputop.features.fleet.read.simulated_fleet import STARTED, SimulatedFleet
from gputop.features.fleet.show.fleet_screen import FleetPainted, fleet_screen, summary
from gputop.features.fleet.show.fleet_ticket import ticket
from gputop.features.fleet.show.fleet_view import (
    FleetView,
    GpuOfHost,
    chosen_gpu,
    findings,
    next_gpu,
    parse,
    rows_of,
    selected_host,
)
from tests.features.fleet.conftest import text_of

SIZES = ((160, 48), (120, 40), (80, 24))
COUNT = re.compile(r"(?:[●■▲·×?] |\+)([\d,]+)|\((\d+) GPUs?\)")


@pytest.fixture(scope="module")
def fleet() -> SimulatedFleet:
    return SimulatedFleet(125)


def _painted(
    frame: FleetFrame, fleet: SimulatedFleet, view: FleetView, size: tuple[int, int]
) -> FleetPainted:
    host = selected_host(frame, view)
    assert host is not None
    view = replace(view, history=fleet.history(host, frame.t))
    return fleet_screen(frame, view, *size)


@pytest.mark.parametrize("size", SIZES)
def test_the_selected_host_has_its_evidence_and_its_remedy_below_the_hosts(
    frame: FleetFrame, fleet: SimulatedFleet, size: tuple[int, int]
) -> None:
    rows = rows_of(frame, FleetView())
    for host in (rows[0], rows[2], rows[-1]):
        lines = text_of(_painted(frame, fleet, FleetView(cursor=host), size).rows).split("\n")
        assert len(lines) == size[1] and all(len(line) == size[0] for line in lines)
        begin = next(at for at, line in enumerate(lines) if line.startswith(f"─ {host} "))
        below = "\n".join(lines[begin:])
        group = frame.host(host)
        assert group is not None and f"↳ {group.verdict.text[:40]}" in below
        assert not group.remedy or f"→ {group.remedy[:40]}" in below


def test_its_last_hour_is_drawn_where_there_is_room(
    frame: FleetFrame, fleet: SimulatedFleet
) -> None:
    for size, is_drawn in zip(SIZES, (True, True, False), strict=True):
        text = text_of(_painted(frame, fleet, FleetView(), size).rows)
        assert all((f"GPU{gpu}" in text) == is_drawn for gpu in range(8)), size
    unread = text_of(fleet_screen(frame, FleetView(), *SIZES[0]).rows)
    assert "GPU7" in unread, "the host is there before its hour was read"


@pytest.mark.parametrize("size", SIZES)
def test_waste_by_job_adds_up_to_the_sum_on_top(
    frame: FleetFrame, fleet: SimulatedFleet, size: tuple[int, int]
) -> None:
    text = text_of(_painted(frame, fleet, FleetView(), size).rows)
    block = text[text.index("─ waste by job") :]
    whole = re.search(r"last hour: ([\d,]+) GPU-h", block)
    hours = [float(word.replace(",", "")) for word in re.findall(r"([\d,]+\.\d) GPU-h", block)]
    assert whole is not None and len(hours) >= 3
    assert abs(sum(hours) - float(whole[1])) <= 0.5 + 0.05 * len(hours)
    worst = frame.waste[0]
    assert worst.job in block and f"{worst.gpu_h:.1f} GPU-h" in block


def test_stragglers_and_alerts_are_counted_at_every_size(
    frame: FleetFrame, fleet: SimulatedFleet
) -> None:
    for size in SIZES:
        text = text_of(_painted(frame, fleet, FleetView(), size).rows)
        assert f"{len(frame.read.alerts)} alert" in text
        if size[0] >= 120:
            assert (
                f"stragglers {len(frame.stragglers)}" in text and frame.stragglers[0].where in text
            )
        else:
            assert f"{len(frame.stragglers)} stragglers" in text
    calm = fleet_frame(replace(frame.read, alerts=(), hour=LastHour()))
    text = text_of(_painted(calm, fleet, FleetView(), SIZES[0]).rows)
    assert "no alert fires" in text and "the last hour is being read" in text


def test_hosts_out_of_sight_are_counted_and_all_can_be_reached(
    frame: FleetFrame, fleet: SimulatedFleet
) -> None:
    rows = rows_of(frame, FleetView())
    for size in SIZES:
        painted = _painted(frame, fleet, FleetView(), size)
        assert f"… {125 - painted.page} more hosts" in text_of(painted.rows)
        last = FleetView(cursor=rows[-1], first=len(rows))
        text = text_of(_painted(frame, fleet, last, size).rows)
        assert rows[-1] in text[: text.index("more hosts")]
        targets = [
            target for target in painted.targets if target is not None and target.kind == "row"
        ]
        assert [target.key for target in targets] == rows[: painted.page]


def test_a_fleet_of_two_hosts_leaves_no_room_empty(fleet: SimulatedFleet) -> None:
    two = SimulatedFleet(2)
    frame = fleet_frame(two.ask(STARTED))
    for size in SIZES:
        text = text_of(_painted(frame, two, FleetView(), size).rows)
        assert "more host" not in text and "↳" in text and "waste by job" in text


@pytest.mark.parametrize("width", [80, 120, 140, 160, 200, 300])
@pytest.mark.parametrize("words", ["", "user:ml", "state:starved", "host:node-076"])
def test_the_counts_on_top_add_up_to_the_gpus_that_are_shown(
    frame: FleetFrame, width: int, words: str
) -> None:
    view = FleetView(filter=parse(words)) if words else FleetView()
    shown = [host for host in frame.hosts if host.name in rows_of(frame, view)]
    line = "".join(text for text, _ in summary(frame, view, width))
    counted = 0
    for part in re.split(r" {3,}", line):
        found = re.match(r"\s*(?:[●■▲·×?] |\+)([\d,]+)", part)
        if found is None:
            continue
        # A host that is absent stands for its GPUs.
        kind = re.search(r"(late|down)(?: \((\d+) GPU)?", part)
        n = int(found[1].replace(",", ""))
        counted += n if kind is None else sum(host.counts.get(kind[1], 0) for host in shown)  # type: ignore[call-overload]
    assert counted == sum(host.size for host in shown), line
    assert frame.total == 1000


def test_jobs_that_are_filtered_are_counted_alone(frame: FleetFrame) -> None:
    view = FleetView(panel="jobs", filter=parse("user:ml"))
    text = text_of(fleet_screen(frame, view, 160, 40).rows)
    rows = rows_of(frame, view)
    assert f"jobs {len(rows)} of {len(frame.jobs)}, filter user:ml" in text
    starved = sum(group.counts["starved"] for group in frame.jobs if group.name in rows)
    assert f"▲ {starved} starved" in text


def test_sm_activity_of_an_idle_gpu_is_not_green(frame: FleetFrame, fleet: SimulatedFleet) -> None:
    idle = next(
        host for host in frame.hosts if host.verdict.state in ("idle_allocated", "allocated_unused")
    )
    working = next(host for host in frame.hosts if host.verdict.text == "8 working")
    for host, is_green in ((idle, False), (working, True)):
        for view in (FleetView(cursor=host.name), FleetView(panel="host", host=host.name)):
            view = replace(view, filter=parse(f"host:{host.name}"))
            painted = _painted(frame, fleet, view, (160, 48))
            styles = {
                style for row in painted.rows[3:] for text, style in row if text.strip().isdigit()
            }
            assert ("value.sm" in {style.split("|")[0] for style in styles}) == is_green


def test_what_stands_below_the_hosts_follows_their_filter(
    frame: FleetFrame, fleet: SimulatedFleet
) -> None:
    late = frame.stragglers[0]
    other = next(one for one in frame.stragglers if one.host != late.host)
    view = FleetView(filter=parse(f"host:{late.host}"))
    for size in SIZES[:2]:
        text = text_of(_painted(frame, fleet, view, size).rows)
        below = text[text.index("waste by job") :]
        assert "stragglers 1 " in below and late.where in below and other.where not in below
        assert "no alert fires" in below
    alert = frame.read.alerts[0]
    view = FleetView(filter=parse(f"host:{alert.host}"))
    assert "1 alert firing" in text_of(_painted(frame, fleet, view, SIZES[0]).rows)
    wasting = next(row for row in frame.waste if row.user == "ml")
    view = FleetView(filter=parse("user:ml"))
    shown = findings(frame, view)
    hosts = {host.name for host in frame.hosts if "ml" in host.users}
    wasted = sum(row.gpu_h for row in shown.waste if row.state != "idle")
    assert wasted == pytest.approx(sum(frame.host(host).waste_gpu_h for host in hosts))  # type: ignore[union-attr, misc]
    assert wasting.job in [row.job for row in shown.waste]
    assert findings(frame, FleetView()).waste is frame.waste
    top = text_of([summary(frame, view, 200)])
    text = text_of(_painted(frame, fleet, view, SIZES[0]).rows)
    assert f"last hour: {wasted:,.0f} GPU-h" in text and f"last hour: {wasted:,.0f} GPU-h" in top


def test_each_gpu_of_the_selected_host_can_be_looked_at_alone(
    frame: FleetFrame, fleet: SimulatedFleet
) -> None:
    host = next(one for one in frame.hosts if one.counts["lost"])
    view = FleetView(cursor=host.name)
    seen = []
    for _ in range(9):
        view = next_gpu(view, host, 1)
        seen.append(None if view.gpu is None else view.gpu.number)
        for panel in ("hosts", "host"):
            shown = replace(view, panel=panel, host=host.name)
            text = text_of(_painted(frame, fleet, shown, SIZES[0]).rows)
            if view.gpu is None:
                assert "↳ 1 lost · 7 working" in text and "▸" not in text
                continue
            gpu = view.gpu.number
            assert f"─ GPU {gpu} of {host.name} " in text and f"▸{gpu}" in text
            assert ("↳ 1 lost: " if gpu == "7" else "↳ 1 working") in text
    assert seen == [*map(str, range(8)), None]
    assert next_gpu(view, host, -1).gpu == (host.name, "7")
    other = next(one for one in frame.hosts if one.name != host.name)
    view = next_gpu(view, host, 1)
    assert chosen_gpu(view, other) is other, "another host is shown as a whole"


def test_what_is_copied_names_the_verdict_the_values_and_what_to_do(frame: FleetFrame) -> None:
    host = next(one for one in frame.hosts if one.counts["lost"])
    text = ticket(frame, host, 0.0)
    for words in (
        host.name,
        "1 lost · 7 working: util 98 %",
        "to do: drain the host",
        "GPU 7   lost",
    ):
        assert words in text
    assert all(gpu.read.uuid in text for gpu in host.gpus)
    one = ticket(frame, chosen_gpu(FleetView(gpu=GpuOfHost(host.name, "3")), host), 0.0)
    assert "GPU 3   working" in one and "GPU 7" not in one
    reached = fleet_frame(replace(frame.read, opens={host.name: ["ssh", "-t", "n 1", "gputop"]}))
    assert ticket(reached, host, 0.0).endswith("its own screen: ssh -t 'n 1' gputop")


def test_a_bar_has_the_colour_of_its_words(frame: FleetFrame, fleet: SimulatedFleet) -> None:
    rows = _painted(frame, fleet, FleetView(), SIZES[0]).rows
    bars = {"value.alarm": "bar.alarm", "level.yellow": "bar.wait"}
    for row in rows:
        styles = [style.partition("|")[0] for text, style in row if text.strip()]
        drawn = [style for style in styles if style in bars.values()]
        if drawn:
            words = next(style for style in styles if style in bars)
            assert drawn == [bars[words]]
    shown = text_of(rows)
    ends = {
        len(line[:79].rstrip())
        for line in shown[shown.index("waste by job") :].split("\n")[1:6]
        if "GPU-h" in line[:79]
    }
    assert len(ends) == 1, "hours end in one column"
