"""A logger that writes CSV: one row a time it is given something, the columns in the order in which they first came."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping


class CsvLog:
    """``watch(log=CsvLog("gputop.csv"))``. The file must not exist yet; it is readable by this user alone.

    A column that comes later is added to the header by writing the file anew. Raises FileExistsError and OSError.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._columns = ["step"]
        self._rows: list[dict[str, object]] = []
        self._texts: dict[str, str] = {}
        os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))

    def log(self, numbers: Mapping[str, float], step: int | None = None) -> None:
        """Add a row."""
        row: dict[str, object] = {"step": "" if step is None else step, **numbers, **self._texts}
        self._rows.append(row)
        new = [key for key in row if key not in self._columns]
        self._columns += new
        with open(self._path, "w" if new else "a", encoding="utf-8", newline="") as file:
            file.write(self._text(self._rows if new else [row], head=bool(new)))

    def log_text(self, texts: Mapping[str, str], _step: int) -> None:
        """Texts stand in the rows from now on, in columns of their own."""
        self._texts.update(texts)

    def _text(self, rows: list[dict[str, object]], *, head: bool) -> str:
        out = io.StringIO()
        writer = csv.DictWriter(out, self._columns, restval="", lineterminator="\n")
        if head:
            writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()
