"""The command line: every command and option, once. Imports the standard library only.

The shell completions and the manual page are made of the same parser.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from gputop import __version__
from gputop.commands.argument_parser import ListAction, Parser


class _ManPage(argparse.Action):
    """Prints the manual page and ends, as --help does."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from gputop.output.man_page import man_page

        sys.stdout.write(man_page(parser))
        parser.exit()


def _common() -> Parser:
    """Options that every command takes, before or after its name. Absent ones leave no trace."""
    parser = Parser(add_help=False, argument_default=argparse.SUPPRESS)
    group = parser.add_argument_group("options of every command")
    add = group.add_argument
    seconds = "time between measurements, at least 0.25 (default 1)"
    add("-i", "-d", "--interval", metavar="SECONDS", help=seconds)
    add("--gpus", action=ListAction, metavar="LIST", help="indices or UUIDs of the GPUs to watch, separated by commas")
    add("--visible", action="store_true", help="watch the GPUs that CUDA_VISIBLE_DEVICES names")
    add("--theme", metavar="NAME", help="auto, dark, light, high-contrast, colour-blind, ansi or mono")
    add("--ascii", action="store_true", help="draw with ASCII characters only")
    add("--no-color", action="store_true", help="draw without colours (NO_COLOR does the same)")
    add("--no-mouse", action="store_false", dest="mouse", help="leave the mouse to the terminal")
    add("--bell", action="store_true", help="ring the terminal's bell on a new red verdict")
    add("--read-only", action="store_true", help="offer nothing that changes another process")
    add("--dcgm-url", metavar="URL", help="metrics address of a running dcgm-exporter")
    add("--dcgmi", action="store_true", help="run dcgmi dmon for GPUs without GPM (takes the profiling unit)")
    add("--price", metavar="P", help="your price of a GPU-hour; without it no money is shown")
    add("--config", metavar="FILE", help="read this configuration file")
    add("--debug", action="store_true", help="show tracebacks")
    add("-V", "--version", action="version", version=f"gputop {__version__}")
    return parser


def _filterable(command: argparse.ArgumentParser) -> None:
    add, absent = command.add_argument, argparse.SUPPRESS
    text = 'show these processes only: "gpu:3 user:ml mem>10G verdict:starved name~train !state:D"'
    add("--filter", metavar="TERMS", default=absent, help=text)
    me = str(os.getuid())
    text = "show the processes of these users only, separated by commas; without a name: yours"
    add("-u", "--user", action=ListAction, nargs="?", const=me, default=absent, metavar="NAMES", help=text)
    text = "show the processes with these ids only, separated by commas"
    add("-p", "--pid", action=ListAction, default=absent, metavar="PIDS", help=text)


def _selectable(command: argparse.ArgumentParser) -> None:
    text, absent = "the same as --gpus", argparse.SUPPRESS
    command.add_argument("-o", "--only", action=ListAction, dest="gpus", default=absent, metavar="LIST", help=text)


def _printable(command: argparse.ArgumentParser) -> None:
    command.add_argument("-1", "--once", action="store_true", help="print one snapshot and end, as `gputop once` does")


def _demo(command: argparse.ArgumentParser) -> None:
    command.add_argument("scenario", nargs="?", help="one scenario instead of the whole node")
    _printable(command)
    _selectable(command)
    _filterable(command)
    command.add_argument("--list", action="store_true", help="name the scenarios")
    command.add_argument("--seed", type=int, default=0, help="another run of the same scenario")


def _once(command: argparse.ArgumentParser) -> None:
    _selectable(command)
    _filterable(command)
    form = command.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--csv", action="store_true", help="one row a GPU")


def _doctor(command: argparse.ArgumentParser) -> None:
    _selectable(command)
    command.add_argument("--json", action="store_true", help="one JSON object")


def _diagnose(command: argparse.ArgumentParser) -> None:
    _selectable(command)
    command.add_argument("file", nargs="?", help="a recording; without it this machine is watched")
    command.add_argument("--for", dest="duration", default="30s", metavar="TIME", help="watch so long (default 30s)")
    command.add_argument("--json", action="store_true", help="one JSON object")


def _record(command: argparse.ArgumentParser) -> None:
    command.add_argument("-o", "--output", default=".", metavar="FILE|DIR", help="where to (default: this directory)")
    command.add_argument("--for", dest="duration", metavar="TIME", help="end after this time")
    command.add_argument("--max-size", metavar="SIZE", help="keep at most so much in the directory")
    command.add_argument("--redact", action="store_true", help="keep command lines and user names out of it")


def _replay(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", help="a recording, or a directory of them")
    _filterable(command)
    command.add_argument("--at", metavar="TIME", help="begin there: 12:03, -10m, +1h, an ISO date")
    command.add_argument("--speed", type=float, default=1.0, metavar="N", help="recorded seconds in one second")
    command.add_argument("--loop", action="store_true", help="begin again at the end")


def _run(command: argparse.ArgumentParser) -> None:
    command.add_argument("-o", "--output", metavar="FILE", help="keep the recording")
    command.add_argument("--report", metavar="FILE", help="write the report to FILE.md, .json or .txt as well")
    command.add_argument("--redact", action="store_true", help="keep command lines and user names out of the recording")
    command.add_argument("job", nargs=argparse.REMAINDER, metavar="-- COMMAND …", help="the job and its arguments")


def _report(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", help="a recording")
    report_form = command.add_mutually_exclusive_group()
    report_form.add_argument("--json", action="store_true", help="one JSON object")
    report_form.add_argument("--markdown", action="store_true", help="Markdown")


def _compare(command: argparse.ArgumentParser) -> None:
    command.add_argument("before", help="a recording")
    command.add_argument("after", help="a recording")
    command.add_argument("--json", action="store_true", help="one JSON object")


def _dump(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", help="a recording")
    dump_form = command.add_mutually_exclusive_group()
    dump_form.add_argument("--csv", action="store_true", help="one row a GPU and frame (the default)")
    dump_form.add_argument("--json", action="store_true", help="one object a frame")
    command.add_argument("--begin", metavar="TIME", help="12:03, -10m, an ISO date or Unix seconds")
    command.add_argument("--end", metavar="TIME", help="likewise")
    command.add_argument("--columns", metavar="KEYS", help="catalogue keys, separated by commas")


def _mark(command: argparse.ArgumentParser) -> None:
    command.add_argument("text", nargs="+", help="what happened")


def _config(command: argparse.ArgumentParser) -> None:
    config_form = command.add_mutually_exclusive_group()
    config_form.add_argument("--path", action="store_true", help="where the configuration file is, or would be")
    config_form.add_argument("--init", action="store_true", help="write one with every setting commented out")
    config_form.add_argument("--check", action="store_true", help="say what is wrong with it, line by line")


def _completion(command: argparse.ArgumentParser) -> None:
    command.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh"), help="bash, zsh, fish or tcsh")


def _serve(command: argparse.ArgumentParser) -> None:
    command.add_argument("source", nargs="?", help="demo, or a recording; without it this machine is watched")
    command.add_argument("scenario", nargs="?", help="with demo: one scenario instead of the whole node")
    command.add_argument("--port", type=int, default=8000, metavar="N", help="port (default 8000; 0: any free one)")


def _screenshot(command: argparse.ArgumentParser) -> None:
    command.add_argument("source", help="demo, or a recording")
    command.add_argument("scenario", nargs="?", help="with demo: one scenario instead of the whole node")
    command.add_argument("-o", "--output", required=True, metavar="FILE", help="FILE.svg, .png, .txt or .ans")
    command.add_argument("--at", metavar="TIME", help="of a recording: 12:03, -10m, an ISO date (default: its end)")
    command.add_argument("--size", default="160x48", metavar="WxH", help="columns x rows (default 160x48)")
    command.add_argument("--gpu", metavar="N", help="select this GPU")


COMMANDS = {
    "demo": ("a simulated node, on any machine", _demo),
    "once": ("one measured snapshot, as a table or as data", _once),
    "doctor": ("what can be measured here, why not, and how to mend it", _doctor),
    "diagnose": ("verdicts in words, live or on a recording", _diagnose),
    "record": ("record without a screen", _record),
    "replay": ("the screen on a recording", _replay),
    "run": ("run a job, watch its GPUs, report at its end", _run),
    "report": ("where the GPU time of a recording went", _report),
    "compare": ("what a change made better or worse", _compare),
    "dump": ("a recording as data", _dump),
    "mark": ("a mark for running recorders and screens", _mark),
    "config": ("the settings in force, or the file that they come from", _config),
    "completion": ("completion for your shell, to be sourced or installed", _completion),
    "serve": ("the screen in a browser: read-only, on this machine's loopback", _serve),
    "screenshot": ("a picture of the screen, without a terminal", _screenshot),
}
"""Each command: what it is for, and what adds its arguments to a parser."""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """What the words say; ``command`` is None for the live screen. Ends the program where they say nothing.

    Of the commands only the one that is named gets a parser: those of the others are 5 ms of every start.
    """
    top = _top()
    top.homes = _homes
    own, rest = top.split(words)
    if {"-h", "--help", "--man"}.intersection(own):
        top = parser()
    args = top.parse_args(own)
    if rest:
        name = rest[0]
        if name not in COMMANDS:
            top.refuse_command(own, name, COMMANDS)
        given = _command(name).parse_args(rest[1:])
        vars(args).update(vars(given), command=name)
    elif args.once:
        args = _command("once").parse_args([], args)
        args.command = "once"
    return args


def _top() -> Parser:
    """The parser of the options before the command."""
    top = Parser(
        prog="gputop",
        description="top for GPUs: utilisation against real SM activity, and why the rest is not work",
        epilog="Without a command: the live screen. Try `gputop demo` on a machine without a GPU.",
        parents=[_common()],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--man", action=_ManPage, nargs=0, help="print the manual page: gputop --man | man -l -")
    top.set_defaults(command=None)
    _printable(top)
    _selectable(top)
    _filterable(top)
    return top


def _command(name: str) -> Parser:
    """The parser of one command's own words."""
    text, add_arguments = COMMANDS[name]
    command = Parser(prog=f"gputop {name}", description=text, parents=[_common()])
    add_arguments(command)
    command.homes = _homes
    return command


def _homes(option: str) -> list[str]:
    """The commands that know an option."""
    return [f"`gputop {name}`" for name in COMMANDS if option in _command(name)._option_string_actions]


def parser() -> Parser:
    """The whole command line, for the texts that are made of it: help, manual page, shells' completions."""
    top, common = _top(), _common()
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, (text, add_arguments) in COMMANDS.items():
        add_arguments(commands.add_parser(name, help=text, description=text, parents=[common]))
    return top
