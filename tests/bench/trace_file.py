"""Traces of any size in Kineto's layout, written as a stream: a job whose host is now and then late.

Times are whole microseconds, so that nobody's rounding matters. There is no profiler step: the window is then from the
first kernel to the last, for every reader.
"""

from __future__ import annotations

from pathlib import Path

KERNELS = tuple(
    f"void at::native::(anonymous namespace)::kernel_{n}<float, {n}, c10::Half>(float*, int)" for n in range(60)
)
_OPERATOR = (
    '{{"ph":"X","cat":"cpu_op","name":"aten::op_{k}","pid":4000,"tid":4000,"ts":{t},"dur":{d},"args":{{'
    '"External id":{n},"Record function id":0,"Concrete Inputs":["","","1",""],'
    '"Input type":["float","float","Scalar",""],'
    '"Input Strides":[[1024,1],[1024,1],[],[]],"Input Dims":[[64,1024],[64,1024],[],[]],"Ev Idx":{n}}}}},\n'
)
_LAUNCH = (
    '{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":4000,"tid":4000,"ts":{t},"dur":4,"args":{{'
    '"External id":{n},"cbid":211,"correlation":{n}}}}},\n'
    '{{"ph":"s","id":{n},"pid":4000,"tid":4000,"ts":{t},"cat":"ac2g","name":"ac2g"}},\n'
)
_KERNEL = (
    '{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":{stream},"ts":{t},"dur":{d},"args":{{"External id":{n},'
    '"queued":0,"device":0,"context":1,"stream":{stream},"correlation":{n},"registers per thread":32,'
    '"shared memory":0,"blocks per SM":1.939394,"warps per SM":7.757576,"grid":[256,1,1],"block":[128,1,1],'
    '"est. achieved occupancy %":12}}}},\n'
    '{{"ph":"f","id":{n},"pid":0,"tid":{stream},"ts":{t},"cat":"ac2g","name":"ac2g","bp":"e"}},\n'
)


def write(path: Path, size_bytes: int) -> int:
    """A trace of about so many bytes; how many kernels it holds."""
    t = free = 1000
    n = written = 0
    with path.open("w") as file:
        written += file.write(
            '{"schemaVersion":1,"deviceProperties":[{"id":0,"name":"GPU","totalGlobalMem":85899345920,"computeMajor":9,'
            '"computeMinor":0,"numSms":132}],"distributedInfo":{"backend":"nccl","rank":0,"world_size":1},'
            '"traceEvents":[\n'
        )
        while written < size_bytes:
            n += 1
            k = n * 7 % 60
            for depth in range(3):
                written += file.write(_OPERATOR.format(k=k + depth, t=t + depth, d=14 - 2 * depth, n=n))
            written += file.write(_LAUNCH.format(t=t + 5, n=n))
            free = max(free, t + 12)
            d = 4 + n * 13 % 29
            comm = n % 40 == 0
            name, stream = (
                ("ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgs)", 20) if comm else (KERNELS[k], 7)
            )
            written += file.write(_KERNEL.format(name=name, stream=stream, t=free - (3 if comm else 0), d=d, n=n))
            free += d
            t += 16 + (400 if n % 97 == 0 else 0)
        file.write('{"ph":"X","cat":"Trace","name":"end","pid":"Traces","tid":"Trace","ts":1000,"dur":1}\n]}\n')
    return n
