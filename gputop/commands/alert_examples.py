"""Example alerts for the configuration file that ``gputop config --init`` writes: all commented out."""

from __future__ import annotations

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

# Slack: apprise's addresses (https://github.com/caronc/apprise/wiki), one a line, in a file for you alone (chmod 600).
# It needs the extra notify.
#[[alert]]
#name = "slack"
#when = "badge:thermal or badge:power_brake"
#notify_file = "~/.config/gputop/slack"

# E-mail.
#[[alert]]
#name = "mail"
#when = "state:starved"
#for = "15m"
#again = "12h"
#notify = ["mailto://user:password@example.com"]

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
