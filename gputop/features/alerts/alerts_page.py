"""The page of alerts: how to write one, what its condition may name, and how its command is run."""

from __future__ import annotations

from gputop.features.alerts.alert_table import FIELDS, PLACEHOLDERS, ids, keys
from gputop.output.document import Document, page, section

_WHAT = (
    "An alert is a table `[[alert]]` of the configuration file. `gputop record`, `run` and `export` fire it, "
    "the screen shows it and fires it with `--alerts`; a demo, a replay, a browser and everything else never "
    "do. One process of a user fires on a machine; when it ends the next one takes over, and knows what "
    "was fired. A changed file counts from the next start.",
    "`gputop config --init` writes examples, `gputop alerts` lists what is configured, `gputop alerts FILE` "
    "says what would have fired in a recording (exit status 0: nothing, 1: something), `gputop alerts --test "
    "NAME` fires one at once. `A` on the screen shows the state of each and how its command ended; `s` there "
    "silences one until gputop ends.",
)
_COMMANDS = (
    "The program is started without a shell, in a session of its own, in `/`, with PATH, HOME and LANG "
    "and no ambient capability. After 30 s its session is killed, and 5 s after gputop's own end; what has made "
    "itself a daemon by then goes on, and after a kill -9 of gputop the command runs to its own end. At most one "
    "command of an alert runs at a time. The first 4 kB of "
    "what it prints are kept, and a failure is reported once. Its stdin is a JSON object: the verdict "
    "with evidence and remedy, of several GPUs that of the first, and `gpus`, a list of them all; "
    "secrets masked.",
    "The configuration file and its folder must belong to you or root, and only their owner may write "
    "to them. A value that begins with `-` or holds anything but letters, digits and `. _ : / @ -`, "
    "and one that is missing, cancels the call.",
)


def alerts_page() -> Document:
    values = tuple((f"`{key}`", metric.definition, metric.unit) for key, metric in keys().items())
    names = tuple((f"`{kind}`", ", ".join(f"`{name}`" for name in ids()[kind])) for kind in ids())
    fields = tuple((f"`{field}`", text) for field, text in FIELDS.items())
    placeholders = tuple((f"`{{{name}}}`", text) for name, text in PLACEHOLDERS.items())
    return page(
        "Alerts",
        _WHAT,
        (
            section("Fields", (), ("field", "what it is"), fields),
            section(
                "Conditions",
                (
                    "Terms joined by `and` and `or`; `and` binds tighter. A term is a badge, a verdict or a state "
                    "(`badge:ecc`; the id alone where only one kind has it), or a value compared with a number: "
                    "`temp_c > 85`, `mem_used_bytes >= 10G`, `sm_occupancy_pct < 20 and util_pct > 50`. As in filters "
                    "(`gputop help filters`), `!` before a term is the opposite and a comma means or: `!badge:ecc`, "
                    "`state:starved,idle_allocated`. A state is the GPU's here, and a process's in filters. What is "
                    "not measured makes a comparison neither true nor false: it fires nothing and resolves nothing.",
                ),
                ("kind", "ids"),
                names,
            ),
            section(
                "Once a GPU, a job or a node",
                (
                    'With `per = "job"` an alert acts once for all GPUs of a job on this machine, and once for those '
                    'that belong to no known job; with `per = "node"` once for all GPUs. A job is the batch job, else '
                    "the pod, of the processes on a GPU; GPUs that several jobs share are a group of their own. "
                    '`gpus = "all"` waits until the condition has held on every GPU of the group. A GPU on which '
                    "a new job begins is judged afresh: the new job is not blamed for the old one's time. GPUs that "
                    "follow during the silence start no further action; `{gpus}` and the JSON list those that hold "
                    "when it fires. A job on several machines is judged on each of them by itself.",
                ),
            ),
            section("Values", (), ("value", "what it is", "unit"), values),
            section(
                "Commands",
                _COMMANDS,
                ("placeholder", "what stands in its place"),
                placeholders,
            ),
        ),
    )


# Example alerts for the configuration file that ``gputop config --init`` writes: all commented out.

EXAMPLES = """\
# Each alert is a table of its own, below everything else. A program gets PATH, HOME and LANG, what happened as JSON on
# its stdin, and 30 seconds. `gputop alerts FILE` says what would have fired in a recording, `gputop alerts --test NAME`
# fires one at once. `gputop record`, `run` and `export` fire alerts; the screen does with --alerts.

# A message on the desktop of the user with this number.
#[[alert]]
#name = "desktop"
#when = "state:busy_not_working"
#for = "5m"
#run = ["env", "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/{uid}/bus", "notify-send", "GPU {{gpu}}: {{verdict}}"]

# A chat, mail or pager by apprise (pipx install apprise), whose addresses carry tokens: in a file for you alone.
#[[alert]]
#name = "slack"
#when = "badge:thermal or badge:power_brake"
#run = ["apprise", "--config=~/.config/gputop/slack", "-t", "{{alert}} on {{host}}", "-b", "GPUs {{gpus}}"]

# Kubernetes: no new pods on a node with uncorrected memory errors or a GPU that has fallen off the bus.
#[[alert]]
#name = "cordon"
#when = "badge:ecc or xid = 79"
#run = ["kubectl", "cordon", "{{host}}"]

# Slurm: drain such a node.
#[[alert]]
#name = "drain"
#when = "badge:ecc or badge:lost or xid = 79"
#run = ["scontrol", "update", "nodename={{host}}", "state=drain", "reason=gputop:{{alert}}"]

# Slurm: requeue a job that has not used any of its GPUs for half an hour: once, not once a GPU. Each node knows its own
# GPUs alone: leave it out where jobs span nodes and one of them may rest while others work.
#[[alert]]
#name = "requeue-idle"
#when = "state:idle_allocated"
#for = "30m"
#again = "6h"
#run = ["scontrol", "requeue", "{{job_id}}"]

# Tell whoever develops the job that its kernels fill little of the GPU.
#[[alert]]
#name = "low-occupancy"
#when = "sm_occupancy_pct < 20 and util_pct > 50"
#for = "10m"
#again = "1d"
#run = ["logger", "-t", "gputop", "occupancy below 20 % on GPU {{gpu}}, process {{pid}}"]
"""


def examples(uid: int) -> str:
    """The examples for a user."""
    return EXAMPLES.format(uid=uid)
