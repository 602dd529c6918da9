"""The filter language: what each form means, what absent values do, and where a mistake is said to be."""

from __future__ import annotations

import pytest
from hypothesis import given

from gputop.model.expression import LONGEST, ExpressionError
from gputop.model.snapshot import CgroupName, ProcessSample, ProcessStatic
from gputop.paint.process_columns import COLUMNS
from gputop.paint.process_filter import ALIASES, NO_FILTER, parse, passes
from gputop.sources.simulation.life import slurm
from tests.support.examples import any_text, looks

GIB = 2.0**30
TRAIN = ProcessSample(
    4711,
    starttime=99,
    ppid=4000,
    gpu=3,
    gpu_mem_bytes=31 * GIB,
    cpu_pct=101.0,
    rss_bytes=2 * GIB,
    read_bytes_per_s=12e6,
    state="S",
    age_s=700.0,
    nccl=True,
    type="C",
    static=ProcessStatic(
        user="ml", command="python train.py --name 'big run'", name="python", batch_job=slurm(8821),
        contained_in=CgroupName("pod", "1-2"),
    ),
)  # fmt: skip
LOADER = ProcessSample(
    4712,
    role="loader",
    gpu=3,
    state="D",
    cpu_pct=40.0,
    rss_bytes=GIB,
    static=ProcessStatic(user="ml"),
)
BARE = ProcessSample(5000, gpu=None)


def _passes(
    text: str, process: ProcessSample = TRAIN, verdict: str = "starved starved: dataloader"
) -> bool:
    return passes(parse(text), process, (LOADER,), verdict)


@pytest.mark.parametrize(
    "text",
    [
        "gpu:3", "gpu:0,3", "gpu!=2", "gpu>2", "user:ml", "user:ML", "user:root,ml", "mem>10G", "mem>=31G",
        "mem<32GiB", "mem>10gb", "cpu>50", "cpu<=101", "cpu>50%", "verdict:starved", "verdict:dataloader",
        "name~train", "name:python", "job:8821", "job:slurm", 'job:"slurm 8821"', "job~88", "container:pod",
        "role:gpu", "pid:4711", "state:S", "host>1G", "host<3G", "read>11.9M", "read<20MB/s", "age>10m", "age<1h",
        "age>600", "nccl:yes", "type:C", "train", "TRAIN.py", "4711", '"big run"', "command~--name",
        "!user:root", "!gpu:1", "user!=root", "gpu_mem_bytes>1G", "starttime:99",
        "gpu==3", "user==ml", "!user!=ml",
        "!role:helper user:ml cpu>50", "mem > 10G",
        "user:ml and gpu:3", "gpu:7 or user:ml cpu>50", "user:root or gpu:3 AND train",
        "  gpu:3   train ", "", "ppid:4000",
    ],
)  # fmt: skip
def test_a_filter_lets_a_process_through(text: str) -> None:
    assert _passes(text)


@pytest.mark.parametrize(
    "text",
    [
        "gpu:2", "gpu:1,2", "gpu!=3", "user:root", "user:m", "mem>40G", "mem<31G", "cpu<50", "cpu>101",
        "verdict:working", "name~eval", "job:88", "role:loader", "pid:471", "state:D", "host>3G", "read>20M",
        "age>1h", "nccl:no", "eval", "!train", "!gpu:3", "!user:ml", "user!=ml", "!user!=root", "gpu==2",
        "user:ml gpu:2", "user:ml and gpu:2", "gpu:3 and user:root or gpu:2", '"and"',
        '"run big"',
    ],
)  # fmt: skip
def test_a_filter_keeps_a_process_out(text: str) -> None:
    assert not _passes(text)


def test_what_was_not_measured_satisfies_neither_a_comparison_nor_its_negation() -> None:
    for text in ("mem>1B", "!mem>1B", "mem<1B", "cpu!=5", "nccl:yes", "!nccl:yes"):
        assert not _passes(text, BARE), text


def test_a_process_without_a_gpu_or_user_is_not_the_one_that_was_asked_for() -> None:
    assert _passes("!gpu:3", BARE)
    assert _passes("!user:ml", BARE)
    assert not _passes("gpu:3", BARE)
    assert not _passes("user:ml", BARE)


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("gpuu:3", 0, "did you mean gpu?"), ("user:ml zzzzzz>3", 8, "no field zzzzzz"),
        ("mem>10Q", 4, "Q is not a unit"), ("mem>lots", 4, "not a number"), ("mem>70", 4, "write 70G, 70M, 70K or 70B"),
        ("read>1.5", 5, "write 1.5G, 1.5M, 1.5K or 1.5B"), ("mem>", 4, "needs a value"),
        ("user:ml !", 9, "! needs a term"), ("user:ml and", 11, "a term is missing after and"),
        ("or user:ml", 0, "a term is missing before or"), ("user>3", 0, "is a text"),
        ('name~"two words', 5, "not closed"), ('""', 0, "a term is missing"), ("user:,", 5, "missing"),
        ("nccl:maybe", 5, "yes nor no"), ("age>3w", 4, "90s, 10m"), ("cpu>50G", 4, "not a unit here"),
        ("gpu:1,,2", 4, "not a number"), ("x" * (LONGEST + 1), LONGEST, "at most"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(text: str, position: int, words: str) -> None:
    with pytest.raises(ExpressionError) as error:
        parse(text)
    assert words in str(error.value)
    assert error.value.position == position
    assert "\n" not in str(error.value)


def test_every_alias_and_every_column_is_a_field() -> None:
    assert set(ALIASES.values()) <= set(COLUMNS)
    for field in (*ALIASES, *COLUMNS):
        metric_is_text = isinstance(COLUMNS[ALIASES.get(field, field)].value(TRAIN, ()), str)
        parse(f"{field}:x" if metric_is_text else f"{field}:0")


def test_an_empty_filter_is_false_and_lets_everything_through() -> None:
    assert not NO_FILTER
    assert passes(NO_FILTER, BARE, (), "")
    assert parse("gpu:3")


@looks(30)
@given(any_text(60))
def test_any_text_is_a_filter_or_one_clear_error(text: str) -> None:
    try:
        passes(parse(text), TRAIN, (LOADER,), "")
    except ExpressionError as error:
        assert 0 <= error.position <= len(text)
