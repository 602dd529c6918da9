"""What a contributor adds for those who call gputop: an option, a setting, a help topic."""

from __future__ import annotations

from tests.support.additions import Addition, Patch

OPTION = Addition(
    "an option",
    1,
    (
        Patch(
            "gputop/commands/demo.py",
            '    command.add_argument("--names", action="store_true", help="name the scenarios and nothing else")\n',
            after='    command.add_argument("--list", action="store_true", help="name the scenarios")\n',
        ),
        Patch(
            "gputop/commands/demo.py",
            """    if args.names:
        sys.stdout.writelines(f"{name}\\n" for name in SCENARIOS)
        return 0
""",
            after="""{scenario.title}\\n" for name, scenario in SCENARIOS.items())
        return 0
""",
        ),
    ),
    """
def test_an_option_is_taken_completed_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert (main(["demo", "--names"]), capsys.readouterr().out.split()[0]) == (0, "node")
    assert "name the scenarios and nothing else" in page_text("options")
    assert "--names" in SCRIPTS.joinpath("fish").read_text()
""",
)

SETTING = Addition(
    "a setting",
    2,
    (
        Patch(
            "gputop/config/__init__.py",
            '    added: Annotated[float, Meta(ge=1.0, le=9.0, description="How much of a test is shown.")] = 1.0\n',
            after="""        Meta(description="Show the most useful keys in the last row of the screen."),
    ] = True
""",
        ),
        Patch("gputop/features/web/serve_command.py", '"added", ', after='    | {"columns", '),
    ),
    """
def test_a_setting_comes_from_file_and_environment_within_its_bounds_and_is_explained(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("added = 2.0")
    assert load(str(file), {}, {})[0].added == 2.0
    settings, _ = load(str(file), {"GPUTOP_ADDED": "3"}, {})
    assert for_viewers(settings)["added"] == 3.0
    with pytest.raises(ConfigError, match="added must be from 1 to 9"):
        load(None, {"GPUTOP_ADDED": "0"}, {})
    assert "How much of a test is shown" in page_text("settings")
""",
)

TOPIC = Addition(
    "a help topic",
    2,
    (
        Patch(
            "gputop/output/reference_pages.py",
            """

def added_page() -> Document:
    return page("What a test adds", ("A topic.",), (section("One", (), ("name", "what"), (("`x`", "it is"),)),))
""",
            after=' "what happens", "what you see", "what goes on", "exit status", "terminal")\n',
        ),
        Patch(
            "gputop/commands/registry.py",
            '    "added": "gputop.output.reference_pages:added_page",\n',
            after='    "faults": "gputop.output.reference_pages:faults_page",\n',
        ),
    ),
    """
def test_a_help_topic_is_named_printed_written_and_completed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0 and "added" in capsys.readouterr().out
    assert main(["help", "added"]) == 0 and "What a test adds" in capsys.readouterr().out
    assert Path("docs/added.md").read_text().startswith("# What a test adds")
    assert "added" in SCRIPTS.joinpath("zsh").read_text()
""",
)

COMMAND_LINE_ADDITIONS = (OPTION, SETTING, TOPIC)
