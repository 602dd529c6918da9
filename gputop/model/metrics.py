"""The metric catalogue: every number that gputop knows, declared once.

Table columns, charts, JSON keys, CSV headers, recording columns, history and the glossary derive from these rows.
Adding a metric is adding a row here, the field of the same name in ``snapshot.py`` and the question that fills it.
Nothing here measures or draws.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from msgspec import Struct

from gputop.model.sm import SM_SOURCES

# One row of the metric catalogue, and the parser of rows.

Unit = Literal["pct", "bytes", "bytes/s", "W", "J", "C", "MHz", "s", "count", "flags", "bool", "text", "id"]
Kind = Literal["gauge", "counter", "ratio", "fact"]


IMPOSSIBLE = "an impossible value"
"""Part of the reason for rejecting a value."""
ROUNDED_PCT = 101.0
"""Highest percentage that counts as rounding."""


class Metric(Struct, frozen=True):
    """One row of the metric catalogue.

    ``low`` and ``high`` bound a believable value; None means unbounded. ``history``: kept, so that charts can show its
    past. ``seldom``: slow to read and slow to change, so it is read only every few seconds. ``glossary``: explained in
    the help. ``activity``: only a source of SM activity measures it, and values of two sources are never mixed.
    ``path``: attribute path of the value in its sample, if not under its key. ``field``: the field whose text form this
    is; JSON has the field instead.
    """

    key: str
    unit: Unit
    label: str
    definition: str
    dcgm: str | None = None
    origin: str | None = None
    kind: Kind = "gauge"
    low: float | None = None
    high: float | None = None
    decimals: int = 0
    history: bool = False
    seldom: bool = False
    glossary: bool = False
    activity: bool = False
    path: str = ""
    field: str = ""

    def is_valid(self, value: float) -> bool:
        """Return whether a number lies inside the metric's bounds.

        NaN never does.
        """
        return value == value and (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def believed(self, value: float) -> float | None:
        """Return a plausible value; None for an impossible one.

        A percentage that only rounding has brought above 100 becomes 100. NaN, 2^31 - 1 (DCGM#83) and blanks are
        impossible.
        """
        if self.unit == "pct" and 100.0 < value <= ROUNDED_PCT:
            return 100.0
        return value if self.is_valid(value) else None


def _table(text: str, under: str = "") -> dict[str, Metric]:
    """Parse metrics by key.

    A metric is a line of cells, and below it the definition with DCGM's name, if any. The cells are key, kind, unit and
    label, optionally followed by origin and flags. A ``share`` is the time spent in a state: ``feed_run_pct`` is the
    ``run`` of a process' ``feed``. ``under`` is the part of the sample that has all of them.
    """
    metrics = {}
    for row in re.split(r"\n(?=\S)", text.strip()):
        cells, *words = row.split("\n")
        key, kind, unit, label, origin, flags = (*re.split("  +", cells), "", "")[:6]
        definition, dcgm, field = " ".join(map(str.strip, words)).partition(" DCGM_")
        is_share = kind == "share"
        found: dict[str, Any] = {
            "key": key, "unit": unit, "label": label, "definition": definition, "kind": "ratio" if is_share else kind,
            "origin": origin or None, "dcgm": f"{dcgm.strip()}{field}" or None,
            "low": None if kind == "fact" else 0.0, "high": 100.0 if kind in ("ratio", "share") else None,
            "path": key.removesuffix("_pct").replace("_", ".", 1) if is_share else under and f"{under}.{key}",
        }  # fmt: skip
        for flag in flags.split():
            name, _, number = flag.partition("=")
            found[name] = int(number) if number.isdecimal() else number or True
        metrics[key] = Metric(**found)
    return metrics


GPU_STATIC = _table(
    """
index                    fact  id       GPU       nvmlDeviceGetIndex
    NVML index of the GPU
uuid                     fact  text     UUID      nvmlDeviceGetUUID
    the GPU's identity, stable over reboots
name                     fact  text     NAME      nvmlDeviceGetName
    product name
architecture             fact  text     ARCH      nvmlDeviceGetArchitecture
    architecture, lower case
sm_count                 fact  count    SMS       nvmlDeviceGetAttributes_v2 or GPU cores
    streaming multiprocessors
pci_bus_id               fact  text     PCI       nvmlDeviceGetPciInfo
    PCI address
driver                   fact  text     DRIVER    nvmlSystemGetDriverVersion
    driver version
nvlink_peak_bytes_per_s  fact  bytes/s  NVL PEAK  NVLink speed
    sum of the NVLink speeds, one direction
mig_enabled              fact  bool     MIG       nvmlDeviceGetMigMode
    whether the GPU is split into instances
mig_parent               fact  text     PARENT    MIG handle
    UUID of the GPU that a MIG instance belongs to
mig_instance             fact  text     INSTANCE  MIG handle
    GPU instance / compute instance of a MIG device
unified_memory           fact  bool     UNIFIED   nvmlDeviceGetMemoryInfo
    whether the GPU has no memory of its own and uses the host's
""",
    under="static",
)

GPU_METRICS = _table("""
util_pct                  ratio    pct      UTIL           nvmlDeviceGetUtilizationRates.gpu  history glossary
    share of the sample time in which at least one kernel ran; says nothing about how many multiprocessors ran it
    DCGM_FI_DEV_GPU_UTIL
mem_util_pct              ratio    pct      MEM TIME       nvmlDeviceGetUtilizationRates.memory  glossary
    share of time in which device memory was read or written; time, not bandwidth DCGM_FI_DEV_MEM_COPY_UTIL
sm_active_pct             ratio    pct      SM             GPM metric 2  history glossary activity
    SM activity: share of the multiprocessors, averaged over cycles, with at least one warp resident; breadth of use,
    not work DCGM_FI_PROF_SM_ACTIVE
sm_occupancy_pct          ratio    pct      OCC            GPM metric 3  history glossary activity
    resident warps as a share of the warps that all multiprocessors could hold DCGM_FI_PROF_SM_OCCUPANCY
tensor_active_pct         ratio    pct      TENSOR         GPM metric 5  history glossary activity
    share of cycles in which a tensor pipe was active DCGM_FI_PROF_PIPE_TENSOR_ACTIVE
hmma_active_pct           ratio    pct      HMMA           GPM metric 7  activity
    share of cycles in which the tensor pipe did half-precision work (FP16, BF16) DCGM_FI_PROF_PIPE_TENSOR_HMMA_ACTIVE
imma_active_pct           ratio    pct      IMMA           GPM metric 9  activity
    share of cycles in which the tensor pipe did integer work (INT8) DCGM_FI_PROF_PIPE_TENSOR_IMMA_ACTIVE
dmma_active_pct           ratio    pct      DMMA           GPM metric 8  activity
    share of cycles in which the tensor pipe did FP64 work (DMMA)
mma_stall_pct             ratio    pct      MMA STALL      field 297
    share of time in which tensor instructions were held up; newest drivers only
dram_active_pct           ratio    pct      DRAM           GPM metric 10  history glossary activity
    device memory bandwidth used, of the theoretical peak; about 80 % is the practical peak DCGM_FI_PROF_DRAM_ACTIVE
fp64_active_pct           ratio    pct      FP64           GPM metric 11  activity
    share of cycles with the FP64 pipe active DCGM_FI_PROF_PIPE_FP64_ACTIVE
fp32_active_pct           ratio    pct      FP32           GPM metric 12  activity
    share of cycles with the FP32 pipe active DCGM_FI_PROF_PIPE_FP32_ACTIVE
fp16_active_pct           ratio    pct      FP16           GPM metric 13  activity
    share of cycles with the FP16 pipe active DCGM_FI_PROF_PIPE_FP16_ACTIVE
int_active_pct            ratio    pct      INT            GPM metric 4  activity
    share of cycles with the integer pipe active DCGM_FI_PROF_PIPE_INT_ACTIVE
graphics_active_pct       ratio    pct      GR             GPM metric 1  activity
    share of time in which the compute or graphics engine was active DCGM_FI_PROF_GR_ENGINE_ACTIVE
mem_used_bytes            gauge    bytes    MEM USED       nvmlDeviceGetMemoryInfo_v2.used  history
    device memory in use, without the driver's reserve DCGM_FI_DEV_FB_USED
mem_total_bytes           gauge    bytes    MEM            nvmlDeviceGetMemoryInfo_v2.total
    device memory in all DCGM_FI_DEV_FB_TOTAL
power_w                   gauge    W        POWER          nvmlDeviceGetPowerUsage  history
    power drawn by the board DCGM_FI_DEV_POWER_USAGE
power_limit_w             gauge    W        LIMIT          nvmlDeviceGetEnforcedPowerLimit  seldom
    enforced power limit DCGM_FI_DEV_ENFORCED_POWER_LIMIT
energy_j                  counter  J        ENERGY         nvmlDeviceGetTotalEnergyConsumption  seldom
    energy since the driver was loaded DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION
temp_c                    gauge    C        TEMP           nvmlDeviceGetTemperature  history
    temperature of the GPU chip DCGM_FI_DEV_GPU_TEMP
mem_temp_c                gauge    C        MEM TEMP       field 82
    temperature of the memory DCGM_FI_DEV_MEMORY_TEMP
mem_temp_max_c            gauge    C        MEM MAX        nvmlDeviceGetTemperatureThreshold  seldom
    highest temperature at which the memory may run DCGM_FI_DEV_MEM_MAX_OP_TEMP
temp_slowdown_c           gauge    C        SLOWDOWN       nvmlDeviceGetTemperatureThreshold  seldom
    chip temperature at which the clocks are cut DCGM_FI_DEV_SLOWDOWN_TEMP
sm_clock_mhz              gauge    MHz      CLOCK          nvmlDeviceGetClockInfo  history
    SM clock now DCGM_FI_DEV_SM_CLOCK
sm_clock_max_mhz          gauge    MHz      MAX            nvmlDeviceGetMaxClockInfo  seldom
    highest SM clock DCGM_FI_DEV_MAX_SM_CLOCK
mem_clock_mhz             gauge    MHz      MEM CLOCK      nvmlDeviceGetClockInfo
    memory clock now DCGM_FI_DEV_MEM_CLOCK
fan_pct                   ratio    pct      FAN            nvmlDeviceGetFanSpeed  seldom
    intended fan speed DCGM_FI_DEV_FAN_SPEED
pstate                    gauge    id       PSTATE         nvmlDeviceGetPerformanceState  seldom
    performance state, 0 is the fastest DCGM_FI_DEV_PSTATE
pcie_rx_bytes_per_s       gauge    bytes/s  PCIe ↓         GPM metric 21, or field 198  history
    PCIe traffic into the GPU DCGM_FI_PROF_PCIE_RX_BYTES
pcie_tx_bytes_per_s       gauge    bytes/s  PCIe ↑         GPM metric 20, or field 197  history
    PCIe traffic out of the GPU DCGM_FI_PROF_PCIE_TX_BYTES
pcie_gen                  gauge    id       GEN            nvmlDeviceGetCurrPcieLinkGeneration  seldom
    PCIe generation now DCGM_FI_DEV_PCIE_LINK_GEN
pcie_gen_max              gauge    id       GEN MAX        nvmlDeviceGetMaxPcieLinkGeneration  seldom
    highest PCIe generation of GPU and slot DCGM_FI_DEV_PCIE_MAX_LINK_GEN
pcie_width                gauge    id       LANES          nvmlDeviceGetCurrPcieLinkWidth  seldom
    PCIe lanes now DCGM_FI_DEV_PCIE_LINK_WIDTH
pcie_width_max            gauge    id       LANES MAX      nvmlDeviceGetMaxPcieLinkWidth  seldom
    most PCIe lanes of GPU and slot DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH
nvlink_rx_bytes_per_s     gauge    bytes/s  NVL ↓          GPM metric 60, or field 139  history
    NVLink traffic into the GPU, all links DCGM_FI_PROF_NVLINK_RX_BYTES
nvlink_tx_bytes_per_s     gauge    bytes/s  NVL ↑          GPM metric 61, or field 138  history
    NVLink traffic out of the GPU, all links DCGM_FI_PROF_NVLINK_TX_BYTES
encoder_pct               ratio    pct      ENC            nvmlDeviceGetEncoderUtilization  seldom
    video encoder use DCGM_FI_DEV_ENC_UTIL
decoder_pct               ratio    pct      DEC            nvmlDeviceGetDecoderUtilization  seldom
    video decoder use DCGM_FI_DEV_DEC_UTIL
throttle_reasons          gauge    flags    THROTTLE       nvmlDeviceGetCurrentClocksEventReasons  glossary
    clocks-event reasons, NVML's bit mask DCGM_FI_DEV_CLOCKS_EVENT_REASONS
ecc_uncorrected_volatile  counter  count    ECC            nvmlDeviceGetTotalEccErrors  seldom
    uncorrected memory errors since the driver was loaded DCGM_FI_DEV_ECC_DBE_VOL_TOTAL
ecc_corrected_volatile    counter  count    ECC CORR       nvmlDeviceGetTotalEccErrors  seldom
    corrected memory errors since the driver was loaded DCGM_FI_DEV_ECC_SBE_VOL_TOTAL
ecc_uncorrected           counter  count    ECC LIFE       nvmlDeviceGetTotalEccErrors  seldom
    uncorrected memory errors, aggregate over the GPU's life DCGM_FI_DEV_ECC_DBE_AGG_TOTAL
ecc_corrected             counter  count    ECC CORR LIFE  nvmlDeviceGetTotalEccErrors  seldom
    corrected memory errors, aggregate over the GPU's life DCGM_FI_DEV_ECC_SBE_AGG_TOTAL
remap_pending             fact     bool     REMAP          nvmlDeviceGetRemappedRows  seldom
    a row remap waits for a reset
remap_failed              fact     bool     REMAP FAILED   nvmlDeviceGetRemappedRows  seldom
    a row remap has failed
xid                       gauge    id       XID            NVML event set
    last Xid error seen while watching DCGM_FI_DEV_XID_ERRORS
""")

SM_PROVENANCE = _table(f"""
sm_source    fact  text  SM SOURCE
    where SM activity comes from: {", ".join(SM_SOURCES)}
sm_window_s  fact  s     SM WINDOW
    time over which SM activity is the mean
sm_age_s     fact  s     SM AGE
    age of the SM activity value
sm_low_pct   fact  pct   SM LOW
    lower bound of SM activity where it is not measured
sm_high_pct  fact  pct   SM HIGH
    upper bound of SM activity where it is not measured
sm_reason    fact  text  SM REASON  the source in use  field=sm_lack
    why SM activity is not measured
""")

GPU_STATE = _table("""
lost_reason  fact  text  LOST
    why this GPU cannot be read at present; null when it can
lost_since   fact  s     SINCE
    Unix time since which this GPU cannot be read
asleep       fact  bool  ASLEEP  /sys/bus/pci/devices/*/power/runtime_status
    whether the kernel has switched the GPU off, so that it was not asked
""")

HOST_METRICS = _table("""
cpu_pct                  ratio    pct      CPU             /proc/stat
    processor time in use, of all cores
cpu_count                gauge    count    CORES           affinity, cgroup
    cores that gputop's cgroup and affinity leave
load1                    gauge    count    LOAD            /proc/loadavg  decimals=2
    load average over one minute
mem_used_bytes           gauge    bytes    MEM             /proc/meminfo
    memory in use, without caches
mem_total_bytes          gauge    bytes    MEM TOTAL       /proc/meminfo
    memory in all, or the cgroup's limit
swap_used_bytes          gauge    bytes    SWAP            /proc/meminfo
    swap in use
disk_read_bytes_per_s    gauge    bytes/s  DISK ↓          /proc/diskstats
    read from block devices
disk_write_bytes_per_s   gauge    bytes/s  DISK ↑          /proc/diskstats
    written to block devices
net_rx_bytes_per_s       gauge    bytes/s  NET ↓           /proc/net/dev
    received, without loopback
net_tx_bytes_per_s       gauge    bytes/s  NET ↑           /proc/net/dev
    sent, without loopback
psi_cpu_pct              ratio    pct      CPU WAIT        /proc/pressure/cpu
    share of time in which some task waited for a core
psi_io_pct               ratio    pct      I/O WAIT        /proc/pressure/io
    share of time in which some task waited for I/O
psi_mem_pct              ratio    pct      MEM WAIT        /proc/pressure/memory
    share of time some task waited for memory
cpu_outsiders            fact     text     OUTSIDERS       /proc/PID/stat  field=outsiders
    largest CPU users outside the GPUs' process trees: user, name, percent
cpu_outsiders_pct        gauge    pct      OUTSIDERS CPU   /proc/PID/stat
    what all processes outside the GPUs' process trees use together, percent of one core
fabric_rx_bytes_per_s    gauge    bytes/s  FABRIC ↓        /sys/class/infiniband
    received over InfiniBand, RoCE and EFA
fabric_tx_bytes_per_s    gauge    bytes/s  FABRIC ↑        /sys/class/infiniband
    sent over InfiniBand, RoCE and EFA
fabric_peak_bytes_per_s  gauge    bytes/s  FABRIC PEAK     /sys/class/infiniband
    speed of the ports that are up, each way
fabric_drops             counter  count    FABRIC DROPS    /sys/class/infiniband
    packets that the fabric's ports dropped
fabric_retransmits       counter  count    FABRIC RETRANS  /sys/class/infiniband
    events after which the fabric sent packets again
fabric_link_errors       counter  count    FABRIC ERRORS   /sys/class/infiniband
    symbol and link errors of the fabric's ports
fabric_ports_down        gauge    count    PORTS DOWN      /sys/class/infiniband
    ports without a link that have had one
fabric_ports_degraded    gauge    count    PORTS SLOW      /sys/class/infiniband
    ports slower or narrower than they were or than their like
tcp_retransmits          counter  count    TCP RETRANS     /proc/1/net/snmp
    TCP segments sent again since boot
""")

_MAIN = "share of time in which the main thread"
_FEEDER = "share of time in which a loader, or the busiest host thread of a GPU process,"

PROCESS_METRICS = _table(f"""
pid                 fact   id       PID
    process id
starttime           fact   id       START         stat field 22
    start time in clock ticks since boot; with pid, the identity
ppid                fact   id       PPID          stat field 4
    parent's process id
role                fact   text     ROLE
    gpu (holds a GPU context), loader (dataloader worker), helper or orphan
gpu                 fact   id       GPU
    index of the GPU that the process, or its nearest GPU ancestor, uses
gpu_mem_bytes       gauge  bytes    GPU-MEM       NVML process lists
    device memory held on this GPU
gpu_time_pct        ratio  pct      GPU% time     nvmlDeviceGetProcessUtilization.smUtil
    share of time in which this process had a kernel running; time, not SM activity
type                fact   text     TYPE          NVML process lists
    C compute, G graphics, X both
cpu_pct             gauge  pct      CPU%          /proc/PID/stat
    CPU time of all threads, percent of one core
run_pct             gauge  pct      RUN           /proc/PID/schedstat
    time on a core, percent of one core
wait_pct            gauge  pct      QUEUE         /proc/PID/schedstat
    time queued for a core, percent of one core
main_run_pct        ratio  pct      MAIN RUN      /proc/PID/schedstat
    the main thread's time on a core, with PyTorch's threads in which its backward pass runs
main_wait_pct       ratio  pct      MAIN QUEUE    /proc/PID/schedstat
    the main thread's time queued for a core
state               fact   text     S             stat field 3
    kernel state: R running, S asleep, D disk wait, Z zombie, T stopped
waiting_on          fact   text     WAITS ON      /proc/PID/wchan  field=main_looks
    the wait that took most of the time of its main thread, or of a loader: queue, network, pipe, disk, sleep, lock, gpu
    or other
rss_bytes           gauge  bytes    HOST-MEM      /proc/PID/stat
    resident host memory
read_bytes_per_s    gauge  bytes/s  READ          /proc/PID/io
    read from storage
write_bytes_per_s   gauge  bytes/s  WRITE         /proc/PID/io
    written to storage
threads             gauge  count    THREADS       stat field 20
    number of threads
throttled_pct       ratio  pct      THROTTLED     cpu.stat
    scheduling periods cut short by the cgroup's CPU limit
nccl                fact   bool     NCCL          thread names
    whether the process runs NCCL threads
age_s               gauge  s        TIME          stat field 22
    time since the process started
pin_memory          fact   bool     PIN           thread names
    whether a pin-memory thread runs
pool_threads        gauge  count    HOST THREADS
    threads neither main nor CUDA, NCCL or autograd
pool_run_pct        gauge  pct      POOL RUN
    CPU time of those host threads, percent of one core
feed_run_pct        share  pct      FEED RUN      schedstat
    {_FEEDER} ran on a core
feed_queued_pct     share  pct      FEED QUEUE    schedstat
    {_FEEDER} was queued for a core
feed_disk_pct       share  pct      FEED DISK     stat field 3
    {_FEEDER} waited for a disk
feed_network_pct    share  pct      FEED NET      wchan, sock_diag
    {_FEEDER} waited for the network
feed_lock_pct       share  pct      FEED LOCK     wchan
    {_FEEDER} waited for a lock
feed_sleep_pct      share  pct      FEED SLEEP    wchan
    {_FEEDER} slept by a timer
feed_poll_pct       share  pct      FEED POLL     wchan
    {_FEEDER} polled: idle, or a socket with a timeout
feeder_threads      gauge  count    FEEDERS
    threads that can prepare data, without the main thread
feed_by             fact   text     FEED BY
    what resolved a wait of the feeder: child, kinship, socket, thread, task queue or parent listens
net_rx_bytes_per_s  gauge  bytes/s  NET ↓         sock_diag
    received on TCP sockets of this process
main_waits          fact   text     MAIN WAITS    wchan  field=main_looks
    what the main thread waited for at looks between two readings
held_up_by          fact   text     HELD UP BY    syscall, fd, wchan  field=waits_for
    whom or what the main thread waited for at those looks
listens             fact   bool     LISTENS       sock_diag, wchan
    whether its main thread waits for connections
feed_other_pct      share  pct      FEED OTHER    wchan
    {_FEEDER} waited for something else: work, a reader
feed_unread_pct     share  pct      FEED UNREAD   wchan
    {_FEEDER} slept, and what for was not seen
main_disk_pct       share  pct      MAIN DISK     wchan, stat field 3
    {_MAIN} waited for a disk
main_network_pct    share  pct      MAIN NET      wchan, sock_diag
    {_MAIN} waited for the network
main_lock_pct       share  pct      MAIN LOCK     wchan
    {_MAIN} waited for a lock
main_sleep_pct      share  pct      MAIN SLEEP    wchan
    {_MAIN} slept by a timer
main_poll_pct       share  pct      MAIN POLL     wchan
    {_MAIN} polled: for a batch, a request, a socket
main_pipe_pct       share  pct      MAIN PIPE     wchan
    {_MAIN} waited for data of a pipe
main_write_pct      share  pct      MAIN WRITE    wchan
    {_MAIN} waited for the reader of a full pipe
main_other_pct      share  pct      MAIN OTHER    wchan
    {_MAIN} waited for something else
main_unread_pct     share  pct      MAIN UNREAD   wchan
    {_MAIN} slept, and what for was not seen
mount               fact   text     MOUNT         fdinfo, mountinfo
    the networked file system on which it waits
allowed_cores       gauge  count    CORES
    cores that its CPU mask and cgroup leave to a process that holds a GPU, and to loaders together
framework           fact   text     FRAMEWORK     thread names
    torch, jax or tensorflow, where its threads show which
main_saves_pct      share  pct      MAIN SAVES    syscall
    {_MAIN} waited for a file to be written
""")

PROCESS_STATIC = _table(
    """
user       fact  text  USER
    owner
command    fact  text  COMMAND
    command line, what looks like a secret masked
name       fact  text  NAME
    executable's name
job        fact  text  JOB        /proc/PID/cgroup  field=batch_job
    batch job, from the cgroup path
container  fact  text  CONTAINER  /proc/PID/cgroup  field=contained_in
    container or pod, from the cgroup path
loader     fact  text  LOADER
    kind of dataloader worker
why        fact  text  WHY
    the rule by which the role was given, in words
server     fact  text  SERVER
    the program that serves requests, by the command line
job_key    fact  text  JOB KEY
    the same for processes of one user and command line; salted, it reveals neither
rule       fact  text  RULE
    the rule by which the role was given: R1 to R6, or never
""",
    under="static",
)

ACTIVITY_KEYS = tuple(key for key, metric in GPU_METRICS.items() if metric.activity)
HISTORY_KEYS = tuple(key for key, metric in GPU_METRICS.items() if metric.history)
