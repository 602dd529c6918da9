"""What happens when something breaks: a table that the tests verify, shipped beside this file."""

from __future__ import annotations

import json
from pathlib import Path

from gputop.output.reference.page import Page, Section

TABLE = Path(__file__).with_name("faults.json")
"""A list of rows, one text for each column of HEAD; written from the tests' fault matrix."""
HEAD = ("fault", "what happens", "what you see", "what goes on", "exit status", "terminal")


def faults_page() -> Page:
    rows = tuple(tuple(map(str, row)) for row in json.loads(TABLE.read_text(encoding="utf-8")))
    return Page(
        "Fault tolerance",
        (
            "Each row is a test (`tests/test_fault_matrix.py`) that makes the fault happen and holds gputop to the "
            "rest of the row: the words that are shown, what goes on working, and how the program ends.",
        ),
        (Section("Faults", (), HEAD, rows),),
    )
