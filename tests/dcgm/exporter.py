"""A small dcgm-exporter: answers with the text that it holds, which a test may change."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.answering import Answer, answering

TEXTS = Path(__file__).parent


def row(name: str, value: float, uuid: str, **labels: str) -> str:
    """One sample as an exporter prints it."""
    more = "".join(f',{label}="{text}"' for label, text in labels.items())
    return (
        f'DCGM_FI_{name}{{gpu="0",UUID="{uuid}",device="nvidia0",Hostname="n"{more}}} {value:.6f}\n'
    )


class SmallExporter:
    """``text`` is the body of the next answer, ``status`` its status, given after ``delay_s``; ``asked`` counts them.

    Each answer has an energy of its own, as from an exporter that measures anew for every scrape, unless ``frozen``.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.status = 200
        self.delay_s = 0.0
        self.frozen = False
        self.asked = 0
        self.url = ""

    @property
    def place(self) -> str:
        return self.url.removeprefix("http://").removesuffix("/metrics")

    def body(self) -> bytes:
        if self.frozen:
            return self.text.encode()
        energy = row("DEV_TOTAL_ENERGY_CONSUMPTION", self.asked, "GPU-elsewhere")
        return f"{self.text}{energy}".encode()


@contextmanager
def exporting(text: str) -> Iterator[SmallExporter]:
    """An exporter on a free port of the loopback."""
    exporter, leaving = SmallExporter(text), threading.Event()

    def answer(*_: object) -> Answer:
        exporter.asked += 1
        leaving.wait(exporter.delay_s)
        return exporter.status, exporter.body(), {}

    with answering(answer) as port:
        exporter.url = f"http://127.0.0.1:{port}/metrics"
        try:
            yield exporter
        finally:
            leaving.set()
