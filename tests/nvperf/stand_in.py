"""The stand-in performance libraries: compiled here, told what to answer by a file of lines ``word value``.

Words: ``gpus``, ``chip``; ``sm`` (or ``sm0`` for one GPU) in percent, ``nan`` as well; ``begin``, ``trigger``,
``decode``, ``load``, ``availability``: the status that the call answers; the same with ``_hang`` (a GPU's number) and
``_crash``; ``overflow``, ``keep_latest``, ``supported``, ``vgpu``, ``sm_only``, ``one_pass`` (counters a pass holds),
``window_s`` (a lie about the time of a sample).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SOURCES = Path(__file__).parent
LIBRARIES = {"libnvperf_host.so": "host.c", "libnvperf_target.so": "target.c"}


def build(directory: Path) -> None:
    """Compile both libraries into a folder."""
    for library, source in LIBRARIES.items():
        subprocess.run(
            [
                "cc",
                "-shared",
                "-fPIC",
                "-O1",
                "-Wall",
                "-Werror",
                "-o",
                directory / library,
                SOURCES / source,
                "-lm",
            ],
            check=True,
        )


class Counters:
    """What the stand-in libraries answer; may change while a program runs."""

    def __init__(self, libraries: Path, folder: Path) -> None:
        self.libraries = libraries
        self.path = folder / "counters"
        self.words: dict[str, object] = {}
        self.write()

    def write(self, **words: object) -> None:
        """Change some words; None takes one back."""
        for word, value in words.items():
            self.words[word] = value
        text = "".join(
            f"{word} {value}\n" for word, value in self.words.items() if value is not None
        )
        new = self.path.with_suffix(".new")
        new.write_text(text)
        os.replace(new, self.path)

    def environment(self) -> dict[str, str]:
        return {"NVPERF_SCENARIO": str(self.path)}

    def is_locked(self, device: int = 0) -> bool:
        """Whether somebody holds the counters of a GPU."""
        import fcntl

        path = Path(f"{self.path}.lock{device}")
        if not path.exists():
            return False
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
        return False
