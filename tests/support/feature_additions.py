"""What a contributor adds to the features, and a feature itself."""

from __future__ import annotations

from tests.support.additions import Addition, Patch

PLACEHOLDER = Addition(
    "a placeholder of an alert's command",
    2,
    (
        Patch(
            "gputop/features/alerts/alert_table.py",
            '    "owner": "the user whose processes are on the GPU, where there is just one",\n',
            after="PLACEHOLDERS: Mapping[str, str] = MappingProxyType({\n",
        ),
        Patch(
            "gputop/features/alerts/firing.py",
            "    owners = {process.static.user for process in processes if process.static.user is not None}\n",
            after="    shown = which_gpus(indices)\n",
        ),
        Patch(
            "gputop/features/alerts/firing.py",
            '        **_only(owners, "owner"),\n',
            after='        **_only(pids, "pid"),\n',
        ),
        Patch(
            "gputop/features/alerts/firing.py",
            """        "owner": f"{len(owners) or 'no'} users are on {shown}",\n""",
            after="    missing = {\n",
        ),
    ),
    """
def test_a_placeholder_has_its_value_or_the_reason_and_is_explained() -> None:
    table = {"name": "added", "when": "util_pct > 50", "for": "0s", "run": ["/bin/echo", "{owner}"]}
    (alert,) = alerts_of([table])
    for users, handed in ((("ml",), ["/bin/echo", "ml"]), (("ml", "root"), None)):
        processes = [ProcessSample(pid, 1, gpu=0, static=ProcessStatic(user=user)) for pid, user in enumerate(users)]
        frame = Monitor().feed(snap(0, gpu(), processes))
        fired = firing_of(AlertChange("fired", T0, alert, "GPU-0", (0,), ("GPU-0",), T0), frame)
        if handed is not None:
            assert fired.argv() == handed
        else:
            with pytest.raises(NotHanded, match="2 users are on GPU 0"):
                fired.argv()
    assert "`{owner}`" in page_text("alerts")
""",
)

SERIES = Addition(
    "a series of the exporter that is no metric",
    1,
    (
        Patch(
            "gputop/features/export/metrics_page.py",
            """    text = "Badges that stand at a GPU"
    counts = [(own, float(len(diagnosis.badges))) for (_, own), diagnosis in judged]
    page.family("gputop_gpu_badges", "gauge", text, counts)
""",
            after='    page.family("gputop_gpu_badge", "gauge", text, badges)\n',
        ),
    ),
    """
def test_a_series_is_on_the_page() -> None:
    given = feed()
    given.take(snapshot_of(1.0, gpu_of(util_pct=50.0)))
    assert value(read(given.page()), "gputop_gpu_badges", gpu="0") == 0.0
""",
)

FLEET_KEY = Addition(
    "a key of the fleet",
    2,
    (
        Patch(
            "gputop/features/fleet/fleet_view.py",
            '    Key("sort_back", "O", "O", "sort by the order before", "rows"),\n',
            after="FLEET_KEYS: tuple[Key, ...] = (\n",
        ),
        Patch(
            "gputop/features/fleet/fleet_key_handlers.py",
            """    def sort_back(self) -> None:
        names = list(SORTS)
        view = self._screen.view
        self._screen.see(sorted_by(view, names[names.index(view.sort) - 1]))

""",
            after='        self._screen.say(f"sorted by {to}")\n\n',
        ),
        Patch(
            "gputop/features/fleet/fleet_key_handlers.py",
            '    "sort_back": FleetKeys.sort_back,\n',
            after='    "sort": FleetKeys.sort,\n',
        ),
    ),
    """
async def test_a_key_of_the_fleet_does_something_is_rebound_and_explained() -> None:
    for wanted, pressed in (({}, "O"), ({"sort_back": "f11"}, "f11")):
        app = FleetApp(FleetView(), "dark", FleetWatch(SimulatedFleet(9)), keys=wanted)
        async with shown(app, (100, 30)) as pilot:
            await pilot.press(pressed)
            await pilot.pause()
            assert app.view.sort == list(SORTS)[-1]
    assert "sort by the order before" in page_text("keys")
""",
)

FEATURE = Addition(
    "a feature",
    5,
    (
        Patch("gputop/features/noted/__init__.py", '"""What people note beside a run."""\n'),
        Patch(
            "gputop/features/noted/noted_command.py",
            '''"""What was noted. Exit 0."""

from __future__ import annotations

import argparse
import sys

from gputop.commands.needs import Needs
from gputop.config import Settings
from gputop.output.document import Document, page

NEEDS = Needs()


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--aloud", action="store_true", help="say it louder")


def run(args: argparse.Namespace, settings: Settings) -> int:
    sys.stdout.write("NOTHING\\n" if args.aloud else "nothing\\n")
    return 0


def noted_page() -> Document:
    return page("Notes", ("Nothing is noted.",), ())
''',
        ),
        Patch(
            "gputop/model/feature_table.py",
            """    "noted": Feature(
        commands={"noted": Command("Evidence", "what was noted", "gputop.features.noted.noted_command")},
        topics={"notes": "gputop.features.noted.noted_command:noted_page"},
    ),
""",
            after="FEATURES: Mapping[str, Feature] = {\n",
        ),
        Patch(
            "docs/design/architecture.md",
            "| `features/noted/` | what people note beside a run | measure |\n",
            after="as objects | draw, or import a framework |\n",
        ),
        Patch("tests/test_hostile_names.py", '    "noted": "no name from outside",\n', after="ELSEWHERE = {\n"),
    ),
    """
def test_a_feature_has_its_command_and_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert (main(["noted", "--aloud"]), capsys.readouterr().out) == (0, "NOTHING\\n")
    assert main(["help"]) == 0 and "noted" in capsys.readouterr().out
    assert "Nothing is noted." in page_text("notes")
    assert "--aloud" in page_text("options") and "noted" in SCRIPTS.joinpath("fish").read_text()
""",
)

FEATURE_ADDITIONS = (PLACEHOLDER, SERIES, FLEET_KEY, FEATURE)
