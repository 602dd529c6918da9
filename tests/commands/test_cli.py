"""The command line: one clear line for every mistake, data alone on stdout, no screen library where none is needed."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import pytest

from gputop.cli import main
from gputop.command_line.parser import parse
from gputop.command_line.registry import COMMANDS, COMMANDS_AND_PARTS, TOPICS
from gputop.output import png
from tests.support.command import gputop, is_one_line

ROOT = Path(__file__).parents[2]
TELEMETRY = ROOT / "tests" / "telemetry"

VECTOR = str(Path(__file__).parents[1] / "vectors" / "thermal.jsonl")


def slow(*values: object) -> Any:
    """A case that the quick part leaves out: others like it are in there."""
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--nonsense",), "--nonsense"), (("nonsense",), "unknown command 'nonsense'"),
        (("recrod",), "did you mean record"),
        (("--thme", "dark", "demo"), r"unknown option --thme; did you mean --theme\?"),
        (("once", "--jsn"), r"unknown option --jsn; did you mean --json\?"),
        (("demo", "--seed", "x"), "argument --seed: invalid int value: 'x'"),
        (("trace", "f", "--ranks"), "argument --ranks: expected one argument"), (("report",), "required: file"),
        (("trace", "f", "-o", "f.pdf"), r"cannot make a \.pdf: name one of \.json, \.html, \.txt"),
        (("report", VECTOR, "-o", "f.pdf"), r"cannot make a \.pdf: name one of \.json, \.html, \.md, \.txt"),
        (("report", VECTOR, "--gpus", "9"), "no such GPU: this recording has GPU 0"),
        (("diagnose", VECTOR, "--for", "5s"), "a recording is diagnosed as a whole"),
        (("screenshot", "demo", "--at", "12:00", "-o", "shot.txt"), "--at belongs to a recording"),
        (("screenshot", "demo", "-o", "/nonexistent/shot.svg"), "no directory /nonexistent"),
        (("demo", "--tour"), "use `gputop demo --once`"),
        ((), "the screen needs a terminal on stdin and stdout: use `gputop once`"),
        (("replay", VECTOR), "use `gputop report FILE`"),
        (("--filter", "gpuu:3"), r"did you mean gpu\? \(at column 1\)"),
        (("once", "--csv", "--filter", "gpu:1"), "--json"), (("demo", "--filter", "mem>x"), "not a number"),
        (("once", "--filter", "verdict:starved"), "gputop diagnose"),
        (("diagnose", VECTOR, "--seed", "3"), "--seed is another run of the simulated node; a recording has none"),
        (("diagnose", VECTOR, "--server-url", "http://localhost:8000/metrics"), "--server-url asks"),
        (("help", "gaap"), "no help on 'gaap'"), (("help", "verdict"), r"did you mean verdicts\?"),
        (("-1", "replay", "f"), "-1 is not an option of `gputop replay`"),
        (("once", "nonsense"), "unexpected argument 'nonsense'"),
        (("once", "demo"), "unexpected argument 'demo'; `gputop demo` shows"),
        (("dump", "demo"), "no recording of that name; `gputop demo` shows"),
        (("compare", VECTOR, "demo"), "no recording of that name; .*`report demo` judge"),
        (("once", "-u", "a b"), "-u must name users"), (("once", "-p", "train"), "-p must be process ids"),
        (("once", "-p", "1" * 401), "400 characters"), (("once", "-u", "--csv"), "--csv prints GPUs"),
        (("demo", "-1", "--gpus", "9"), "no such GPU"),
        (("replay", "/nonexistent/file", "--at", "-10m"), "No such file"), (("once", "-i", "-1"), "from 0.25"),
        (("once", "--interval", "0.1"), "at least|from 0.25"), (("once", "--interval", "nan"), "must be a number"),
        (("once", "--json", "--csv"), "--csv: not allowed with argument --json"),
        (("trace", "f", "--ranks", "9" * 5000), "--ranks must be numbers"),
        (("once", "-u", "9" * 5000), "a filter has at most"), (("loader", "m:f", "--workers", "9" * 5000), "--workers"),
        (("once", "--theme", "pink"), "choose one of"),
        (("once", "--config", "/nonexistent/gputop.toml"), "no configuration file"),
        (("run", "--report", "/nonexistent/job.md", "--", "true"), "--report: no directory /nonexistent"),
        (("prove", "-o", "/nonexistent/proof.json"), "no directory /nonexistent"),
        (("fleet", "queries", "--select", 'a="\x1b[2J"'), "--select takes label matchers"),
        (("once", "--price", "-1"), "from 0 to 1,000,000"), (("demo", "nonsense"), "--list"),
        (("screenshot", "demo", "-o", "shot.bmp"), r"\.svg"),
        (("screenshot", "demo", "-o", "shot.svg", "--size", "1x1"), "columns x rows"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_a_mistake_gets_one_clear_line_and_exit_2(
    arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(arguments)
    except SystemExit as ended:
        status = ended.code
    said = capsys.readouterr()
    assert status == 2
    assert said.out == ""
    assert is_one_line(said.err)
    assert re.search(says, said.err)


def test_without_a_driver_the_fix_and_the_demo_are_named_with_exit_3(tmp_path: Path) -> None:
    done = gputop("once", LD_LIBRARY_PATH=str(tmp_path))
    assert done.returncode == 3
    assert done.stdout == ""
    assert is_one_line(done.stderr)
    assert "gputop demo" in done.stderr


def test_the_exit_code_is_the_jobs_where_its_report_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    done = gputop(
        "run", "--report", str(folder / "job.md"), "--", "sh", "-c", f"rmdir {folder}; exit 5",
        LD_LIBRARY_PATH=str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 5
    assert f"cannot write {folder / 'job.md'}: No such file" in done.stderr


def test_an_unreadable_configuration_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gputop.toml"
    for text, words in (("interval = [", ""), ("#" * (2 << 20), "is larger than 1 MiB")):
        path.write_text(text)
        assert main(["once", "--config", str(path)]) == 2
        said = capsys.readouterr().err
        assert is_one_line(said) and str(path) in said and words in said
    path.write_text("intervall = 2\n")
    assert "healthy" in _said(
        capsys, "demo", "--list", "--config", str(path), warns="did you mean interval"
    )


def _table(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[set[str], set[str]]:
    """The GPUs and the users of the processes that the demo prints once; a filter needs the list of processes."""
    assert main(["demo", "-1", *arguments]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    gpus, _, processes = said.out.partition(" GPU      PID")
    numbers = re.findall(r"^ +(\d+)  H100", gpus, re.MULTILINE)
    if not processes:
        users = set(re.findall(r"  (rl|ml|serve)(?:  |$)", gpus, re.MULTILINE))
        return set(numbers), users
    return set(numbers), {
        line.split()[2] for line in processes.splitlines()[1:] if line.strip()[:1].isdigit()
    }


def test_the_demo_prints_once_and_shows_the_gpus_and_users_that_were_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    gpus, users = _table(capsys)
    assert len(gpus) == 8 and len(users) > 1
    assert (
        _table(capsys, "--gpus", "0,2")[0]
        == _table(capsys, "--gpus", "0", "--gpus", "2")[0]
        == {"0", "2"}
    )
    user = sorted(users)[0]
    assert _table(capsys, "-u", user)[1] == {user}
    both = sorted(users)[:2]
    assert (
        _table(capsys, "-u", ",".join(both))[1]
        == _table(capsys, "-u", both[0], "-u", both[1])[1]
        == set(both)
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-1"], {"command": "once", "json": False, "csv": False}),
        (["-1", "-u", "root", "--gpus", "1"], {"command": "once", "user": "root", "gpus": "1"}),
        (["-d", "2"], {"interval": "2", "command": None}),
        (["-i2", "demo"], {"interval": "2", "command": "demo"}),
        (["--gpus", "0", "once", "--gpus", "1"], {"gpus": "1"}),
        (["replay", "f", "--at", "-10m"], {"at": "-10m", "file": "f"}),
        (
            ["dump", "--begin", "-1h", "--end", "-10m", "f"],
            {"begin": "-1h", "end": "-10m", "file": "f"},
        ),
        (["demo", "--seed", "-3", "healthy"], {"seed": -3, "scenario": "healthy"}),
        (
            ["run", "-o", "x", "job", "--no", "-o", "0", "1"],
            {"output": "x", "job": ["job", "--no", "-o", "0", "1"]},
        ),
        (["run", "--", "job", "--at", "-10m"], {"job": ["job", "--at", "-10m"]}),
        (["run", "--", "job", "--", "-1"], {"job": ["job", "--", "-1"]}),
        (["mark", "-5", "degrees"], {"text": ["-5", "degrees"]}),
        (["--", "demo"], {"command": "demo"}),
        (["-1", "--filter", "gpu:1", "demo"], {"command": "demo", "once": True, "filter": "gpu:1"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_the_words_that_fingers_know_mean_what_they_mean_elsewhere(
    words: list[str], expected: dict[str, Any]
) -> None:
    found = vars(parse(words))
    if "job" in found:
        found["job"] = found["job"][1:] if found["job"][:1] == ["--"] else found["job"]
    assert {key: found[key] for key in expected} == expected


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--version"], ["-V"], ["once", "-V"]):
        assert re.fullmatch(r"gputop \d+\.\d+\.\d+(\.dev\d+)?\n", _said(capsys, *words))


def _said(capsys: pytest.CaptureFixture[str], *words: str, warns: str = "") -> str:
    """What the words print to stdout; to stderr nothing else than what they warn of."""
    try:
        status = main(words)
    except SystemExit as ended:
        status = ended.code  # type: ignore[assignment]
    said = capsys.readouterr()
    assert status == 0 and warns in said.err and bool(warns) == bool(said.err)
    return said.out


def test_help_is_one_screenful_with_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    text = _said(capsys, "--help")
    assert text == _said(capsys, "help") == _said(capsys, "-h")
    lines = text.splitlines()
    assert len(lines) <= 48 and max(map(len, lines)) <= 80
    for name, row in COMMANDS.items():
        assert sum(line.split() == [name, *row.summary.split()] for line in lines) == 1
    explained = text.partition("explains:\n")[2]
    assert explained.split() == ", ".join(TOPICS).split()
    assert not any(
        "--" in line for line in text.partition("`gputop COMMAND --help`")[0].splitlines()
    )


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("low_sm", "A, B or C; DRAM not measured"), ("util_pct", "unit: pct"), ("F8", "picture of the screen"),
        ("quit", "q  Q  F10"), ("TENSOR", "tensor_active_pct"), ("UTIL", "UTIL"), ("GAP", "GAP"),
        ("EFF", "efficiency: SM / UTIL"), ("interval", "gputop help settings"),
        ("kill", r"kill the tagged or the selected process \(SIGKILL\)"), ("workers", "load batches"),
        ("num_workers", "load batches.*gputop loader"),
        ("efficiency", "^  efficiency  SM / UTIL in percent. The right end"),
        ("quit", "q  Q  F10"), ("quit", "close another screen"), ("prefetch_factor", "remedy"),
    ],
)  # fmt: skip
def test_help_explains_a_single_key_number_verdict_or_setting(
    word: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("help", word)) == 0
    said = capsys.readouterr().out
    assert re.search(says, " ".join(said.split())) or re.search(says, said, re.MULTILINE)
    assert said.count("\n") < 40
    assert word != "efficiency" or said.count("  efficiency  ") == 1


def test_help_on_a_command_is_what_the_command_says_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = _said(capsys, "help", "once")
    assert text == _said(capsys, "once", "--help")
    assert "--csv" in text and "--dcgm-url" not in text


def test_the_scenarios_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    names = {line.split()[0] for line in _said(capsys, "demo", "--list").splitlines()}
    assert {
        "healthy",
        "small_kernels",
        "communication",
        "dataloader_cpu",
        "lost_gpu",
        "straggler",
    } <= names


def test_a_picture_of_the_verdict_is_a_png_where_its_library_and_a_font_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "shot.png"
    command = ["screenshot", "demo", "small_kernels", "--size", "80x24", "-o", str(path)]
    with monkeypatch.context() as without_fonts:
        without_fonts.setattr(png, "FOLDERS", (str(tmp_path),))
        assert main(command) == 2
    assert is_one_line(capsys.readouterr().err) and not path.exists()
    pytest.importorskip("resvg_py")
    try:
        png.find_font(png.FOLDERS)
    except png.PngError:
        pytest.skip("this machine has no monospaced font")
    assert main(command) == 0
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG") and int.from_bytes(data[16:20], "big") > 80 * 8


@pytest.mark.parametrize("suffix", ["svg", slow("txt")])
def test_a_screenshot_needs_no_terminal_and_is_the_same_every_time(
    tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}.{suffix}"
        words = ("screenshot", "demo", "small_kernels", "--size", "120x36", "-o", str(path))
        assert _said(capsys, *words, warns=f"gputop: wrote {path}\n") == ""
        texts.append(path.read_text())
    assert texts[0] == texts[1]
    assert "BUSY" in texts[0]


@pytest.mark.parametrize(
    ("vector", "status"),
    [
        ("busy_not_working_A", 1), ("pageable_copies", 1), ("thermal", 1), ("fp32_matmul", 0),
        ("healthy_spinning_main", 0),
    ],
    ids=["red", "yellow", "a red badge", "info", "green"],
)  # fmt: skip
def test_diagnose_ends_with_1_from_a_yellow_level_on(
    vector: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(ROOT / "tests" / "vectors" / f"{vector}.jsonl")]) == status


@pytest.mark.parametrize(
    "words",
    [
        ["report", str(TELEMETRY)], ["report", str(TELEMETRY / "train_tuned.gputop.jsonl.gz")],
        ["compare", *(str(TELEMETRY / f"train_{which}.gputop.jsonl.gz") for which in ("untuned", "tuned"))],
        ["diagnose", str(TELEMETRY / "train_tuned.gputop.jsonl.gz")], ["fleet", "queries"], ["doctor"],
        *(["help", topic] for topic in (*TOPICS, "util")),
    ],
)  # fmt: skip
def test_a_text_has_no_character_that_ascii_does_not_have_where_so_asked(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMUX", "doctor then has an arrow")
    monkeypatch.setenv("COLORTERM", "")
    main(words)
    questions = capsys.readouterr().out.count("?")
    main(["--ascii", *words])
    told = capsys.readouterr().out
    assert told.isascii() and told.count("?") == questions


def test_a_message_keeps_to_ascii_and_data_keeps_its_names_where_so_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--ascii", "report", str(tmp_path / "Ä" / "r.jsonl")]) == 2
    said = capsys.readouterr().err
    assert said and said.isascii()
    config = tmp_path / "config.toml"
    config.write_text('ascii = true\ngpus = "Ä"')
    assert main(["--config", str(config), "config"]) == 0
    assert 'gpus = "Ä"' in capsys.readouterr().out


@pytest.mark.parametrize("words", ["", *COMMANDS_AND_PARTS])
def test_the_help_of_a_command_is_for_any_terminal(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*words.split(), "--help"])
    assert capsys.readouterr().out.isascii()


def test_what_nobody_has_foreseen_is_one_line_with_its_place(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gputop.commands.demo.run", lambda *_: {}["no\x1b key"])
    assert main(["demo"]) == 70
    told = capfd.readouterr().err
    assert is_one_line(told)
    assert re.match(
        r"gputop: internal error: KeyError: 'no\\x1b key' \(test_cli.py:\d+\); run again with --debug",
        told,
    )


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            OSError(errno.EMFILE, os.strerror(errno.EMFILE), "a file of ours"),
            r"the limit on open files .*, \d+ for",
        ),
        (
            ImportError("array.so: cannot open shared object file: Too many open files"),
            r"\(ulimit -n\)",
        ),
        (RuntimeError("can't start new thread"), "the limit on processes"),
        (MemoryError(), "no memory is left"),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "no memory is left"),
    ],
)
def test_what_the_machine_does_not_give_is_one_line_that_names_it(
    error: Exception, says: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> int:
        raise error

    monkeypatch.setattr("gputop.commands.demo.run", fails)
    assert main(["demo"]) == 3
    told = capfd.readouterr().err
    assert is_one_line(told) and re.search(says, told), told


@pytest.mark.parametrize(
    "words",
    [
        ("once", "--config", "PIPE"), ("export", "demo", "small_kernels", "--once", "--textfile", "PIPE"),
        ("fleet", "--prom", "https://127.0.0.1:9", "--prom-ca", "PIPE", "--json"),
    ],
    ids=lambda words: " ".join(words[:1] + words[-2:-1]),
)  # fmt: skip
def test_a_named_pipe_where_a_file_belongs_is_refused_at_once(
    words: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(pipe := tmp_path / "pipe.prom")
    # Waiting for its writer would be for ever.
    assert main([str(pipe) if word == "PIPE" else word for word in words]) == 2
    told = capfd.readouterr().err
    assert is_one_line(told) and str(pipe) in told
