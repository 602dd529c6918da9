"""``gputop export`` as a program of its own, on a free loopback port."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

from tests.support.exported import Page, read

ROOT = Path(__file__).parent.parent.parent


class ExportProgram:
    """A running exporter."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port

    def text(self, path: str = "/metrics") -> str:
        """What a scrape gets."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def page(self) -> Page:
        return read(self.text())

    def until(self, name: str, wanted: float, within_s: float = 10.0) -> Page:
        """The first page on which every sample of that name has this value."""
        deadline = time.monotonic() + within_s
        while True:
            page = self.page()
            if page.get(name) and set(page[name].values()) == {wanted}:
                return page
            assert time.monotonic() < deadline, (name, page.get(name))
            time.sleep(0.05)

    def cpu_s(self) -> float:
        """CPU time that the program has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def exporting(*words: str, environment: Mapping[str, str] = os.environ) -> Iterator[ExportProgram]:
    """``gputop export WORDS``; ended by SIGTERM, which must be enough."""
    command = [sys.executable, "-m", "gputop", "export", *words, "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        command, cwd=ROOT, env=dict(environment), stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        line = ""
        while "metrics at" not in line:
            line = process.stderr.readline()
            assert line, process.wait()
        found = re.search(r":(\d+)/metrics", line)
        assert found is not None, line
        yield ExportProgram(process, int(found[1]))
        process.terminate()
        assert process.wait(5) == 0
    finally:
        process.kill()
        process.communicate()
