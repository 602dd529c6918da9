"""What looks like a secret is masked wherever it stands; ordinary arguments stay readable."""

from __future__ import annotations

import random
import time
from pathlib import Path
from string import ascii_letters, digits

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from gputop.model.feeders import WaitEnd
from gputop.model.secret_marks import MASK
from gputop.model.secret_rules import strength, text_without_secrets
from gputop.model.secrets import masked_text, masked_words
from gputop.model.snapshot import Event, ProcessStatic
from gputop.sources.marks import MarkListener, send_mark
from gputop.sources.processes.tree.process_facts import FactsReader, command_text, executable_name
from tests.support.examples import looks, text_of
from tests.support.pace import slowness
from tests.support.recording_frames import read_back
from tests.support.scenes import gpu, snap, train
from tests.support.secret_commands import (
    COMMANDS,
    HF,
    ORDINARY,
    SHAPES,
    S,
    commands_with_names,
    ordinary_commands,
    shape,
)


def _leaks(text: str) -> bool:
    return any(part in text for part in (S, "hf_Ab", "EXAMPLE"))


def test_no_secret_is_left_in_a_command_line() -> None:
    for words in COMMANDS:
        masked = masked_words(words)
        assert not _leaks(" ".join(masked)), words
        assert MASK in " ".join(masked), words
        assert masked_words(masked) == masked, words


def test_no_secret_is_left_in_facts_made_of_what_the_kernel_gives() -> None:
    for words in COMMANDS:
        raw = "\0".join(words).encode() + b"\0"
        assert not _leaks(command_text(raw, b"python")), words
        assert not _leaks(executable_name(raw, b"python")), words
        title = " ".join(words).encode() if len(words) == 1 else b"x"
        assert not _leaks(command_text(b"", title[:15])), words


def _has_blanks(words: list[str]) -> bool:
    """Where one argument with blanks ends cannot be seen in a text."""
    return any(" " in word and not word.startswith(("python", "-----")) for word in words)


def test_a_command_line_that_has_become_one_text_is_masked_too() -> None:
    for words in COMMANDS:
        if not _has_blanks(words):
            masked = masked_text(" ".join(words))
            assert not _leaks(masked), words
            assert masked_text(masked) == masked, words


def test_ordinary_arguments_stay_readable() -> None:
    for line in ORDINARY:
        assert " ".join(masked_words(line.split())) == line
        assert masked_text(line) == line


@pytest.mark.parametrize(
    "count", [500, pytest.param(5000, marks=(pytest.mark.slow, pytest.mark.weekly))]
)
def test_no_ordinary_command_line_is_masked(count: int) -> None:
    for words in (*ordinary_commands(count), *commands_with_names(count)):
        assert masked_words(words) == words
        assert masked_text(" ".join(words)) == " ".join(words)


@pytest.mark.parametrize("name", SHAPES)
def test_a_secret_of_any_shape_is_masked_four_times_in_five(name: str) -> None:
    draw = random.Random(name)
    kept = 0
    for _ in range(50):
        words, secret = shape(name, draw)
        kept += any(part in " ".join(masked_words(words)) for part in secret)
        masked = masked_words(words)
        assert masked_words(masked) == masked, words
    assert kept <= 10, words


@pytest.mark.parametrize(
    "plain",
    ["da39a3ee5e6b4b0d3255bfef95601890afd80709", "550e8400-e29b-41d4-a716-446655440000",
     "MIG-c7384736-a75d-5afc-978f-d2f1294409fd",
     "img@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
     "/data/Zq7xW9vK2mPl/Zq7xW9vK2mPl", "ckpt-Zq7xW9vK2mPlZq7xW9vK2mPl.pth", "ResNet50CheckpointAfter90Epochs",
     "Llama-3_1-Nemotron-51B-Instruct-FP8", "swinv2_base_window12to24_192to384_22kto1k_ft"],
)  # fmt: skip
def test_hashes_paths_and_names_of_checkpoints_stay_also_behind_a_name_that_sounds_like_a_secret_s(
    plain: str,
) -> None:
    for line in (
        f"python t.py {plain} --lr 1",
        f"python t.py --max-tokens={plain}",
        f"python t.py --key-name {plain}",
    ):
        assert masked_text(line) == " ".join(masked_words(line.split())) == line


def test_a_random_word_behind_a_prefix_that_nobody_has_listed_is_masked() -> None:
    draw = random.Random(1)
    kept = 0
    for prefix in ("zz_", "acme-", "newco_v2_", "Key-"):
        for _ in range(250):
            secret = prefix + "".join(draw.choices(ascii_letters + digits, k=32))
            kept += secret in masked_text(f"python t.py {secret} --lr 1")
    assert kept < 50


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("python t.py --api-key abc --lr 1", f"python t.py --api-key {MASK} --lr 1"),
        ("HF_TOKEN=abc python t.py", f"HF_TOKEN={MASK} python t.py"),
        (
            "curl -H 'Authorization: Bearer abc' https://x",
            f"curl -H Authorization: {MASK} https://x",
        ),
        ("git clone https://me:abc@host/x.git", f"git clone https://me:{MASK}@host/x.git"),
        ("epoch 3, password=hunter2", f"epoch 3, password={MASK}"),
        ("a basic training of three days", "a basic training of three days"),
        ("sent with basic dXNlcjpwYXNz", f"sent with basic {MASK}"),
        ("token budget 512 reached", "token budget 512 reached"),
        ("a password reset is due", "a password reset is due"),
        ("PWD=/ python t.py", "PWD=/ python t.py"),
        ("PATH=/usr/bin TOKEN=/dev/null python t.py", "PATH=/usr/bin TOKEN=/dev/null python t.py"),
    ],
)
def test_what_stands_around_a_secret_stays(text: str, shown: str) -> None:
    assert masked_text(text) == shown


def test_a_bare_secret_key_of_a_cloud_is_masked_and_a_hash_or_a_path_as_long_is_not() -> None:
    key = "x7Kq/2mPl9vWz4RtYb8Nc+3HdJ6sGf1LoUeVaQ5i"
    assert len(key) == 40
    assert masked_text(f"python t.py {key} --lr 1") == f"python t.py {MASK} --lr 1"
    assert masked_words(["python", "t.py", key]) == ["python", "t.py", MASK]
    for plain in ("da39a3ee5e6b4b0d3255bfef95601890afd80709", "data/Imagenet2012/ResNet50Checkpoint0012",
                  "DistributedDataParallelTrainingExperime7", "data/Imagenet2012/ResNet50Checkpoint0012a"):  # fmt: skip
        assert masked_text(f"python t.py {plain}") == f"python t.py {plain}"


@pytest.mark.parametrize(
    "name", ["api_key", "HF_TOKEN", "clientSecret", "wandb.api_key", "PGPASSWORD", "X-Api-Key"]
)
def test_names_that_say_secret(name: str) -> None:
    assert strength(name) == "strong"


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["x", "--token", S], False), (["x", "--token", "512"], True), (["x", "--auth-key=image"], False),
        (["x", "--token", "<extra_id_0>"], True), (["x", "--key", "data/train.json"], True),
        (["x", "--token=4k"], True),
    ],
)  # fmt: skip
def test_after_a_weak_name_only_a_generated_value_is_masked(words: list[str], kept: bool) -> None:
    assert (masked_words(words) == words) is kept


@pytest.mark.parametrize(
    "name",
    ["tokenizer", "max_tokens", "key_frames", "num_keypoints", "password_file", "model.keys"],
)
def test_names_that_only_sound_like_it(name: str) -> None:
    assert strength(name) == ""


HOSTILE = [
    "a" * 4096, "a=" * 2048, "://a:b/" * 585, "://a:" * 820, "\"'" * 2048, "token " * 682, "--token " * 512,
    "eyJ" * 1365, "key  =  " * 512, "sk-" * 1365, "-----BEGIN PRIVATE KEY-----" * 150, "hf_a" * 1024, "\\" * 4096,
    "?sig=" * 819, "a-b" * 1365, "ab_" + "aB0-" * 1023, "Zq7x-" * 819 + "/", "basic aA0" * 455,
    "://" + "a" * 2000 + "@" * 2000, "token=\"" * 585, "[\"'" * 1365, "Basic " * 682,
    "key: x " * 585,
]  # fmt: skip


def test_a_hostile_command_line_takes_no_time() -> None:
    begin = time.process_time()
    for text in HOSTILE:
        masked_text(text)
        masked_words([text, *text.split()])
    assert time.process_time() - begin < 3.0 * slowness()


@given(
    text_of("ab -=:\"'\\/@\n{}[],?&0", 60),
    st.sampled_from(["token", "--key ", "hf_", "://", "Bearer "]),
)
@looks(60)
def test_no_text_is_too_odd_to_be_masked(text: str, mark: str) -> None:
    for odd in (
        mark + text,
        text + mark,
        text.replace("a", mark),
        f'x="{text} {mark}"',
        f"'{mark} {text}'y",
    ):
        masked_text(odd)
        masked_words([odd, *odd.split("a")])


def test_the_job_key_tells_jobs_apart_and_nothing_else() -> None:
    one, other = FactsReader("/proc", "/sys"), FactsReader("/proc", "/sys")
    keys = [
        one._job_key("ml", b"python\0a.py"),
        one._job_key("ml", b"python\0b.py"),
        one._job_key("ops", b"python\0a.py"),
    ]
    assert len(set(keys)) == 3
    assert one._job_key("ml", b"python\0a.py") == keys[0] != other._job_key("ml", b"python\0a.py")
    assert one._job_key("ml", b"") is None


def test_the_marks_that_are_looked_for_first_miss_nothing() -> None:
    for words in COMMANDS:
        text = " ".join(words)
        assert masked_text(text) == text_without_secrets(text)


def test_a_recording_of_another_program_is_masked_when_it_is_read() -> None:
    raw = ProcessStatic("ml", f"vllm serve llama --api-key {S}", HF, why="holds a GPU context")
    ends = (
        WaitEnd("network", 50.0, detail=f"redis://:{S}@h"),
        WaitEnd("file", 20.0, detail="/data, reads"),
    )
    snapshot = snap(0, gpu(), [replace(train(), static=raw, waits_for=ends)])
    snapshot = replace(
        snapshot, events=(Event(0.5, "mark", f"password={S}"),), notices=(f"token={S}",)
    )
    (back,) = read_back(snapshot)
    static = back.processes[0].static
    assert (static.command, static.name) == (f"vllm serve llama --api-key {MASK}", MASK)
    assert (back.processes[0].waits_for or ())[1:] == ends[1:]
    assert not _leaks(repr(asdict(back)))


def test_a_mark_is_masked_where_it_is_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    listener = MarkListener()
    try:
        send_mark(f"login with --token {S}", time.time())
        assert [event.text for event in listener.drain()] == [f"login with --token {MASK}"]
    finally:
        listener.close()
