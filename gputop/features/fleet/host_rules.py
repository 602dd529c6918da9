"""What the rules record of each host, by whose GPUs they are: a large fleet is read from these alone.

A host of eight GPUs has one series for each state that it is in, three for its means and its power, and one for each
state in which time was lost, whatever the number of its GPUs. Templates are those of ``template``.
"""

from __future__ import annotations

from gputop.features.fleet.judge import FLEET_NOT_WORK
from gputop.features.fleet.state_rules import LOST, OWNER, OWNER_LABELS, SM, STATE, UTIL, is_state
from gputop.features.fleet.template import Names

HOST_STATES, HOST_LOST, HOST_ADDRESS = "gputop:host:gpus_in_state", "gputop:host:lost", "gputop:host:address"
HOST_UTIL, HOST_SM, HOST_POWER = (f"gputop:host:{word}" for word in ("util", "sm", "power"))
CODE = "code"
"""The label of ``HOST_STATES`` that holds a state's number, see ``state_rules.CODES``."""
OWNED = (*OWNER_LABELS, "scheduler")
_WHOSE = f"cluster, {{host}}, {', '.join(OWNED)}"


def owned(template: str) -> str:
    """A series of every GPU with the labels of its owner."""
    return f"(({template}) * on ({{by}}) group_left ({', '.join(OWNED)}) {{{OWNER}}})"


def host_rules(names: Names) -> tuple[tuple[str, str], ...]:
    """The recorded series of hosts: name and template."""
    lost = owned(f"{{{LOST}}}")
    by_state = " or ".join(
        f'label_replace(sum by ({_WHOSE}) ({lost} and on ({{by}}) {is_state(state)}), "state", "{state}", "", "")'
        for state in FLEET_NOT_WORK
    )
    place = "cluster, instance" if names == "gputop" else "cluster, {host}, instance"
    return (
        (HOST_STATES, f'count_values by ({_WHOSE}) ("{CODE}", {owned(f"{{{STATE}}}")})'),
        (HOST_UTIL, f"avg by ({_WHOSE}) ({owned(UTIL)})"),
        (HOST_SM, f"avg by ({_WHOSE}) ({owned(SM)})"),
        (HOST_POWER, f"sum by ({_WHOSE}) ({owned('{power}')})"),
        (HOST_LOST, by_state),
        (HOST_ADDRESS, f"count by ({place}) (count by ({place}, gpu) ({{util_series}}))"),
    )
