"""Command lines with secrets in them, and ordinary ones that only sound like it, from the files of ``tests/secrets``.

In ``commands.jsonl`` ``{S}`` stands for a secret that nothing but its place gives away, ``{HF}`` for a token that is
known by its shape. A row of ``shapes.txt`` has random parts: an alphabet and a length.
"""

from __future__ import annotations

import json
import random
import re
import uuid
from pathlib import Path
from string import ascii_letters, digits

FOLDER = Path(__file__).parents[1] / "secrets"
S = "Zq7xW9vK2mPl"
HF = "hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh"
COMMANDS: list[list[str]] = [
    [word.replace("{S}", S).replace("{HF}", HF) for word in json.loads(line)]
    for line in (FOLDER / "commands.jsonl").read_text("utf-8").splitlines()
]
ORDINARY = (FOLDER / "ordinary.txt").read_text("utf-8").splitlines()
WORDS: dict[str, list[str]] = json.loads((FOLDER / "words.json").read_text("utf-8"))
"""Programs, options and values as the public documentation of programs shows them, and lines with random names."""
VALUES = [
    WORDS[kind] for kind in ("models", "files", "numbers", "hashes", "images", "hosts", "words")
]
ALPHABETS = {
    "M": ascii_letters + digits,
    "H": "0123456789abcdef",
    "U": f"{ascii_letters}{digits}-_",
    "D": digits,
}
_ROWS = dict(
    line.split(None, 1) for line in (FOLDER / "shapes.txt").read_text("utf-8").splitlines()
)
SHAPES = tuple(_ROWS)
"""Names of secrets of many issuers and places."""


def ordinary_commands(count: int, seed: int = 1) -> list[list[str]]:
    """Command lines without a secret, each of a program, up to nine options with values, and up to three more words."""
    draw = random.Random(seed)
    commands = []
    for _ in range(count):
        words = draw.choice(WORDS["programs"]).split()
        for option in draw.sample(WORDS["options"], draw.randrange(1, 10)):
            value = draw.choice(draw.choice(VALUES))
            words += [f"{option}={value}"] if draw.random() < 0.4 else [option, value]
        words += [draw.choice(draw.choice(VALUES)) for _ in range(draw.randrange(4))]
        commands.append(words)
    return commands


def commands_with_names(count: int, seed: int = 1) -> list[list[str]]:
    """Command lines with random UUIDs, digests, hashes, and names of runs and pods."""
    draw = random.Random(seed)

    def made(word: str) -> str:
        for name, alphabet in (
            ("HEX", "0123456789abcdef"),
            ("BASE", "0123456789abcdefghijklmnopqrstuvwxyz"),
        ):
            for length in (64, 40, 32, 16, 12, 10, 8, 7, 5):
                word = word.replace(f"{name}{length}", "".join(draw.choices(alphabet, k=length)))
        return word.replace("UUID", str(uuid.UUID(int=draw.getrandbits(128))))

    return [[made(word) for word in draw.choice(WORDS["named"]).split()] for _ in range(count)]


def shape(name: str, draw: random.Random) -> tuple[list[str], list[str]]:
    """The words of a command line, and the random parts of its secret that give it away."""
    parts: list[str] = []

    def filled(match: re.Match[str]) -> str:
        text = "".join(draw.choices(ALPHABETS[match[1]], k=int(match[2])))
        if match[1] != "D" and int(match[2]) >= 7:
            parts.append(text)
        return text

    row = _ROWS[name]
    line = re.sub(r"\{([MHUD])(\d+)\}", filled, row).replace("{{", "{").replace("}}", "}")
    words = re.split(r"(?<!\\)\|", line) if "|" in row else line.split(" ")
    return [word.replace("\\|", "|") for word in words], [max(parts, key=len)]
