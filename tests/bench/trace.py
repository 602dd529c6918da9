"""``python -m tests.bench.trace``: gputop trace beside Holistic Trace Analysis, on synthetic traces of 1 to 1,000 MB.

Each reads a file in a process of its own: processor seconds, peak memory, and the shares of idle, compute and the rest,
which must be equal. Holistic Trace Analysis comes from the package index into a throw-away environment.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench import trace_file
from tests.bench.environments import CHECKOUT, CannotInstall, clean_environment, install

PEER = "HolisticTraceAnalysis==0.5.0"
"""``hta`` on the index is another project."""
PEER_NEEDS = "pandas<3"
"""With 3 it raises TypeError on most traces."""
EQUAL_POINTS = 0.006
"""It gives two decimals."""
_PEER_CODE = """
import json, sys
from hta.trace_analysis import TraceAnalysis
found = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="/")
row = found.get_temporal_breakdown(visualize=False).iloc[0]
print(json.dumps([row["idle_time_pctg"], row["compute_time_pctg"], row["non_compute_time_pctg"]]))
"""
_OWN_CODE = """
import sys
from gputop.cli import main
main(["trace", sys.argv[1], "--json"])
"""


def measure(python: str, code: str, path: Path) -> tuple[float, float, str]:
    """Processor seconds, peak MB and the last line of stdout of a program that reads one trace. Raises RuntimeError."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [python, "-c", code, str(path)], cwd=CHECKOUT, env=clean_environment(), stdout=out, stderr=errors
        )
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        if child.returncode:
            raise RuntimeError((errors.read().decode(errors="replace").strip().splitlines() or ["no word"])[-1])
        return _spent(usage), usage.ru_maxrss / 1024.0, out.read().decode().strip().splitlines()[-1]


def _spent(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


def own_shares(text: str) -> list[float]:
    share = json.loads(text)["ranks"][0]["gpus"][0]["share_pct"]
    return [share["idle"], share["compute"], share["comm_exposed"] + share["copy_exposed"]]


def compare(path: Path, peer: str | None) -> dict[str, Any]:
    """One file read by both."""
    seconds, peak, said = measure(sys.executable, _OWN_CODE, path)
    shares = own_shares(said)
    row: dict[str, Any] = {
        "mb": path.stat().st_size / 1e6,
        "gputop": {"cpu_s": seconds, "peak_mb": peak, "pct": shares},
    }
    if peer is not None:
        try:
            seconds, peak, said = measure(peer, _PEER_CODE, path)
        except RuntimeError as failure:
            row["hta"] = {"failed": str(failure)}
        else:
            theirs = json.loads(said)
            apart = max(abs(a - b) for a, b in zip(shares, theirs, strict=True))
            row["hta"] = {"cpu_s": seconds, "peak_mb": peak, "pct": theirs, "points_apart": apart}
    return row


def line(row: dict[str, Any]) -> str:
    own, peer = row["gputop"], row.get("hta")
    text = f"| {row['mb']:,.0f} MB | {own['cpu_s']:.1f} s | {own['peak_mb']:.0f} MB |"
    if peer is None:
        return text + " – | – | – |"
    if "failed" in peer:
        return text + f" failed: {peer['failed'][:60]} | – | – |"
    return text + f" {peer['cpu_s']:.1f} s | {peer['peak_mb']:.0f} MB | {peer['points_apart']:.4f} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.trace", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--sizes", default="1,10,100,1000", metavar="MB[,…]", help="of the traces (default %(default)s)"
    )
    parser.add_argument("--alone", action="store_true", help="measure gputop only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures as JSON")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="gputop-bench-") as name:
        try:
            peer = None if options.alone else str(install(PEER, Path(name) / "peer", PEER_NEEDS) / "python")
        except CannotInstall as failure:
            print(f"{PEER} cannot be installed: {failure}", file=sys.stderr)
            return 1
        print("| trace | gputop CPU | peak | HTA CPU | peak | points apart |\n|---|--:|--:|--:|--:|--:|", flush=True)
        for size in options.sizes.split(","):
            path = Path(name) / "trace.json"
            kernels = trace_file.write(path, int(float(size) * 1e6))
            rows.append({**compare(path, peer), "kernels": kernels})
            print(line(rows[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    return int(any(row.get("hta", {}).get("points_apart", 0.0) > EQUAL_POINTS for row in rows))


if __name__ == "__main__":
    sys.exit(main())
