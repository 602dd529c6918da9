"""The page of a running `gputop export`, read back: each GPU's verdict and newest values, at once and for one GET.

Knows of the page what it asks for; everything else on it is left alone. A value that is not on the page is absent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite

from msgspec import Struct

from gputop.model.prometheus_names import gpu_series
from gputop.model.quantity import clean_text
from gputop.model.source import SourceError
from gputop.sources.activity.http_get import checked, get, place_of, trouble

OPTION = "--exporter"
USUAL_ADDRESS = "http://127.0.0.1:9401/metrics"
"""Where `gputop export` answers unless it is told otherwise."""
TIMEOUT_S = 1.0
LONGEST_ROW = 4096
UP, NEWEST = "gputop_up", "gputop_last_sample_timestamp_seconds"
_SAMPLE = re.compile(r'(gputop_\w+)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})? (\S+)')
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_UNESCAPED = re.compile(r"\\(.)")
_OWN = ("gpu", "uuid", "mig")
"""The labels that name a GPU; the others tell series of one name apart."""
FACTS = ("index", "uuid", "name", "verdict", "state", "badges", "efficiency_pct", "lost")
"""Keys of a GPU beside those of the catalogue's series."""

Labels = Mapping[str, str]


class ExportedPage(Struct, frozen=True):
    """What the page says: the host, the Unix time of the newest values, and for each GPU its values by key."""

    host: str
    is_simulated: bool
    t: float
    gpus: tuple[dict[str, object], ...]


def exported_keys() -> tuple[str, ...]:
    """The keys that a GPU of a page may have: ``FACTS``, and the catalogue's of every exported series."""
    return (*FACTS, *(series.key for series in gpu_series()))


def read_exporter(url: str) -> ExportedPage:
    """Ask an exporter. Raises UsageError for no address, SourceError where it does not answer with current values."""
    checked(url, OPTION, USUAL_ADDRESS)
    where = f"the exporter at {place_of(url)}"
    try:
        text = get(url, TIMEOUT_S)
    except (OSError, ValueError) as error:
        raise SourceError(f"{where} does not answer: {trouble(error)}; `gputop export` starts one") from error
    return exported_page(text, where)


def exported_page(text: str, where: str = "the exporter") -> ExportedPage:
    """A page in text. Raises SourceError for one of another program, and for one whose values are late."""
    samples = _samples(text)
    single = {name: value for name, labels, value in samples if not labels}
    if UP not in single:
        raise SourceError(f"{where} is not `gputop export`: its page has no {UP}")
    if single[UP] != 1.0 or NEWEST not in single:
        raise SourceError(f"{where} has no current values: its driver answers late, or it has just started")
    series_by_name = {(series.name, series.labels): series for series in gpu_series()}
    host, is_simulated = "", False
    gpus: dict[str, dict[str, object]] = {}
    for name, labels, value in samples:
        if name == "gputop_host_info":
            host, is_simulated = labels.get("hostname", ""), labels.get("source") == "simulated"
        uuid, number = labels.get("uuid"), labels.get("gpu", "")
        if uuid is None or not number.isascii() or not number.isdigit():
            continue
        if name == "gputop_gpu_info":
            gpus[uuid] = {"index": int(number), "uuid": uuid, "name": labels.get("model"), "badges": []}
        elif uuid in gpus:
            series = series_by_name.get(
                (name, tuple((key, label_value) for key, label_value in labels.items() if key not in _OWN))
            )
            if series is not None:
                gpus[uuid][series.key] = value * series.divisor
            else:
                _take_fact(gpus[uuid], name, labels, value)
    rows = sorted(gpus.values(), key=lambda gpu: (int(str(gpu["index"])), str(gpu["uuid"])))
    return ExportedPage(host, is_simulated, single[NEWEST], tuple(rows))


def _take_fact(gpu: dict[str, object], name: str, labels: Labels, value: float) -> None:
    if name == "gputop_gpu_efficiency_ratio":
        gpu["efficiency_pct"] = 100.0 * value
    elif value != 1.0:
        return
    elif name == "gputop_gpu_verdict":
        gpu["verdict"] = labels.get("verdict")
    elif name == "gputop_gpu_state":
        gpu["state"] = labels.get("state")
    elif name == "gputop_gpu_lost":
        gpu["lost"] = True
    elif name == "gputop_gpu_badge":
        badges = gpu["badges"]
        assert isinstance(badges, list), "set when the GPU was found"
        badges.append(labels.get("badge", ""))


def _samples(text: str) -> list[tuple[str, Labels, float]]:
    """(name, labels, value) of each sample of gputop's; what is damaged or endless is left out."""
    samples: list[tuple[str, Labels, float]] = []
    for line in text.split("\n"):
        match = _SAMPLE.fullmatch(line) if len(line) <= LONGEST_ROW else None
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if isfinite(value):
            labels = {key: clean_text(_UNESCAPED.sub(r"\1", words)) for key, words in _LABEL.findall(match[2] or "")}
            samples.append((match[1], labels, value))
    return samples
