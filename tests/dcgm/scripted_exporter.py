"""An exporter as a source, with answers that a test gives it."""

from __future__ import annotations

from gputop.sources.activity.dcgm_exporter import Exporter
from tests.dcgm.exporter import row

UUID = "GPU-1"
WHOLE = (UUID, None)
NEW = row("PROF_SM_UTIL_RATIO", 0.5, UUID)


def body(sm: float | None = 0.5, energy: int = 0, dram: float | None = None) -> str:
    """An answer with SM activity, energy and DRAM activity of one GPU, where they are given."""
    parts = [("PROF_SM_ACTIVE", sm), ("PROF_DRAM_ACTIVE", dram), ("DEV_TOTAL_ENERGY_CONSUMPTION", energy)]
    return "".join(row(name, value, UUID) for name, value in parts if value is not None)


def exporter(*bodies: str | Exception, url: str | None = "http://node:9400/metrics") -> Exporter:
    """An exporter with these answers, the last one again and again."""
    answers = list(bodies)

    def answer(_url: str, _timeout_s: float) -> str:
        given = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(given, Exception):
            raise given
        return given

    return Exporter(url, answer)
