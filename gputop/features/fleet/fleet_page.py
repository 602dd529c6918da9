"""The help's page on fleets: what is exported under which names, what is asked, how to set it up."""

from __future__ import annotations

from collections.abc import Mapping

from gputop.features.fleet.questions import MODES, QUESTIONS
from gputop.features.fleet.rules import alerts
from gputop.model.prometheus_names import NAMES, Generation, gpu_series, host_series, process_series
from gputop.output.document import Document, page, section

OPEN_TELEMETRY = {
    "util_pct": "hw.gpu.utilization", "encoder_pct": "hw.gpu.utilization{hw.gpu.task=encoder}",
    "decoder_pct": "hw.gpu.utilization{hw.gpu.task=decoder}", "mem_used_bytes": "hw.gpu.memory.usage",
    "mem_total_bytes": "hw.gpu.memory.limit", "power_w": "hw.power", "energy_j": "hw.energy",
    "temp_c": "hw.temperature", "mem_temp_c": "hw.temperature", "ecc_corrected": "hw.errors",
    "ecc_uncorrected": "hw.errors", "ecc_corrected_volatile": "hw.errors", "ecc_uncorrected_volatile": "hw.errors",
    "pcie_rx_bytes_per_s": "hw.gpu.io{network.io.direction=receive}, a rate here",
    "pcie_tx_bytes_per_s": "hw.gpu.io{network.io.direction=transmit}, a rate here",
}  # fmt: skip
"""Names of OpenTelemetry's semantic conventions for hardware; metrics without one are left out."""
OWN = (
    ("gputop_up", "1 while the values are current; 0 when the driver is late or hangs, or there is no GPU", ""),
    ("gputop_gpu_state_seconds_total", "time by state; increase(…[1h]) / 3600 are GPU-hours", "state"),
    ("gputop_gpu_busy_not_working_seconds_total", "time of busy_not_working by verdict", "cause"),
    ("gputop_gpu_lost_seconds_total", "time lost, as a share of each second, by verdict", "cause"),
    ("gputop_gpu_state", "the state that the GPU's time counts as now", "state"),
    ("gputop_gpu_verdict", "1 for the verdict that stands, 0 for those of the last hour", "verdict"),
    ("gputop_gpu_badge", "remarks beside the verdict", "badge"),
    ("gputop_gpu_efficiency_ratio", "SM activity as a share of utilisation", ""),
    ("gputop_gpu_idle_ratio", "share of time in which no kernel ran", ""),
    ("gputop_gpu_throttle_seconds_total", "time in which something held the clocks down", "reason"),
    ("gputop_gpu_xid_errors_total", "Xid errors; a number appears with its first error", "xid"),
    ("gputop_gpu_lost", "GPUs that the driver cannot read", ""),
    ("gputop_gpu_info", "model, architecture, driver, PCI address, what the link can do", ""),
    ("gputop_gpu_share", "the part of a whole GPU that this is: a MIG instance's slices, 0 for a GPU split into such",
     "parent"),
    ("gputop_sm_source", "where SM activity comes from; bound and none are not measured", "source"),
    ("gputop_loaders", "dataloader workers of the GPU's job", "kind"),
    ("gputop_loader_running_ratio", "and _queued_, _disk_, _network_: what they did", ""),
    ("gputop_main_thread_running_ratio", "the job's main thread", ""),
    ("gputop_job_info", "jobs with a context on the GPU", "scheduler, job_id, user, k8s_pod_uid, container_id"),
    ("gputop_pod_info", "pods that the kubelet gave the GPU to, whether they use it or not; with --pod-resources",
     "k8s_namespace_name, k8s_pod_name, k8s_container_name"),
    ("gputop_step_seconds", "summary of the steps that jobs announce (sum, count)", "gpu, rank, job_id"),
    ("gputop_step_last_timestamp_seconds", "Unix time at which the newest of them was heard of", "gpu, rank, job_id"),
    ("gputop_step_wait_seconds", "what the rank waited for others in them (sum, count), where the job says it",
     "gpu, rank, job_id"),
    ("gputop_step_data_wait_seconds", "what it waited for batches (sum, count), where the job or a callback says it",
     "gpu, rank, job_id"),
    ("gputop_step_tokens_total", "tokens in these steps, where the job says it", "gpu, rank, job_id"),
    ("gputop_step_mfu_ratio", "model FLOPs utilisation, 0 to 1, as the job works it out", "gpu, rank, job_id"),
    ("gputop_step_samples_total", "training samples in these steps, where the job says it",
     "gpu, rank, job_id"),
    ("gputop_server_kv_cache_ratio", "an inference server's KV cache in use (`--server-url`); beside it "
     "_requests_running, _requests_waiting, _requests_per_second, _tokens_per_second, _prompt_tokens_per_second, "
     "_preemptions_per_second, _prefix_hit_ratio", "server, kind"),
    ("gputop_host_info", "the host's name and driver", "hostname, driver, source"),
    ("gputop_last_sample_timestamp_seconds", "Unix time of the newest values", ""),
    ("gputop_cpu_seconds_total", "what gputop itself has used; gputop_resident_memory_bytes is its memory", ""),
)  # fmt: skip
"""Series that follow from no key of the catalogue: name, what it is, labels besides those of a GPU."""

# What the page says before its tables, a tuple of paragraphs a subject.

EXPORTED = (
    "`gputop export` gives this node's metrics, states and verdicts to Prometheus: a server on 127.0.0.1:9401 "
    "(`--listen`, TLS with `--tls-cert`, client certificates with `--client-ca`), or `--textfile FILE.prom` for "
    "node_exporter, or one page with `--once`. A certificate that is renewed is taken with the next connection. "
    "A scrape reads the newest frame and never waits for the driver.",
    "Every GPU's series has the labels gpu and uuid, and mig for an instance. What is late or not measured is "
    "absent and never 0; counters keep their value meanwhile, begin at 0 with the exporter, and are not stored. "
    "How long a value of SM activity covers, and how old it is (gputop_gpu_sm_window_seconds, "
    "gputop_gpu_sm_age_seconds), is there where its source is slower than a second or measures nothing. No "
    "label holds a command line or an environment; `--processes` adds pid, user and name. Of several jobs on "
    "one GPU each has its gputop_job_info. `--redact` holds here, too.",
    "In Slurm a job is known by its number, from its cgroup: where Slurm tracks processes without cgroups "
    "(proctrack/linuxproc, proctrack/pgid) it has none here. In Kubernetes a job is known by its pod's UID, "
    "from its cgroup. `--pod-resources PATH` names the pods, too, as the kubelet assigns them by UUID; it takes "
    "the extra export (gRPC, some 20 MB of memory) and a right to the kubelet's socket, "
    "/var/lib/kubelet/pod-resources/kubelet.sock, which is root's. Devices of resource claims (DRA) are not "
    "reported.",
    "`gputop fleet queries` prints every query below in PromQL, for `--names gputop`, `4.9` or `legacy`. "
    "`gputop fleet deploy DIR` writes rules, two Grafana dashboards, Kubernetes "
    "manifests, a systemd unit, Slurm scripts and a compose file; with your `--price` of a GPU-hour also rules "
    "and panels of what time without work cost, with the price as a variable of the dashboards. The exporter "
    "receives the steps of all users' jobs on /run/gputop/steps.sock where it may bind that socket, otherwise "
    "those of its own user.",
    "`--dcgm-names` adds the same values under the names of dcgm-exporter, for dashboards that were made for "
    "it. Beside a dcgm-exporter that runs, sums over these names count every GPU twice, but for those of the rules. "
    "The DCGM names from 4.9 "
    "on are those of DCGM's field documentation; what it does not name keeps the older name.",
)
"""What one node gives, and what is made of it."""
FEW = (
    "`gputop fleet box1 user@box2 'gpu[01-08]' http://c:9400` shows up to 32 hosts without a server. A host is "
    "reached by the system's ssh, whose configuration, agent, jump hosts and host keys are used, and which asks no "
    "question and makes no master; an address is scraped. Over ssh runs `gputop export --stdout --until-silent 10`, "
    "looked for as `gputop`, `~/.local/bin/gputop` and what `gputop` in [fleet.NAME] names: it prints a page every "
    "five seconds, needs no root, and ends when its reader is gone, or silent for ten seconds. A page carries the "
    "node's own states and verdicts; other exporters' pages are judged by five minutes of values. A host that "
    "cannot be reached is a row with the reason, and is tried again after 5 to 60 s, one that refused the key is "
    "not. What is told of hours and ages begins when gputop was started; there are no alerts and no other moment "
    "than the present. A host that is called like a part of the command: `--host demo`.",
)
"""Hosts without a server."""
SEEN = (
    "`gputop fleet --prom URL` shows a whole cluster from the Prometheus, VictoriaMetrics, Thanos or Mimir that "
    "is already there; nothing is installed on the nodes where dcgm-exporter runs. Its questions are read-only, "
    "at most ten a refresh and three at once: utilisation, SM activity and what the nodes conclude each time; "
    "memory, power and idleness at every second one; which GPUs and jobs there are at every fourth; what is not "
    "there any more is looked for once, after the first picture. The last "
    "hour is what the rules of `gputop fleet deploy` recorded of it, once a minute; without them it is not known, and "
    "every output says so. An engine that hangs costs 10 s once a refresh. `--json`, `--csv` and `gputop "
    "screenshot fleet` give the same without a screen, and `gputop fleet demo` needs no server.",
    "What was known within the last day does not vanish. A host is down where its target is scraped and does "
    "not answer twice in a row, or where nobody renews its text file; late where its exporter says that the "
    "driver does not answer; gone where nothing lists its target any more. A GPU is lost where its host answers "
    "without it, or says that the driver cannot read it. How old values are is told and changes no state, nor "
    "does a question that fails, a missed scrape, or a pause of the engine: the last answer stays, and what was "
    "never answered is not judged. Only where an engine has no `up` at all is a host down by the age of its "
    "values.",
    "A GPU is one by its cluster and UUID (by host and number where an exporter gives no UUID), however many exporters "
    "and addresses it has: gputop's own names win, then those of dcgm-exporter 4.9, then older ones. It is there if a "
    "gauge of the moment speaks of it. A MIG instance counts as one GPU, its utilisation is its engine's "
    "(DCGM_FI_PROF_GR_ENGINE_ACTIVE), its hours and its power are its share of the slices (1g of seven is 1/7; equal "
    "parts where no profile is given), and the GPU that is split is not counted besides. In the rules each has one "
    "`gputop:gpu:identity`, with the share as its value and an `id` that is the same whoever exports it; states, hours "
    "and owners are joined with it. A job is one of its cluster: `a/slurm 901` where there are several.",
    "The state of a GPU is the first that holds over five minutes: down, late or lost; gputop's own state where "
    "it runs on the node; idle, holding memory or not, where the 95th percentile of utilisation is below 5 %, "
    "and `allocated, unused` where a job holds it meanwhile (by the scheduler's label of dcgm-exporter, or by "
    "the kubelet, `gputop_pod_info`, while no process is there); busy, not working, by flag A or B, and by C "
    "with a job's label; starved up to 80 % utilisation with a job's label; not measured without SM activity; "
    "working. The rules record it each minute as `gputop:gpu:state` (1 working, 2 busy, not working, 3 starved, "
    "4 idle, holding memory, 5 idle, 6 not measured, 7 allocated, unused), the part of the minute that was no "
    "work as `gputop:gpu:lost` (what gputop on the node counts of each second, where it does), the means behind it as "
    "`gputop:gpu:util` and `gputop:gpu:sm`, and whose GPU it is as "
    "`gputop:gpu:owner`; hours, shares and costs are sums of "
    "these by cluster. The label `names` says under whose names they were made. Alerts carry `hostname`, "
    "`job_id`, `user`, `k8s_namespace` and `k8s_pod`; a host is called by its label, or by its address without "
    "the port.",
    "Several clusters in one engine are told apart by the label `cluster` (or `cluster_name`, `cluster_id`, "
    "`k8s_cluster_name`, `k8s_cluster`), which Prometheus adds by `external_labels`; where two machines answer "
    "under one name and nothing tells them apart the screen says so, and `--select` shows one cluster.",
)
"""A whole fleet on the screen: where it comes from, and when a host or a GPU is what."""
SIZES = (
    "What to run at which size. A page has some 57 series a GPU and 50 a host; 1,000 hosts of 8 GPUs under "
    "dcgm-exporter's names are 73,000 series, for which a Prometheus took 641 MB and a VictoriaMetrics 255 MB "
    "after 40 minutes. Up to some 1,000 hosts one engine is enough, with the rules in it. For more shard the "
    "engine (VictoriaMetrics' cluster, Mimir, Thanos), evaluate the rules where the data is, draw dashboards "
    "from the recorded series; `gputop export --without clocks,codecs,pipes` leaves families out that no rule "
    "asks for, and prometheus/scrape.yml has the same as a relabelling rule. Without throttle, ecc, links or "
    "hours the rules on them never fire.",
    "Up to 10,000 GPUs the screen asks for every GPU. Beyond, it reads what the rules record of "
    "each host by owner (`gputop:host:gpus_in_state`, `util`, `sm`, `power`, `lost`, `address`), and GPUs only "
    "on the hosts in sight and in jobs that an alert says are held up; there cells show states until the GPUs "
    "are read, a lost GPU is in no job's count, and a straggler without an alert is not found. Without these "
    "series every GPU is asked for, however many, and a line says so; `--json` has hosts with their states and no "
    "GPUs then, and `--csv` always asks for every GPU. Measured on two virtual cores with VictoriaMetrics and the "
    "screen on them and nothing else, with lines that gputop had not made: 1,000 hosts of 8 GPUs one by one, first "
    "screen 1.4 s (0.8 s of it the engine's), refresh 0.7 s, one `--json` 0.9 s of CPU; 10,000 hosts of 8 by sums, "
    "first screen 1.5 s (0.7 s of it the engine's), refresh 0.3 s, one `--json` 1.3 s of CPU. The rules of "
    "three kinds of names for 1,000 hosts took Prometheus 8.7 s of each minute at a load of 8. "
    "`python -m tests.bench.fleet_cost` measures it again.",
)
"""What fleets of any size cost."""
SET_UP = (
    "A table `[fleet.prod]` in the configuration names a cluster for `--cluster prod`: `url`, and where needed "
    "`select` (label matchers), `header_file` (a line such as `X-Scope-OrgID: team` for a tenant of Mimir), "
    "`token_file` and `ca`; or `hosts`, a list, and where needed `ssh_config` and `gputop`, where it is on them. "
    "The only table is taken without `--cluster`. Files with secrets must be readable by "
    "their owner alone, and are sent over https or to this machine only; GPUTOP_PROM_TOKEN_FILE belongs to "
    "GPUTOP_PROM_URL and `--prom`, and goes to no named cluster. With `--redact` hosts, users, jobs and UUIDs "
    "are numbers on the fleet's screen and in its data, too.",
)
"""A cluster by its name."""
STRAGGLERS = (
    "A straggler is one within its job: the rank whose steps take more than 1.1 times the others' median, where "
    "at least three ranks announce them; else, while all are busy, the GPU whose SM activity (power where that "
    "is not exported) lies above the others' by 15 points and three deviations, since those who wait for it "
    "spin at low SM activity; or the one GPU that starves while all others are busy. Ranks that wait for each "
    "other in every step have equal steps: where all of them say what they waited (`gputop_step_wait_seconds`), "
    "their steps without the wait are compared, elsewhere the other two rules find theirs. Where each GPU of a host "
    "would be one beside the other hosts' GPUs, the host is named.",
)
"""Who holds up a job."""


def fleet_page() -> Document:
    text = (*EXPORTED, *FEW, *SEEN, *SIZES, *SET_UP, *STRAGGLERS)
    own = tuple((f"`{name}`", words, labels) for name, words, labels in OWN)
    others = [(f"`{series.name}`", series.help, "host") for series in host_series()]
    others += [(f"`{series.name}`", series.help, "process, with --processes") for series in process_series()]
    alert_rows = tuple(
        (f"`{alert.name}`", query.title, f"`{query.id}{alert.when}`", alert.lasts, alert.severity)
        for query, alert in alerts("gputop")
    )
    return page("Fleet", text, (
        section("What is measured of a GPU", NAMED, ("series", "key", *SPOKEN.values(), "OpenTelemetry"), _names()),
        section("What only gputop knows", (), ("series", "what it is", "labels"), own),
        section("Host and processes", (), ("series", "what it is", "of"), tuple(others)),
        *(section(words, (), ("query", "what it means", "unit", "what to do", "names"), tuple(
            (f"`{query.id}`", f"{query.title}. {query.meaning}", query.unit, query.advice,
             "any" if query.is_answered("legacy") else "gputop")
            for query in QUESTIONS.values()
            if query.mode == mode
        )) for mode, words in MODES.items()),
        section("Alerts of the rules", (), ("alert", "what it is", "when", "for", "severity"), alert_rows),
    ))  # fmt: skip


NAMED = (
    "Named by one rule from the catalogue's key and unit, in base units: `gputop help metrics` explains the keys.",
)
SPOKEN: Mapping[Generation, str] = {"legacy": "dcgm-exporter up to 4.8", "4.9": "dcgm-exporter 4.9"}


def _names() -> tuple[tuple[str, ...], ...]:
    rows = []
    for series in gpu_series():
        matchers = ",".join(f'{name}="{value}"' for name, value in series.labels)
        others = [NAMES[generation].get(series.key) for generation in SPOKEN]
        rows.append((
            f"`{series.name}{{{matchers}}}`" if matchers else f"`{series.name}`", f"`{series.key}`",
            *(f"`{other.name}`" if other else "" for other in others), OPEN_TELEMETRY.get(series.key, ""),
        ))  # fmt: skip
    return tuple(rows)
