"""``package.py SCRATCH``: build the wheel and the sdist, and try what was built, on every Python of this machine.

Each is installed into environments of its own, away from the checkout: the wheel with the highest and with the lowest
dependencies that it allows, the sdist, and the wheel as people install programs (pip, pipx, uv), by its path. There
``installed.py`` asks whether it works. Then the sdist's own quick tests run, with the lowest versions of what the
program itself needs on the oldest Python, and with the highest of everything on the newest.
Where all of it holds and PACKAGE_KEEP names a directory, wheel and sdist are left there.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # it comes with build

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent
OLDEST = (3, 10)
TRIED_WITH = ("png", "deep", "fleet", "export")
"""The extras beside the program itself: what is small, and has wheels for every Python."""
IGNORED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
FOREIGN = {name: value for name, value in os.environ.items() if name not in IGNORED}


def main() -> int:
    scratch = Path(sys.argv[1])
    wheel, sdist = built(scratch)
    failed = [*contents(wheel, sdist)]
    found = pythons()
    print("Python: " + ", ".join(".".join(map(str, version)) for version in found))
    for version, python in found.items():
        for way, constraints in (
            ("highest", None),
            ("lowest", lowest(version, scratch, *TRIED_WITH)),
        ):
            what = f"{wheel}[{','.join(TRIED_WITH)}]"
            failed += tried(scratch, python, f"{name(version)}-{way}", what, constraints)
    newest, oldest = max(found), min(found)
    failed += tried(scratch, found[newest], f"{name(newest)}-sdist", str(sdist), None)
    failed += as_program(scratch, found[newest], wheel)
    failed += tested(scratch, sdist, found[oldest], lowest(oldest, scratch))
    failed += tested(scratch, sdist, found[newest], None)
    for line in failed:
        print(f"FAILED {line}")
    if not failed and (keep := os.environ.get("PACKAGE_KEEP")):
        for path in (wheel, sdist):
            shutil.copy2(path, Path(keep) / path.name)
    return bool(failed)


def name(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def ran(
    *words: str | Path, cwd: Path | None = None, more: dict[str, str] | None = None
) -> str | None:
    """Run a command; the end of what it said where it failed."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=FOREIGN | (more or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    return None if done.returncode == 0 else (done.stdout + done.stderr).strip()[-3000:]


def built(scratch: Path) -> tuple[Path, Path]:
    """The wheel and the sdist, of what git holds: a file that only lies about here must not be what makes it work."""
    clean = scratch / "clean"
    clean.mkdir()
    files = subprocess.run(
        ["git", "ls-files", "-z"], cwd=CHECKOUT, check=True, stdout=subprocess.PIPE
    ).stdout
    for path in filter(None, files.decode().split("\0")):
        if (CHECKOUT / path).is_file():
            (clean / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / path, clean / path)
    said = ran(sys.executable, "-m", "build", "--outdir", scratch / "dist", clean)
    if said:
        sys.exit(f"FAILED the build: {said}")
    (wheel,), (sdist,) = (scratch / "dist").glob("*.whl"), (scratch / "dist").glob("*.tar.gz")
    return wheel, sdist


def contents(wheel: Path, sdist: Path) -> Iterator[str]:
    """What is wrong with what they hold."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    with tarfile.open(sdist) as packed:
        inside = {name.partition("/")[2] for name in packed.getnames()}
    if foreign := [
        name for name in names if not re.match(r"gputop/|gputop_tui-[\d.]+\.dist-info/", name)
    ]:
        yield f"the wheel holds {foreign[:5]}"
    shipped = {
        f"gputop/{path.relative_to(CHECKOUT / 'gputop')}" for path in files_of(CHECKOUT / "gputop")
    }
    if missing := sorted(shipped - set(names)):
        yield f"the wheel lacks {missing[:5]}"
    if (
        missing := {
            "README.md",
            "LICENSE",
            "pyproject.toml",
            "docs/changelog.md",
            "tests/conftest.py",
        }
        - inside
    ):
        yield f"the sdist lacks {sorted(missing)}"


def files_of(folder: Path) -> Iterator[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "."], cwd=folder, check=True, stdout=subprocess.PIPE
    ).stdout
    return (
        folder / path for path in listed.decode().split("\0") if path and (folder / path).is_file()
    )


def pythons() -> dict[tuple[int, int], Path]:
    """Each Python from the oldest that is supported, once a version: those on PATH, and those that pyenv keeps."""
    kept = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    places = [*os.environ["PATH"].split(os.pathsep), *sorted(glob.glob(f"{kept}/versions/*/bin"))]
    found: dict[tuple[int, int], Path] = {
        (sys.version_info[0], sys.version_info[1]): Path(sys.executable)
    }
    for place in places:
        for path in sorted(Path(place).glob("python3.*")):
            matched = re.fullmatch(r"python3\.(\d+)", path.name)
            version = (3, int(matched[1])) if matched else (0, 0)
            # What pyenv puts on PATH answers for every version, and fails where that one is not chosen.
            if (
                version >= OLDEST
                and version not in found
                and not ran(path, "-c", "import ensurepip, venv")
            ):
                found[version] = path
    return dict(sorted(found.items()))


def lowest(version: tuple[int, int], scratch: Path, *extras: str) -> Path:
    """Constraints to the lowest version of each dependency that the project allows, of these extras too."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    lines = []
    for line in wanted:
        if line.startswith("gputop-tui"):
            continue
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate(
            {"python_version": name(version)}
        ):
            continue
        bounds = [one.version for one in requirement.specifier if one.operator in (">=", "==")]
        if not bounds:
            sys.exit(f"FAILED {line}: no lowest version is named")
        lines.append(f"{requirement.name}=={bounds[0]}")
    path = scratch / f"lowest-{name(version)}.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def environment(scratch: Path, python: Path, label: str) -> Path:
    """An empty environment's directory of programs."""
    folder = scratch / "environments" / label
    if said := ran(python, "-m", "venv", folder):
        sys.exit(f"FAILED {label}: {said}")
    return folder / "bin"


def installed(bin: Path, constraints: Path | None, *what: str) -> str | None:
    """Install by uv where it is there, which is faster and knows what pip is set to; else by pip."""
    chosen = ["-c", str(constraints)] if constraints else []
    uv = Path(sys.executable).with_name("uv")
    if uv.exists():
        words = [
            sys.executable,
            HERE / "uv_as_pip.py",
            uv,
            "pip",
            "install",
            "-q",
            "--python",
            bin / "python",
        ]
        if not ran(
            *words, *chosen, *what, more={"UV_CACHE_DIR": str(bin.parent.parent.parent / "uv")}
        ):
            return None
    return ran(
        bin / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", *chosen, *what
    )


def works(bin: Path, scratch: Path, label: str) -> list[str]:
    """What ``installed.py`` finds, run where there is nothing of the checkout."""
    empty = scratch / "empty" / label
    empty.mkdir(parents=True)
    own = {"HOME": str(empty), "XDG_CONFIG_HOME": str(empty), "XDG_RUNTIME_DIR": str(empty)}
    said = ran(sys.executable, HERE / "installed.py", bin, cwd=empty, more=own)
    print(f"{label}: {'works' if said is None else 'FAILED'}", flush=True)
    return [] if said is None else [f"{label}: {said}"]


def tried(
    scratch: Path, python: Path, label: str, what: str, constraints: Path | None
) -> list[str]:
    bin = environment(scratch, python, label)
    if said := installed(bin, constraints, what):
        return [f"{label}: it cannot be installed: {said}"]
    found = works(bin, scratch, label)
    if said := ran(bin / "python", "-m", "pip", "check"):
        found.append(f"{label}: {said}")
    shutil.rmtree(bin.parent)
    return found


def as_program(scratch: Path, python: Path, wheel: Path) -> list[str]:
    """As people install programs: pipx and uv, by the wheel's path."""
    failed = []
    tools = environment(scratch, python, "tools")
    if said := installed(tools, None, "pipx>=1.7,<2", "uv>=0.5,<1"):
        print(f"without pipx and uv: {said.splitlines()[-1]}")
        return []
    for label, words in {
        "pipx": [tools / "pipx", "install", "--python", python, wheel],
        "uv": [
            sys.executable,
            HERE / "uv_as_pip.py",
            tools / "uv",
            "tool",
            "install",
            "--python",
            python,
            wheel,
        ],
    }.items():
        home = scratch / label
        own = {
            "PIPX_HOME": f"{home}/kept", "PIPX_BIN_DIR": f"{home}/bin", "UV_TOOL_DIR": f"{home}/kept",
            "UV_TOOL_BIN_DIR": f"{home}/bin", "UV_CACHE_DIR": str(scratch / "uv"),
        }  # fmt: skip
        if said := ran(*words, more=own):
            failed.append(f"{label}: it cannot be installed: {said}")
            continue
        (bin,) = {Path(os.path.realpath(f"{home}/bin/gputop")).parent}
        failed += works(bin, scratch, label)
    return failed


def tested(scratch: Path, sdist: Path, python: Path, constraints: Path | None) -> list[str]:
    """The sdist's own quick tests."""
    label = f"tests-{'lowest' if constraints else 'highest'}"
    bin = environment(scratch, python, label)
    with tarfile.open(sdist) as archive:
        archive.extractall(scratch / label, filter="data")
    (folder,) = (scratch / label).iterdir()
    if said := installed(bin, constraints, f"{folder}[test]"):
        return [f"{label}: it cannot be installed: {said}"]
    said = ran(bin / "python", "-m", "pytest", "-rfE", "--maxfail", "20", cwd=folder)
    print(f"{label}: {'passed' if said is None else 'FAILED'}", flush=True)
    return [] if said is None else [f"{label}: {said}"]


if __name__ == "__main__":
    sys.exit(main())
