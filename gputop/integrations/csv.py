"""Log to a CSV file.

Each call is a row; the columns are in the order of their first use.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping


class CsvLog:
    """``watch(log=CsvLog("gputop.csv"))``. The file must not exist yet; only this user can read it.

    A column that comes later is added to the header by rewriting the file. Raises FileExistsError and OSError.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._columns: list[str] = []
        self._texts: dict[str, str] = {}
        os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))

    def log(self, numbers: Mapping[str, float], step: int | None = None) -> None:
        """Add a row."""
        row: dict[str, object] = {"step": "" if step is None else step, **numbers, **self._texts}
        new = [key for key in row if key not in self._columns]
        if new:
            self._widen(new)
        with open(self._path, "a", encoding="utf-8", newline="") as file:
            csv.DictWriter(file, self._columns, restval="", lineterminator="\n").writerow(row)

    def log_texts(self, texts: Mapping[str, str], _step: int) -> None:
        """Add texts to all later rows, in columns of their own."""
        self._texts.update(texts)

    def _widen(self, new: list[str]) -> None:
        """Rewrite the file with more columns.

        Row by row: a run of weeks may not fit into memory.
        """
        new_path = f"{self._path}.{os.getpid()}.new"
        columns = [*self._columns, *new]
        try:
            with (
                open(self._path, encoding="utf-8", newline="") as before,
                open(
                    os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600),
                    "w",
                    encoding="utf-8",
                    newline="",
                ) as after,
            ):
                writer, rows = csv.writer(after, lineterminator="\n"), csv.reader(before)
                next(rows, None)
                writer.writerow(columns)
                writer.writerows([*row, *[""] * (len(columns) - len(row))] for row in rows)
            os.replace(new_path, self._path)
        except OSError:
            if os.path.lexists(new_path):
                os.unlink(new_path)
            raise
        self._columns = columns
