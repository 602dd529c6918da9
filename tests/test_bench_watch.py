"""What a watch costs a loop, taken apart: figures that are known must come out."""

from __future__ import annotations

import threading
import time

import pytest

from tests.bench.watch import Figure, figure, is_within, overhead_of, words
from tests.bench.watched_loop import Block, Piece, block, slower_s


def test_the_bound_of_a_median_is_that_of_the_sign_test() -> None:
    assert figure([float(i) for i in range(1, 11)]) == Figure(5.5, 9.0), "98.9 %; the eighth would be 94.5 %"
    assert figure([3.0, 1.0, 2.0]) == Figure(2.0, 3.0), "too few for a bound: the largest"
    assert figure([0.1] * 9 + [50.0]).bound == 0.1, "one pair beside a neighbour does not decide"


def test_only_pieces_that_had_to_wait_and_those_after_them_are_compared_with_their_neighbours() -> None:
    drifting = [Piece(0.001 * (1.0 + 0.3 * (i > 500)), waited=False) for i in range(1000)]
    assert slower_s(drifting) == 0.0, "a machine that becomes slower is no cost"
    for at in (200, 700):
        calm = drifting[at].cpu_s
        drifting[at : at + 2] = [Piece(calm + 0.0005, waited=True), Piece(calm + 0.0001, waited=False)]
    assert slower_s(drifting) == pytest.approx(0.0012)


def test_threads_and_cold_caches_make_cpu_time_and_the_lock_and_cold_caches_what_the_loop_loses() -> None:
    alone = Block(0.05, 0.0, 0.0, 0.001, 1, 0.0, 5000)
    watched = Block(0.25, 0.1, 0.3, 0.0012, 31, 2.0, 4000)
    found = overhead_of([(alone, watched)] * 6)
    assert [round(each.middle, 6) for each in (found.threads, found.waited, found.slower)] == [0.3, 0.2, 0.1]
    assert found.cpu.bound == pytest.approx(0.4) and found.lost.bound == pytest.approx(0.3)
    assert found.plain.middle == pytest.approx(20.0), "the machine's noise is told apart"
    assert is_within(1, found) and "together +0.40 %" in words(1, found, 6)
    assert "95 %" in words(1, found, 5) and "95 %" not in words(1, found, 4), "four pairs bound nothing"
    dear = overhead_of([(alone, watched._replace(slower_pct=0.3))] * 6)
    assert not is_within(1, dear) and is_within(8, dear)
    assert not is_within(8, overhead_of([(alone, watched._replace(threads_pct=0.7))] * 6))


@pytest.mark.slow
def test_a_thread_that_takes_the_lock_for_a_known_time_is_found_in_what_the_loop_waits() -> None:
    ending, used = threading.Event(), [0.0]

    def burn() -> None:
        while not ending.wait(0.05):
            until = time.thread_time() + 0.02
            while time.thread_time() < until:
                pass
            used[0] = time.thread_time()

    alone = block(2.0, lambda: None, lambda: 0.0)
    thread = threading.Thread(target=burn, daemon=True)
    thread.start()
    beside = block(2.0, lambda: None, lambda: used[0])
    ending.set()
    thread.join()
    # All that it computes, it computes while it holds the lock; what it waits for a core comes on top.
    assert beside.threads_pct > 5.0
    assert beside.slept_pct - alone.slept_pct > 0.7 * beside.threads_pct
    assert beside.switches > 10 + alone.switches
