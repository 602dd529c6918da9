"""The rules by which dataloader workers are found, on names and command lines as frameworks write them."""

from __future__ import annotations

import pytest

from gputop.sources.processes.tree.loaders import (
    identify,
    is_host_thread,
    is_nccl_thread,
    is_pin_memory_thread,
    is_python,
    is_rank_thread,
    is_working_ray_task,
    thread_framework,
    thread_loader,
)

_TRAIN = b"/usr/bin/python3\0train.py\0"
_SPAWN = b"python\0-c\0from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)\0--multiprocessing-fork\0"
_FORKSERVER = b"python\0-c\0from multiprocessing.forkserver import main; main(8, 9, ['__main__'])\0"
_TRACKER = b"python\0-c\0from multiprocessing.resource_tracker import main;main(5)\0"
_COMPILE = b"python\0/usr/lib/python3/site-packages/torch/_inductor/compile_worker/__main__.py\0--workers=32\0"


@pytest.mark.parametrize(
    ("comm", "command", "parent", "role", "loader", "why"),
    [
        (b"pt_data_worker", _TRAIN, _TRAIN, "loader", "torch", "R1"),
        (b"pt_data_worker", _SPAWN, _TRAIN, "loader", "torch", "R1"),
        (b"pt_data_worker", _FORKSERVER, _FORKSERVER, "loader", "torch", "R1"),
        (b"python", _SPAWN, _TRAIN, "loader", "python", "R2"),
        (b"python", _FORKSERVER, _FORKSERVER, "loader", "python", "R2"),
        (b"python3", _TRAIN, _TRAIN, "loader", "python", "R3"),
        (b"ray::Map", b"ray::Map(decode)\0", _TRAIN, "loader", "ray", "R4"),
        (b"ray::IDLE", b"ray::IDLE\0", _TRAIN, "helper", None, "R5"),
        (b"ffmpeg", b"ffmpeg\0-i\0x.mp4\0", _TRAIN, "helper", None, "R5"),
        (b"python", b"", b"", "helper", None, "R5"),
        (
            b"python",
            _TRACKER,
            _TRAIN,
            "helper",
            None,
            "not a loader: multiprocessing's resource tracker",
        ),
        (
            b"python",
            _FORKSERVER,
            _TRAIN,
            "helper",
            None,
            "not a loader: multiprocessing's fork server",
        ),
        (b"python", _COMPILE, _TRAIN, "helper", None, "not a loader: torch.compile's worker"),
        (b"python", _COMPILE, _COMPILE, "helper", None, "not a loader: torch.compile's worker"),
    ],
)
def test_a_descendant_is_judged_by_the_first_rule_that_names_it(
    comm: bytes, command: bytes, parent: bytes, role: str, loader: str | None, why: str
) -> None:
    found = identify(comm, command, parent, parent_runs_job=True)
    assert (found.role, found.loader) == (role, loader)
    assert found.reason.startswith(why)
    assert found.rule == (why if role == "loader" or why == "R5" else "never")


def test_a_fork_of_a_helper_is_no_worker() -> None:
    shell = b"bash\0prepare.sh\0"
    assert identify(b"bash", shell, shell, parent_runs_job=False).role == "helper"


def test_only_an_unnamed_helper_may_count_as_a_loader_when_busy() -> None:
    assert identify(b"ffmpeg", b"ffmpeg\0", _TRAIN, True).may_feed
    assert not identify(b"python", _COMPILE, _TRAIN, True).may_feed
    assert not identify(b"python", _TRACKER, _TRAIN, True).may_feed


@pytest.mark.parametrize(
    ("name", "host", "nccl", "pin"),
    [
        ("python", True, False, False),
        ("[DALI][WT]1", True, False, False),
        ("cuda-EvtHandlr", False, False, False),
        ("cuda00001400006", False, False, False),
        ("nv_queue", False, False, False),
        ("pt_nccl_watchdg", False, True, False),
        ("NCCL Service 0", False, True, False),
        ("pt_autograd_0", False, False, False),
        ("pt_gloo_runloop", False, False, False),
        ("gloo_tcp_loop", False, False, False),
        ("pt_tcpstore_uv", False, False, False),
        ("pt_data_pin", False, False, True),
    ],
)
def test_threads_are_told_apart_by_name(name: str, host: bool, nccl: bool, pin: bool) -> None:
    assert (is_host_thread(name), is_nccl_thread(name), is_pin_memory_thread(name)) == (
        host,
        nccl,
        pin,
    )


def test_ranks_talk_by_threads_of_known_names() -> None:
    assert all(
        map(
            is_rank_thread,
            ("pt_gloo_runloop", "gloo_tcp_loop", "pt_tcpstore_uv", "pt_nccl_watchdg", "NCCL I"),
        )
    )
    assert not any(map(is_rank_thread, ("python", "pt_autograd_0", "pt_data_pin")))


def test_a_compiler_feeds_no_gpu_and_is_named_by_its_program() -> None:
    for comm in (b"cc1plus", b"ptxas", b"cicc", b"ld"):
        found = identify(comm, b"/usr/lib/x/" + comm + b"\0-o\0a", _TRAIN, True)
        assert (found.rule, found.reason) == ("never", "not a loader: a compiler")
    assert identify(b"python", b"python\0--data\0/home/cc1plus\0", _TRAIN, True).rule == "R5"


def test_thread_loaders_are_named() -> None:
    assert thread_loader(["python", "[DALI][WT]3"]) == "DALI threads"
    assert thread_loader(["tf_data_private"]) == "tf.data threads"
    assert thread_loader(["python", "pt_autograd_0"]) is None


def test_a_framework_is_known_by_the_names_that_it_gives_its_threads() -> None:
    assert thread_framework(["python", "pt_autograd_0"]) == "torch"
    assert thread_framework(["tf_data_private"]) == "tensorflow"
    assert thread_framework(["tf_XLAEigen", "cuda-EvtHandlr"]) is None, (
        "several frameworks have XLA's threads"
    )


def test_ray_tasks_and_interpreters_are_known_by_their_command_line() -> None:
    assert is_working_ray_task(b"ray::train_fn()\0")
    assert not is_working_ray_task(b"ray::IDLE\0")
    assert not is_working_ray_task(b"python\0ray::x\0")
    assert is_python(b"/opt/conda/bin/python3.11\0train.py\0")
    assert not is_python(b"/sbin/init\0")
    assert not is_python(b"/usr/bin/python3\0/usr/bin/supervisord\0")
