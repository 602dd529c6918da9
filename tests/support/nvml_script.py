"""One function of pynvml replaced by a list of answers."""

from __future__ import annotations

from typing import Any

import pynvml
import pytest


class Script:
    """Replaces one pynvml function: each call takes the next answer; an int is raised as an NVML error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Any, ...]] = []
        monkeypatch.setattr(pynvml, name, self, raising=False)

    def __call__(self, *arguments: Any) -> Any:
        self.asked.append(arguments)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, int):
            raise pynvml.NVMLError(answer)
        return answer
