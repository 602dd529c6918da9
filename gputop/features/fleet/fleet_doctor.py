"""The fleet's part of ``gputop doctor``: the files that hold what its Prometheus asks for."""

from __future__ import annotations

import os
from typing import Any

from gputop.config import Settings
from gputop.features.fleet.address import TOKEN_VARIABLE
from gputop.model.fleet_settings import SECRET, texts_of
from gputop.sources.doctor_report import private_file


def doctor_report(args: Any, settings: Settings) -> dict[str, Any]:
    """Whether the files of tokens and headers are for their owner alone."""
    named = [(TOKEN_VARIABLE, path) for path in (os.environ.get(TOKEN_VARIABLE),) if path]
    named += [
        (f"{field} of [fleet.{name}]", os.path.expanduser(texts_of(table)[field]))
        for name, table in settings.fleet.items()
        for field in SECRET
        if field in table
    ]
    return {"private_files": [private_file(subject, path) for subject, path in named]}
