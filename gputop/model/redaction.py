"""Redact snapshots and texts for ``--redact``.

Users, hosts, jobs, paths and UUIDs become numbers, the same number each time. Redaction is applied to snapshots before
any output, so that every output is redacted alike. Facts that the diagnosis needs are kept: measured values, pids,
names of programs, ``server`` and ``job_key``; verdicts are the same with and without redaction.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Mapping
from threading import RLock
from typing import Any, TypeVar

from msgspec.structs import replace

from gputop.model.serving import ServerRow
from gputop.model.snapshot import (
    CgroupName,
    Event,
    GpuSample,
    GpuStatic,
    HostSample,
    ProcessSample,
    ProcessStatic,
    Snapshot,
)

MOST_REMEMBERED = 4096
"""Entries in each cache.

The caches hold redacted facts, redacted texts, and numbers for names that are known by their form, such as paths: a
dropped one gets a new number if it comes back. Users, hosts and devices keep theirs for ever.
"""
MOST_JOBS = 32_768
"""Jobs whose number is kept: more than run at once on a thousand hosts with a job for each GPU."""
_UUID = re.compile(
    r"(?<![0-9A-Za-z])(?:(GPU|MIG)-)?[0-9a-fA-F]{8}(?:[-_][0-9a-fA-F]{4}){3}[-_][0-9a-fA-F]{12}(?![0-9A-Za-z])"
)
_PATH = re.compile(r"(?<![\w./:>~-])~?/(?!(?:proc|sys|dev)\b|[/\s])[^\s:,;'\"()\[\]{}|<>=]+")
_PLACE = re.compile(
    r"(?<=://)(?!localhost\b|127\.|\[::1\])[^/\s:]+|(?<![\w./-])(?!localhost:|127\.)[A-Za-z][\w.-]*(?=:\d{4,5}\b)"
)
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_ADDRESS = re.compile(rf"(?<![\w.])(?!127\.){_OCTET}(?:\.{_OCTET}){{3}}(?![\w.])")
"""A version of NVML has four numbers as well, and one of them is larger."""
_WORDS = re.compile(r"[\w-]+(?:\.[\w-]+)*")
"""Words joined by dots, as in names of hosts and users."""
_EVERYBODY = frozenset((
    "root", "localhost", "a", "an", "and", "any", "as", "at", "be", "but", "by", "d", "do", "for", "h", "has", "id",
    "if", "in", "io", "is", "it", "its", "m", "ms", "no", "not", "ns", "of", "off", "on", "one", "or", "s", "so", "the",
    "to", "two", "up", "us", "via", "was", "we", "with", "x",
))  # fmt: skip
"""Names that reveal nothing, and short words that gputop's own texts use ("run as root"). They stay in a text, as bare
numbers do; a field that holds only the name is redacted all the same."""
_KEPT = frozenset(("user", "host"))
"""Kinds with names that are searched for in texts."""
T = TypeVar("T", GpuSample, HostSample, ProcessSample)


class Redactor:
    """Redacts snapshots and texts.

    Use one instance for all related outputs: each instance numbers names by itself.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._numbers: dict[str, dict[str, str]] = {}
        self._numbers_given: dict[str, int] = {}
        """Number of assigned numbers by kind."""
        self._names: dict[str, str] = {}
        self._most_words = 1
        self._odd: tuple[str, ...] = ()
        """Names with characters other than words and dots, longest first."""
        self._texts: dict[str, str] = {}
        self._statics: dict[ProcessStatic, ProcessStatic] = {}
        self._gpus: dict[GpuStatic, GpuStatic] = {}

    def snapshot(self, original: Snapshot) -> Snapshot:
        """Return the snapshot with numbers in place of names."""
        machine = original.machine
        host = self.host(machine.hostname)
        boot = machine.boot_id
        if boot is not None and not machine.is_simulated:
            boot = self.number("boot", boot)
        for process in original.processes:
            self.user(process.static.user)
        return replace(
            original,
            machine=replace(machine, hostname=host, boot_id=boot),
            gpus=tuple(map(self._gpu, original.gpus)),
            processes=tuple(map(self._process, original.processes)),
            host=self._host(original.host),
            events=tuple(map(self.event, original.events)),
            stale={self.kind(name): age for name, age in original.stale.items()},
            notices=tuple(map(self.text, original.notices)),
            steps=tuple(replace(row, name=self.number("run", row.name)) for row in original.steps),
            servers=tuple(map(self._server, original.servers)),
        )

    def _server(self, row: ServerRow) -> ServerRow:
        host, colon, port = row.place.rpartition(":")
        place = f"{self.host(host)}{colon}{port}" if colon else self.host(port)
        return replace(row, place=place, error=None if row.error is None else self.text(row.error))

    def event(self, event: Event) -> Event:
        """An event, such as a mark, with a redacted text."""
        text = self.text(event.text)
        return event if text == event.text else replace(event, text=text)

    def host(self, name: str) -> str:
        """Return a host's name as a number.

        The short form of the name has the same number.
        """
        number = self.number("host", name)
        for form in {name, name.split(".", 1)[0]} - {""}:
            self._remember(form, number)
        return number

    def text(self, text: str) -> str:
        """Redact a free text.

        Removes UUIDs, paths, addresses, and the names that were seen until now.
        """
        redacted = self._texts.get(text)
        if redacted is None:
            redacted = self.kind(text)
            for name in self._odd:
                if name in redacted:
                    # A number holds no backslash.
                    redacted = re.sub(
                        rf"(?<![\w-]){re.escape(name)}(?![\w-])", self._names[name], redacted
                    )
            redacted = _WORDS.sub(self._words, redacted)
            _keep(self._texts, text, redacted)
        return redacted

    def kind(self, text: str) -> str:
        """Redact UUIDs, paths and addresses in gputop's own words.

        A word such as a loader's kind stays even if a user has the same name.
        """
        text = _UUID.sub(self._uuid, text)
        text = _PATH.sub(lambda m: self.number("path", m[0]), text)
        text = _PLACE.sub(lambda m: self.number("host", m[0]), text)
        return _ADDRESS.sub(lambda m: self.number("host", m[0]), text)

    def data(self, data: Any) -> Any:
        """JSON-able data with every text in it redacted; keys stay."""
        if isinstance(data, str):
            return self.text(data)
        if isinstance(data, Mapping):
            return {key: self.data(value) for key, value in data.items()}
        if isinstance(data, list | tuple):
            return [self.data(value) for value in data]
        return data

    def command(self, command: str) -> str:
        """A command line as the name of its executable."""
        words = command.split(None, 1)
        return self.text(words[0].rsplit("/", 1)[-1]) if words else command

    def _host(self, original: HostSample) -> HostSample:
        if original.outsiders:
            hidden = tuple(
                replace(o, user=self.user(o.user) or "", name=self.text(o.name))
                for o in original.outsiders
            )
            original = replace(original, outsiders=hidden)
        return self._without(original)

    def _gpu(self, gpu: GpuSample) -> GpuSample:
        static = self._gpus.get(gpu.static)
        if static is None:
            parent = gpu.static.mig_parent
            static = replace(
                gpu.static,
                uuid=self.device(gpu.static.uuid),
                mig_parent=None if parent is None else self.device(parent),
                serial=gpu.static.serial and self.number("serial", gpu.static.serial),
            )
            _keep(self._gpus, gpu.static, static)
        lack = gpu.sm_lack
        if lack is not None:
            lack = replace(
                lack, reasons=tuple(map(self.text, lack.reasons)), fix=self.text(lack.fix)
            )
        return replace(
            self._without(gpu),
            static=static,
            sm_lack=lack,
            lost_reason=gpu.lost_reason and self.text(gpu.lost_reason),
        )

    def _process(self, process: ProcessSample) -> ProcessSample:
        static = self._statics.get(process.static)
        if static is None:
            static = self._static(process.static)
            _keep(self._statics, process.static, static)
        ends = process.waits_for and tuple(
            [replace(end, detail=self.text(end.detail)) for end in process.waits_for]
        )
        return replace(
            self._without(process),
            static=static,
            mount=process.mount and self.text(process.mount),
            waits_for=ends,
        )

    def _static(self, original: ProcessStatic) -> ProcessStatic:
        name = original.name and self.text(original.name.rsplit("/", 1)[-1])
        return replace(
            original,
            user=self.user(original.user),
            name=name,
            command=name or (original.command and self.command(original.command)),
            batch_job=original.batch_job and self._named("job", original.batch_job),
            contained_in=original.contained_in and self._named("container", original.contained_in),
            loader=original.loader and self.kind(original.loader),
            why=original.why and self.text(original.why),
        )

    def _named(self, kind: str, name: CgroupName) -> CgroupName:
        """Redact a job or container: ``slurm 8821`` → ``slurm job1``.

        Accounting data name the user of a job's number, and an LXC name is as telling as a host name.
        """
        if name.id:
            return replace(name, id=self.number(kind, name.id))
        return CgroupName(self.number(kind, name.kind) if kind == "job" else self.text(name.kind))

    def _without(self, sample: T) -> T:
        if not sample.unavailable:
            return sample
        reasons = {key: self.text(reason) for key, reason in sample.unavailable.items()}
        return sample if reasons == sample.unavailable else replace(sample, unavailable=reasons)

    def user(self, name: str | None) -> str | None:
        """A user's name as a number."""
        if not name:
            return name
        number = self.number("user", name)
        self._remember(name, number)
        return number

    def device(self, uuid: str) -> str:
        """Return ``GPU-1`` or ``MIG-2`` for a UUID.

        Both share one numbering; other forms count as GPUs.
        """
        kind = "MIG" if uuid.startswith("MIG") else "GPU"
        with self._lock:
            numbers = self._numbers.setdefault("device", {})
            if re.fullmatch(r"(?:GPU|MIG)-\d+", uuid):
                return uuid
            if uuid not in numbers:
                numbers[uuid] = f"{kind}-{len(numbers) + 1}"
                self._remember(uuid, numbers[uuid])
            return numbers[uuid]

    def _uuid(self, match: re.Match[str]) -> str:
        if match[1]:
            return self.device(match[0])
        return self.number("uuid", match[0].replace("_", "-").lower())

    def number(self, kind: str, name: str) -> str:
        """Return a numbered name in place of a name: ``namespace3``.

        ``kind`` may be a label of another program.
        """
        # A name that is a number already, as in a redacted recording, stays the same.
        if not name or re.fullmatch(rf"{kind}\d+", name):
            return name
        with self._lock:
            numbers = self._numbers.setdefault(kind, {})
            number = numbers.pop(name, None)
            if number is None:
                self._numbers_given[kind] = self._numbers_given.get(kind, 0) + 1
                number = f"{kind}{self._numbers_given[kind]}"
            # Removed and inserted again: the order is by last use.
            numbers[name] = number
            if kind not in _KEPT and len(numbers) > (
                MOST_JOBS if kind == "job" else MOST_REMEMBERED
            ):
                del numbers[next(iter(numbers))]
            return number

    def _remember(self, name: str, number: str) -> None:
        """Look for a name in texts from now on."""
        if name in self._names or name in _EVERYBODY or name.isdigit():
            return
        with self._lock:
            self._names[name] = number
            self._most_words = max(self._most_words, 1 + name.count("."))
            if _WORDS.fullmatch(name) is None:
                at = bisect(self._odd, -len(name), key=lambda other: -len(other))
                self._odd = (*self._odd[:at], name, *self._odd[at:])
            self._texts.clear()
            self._statics.clear()

    def _words(self, match: re.Match[str]) -> str:
        """Replace the longest known names in a match.

        Names are looked up, not searched: a fleet has thousands of names.
        """
        words, names = match[0].split("."), self._names
        parts, at = [], 0
        while at < len(words):
            ends = (
                end
                for end in range(min(len(words), at + self._most_words), at, -1)
                if ".".join(words[at:end]) in names
            )
            end = next(ends, None)
            parts.append(words[at] if end is None else names[".".join(words[at:end])])
            at = at + 1 if end is None else end
        return ".".join(parts)


def _keep(cache: dict[Any, Any], key: Any, value: Any) -> None:
    if len(cache) >= MOST_REMEMBERED:
        cache.clear()
    cache[key] = value
