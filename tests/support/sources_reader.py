"""Runs the local source, the monitor and the painter while sources come and go: a JSON line a frame.

Arguments: LocalSource's own as JSON, and under ``limits`` the waits of the sources that a test has no time for. Ends
when stdin does.
"""

from __future__ import annotations

import json
import sys
import threading

from gputop.monitor import Monitor
from gputop.output.ansi import plain_text
from gputop.paint.glyphs import COLOUR
from gputop.paint.main_screen import Painter
from gputop.paint.view import View
from gputop.sources.activity import dcgm_exporter, dcgmi, fallback_chain
from gputop.sources.local import LocalSource
from gputop.sources.selection import MachineOptions
from tests.support.local_reader import with_sm


def main() -> int:
    options = with_sm(json.loads(sys.argv[1]))
    for name, seconds in options.pop("limits", {}).items():
        for module in (fallback_chain, dcgm_exporter, dcgmi):
            if hasattr(module, name):
                setattr(module, name, seconds)
    source = LocalSource(MachineOptions(interval_s=0.25, **options))
    news, ended = threading.Event(), threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set(), news.set()), daemon=True).start()
    monitor, painter, view = Monitor(0.25), Painter(), View(span_s=60.0)
    source.start(news.set)
    while not ended.is_set():
        news.wait()
        news.clear()
        snapshot = source.poll()
        if snapshot is None:
            continue
        frame = monitor.feed(snapshot)
        screen = plain_text(painter.paint(frame, view, 160, 48).rows)
        gpu = snapshot.gpus[0]
        line = {
            "source": gpu.sm_source,
            "sm": gpu.sm_active_pct,
            "reason": gpu.sm_reason,
            "marks": [text for _, _, text in frame.history.marks],
            "marked": COLOUR.mark in screen,
            "header": screen.splitlines()[0],
            "columns": [frame.history.columns(gpu.static.uuid, "sm_active_pct", w, 400) for w in (0.25, 1.0)],
        }
        print(json.dumps(line, allow_nan=False), flush=True)
    source.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
