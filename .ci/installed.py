"""``installed.py BIN``: whether the gputop that is installed beside BIN/python works. Standard library only.

It is run by itself, in an empty directory, so that nothing of a checkout can help: what is asked here is what somebody
meets who has the wheel alone, on a machine without a GPU.
"""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

CALLS = (
    (("--version",), 0, "gputop "),
    (("--help",), 0, "demo"),
    (("demo", "--list"), 0, "healthy"),
    (("demo", "--once"), 0, "UTIL"),
    (("demo", "starved", "--once"), 2, ""),
    (("diagnose", "demo"), 1, "BUSY, NOT WORKING"),
    (("report", "demo"), 0, "GPU"),
    (("report", "demo", "-o", "report.html"), 0, ""),
    (("screenshot", "demo", "-o", "demo.svg"), 0, ""),
    (("screenshot", "demo", "-o", "demo.txt"), 0, ""),
    (("completion", "bash"), 0, "gputop"),
    (("completion", "zsh"), 0, "gputop"),
    (("completion", "fish"), 0, "gputop"),
    (("help", "options"), 0, "--interval"),
    (("help", "verdicts"), 0, ""),
    (("help", "metrics"), 0, ""),
    (("fleet", "deploy", "files"), 0, ""),
    (("config", "--init"), 0, ""),
    (("config", "--check"), 0, ""),
)
"""Arguments, exit status, and what stdout must hold."""
WITHOUT_A_DRIVER = (("once",), ("doctor",), ("diagnose", "--for", "5s"))
PROGRAM = """
import gputop, importlib.resources as r
for name in gputop.__all__: getattr(gputop, name)
assert (r.files("gputop") / "py.typed").is_file()
with gputop.watch() as w: w.step()
print("ok", gputop.__file__)
"""
EVERY_MODULE = """
import importlib, pkgutil, sys
import gputop
wrong = []
for module in pkgutil.walk_packages(gputop.__path__, "gputop."):
    if module.name == "gputop.__main__": continue
    try: importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in sys.argv[1].split(","): wrong.append(f"{module.name}: {error}")
    except Exception as error: wrong.append(f"{module.name}: {type(error).__name__}: {error}")
print("; ".join(wrong) or "ok")
"""
MAY_LACK = "aiohttp,keras,lightning,mcp,pydantic,pytorch_lightning,tensorflow,textual_serve,torch,transformers"
"""What modules of gputop may ask for that is not installed: extras, and frameworks that only their users have."""
LONGEST_S = 120.0


def main() -> int:
    bin = Path(sys.argv[1])
    wrong = [
        said
        for arguments, status, shown in CALLS
        if (said := called(bin, arguments, status, shown))
    ]
    if not driver():
        wrong += [said for arguments in WITHOUT_A_DRIVER if (said := called(bin, arguments, 3, ""))]
    python = bin / "python"
    done = subprocess.run(
        [python, "-I", "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    if not done.stdout.startswith("ok "):
        wrong.append(f"import gputop: {done.stderr.strip()[-500:]}")
    elif str(bin.parent) not in done.stdout:
        wrong.append(f"another gputop was tried: {done.stdout}")
    # One that no command above loads may still use what the lowest or the highest version of a library lacks.
    words = [python, "-I", "-c", EVERY_MODULE, MAY_LACK]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    if done.stdout.strip() != "ok":
        wrong.append(
            f"modules that cannot be imported: {(done.stdout or done.stderr).strip()[-1000:]}"
        )
    if said := watched(bin):
        wrong.append(said)
    for line in wrong:
        print(f"FAILED {line}")
    return bool(wrong)


def called(bin: Path, arguments: tuple[str, ...], status: int, shown: str) -> str | None:
    """What is wrong with a call, or nothing."""
    done = subprocess.run(
        [bin / "gputop", *arguments],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
        encoding="utf-8",
    )
    if done.returncode != status or shown not in done.stdout or "Traceback" in done.stderr:
        return f"gputop {' '.join(arguments)}: {done.returncode}, not {status}: {(done.stderr or done.stdout)[-500:]}"
    return None


def driver() -> bool:
    """Whether this machine has NVIDIA's library, so that what needs it may well work."""
    return os.path.exists("/proc/driver/nvidia/version") or os.path.exists(
        "/usr/lib/wsl/lib/libnvidia-ml.so.1"
    )


def watched(bin: Path) -> str | None:
    """The demo on a terminal: it shows its GPUs, and ``q`` ends it."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS="120", LINES="40")
        os.execv(bin / "gputop", ["gputop", "demo"])
    seen, quit_at, end = b"", 0.0, time.monotonic() + LONGEST_S
    try:
        while time.monotonic() < end:
            if not select.select([terminal], [], [], 0.2)[0]:
                continue
            try:
                seen += os.read(terminal, 65536)
            except OSError:
                break
            # Typed again, since a screen that has only just been drawn may not read yet.
            if b"processes" in seen and time.monotonic() > quit_at:
                os.write(terminal, b"q")
                quit_at = time.monotonic() + 1.0
        else:
            os.kill(pid, 9)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        os.close(terminal)
    return None if status == 0 else f"gputop demo on a terminal: {status}: {seen[-300:]!r}"


if __name__ == "__main__":
    sys.exit(main())
