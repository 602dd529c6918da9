"""A fleet of hosts without a server: their pages, how they are reached, and that nothing is left on them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.features.fleet.fleet_reading import FleetError
from gputop.features.fleet.judge.fleet_frame import fleet_frame
from gputop.features.fleet.judge.gpu_state import Gpu, state_of
from gputop.features.fleet.judge.group_verdict import severity, verdict_of
from gputop.features.fleet.read import host_page
from gputop.features.fleet.read.direct_fleet import DirectFleet
from gputop.features.fleet.read.host_link import HostLink, SshOptions, ssh_words
from gputop.features.fleet.read.host_page import MOST_GPUS
from gputop.features.fleet.read.redacted_fleet import RedactedFleet
from gputop.features.fleet.read.scraped_host import ScrapedHost
from gputop.features.fleet.show.fleet_app import open_row
from gputop.features.fleet.show.fleet_data import fleet_data, fleet_json
from gputop.features.fleet.show.fleet_screen import fleet_screen
from gputop.features.fleet.show.fleet_view import FleetView
from gputop.features.fleet.show.group_rows import cell_spans
from gputop.model.exposition import PageLimitError
from gputop.model.redaction import Redactor
from gputop.paint.glyphs import COLOUR
from tests.features.fleet.conftest import text_of
from tests.support.scripted_engine import engine as scripted
from tests.support.ssh_hosts import REPOSITORY, exporter, missing_sshd, ssh_hosts

needs_sshd = pytest.mark.skipif(bool(missing_sshd()), reason=missing_sshd())


def page(*lines: str) -> str:
    return "\n".join(lines) + "\n"


def own(gpu: int, state: str = "working", util: float = 0.97, **more: float) -> list[str]:
    labels = f'gpu="{gpu}",uuid="GPU-{gpu}"'
    return [
        f"gputop_gpu_info{{{labels},model=\"H100\"}} 1", f"gputop_gpu_share{{{labels}}} 1",
        f"gputop_gpu_utilization_ratio{{{labels}}} {util}", f"gputop_gpu_sm_active_ratio{{{labels}}} 0.9",
        f'gputop_gpu_state{{{labels},state="{state}"}} 1', f'gputop_gpu_verdict{{{labels},verdict="healthy"}} 1',
        f'gputop_job_info{{{labels},scheduler="slurm",job_id="7",user="ann"}} 1',
        *(f"{name}{{{labels}}} {value}" for name, value in more.items()),
    ]  # fmt: skip


UP = "gputop_up 1"


def _taken(*pages: tuple[float, Sequence[str]], name: str = "a") -> ScrapedHost:
    """A host that gave these pages."""
    host = ScrapedHost(name)
    for t, lines in pages:
        assert host.take(page(UP, *lines), t) is None
    return host


def test_a_label_may_hold_every_character_that_other_programs_take_for_a_new_line() -> None:
    lines = own(0)
    strange = lines[0].replace("H100", "H\x85\u2028\u2029\x0b100")
    assert len(_taken((1.0, [strange, *lines[2:]])).gpus) == 1
    user = lines[-1].replace("ann", "a\u2028nn")
    (gpu,) = _taken((1.0, [*lines[:-1], user])).gpus
    assert gpu.job == "slurm 7"


def test_a_page_of_too_many_gpus_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_page, "MOST_GPUS", 3)
    monkeypatch.setattr(host_page, "parse_page", None)
    many = [line for gpu in range(4) for line in own(gpu)[:1]]
    with pytest.raises(PageLimitError, match="more than 4,096 GPUs"):
        host_page.read_host_page(page(UP, *many), "a")


def test_what_a_page_has_too_much_of_is_named_on_the_row_of_its_host_alone() -> None:
    many = [line for gpu in range(MOST_GPUS + 1) for line in own(gpu)[:1]]
    long = own(1)[-1].replace("ann", "n" * 5000)
    fleet = _direct(
        {"many": page(UP, *many), "long": page(UP, *own(0), long), "good": page(UP, *own(2))}
    )
    read = fleet.ask()
    fleet.close()
    assert {name: down.reason for name, down in read.down.items()} == {
        "many": "its page has more than 4,096 GPUs"
    }
    assert {gpu.host for gpu in read.gpus} == {"long", "good"}
    fault = "gputop_job_info: user has 5,000 characters, at most 1,024"
    assert read.faults == {"long": (fault,)}
    assert f"long: {fault}" in fleet_frame(read).problems


@pytest.mark.parametrize(("past_s", "newest"), [(5.0, 1), (29.0, 1), (31.0, 2)])
def test_each_minute_keeps_its_column_in_either_half_of_the_next(
    past_s: float, newest: int
) -> None:
    # A page every 10 s; minute k has the utilisation k %, the last one has just begun.
    began = 6000.0
    host = _taken(*(
        (began + t, own(0, util=0.01 * (t // 60))) for t in range(0, 301, 10) if began + t <= 6240.0
    ))  # fmt: skip
    columns = host.history(began + 240.0 + past_s)["0"][0]
    whole = [3.0, 4.0][:newest]
    assert [value and round(value) for value in columns[-3:]][-len(whole) :] == whole
    told = [value for value in columns if value is not None]
    assert len(told) == 3 + newest


def test_the_first_minute_is_drawn_before_its_half_is_over() -> None:
    history = _taken((6000.0, own(0, util=0.5))).history(6005.0)
    assert history["0"][0][-1] == pytest.approx(50.0)


def test_a_node_s_own_page_brings_its_states_and_whose_its_gpus_are() -> None:
    both = [*own(0), *own(1, "busy_not_working")]
    labels = '{gpu="2",uuid="GPU-2"} 1'
    host = _taken((100.0, [*both, f"gputop_gpu_lost{labels}", f"gputop_gpu_info{labels}"]))
    first, second, lost = host.gpus
    assert (first.host, first.gpu, first.own_state, first.own_verdict, first.job, first.user) == (
        "a", "0", "working", "healthy", "slurm 7", "ann",
    )  # fmt: skip
    assert (second.own_state, second.util_pct, lost.is_lost) == ("busy_not_working", 97.0, True)
    assert not host.lost(100.0)
    for t in (105.0, 110.0, 200.0):
        host.take(page(UP, *both), t)
    (waste,) = host.lost(200.0)
    assert not host.lost(4000.0), "an hour is an hour, though no page came since"
    assert (waste.gpu, waste.job, waste.state) == ("1", "slurm 7", "busy_not_working")
    assert waste.gpu_h == pytest.approx(10.0 / 3600.0), "what lies in a long pause is not known"
    assert host.gpus[2].is_lost, "a GPU that was there is lost, though the host answers"
    host.take(page("gputop_up 0"), 205.0)
    assert host.is_late and len(host.gpus) == 3


def test_a_node_s_own_level_colours_its_gpu_and_its_row() -> None:
    red = 'gputop_gpu_level{gpu="1",uuid="GPU-1",level="red"} 1'
    made_up = 'gputop_gpu_level{gpu="0",uuid="GPU-0",level="blink"} 1'
    host = _taken((100.0, [*own(0), *own(1), *own(2), made_up, red]))
    gpus = [Gpu(read, *state_of(read)) for read in host.gpus]
    assert [gpu.level for gpu in gpus] == ["green", "red", "green"]
    verdict = verdict_of({"working": 3}, gpus, None, (), {})
    assert verdict.level == "red" and verdict.text.startswith("GPU 1 red on its node; 3 ")
    healthy = verdict_of({"working": 2}, [gpus[0], gpus[2]], None, (), {})
    assert healthy.level == "green" and severity(verdict) < severity(healthy)
    fine, broken = (cell_spans([gpu], 8, COLOUR) for gpu in gpus[:2])
    assert fine != broken
    # The scheduler knows of an idle GPU what the node does not.
    held = replace(gpus[0].read, own_state="idle", own_level="grey", is_allocated=True)
    assert Gpu(held, *state_of(held)).level == "yellow"


def test_ranks_have_the_mean_step_of_five_minutes_and_their_wait_in_it() -> None:
    def steps(count: int) -> list[str]:
        rank = '{gpu="0",rank="3",job_id="7"}'
        seconds = {"step_seconds_count": count, "step_seconds_sum": 0.5 * count, "step_wait_seconds_count": count,
                   "step_wait_seconds_sum": 0.1 * count}  # fmt: skip
        return [*own(0), *(f"gputop_{name}{rank} {value}" for name, value in seconds.items())]

    (gpu,) = _taken((0.0, steps(10)), (5.0, steps(20))).gpus
    assert (gpu.step_s, gpu.step_wait_s) == (pytest.approx(0.5), pytest.approx(0.1))


def test_instances_are_as_busy_as_their_engines_and_have_their_share_of_power_and_hours() -> None:
    part = 'gpu="1",uuid="MIG-1",mig="7/0"'
    lines = [
        'gputop_gpu_share{gpu="1",uuid="GPU-1"} 0', f'gputop_gpu_share{{{part},parent="GPU-1"}} 0.142857',
        'gputop_gpu_info{gpu="1",uuid="GPU-1",model="H100"} 1',
        f"gputop_gpu_graphics_active_ratio{{{part}}} 0.98", f"gputop_gpu_power_watts{{{part}}} 350",
        f'gputop_gpu_state{{{part},state="busy_not_working"}} 1',
    ]  # fmt: skip
    host = _taken(*((float(second), lines) for second in range(0, 65, 5)))
    (gpu,) = host.gpus
    assert (gpu.gpu, gpu.uuid, gpu.mig, gpu.util_pct) == (
        "1/7/0",
        "GPU-1",
        "7",
        pytest.approx(98.0),
    )
    assert gpu.power_w == pytest.approx(50.0, rel=1e-3)
    (lost,) = host.lost(60.0)
    assert (lost.state, lost.gpu_h) == (
        "busy_not_working",
        pytest.approx(60.0 / 7.0 / 3600.0, rel=1e-3),
    )
    history = host.history(60.0)
    assert history["1/7/0"][0][-1] == pytest.approx(98.0) and history["1/7/0"][0][0] is None


@pytest.mark.parametrize(("line", "says"), [
    ("node_load1 3", "its page has no GPU"),
    ("<html>", "answers with a web page"),
])  # fmt: skip
def test_a_page_without_our_gpus_says_what_to_do(line: str, says: str) -> None:
    host = ScrapedHost("m")
    assert says in (host.take(page(line), 1.0) or "") and not host.gpus


def test_what_a_node_counts_as_lost_is_what_is_lost_whatever_its_state() -> None:
    counted = 'gputop_gpu_lost_seconds_total{gpu="0",uuid="GPU-0",cause="%s"} %s'
    host = _taken(*(
        (second, [*own(0), *own(1, "busy_not_working"), *own(2), counted % ("low_sm", 0.4 * second),
                  counted % ("other", 0.1 * second)])
        for second in (0.0, 5.0, 10.0)
    ))  # fmt: skip
    assert {(waste.gpu, waste.state): round(waste.gpu_h * 3600.0, 6) for waste in host.lost(10.0)} == {
        ("0", "working"): 5.0, ("1", "busy_not_working"): 10.0,
    }  # fmt: skip


@pytest.mark.parametrize("of_older_version", [False, True])
def test_idle_time_of_a_node_is_read_once_from_its_states(of_older_version: bool) -> None:
    idle = 'gputop_gpu_state_seconds_total{gpu="0",uuid="GPU-0",state="idle"} %s'
    counted = 'gputop_gpu_lost_seconds_total{gpu="0",uuid="GPU-0",cause="%s"} %s'
    host = _taken(*(
        (second, [*own(0), idle % (0.3 * second), counted % ("low_sm", 0.2 * second),
                  *[counted % ("idle", 0.3 * second)] * of_older_version])
        for second in (0.0, 5.0, 10.0)
    ))  # fmt: skip
    assert sum(row.gpu_h for row in host.lost(10.0)) * 3600.0 == pytest.approx(5.0)


def test_the_command_line_takes_hosts_and_still_knows_a_part_that_was_mistyped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words, says in (
        (("fleet", "a;b", "--json"), "no host's name"), (("fleet", "h[1-2]"), "use `gputop fleet 'h[1-2]' --json`"),
        (("fleet", "a", "--prom", "http://x"), "give them, or --prom"), (("export", "--until-silent", "5"), "--stdout"),
    ):  # fmt: skip
        assert main([*words]) == 2 and says in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["fleet", "dmeo"])
    assert "did you mean demo?" in capsys.readouterr().err
    assert ssh_words("a", SshOptions("/f"))[-5:-1] == ["-F", "/f", "--", "a"]
    # Where no host can be read the data say why, and the exit status is one.
    assert main(["fleet", "http://127.0.0.1:9", "--json"]) == 1
    (host,) = json.loads(capsys.readouterr().out)["hosts"]
    assert host["state"] == "down" and "nobody listens there" in host["says"]


def _direct(pages: Mapping[str, str | None]) -> DirectFleet:
    """Hosts with one page each; those without one never answer, those with an empty one fail."""

    def connect(link: HostLink) -> None:
        if (text := pages[link.host]) == "":
            raise OSError("the key was refused: \x1b[2J")
        if text is not None:
            link.put_page(text)

    links = [HostLink(name, connect) for name in pages]
    fleet = DirectFleet((), SshOptions("/f"), links=links, clock=lambda: 1000.0)
    deadline = time.monotonic() + 20.0
    while (
        not all(link.is_settled for link in links if pages[link.host] is not None)
        and time.monotonic() < deadline
    ):
        time.sleep(0.01)
    return fleet


def test_every_host_has_its_row_and_its_reason() -> None:
    fleet = _direct({"a": page(UP, *own(0)), "b": "nothing of a GPU", "c": ""})
    fleet.settle()
    frame = fleet_frame(fleet.ask())
    assert {group.name: group.verdict.text for group in frame.hosts} == {
        "a": "1 working", "b": "down 0 s: its page has no GPU", "c": "down: the key was refused: ?[2J",
    }  # fmt: skip
    assert fleet.interval_s == 5.0 and json.loads(fleet_json(frame))["hosts_down"] == 2
    assert any("since gputop was started" in problem for problem in frame.problems)
    with pytest.raises(FleetError, match="no past"):
        fleet.ask(1.0)
    fleet.close()
    assert not any(link.worker.alive for link in fleet._links)


def test_the_same_gpus_at_two_addresses_count_once_and_their_hours_too() -> None:
    wasting = page(UP, *(line for gpu in range(8) for line in own(gpu, "busy_not_working")))
    fleet = _direct({"http://h:9401/metrics": wasting, "http://h.lan:9401/metrics": wasting})
    first = fleet.ask()
    for link in fleet._links:
        link.put_page(wasting)
        link.page_at = link._page[1] if link._page else None
    frame = fleet_frame(fleet.ask())
    fleet.close()
    assert len(first.gpus) == frame.total == 8 and [group.name for group in frame.hosts] == [
        "h:9401"
    ]
    assert frame.read.repeated == {"h.lan:9401": "h:9401"} and any(
        "count once" in text for text in frame.problems
    )
    assert {lost.host for lost in frame.read.hour.lost or ()} <= {"h:9401"}
    assert "h.lan" not in fleet_json(fleet_frame(RedactedFleet(fleet, Redactor()).ask()))


def _named(name: str, *gpus: list[str]) -> str:
    lines = (line for gpu in gpus for line in gpu)
    return page(UP, f'gputop_host_info{{hostname="{name}"}} 1', *lines)


def _spoofed(number: int, uuid: int) -> list[str]:
    """A GPU of this number with the UUID of another one."""
    return [line.replace(f'uuid="GPU-{number}"', f'uuid="GPU-{uuid}"') for line in own(number)]


def test_a_gpu_of_two_hosts_with_two_names_stays_on_both_rows_and_is_told() -> None:
    pages = {"a": _named("n1", own(0), own(1)), "b": _named("n2", _spoofed(5, 1), own(3))}
    for order in (("a", "b"), ("b", "a")):
        fleet = _direct({name: pages[name] for name in order})
        frame = fleet_frame(fleet.ask())
        fleet.close()
        assert {host.name: host.size for host in frame.hosts} == {
            "a": 2,
            "b": 2,
        } and frame.total == 4
        (line,) = [text for text in frame.problems if "GPU-1" in text]
        assert "on a (GPU 1)" in line and "on b (GPU 5)" in line and "counts on both" in line
    assert not frame.read.repeated


def test_two_addresses_of_one_machine_count_a_gpu_once_and_each_is_told() -> None:
    for name in ("n1", ""):
        fleet = _direct(
            {"a": _named("n1", own(0), own(1)), "b": _named(name, own(0), own(1), own(2))}
        )
        frame = fleet_frame(fleet.ask())
        fleet.close()
        assert {host.name: host.size for host in frame.hosts} == {"a": 2, "b": 1}
        told = [text for text in frame.problems if "counts on a alone" in text]
        assert [text.split()[0] for text in told] == ["GPU-0", "GPU-1"]


def test_a_host_that_was_not_asked_yet_is_not_down() -> None:
    fleet = _direct({"ok": page(UP, *own(0)), "quiet": None, "waits": None})
    fleet._links[1].is_asked = True
    data = fleet_data(fleet_frame(fleet.ask()))
    fleet.close()
    assert (data["hosts_down"], data["hosts_pending"]) == (0, 2)
    states = {host["host"]: (host["state"], host["says"]) for host in data["hosts"]}
    assert states["quiet"] == ("pending", "connecting …") and states["waits"] == (
        "pending",
        "not asked yet",
    )


def test_beside_the_name_that_was_typed_stands_what_a_host_calls_itself() -> None:
    lines = [*own(0), 'gputop_host_info{hostname="box-17.lab"} 1']
    fleet = _direct(
        {name: page(UP, *lines).replace("GPU-0", f"GPU-{name}") for name in ("box1", "me@box-17")}
    )
    frame = fleet_frame(fleet.ask())
    fleet.close()
    assert [group.title for group in frame.hosts] == ["box1 (box-17.lab)", "me@box-17"]
    for view in (FleetView(), FleetView(panel="host", host="box1")):
        assert "box1 (box-17.lab)" in text_of(fleet_screen(frame, view, 200, 40).rows)


def test_an_exporter_without_gpus_is_no_healthy_host_and_is_believed_once_it_has_some() -> None:
    fleet = _direct({"a": page(UP)})
    assert "has no GPU" in fleet_frame(fleet.ask()).hosts[0].verdict.text
    fleet._links[0].put_page(page(UP, *own(0)))
    assert fleet_frame(fleet.ask()).hosts[0].verdict.text == "1 working"
    fleet.close()


def test_enter_opens_the_own_screen_of_a_host_that_ssh_reaches() -> None:
    opened: list[tuple[str, Sequence[str]]] = []
    fleet = _direct({"a": page(UP, *own(0))})
    screen: Any = SimpleNamespace(
        frame=fleet_frame(fleet.ask()),
        view=FleetView(),
        see=opened.append,
        run_there=lambda *far: opened.append(far),
    )
    open_row(screen)
    ((host, command),) = opened
    assert (
        host == "a"
        and list(command[:5]) == ["ssh", "-t", "-F", "/f", "--"]
        and "export" not in command[-1]
    )
    screen.frame = fleet_frame(RedactedFleet(fleet, Redactor()).ask())
    fleet.close()
    open_row(screen)
    assert len(opened) == 2 and not screen.frame.read.opens, "a number is no host"


def test_a_page_of_any_size_is_cut_and_said() -> None:
    with scripted() as server:
        server.answer = (200, {}, b"gputop_up 1\n" * 1_500_000)
        fleet = DirectFleet((server.url,), SshOptions())
        fleet.settle()
        (down,) = fleet.ask().down.values()
        fleet.close()
    assert "an answer of more than 16 MiB" in down.reason


# Twelve hosts behind a real sshd.

GOOD = ("h1", "h2", "h3", "h4", "h5", "h6")


def _mark(folder: Path) -> str:
    """A test's own among those that run at the same time: workers number their folders alike."""
    return f"{folder.parent.name}-{folder.name}"


def _hosts(folder: Path) -> dict[str, str]:
    (folder / "empty").mkdir()
    (folder / "empty" / "sh").symlink_to("/bin/sh")
    return {
        **{name: exporter(number, _mark(folder)) for number, name in enumerate(GOOD, 1)},
        "noisy": f"echo Welcome; echo 'Last login: today'; {exporter(7, _mark(folder))}",
        "password": exporter(8, _mark(folder)),
        "bare": f'PATH={folder}/empty HOME=/nonexistent exec sh -c "$SSH_ORIGINAL_COMMAND"',
        "hangs": "exec sleep 600",
        "older": 'echo "gputop: unknown option --stdout; see \\`gputop export --help\\`" >&2; exit 2',
        "stranger": exporter(9, _mark(folder)),
        "flood": "exec yes 'a 1'",
    }


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    with ssh_hosts(
        tmp_path, _hosts(tmp_path), asking=("password",), unknown=("stranger",)
    ) as found:
        yield found


def _far(folder: Path) -> list[int]:
    """The far ends of a test that run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--until-silent" in words and any(
            word.endswith(f"-{_mark(folder)}".encode()) for word in words
        ):
            found.append(int(entry.name))
    return found


def _until(holds: Callable[[], object], within_s: float, words: Callable[[], object] = str) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, words()
        time.sleep(0.1)


@pytest.mark.slow
@needs_sshd
@pytest.mark.alone
def test_twelve_hosts_are_reached_or_say_why_not_and_one_that_died_is_reached_again(
    config: Path, tmp_path: Path
) -> None:
    fleet = DirectFleet(
        (*GOOD, "noisy", "password", "bare", "hangs", "older", "stranger", "flood"),
        SshOptions(str(config)),
    )
    try:
        _until(
            lambda: sum(link.pages > 0 for link in fleet._links) == 7,
            60.0,
            lambda: fleet.ask().problems,
        )
        fleet.settle()
        read = fleet.ask()
        reasons = {host: down.reason for host, down in read.down.items()}
        assert {gpu.host for gpu in read.gpus} == {*GOOD, "noisy"} and len(read.gpus) == 7 * 8
        assert "`ssh password` work without one" in reasons["password"]
        assert "no gputop there" in reasons["bare"] and "pipx install" in reasons["bare"]
        assert "too old" in reasons["older"] and "host key" in reasons["stranger"]
        assert "no page within" in reasons["hangs"] and len(reasons) == 6
        assert reasons["flood"] == "a page of more than 16 MiB"
        victim = _far(tmp_path)[0]
        os.kill(victim, signal.SIGKILL)
        _until(lambda: len(fleet.ask().down) == 7, 15.0)
        _until(lambda: len(fleet.ask().down) == 6, 40.0, lambda: fleet.ask().problems)
        password = next(link for link in fleet._links if link.host == "password")
        assert password.is_refused and password._failures == 1, (
            "one that refused the key is not asked again"
        )
    finally:
        fleet.close()
    _until(lambda: not _far(tmp_path), 15.0, lambda: _far(tmp_path))
    assert not [path for path in tmp_path.rglob("*") if path.is_socket()], "no ssh master of ours"


@pytest.mark.slow
@needs_sshd
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_nothing_is_left_on_a_host_whatever_becomes_of_gputop(
    config: Path, tmp_path: Path, number: int
) -> None:
    code = f"""
import time
from gputop.features.fleet.read.host_link import SshOptions
from gputop.features.fleet.read.direct_fleet import DirectFleet
fleet = DirectFleet(("h1", "h2"), SshOptions({str(config)!r}))
while not all(link.pages for link in fleet._links):
    time.sleep(0.1)
print("both have answered", flush=True)
time.sleep(600)
"""
    watching = subprocess.Popen(
        [sys.executable, "-c", code], cwd=REPOSITORY, stdout=subprocess.PIPE
    )
    try:
        # A far end that still starts would begin to listen for a sign of life later.
        assert (
            watching.stdout is not None and watching.stdout.readline() and len(_far(tmp_path)) == 2
        )
        watching.send_signal(number)
        _until(lambda: not _far(tmp_path), 15.0, lambda: _far(tmp_path))
    finally:
        watching.kill()
        watching.wait()
