"""Pages of exporters: what the reference reader reads is read alike, and what goes beyond a limit is named."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gputop.model.exposition import (
    LONGEST_LABEL,
    LONGEST_LINE,
    MOST_LABELS,
    MOST_LINES,
    PageLimitError,
    parse_page,
)

NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,8}", fullmatch=True)
LABELS = st.dictionaries(
    st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=12),
    max_size=4,
)
VALUES = st.floats() | st.integers(-(2**70), 2**70) | st.sampled_from(["+Inf", "NaN", "1e5", ".5"])
STAMPS = st.none() | st.integers(0, 2**44)
SPACE = st.sampled_from(["", " ", "\t", "  "])


@st.composite
def lines(draw: st.DrawFn) -> str:
    """One sample as some exporter could write it."""

    def escaped(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    pairs = [f'{name}={draw(SPACE)}"{escaped(value)}"' for name, value in draw(LABELS).items()]
    inside = f",{draw(SPACE)}".join(pairs) + draw(
        st.sampled_from(["", ","]) if pairs else st.just("")
    )
    braces = f"{draw(SPACE)}{{{inside}}}" if pairs or draw(st.booleans()) else ""
    stamp = draw(STAMPS)
    return (
        f"{draw(NAMES)}{braces} {draw(SPACE)}{draw(VALUES)}{'' if stamp is None else f' {stamp}'}"
    )


def ours(page: str) -> list[tuple[str, dict[str, str], float]]:
    read = parse_page(page, bool)
    assert not read.left_out
    return [(one.name, dict(one.labels), one.value) for one in read.samples]


def by_reference(page: str) -> list[tuple[str, dict[str, str], float]]:
    return [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    ]


@settings(max_examples=100, deadline=None)
@given(st.lists(lines(), max_size=6))
@example(['a{x="\u2028\x85\x0b\x1c} ,=# {"} 1', 'a{x="\\\\n\\\\",y="\\""} 2 1700000000000'])
@example(["a{} 7", "a 3", 'a{x="}"} -Inf 5', 'b{x="1",} 0x1'])
def test_every_page_is_read_as_the_reference_reads_it(written: list[str]) -> None:
    sound = []
    for line in written:
        try:
            by_reference(line + "\n")
        except ValueError:
            # Ours leaves out what is malformed, the reference gives up the page.
            assert ours(line + "\n") == []
            continue
        sound.append(line)
    page = "".join(f"{line}\n" for line in sound)
    for mine, reference in zip(ours(page), by_reference(page), strict=True):
        assert mine[:2] == reference[:2]
        # The reference keeps a whole number whole.
        value = float(reference[2])
        assert mine[2] == value or (math.isnan(mine[2]) and math.isnan(value))


def test_a_malformed_line_takes_no_other_with_it() -> None:
    page = "\n".join((
        "Welcome to h1", "# TYPE a gauge", "", "   ", 'a{x="1} 4', "a{x=1} 5", 'a{x="1",x="2"} 5', 'a{,x="1"} 5',
        "a{ 1",
        "a", "a 1_000", "a ١", "a 1 now", "a\u00a07", "a 1\u00a02", "9a 1", "\x1b[2Ja 8", "a" + "{" * 3000 + " 1",
        "a{" + "(" * 3000 + "} 1", 'a{x="' + "\\" * 3001, 'a{x="ok"} 6 \r', 'a{x="cut"} 7',
    ))  # fmt: skip
    assert ours(page) == [("a", {"x": "ok"}, 6.0)]


@pytest.mark.parametrize("separator", ["\x85", "\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\r"])
def test_a_line_ends_at_a_newline_alone(separator: str) -> None:
    assert ours(f'a{{x="1{separator}b 2"}} 3\n') == [("a", {"x": f"1{separator}b 2"}, 3.0)]


def test_an_exemplar_behind_a_value_is_no_part_of_it() -> None:
    page = 'a{x="1"} 2 # {trace="}"} 0.5 1\nb 3 # {t="1"} 1\nc{x=" # {y}"} 4\nd{x=" # {"} 5 # {}\n'
    assert [row[2] for row in ours(page)] == [2.0, 3.0, 4.0, 5.0]


def test_what_a_page_has_too_much_of_is_named_and_the_rest_is_read() -> None:
    many = ",".join(f'l{number}="1"' for number in range(MOST_LABELS + 1))
    page = "\n".join((
        f'label{{x="{"y" * (LONGEST_LABEL + 1)}"}} 1', f"labels{{{many}}} 1", f"line{{{' ' * LONGEST_LINE}}} 1",
        f'good{{x="{"y" * LONGEST_LABEL}"}} 1', "",
    ))  # fmt: skip
    read = parse_page(page, bool)
    assert [sample.name for sample in read.samples] == ["good"]
    assert list(map(str, read.left_out)) == [
        "label: x has 1,025 characters, at most 1,024", "labels: more than 64 labels",
        "line: a line of 16,392 characters, at most 16,384",
    ]  # fmt: skip
    assert not parse_page(page, lambda name: name == "good").left_out, "nobody asked for the others"


def test_the_numbers_of_series_and_of_lines_have_limits_that_are_named() -> None:
    assert len(parse_page("a 1\n" * 50, bool, most_series=50).samples) == 50
    with pytest.raises(PageLimitError, match="its page has more than 50 series"):
        parse_page("a 1\n" * 51, bool, most_series=50)
    with pytest.raises(PageLimitError, match="more than 500,000 lines"):
        parse_page("\n" * (MOST_LINES + 2), bool)


def test_a_page_of_the_usual_size_costs_a_fraction_of_the_reference_s_time() -> None:
    labels = 'gpu="%d",UUID="GPU-%d",device="nvidia0",modelName="H100",Hostname="n",pod="p",namespace="a"'
    page = "".join(
        f"DCGM_FI_PROF_{metric}{{{labels % (gpu, gpu)}}} 0.5\n"
        for metric in range(30)
        for gpu in range(8)
    )

    def best_s(read: object) -> float:
        assert callable(read)
        spent = []
        for _ in range(5):
            begun = time.process_time()
            read()
            spent.append(time.process_time() - begun)
        return min(spent)

    assert len(ours(page)) == 240
    assert best_s(lambda: parse_page(page, bool)) < best_s(lambda: by_reference(page)) / 5
