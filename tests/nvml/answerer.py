"""A process that uses the stand-in NVML through the real nvidia-ml-py, and answers what a test asks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.nvml.stand_in import Scenario

# The other side of a conversation: evaluates one expression a line and answers in JSON; an NVML error is its code.
ANSWERER = """
import json, sys, time
import pynvml
from pynvml import *
def h(index): return nvmlDeviceGetHandleByIndex(index)
def mig(gpu, index): return nvmlDeviceGetMigDeviceHandleByIndex(h(gpu), index)
def facts(struct): return {name: getattr(struct, name) for name, *_ in struct._fields_}
def text(value): return value.decode() if isinstance(value, bytes) else value
def fields(index, ids):
    values = nvmlDeviceGetFieldValues(h(index), ids)
    return [v.nvmlReturn or (v.value.uiVal if v.valueType == 1 else v.value.ullVal) for v in values]
def pair(handle, wait, ids=(2,), first=None):
    samples = [nvmlGpmSampleAlloc(), nvmlGpmSampleAlloc()]
    try:
        nvmlGpmSampleGet(handle, samples[0])
        time.sleep(wait)
        nvmlGpmSampleGet(handle, samples[1])
        request = c_nvmlGpmMetricsGet_t(version=1, numMetrics=len(ids), sample1=samples[0], sample2=samples[1])
        for metric, number in zip(request.metrics, ids): metric.metricId = number
        nvmlGpmMetricsGet(request)
        return [request.metrics[i].nvmlReturn or [request.metrics[i].value] for i in range(len(ids))]
    finally:
        for sample in samples: nvmlGpmSampleFree(sample)
for line in sys.stdin:
    try:
        answer = eval(line)
    except NVMLError as error:
        answer = {"error": error.value}
    print(json.dumps(answer, default=text), flush=True)
"""


class Program:
    """A process that uses nvidia-ml-py; ``ask`` gives it an expression and returns what it evaluates to."""

    def __init__(self, process: subprocess.Popen[str]):
        self._process = process

    def ask(self, expression: str) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(expression + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@contextmanager
def program(scenario: Scenario, start: str = "nvmlInit()") -> Iterator[Program]:
    scenario.write()
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", ANSWERER]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=scenario.environment()) as process:
        other = Program(process)
        other.ask(start)
        yield other
        assert process.stdin is not None
        process.stdin.close()


def error(code: int) -> dict[str, int]:
    return {"error": code}
