"""A document in each of its forms: what each writer shows, and that nothing in a document can do harm."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given

from gputop.model.steps import StepRow
from gputop.output.document import (
    Bar,
    Block,
    Breakdown,
    Code,
    Document,
    Drawing,
    Entries,
    Figures,
    Heading,
    Items,
    LevelText,
    Notes,
    Paragraph,
    Table,
    Verdict,
    indented_json,
    part,
)
from gputop.output.html import element
from gputop.output.html_document import html
from gputop.output.markdown_document import markdown
from gputop.output.plain_document import plain
from gputop.output.report_document import step_lines
from gputop.report.job_report import ReportBuilder
from gputop.report.run_account import RunAccount, StepReport
from tests.support.examples import any_text, looks

VERDICT = Verdict(
    "red", "GPU 3: starved", "for 12 s", ("GPU idle 62 %", "main waits"), "`gputop loader` finds how many", "−60 %",
    (("note", "a note"),),
)  # fmt: skip
DOCUMENT = Document(
    "A report",
    (
        Table(("GPU", "UTIL", "COST"), (("0", "97", ""), ("1", "8", "")), "<>>", ("", "lost")),
        Items(("Steps: 12 of 41.2 ms",)), *part("Findings", VERDICT), *part("What to change", Items(())), Items(()),
        Figures((("UTIL", "97 %", "a kernel runs"), ("SM", LevelText("red", "8 %"), ""))),
        Breakdown((("compute", "compute", 75.0), ("idle", "idle", 25.0), ("copy", "copy", 0.0))),
        Code(("gputop loader train:data",)), Drawing(element("svg", class_="curve")), Notes(("SM n/a",)),
    ),
    ("gputop: 12 s on node-17",),
)  # fmt: skip


def test_a_terminal_gets_the_lead_aligned_tables_and_what_belongs_together() -> None:
    assert plain(DOCUMENT).splitlines() == [
        "gputop: 12 s on node-17", "",
        "  GPU  UTIL", "  0      97", "  1       8", "    lost", "  Steps: 12 of 41.2 ms", "",
        "Findings", "■ GPU 3: starved   (for 12 s)", "  ↳ GPU idle 62 %", "    main waits",
        "  → `gputop loader` finds how many", "    −60 %", "  note: a note", "",
        "  UTIL  97 %  a kernel runs", "  SM     8 %", "",
        f"  compute  75.0 %  {'█' * 30}", f"  idle     25.0 %  {'█' * 10}", "",
        "  gputop loader train:data", "note: SM n/a",
    ]  # fmt: skip
    assert plain(DOCUMENT, is_ascii=True).isascii() and "# GPU 3: starved" in plain(
        DOCUMENT, is_ascii=True
    )


def test_markdown_has_the_same_under_headings_with_numbers_on_the_right() -> None:
    assert markdown(DOCUMENT).splitlines() == [
        "# A report", "", "gputop: 12 s on node-17", "",
        "| GPU | UTIL |", "|---|---:|", "| 0 | 97 |", "| 1 (lost) | 8 |", "", "- Steps: 12 of 41.2 ms", "",
        "## Findings", "", "- **GPU 3: starved** (red), for 12 s", "  - GPU idle 62 %", "  - main waits",
        "  - → 'gputop loader' finds how many", "  - −60 %", "  - note: a note", "",
        "|  |  |  |", "|---|---:|---|", "| UTIL | 97 % | a kernel runs |", "| SM | 8 % |  |", "",
        "|  |  |", "|---|---:|", "| compute | 75.0 % |", "| idle | 25.0 % |", "",
        "```", "gputop loader train:data", "```", "", "- SM n/a",
    ]  # fmt: skip


def test_a_table_that_must_fit_cuts_one_column_alone_and_draws_bars_in_what_room_is_left() -> None:
    rows = (
        ("aten::add " * 12, "1234567", Bar((("idle", "x", 50.0),))),
        ("b", "2", Bar((("idle", "x", 100.0),))),
    )
    table = Table(("name", "calls", ""), rows, "~>=")
    head, *lines = plain(Document("t", (table,)), 60).splitlines()[2:]
    assert max(map(len, (head, *lines))) <= 60
    assert lines[0].endswith(" 1234567") and lines[1].endswith("       2") and "…" in lines[0]
    halves = (rows[1], ("c", "3", rows[0][2]))
    assert plain(Document("t", (Table(table.head, halves, "~>="),)), 100).count("█") == 40 + 20
    uncut = Table(("name", "calls"), (("aten::add " * 12, "1234567"),), "<>")
    assert max(map(len, plain(Document("t", (uncut,)), 60).splitlines())) > 60


def test_a_number_that_is_none_is_no_json() -> None:
    with pytest.raises(ValueError, match="JSON"):
        indented_json({"util_pct": float("nan")})


class _Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)


def _holding(text: str) -> Document:
    bar = Bar((("idle", text, 50.0),))
    blocks: tuple[Block, ...] = (
        Heading(text), Paragraph(text), Items((text,)), Notes((text,)), Code((text,)),
        Table((text, "b", "c", "d"), ((text, "1", bar, LevelText("red", text)),), "~>=<", (text,)),
        Entries(("a", text, text), ((text, text, text),)),
        Verdict("red", text, text, (text,), text, text, ((text, text),)),
        Figures(((text, text, text), ("x", LevelText("red", text), text))), Breakdown(((text, text, 50.0),)),
    )  # fmt: skip
    return Document(text, blocks, (text,))


@looks(30)
@given(any_text(60))
def test_no_text_reaches_a_terminal_as_more_than_text_nor_a_page_as_markup(text: str) -> None:
    own = _Elements(html(_holding("`x`"))).found
    for attack in (
        text,
        f"<img src=x onerror={text}>",
        f"\x1b]0;{text}\x07",
        f"![a](http://x)`{text}`|",
    ):
        document = _holding(attack)
        for form in (plain(document), plain(document, is_ascii=True), markdown(document)):
            assert all(char.isprintable() or char == "\n" for char in form)
        assert _Elements(html(document)).found <= own
        unescaped = re.sub(r"\\.|(?ms:^```$.*?^```$)", "", markdown(document))
        # In a heading, a paragraph or an entry what is between two backticks is code, in which nothing is active.
        assert all(line.count("`") % 2 == 0 for line in unescaped.splitlines())
        outside = re.sub(r"`[^`\n]+`", "", unescaped)
        assert "<img" not in outside and "](" not in outside and "`" not in outside


@pytest.mark.parametrize(
    "attack", ["[a]: http://x", "![a][b]", "<http://x>", "*x* _y_", "a | b", "`", "a `b` `c", "\\"]
)
def test_markdown_sees_neither_links_nor_columns_nor_open_code_in_a_text(attack: str) -> None:
    blocks = (
        Items((attack,)),
        Paragraph(attack),
        Table(("h",), ((attack,),), "<"),
        Entries(("h",), ((attack,),)),
    )
    for block in blocks:
        line = markdown(Document("t", (block,))).splitlines()[-1]
        bare = re.sub(r"\\[^a-z]", "", line)
        assert not re.search(r"\]:|\]\[|<h|\*|_y|\\", bare) and bare.count("`") % 2 == 0
        assert bare.count("|") == 2 or not isinstance(block, Table | Entries)


def _report(*waits: float | None, step_s: float = 0.076) -> StepReport:
    """Ranks that all step in ``step_s``, of which each waits so long."""
    account = RunAccount()
    for second in range(20):
        for rank, wait_s in enumerate(waits):
            told = None if wait_s is None else 10 * wait_s
            times = (10 * step_s, step_s, step_s, step_s, step_s)
            row = StepRow(100 + rank, rank, None, "two", 10, *times, wait_s=told, run="ab")
            account.add(float(second), [(row, ())])
    return account.report()[0]


def _lines(report: StepReport) -> str:
    from msgspec.structs import replace

    return " ".join(
        " ".join(step_lines(replace(ReportBuilder().report(), steps=(report,)))).split()
    )


def test_the_summary_names_the_slow_rank_by_what_the_others_wait_for_it() -> None:
    report = _report(0.040, 0.001)
    assert (report.slow_rank, report.waiting_rank) == (1, 0)
    assert (
        "rank 1 is slow, with 75.0 ms of its own a step: rank 0 waits 40.0 ms of its 76.0 ms for others"
        in _lines(report)
    )


def test_no_rank_is_called_slow_where_all_wait_alike_or_one_does_not_say() -> None:
    assert "slow" not in _lines(_report(0.020, 0.020, 0.020))
    silent = _report(0.040, None)
    assert silent.slow_rank is None and "slow" not in _lines(silent)
    assert _report(0.040).slow_rank is None, "a job of one rank"
