"""The page of alerts: how to write one, what its condition may name, and how its command is run."""

from __future__ import annotations

from gputop.diagnosis.alerts.condition import ids, keys
from gputop.diagnosis.alerts.table import FIELDS, PLACEHOLDERS
from gputop.output.reference.page import Page, Section

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
    "and no ambient capability. After 30 s it is killed with everything that it started, also when "
    "gputop has ended meanwhile. At most one command of an alert runs at a time. The first 4 kB of "
    "what it prints are kept, and a failure is reported once. Its stdin is a JSON object: the verdict "
    "with evidence and remedy, of several GPUs that of the first, and `gpus`, a list of them all; "
    "secrets masked.",
    "The configuration file and its folder must belong to you or root, and only their owner may write "
    "to them. A value that begins with `-` or holds anything but letters, digits and `. _ : / @ -`, "
    "and one that is missing, cancels the call.",
)


def alerts_page() -> Page:
    values = tuple((f"`{key}`", metric.definition, metric.unit) for key, metric in keys().items())
    names = tuple((f"`{kind}`", ", ".join(f"`{name}`" for name in ids()[kind])) for kind in ids())
    fields = tuple((f"`{field}`", text) for field, text in FIELDS.items())
    placeholders = tuple((f"`{{{name}}}`", text) for name, text in PLACEHOLDERS.items())
    return Page(
        "Alerts",
        _WHAT,
        (
            Section("Fields", (), ("field", "what it is"), fields),
            Section(
                "Conditions",
                (
                    "Terms joined by `and` and `or`; `and` binds tighter. A term is a badge, a verdict or a state "
                    "(`badge:ecc`; the id alone where only one kind has it), or a value compared with a number: "
                    "`temp_c > 85`, `mem_used_bytes >= 10G`, `sm_occupancy_pct < 20 and util_pct > 50`. What is not "
                    "measured makes a comparison neither true nor false: it fires nothing and resolves nothing.",
                ),
                ("kind", "ids"),
                names,
            ),
            Section(
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
            Section("Values", (), ("value", "what it is", "unit"), values),
            Section(
                "Commands",
                _COMMANDS,
                ("placeholder", "what stands in its place"),
                placeholders,
            ),
        ),
    )
