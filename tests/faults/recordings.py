"""Faults in and around recordings: clocks, bombs, frames without time, marks that do not arrive."""

from __future__ import annotations

from tests.faults.row import Row, World
from tests.support.recording_frames import frame

BACK, BOMBS, REPORT = (
    "tests/recording/test_set_back.py::",
    "tests/recording/test_recording_damage.py::",
    "tests/session/test_report.py::",
)
MARKS, RECORDER = "tests/sources/test_marks.py::", "tests/recording/test_recording_writer.py::"


def _picture_across_a_set_clock(row: Row, world: World) -> None:
    from gputop.recording.writer import RecordingWriter

    writer = RecordingWriter(str(world.directory / "r.jsonl.gz"))
    for k in (*range(3600, 3700), *range(100)):
        writer.write(frame(k, gpus=1, processes=0))
    writer.close()
    for at in ("-30s", "+30s"):
        picture = str(world.directory / f"{at}.txt")
        done = world.run(world.make(0), "screenshot", "r.jsonl.gz", f"--at={at}", "-o", picture)
        assert done.returncode == row.status, done.stderr
        with open(picture, encoding="utf-8") as file:
            assert row.sees in file.read()


def rows() -> list[Row]:
    """The part of the matrix about recordings and marks."""
    return [
        Row("a clock set back within a recording: `screenshot`", "an hour back in the middle", "node-17",
            "every moment of both parts can be shown", 0, _picture_across_a_set_clock),
        Row("a clock set back within a recording: `replay`", "a minute back in the middle", "the seam, as a gap",
            "jumps and steps stay in the part in which they are", None,
            BACK + "test_a_replay_plays_every_segment_and_steps_back_over_the_seam"),
        Row("a clock set back within a recording: `dump`", "a minute back in the middle", "–",
            "a time that came twice is dumped twice", 0,
            BACK + "test_the_part_that_was_asked_for_is_dumped_whichever_segment_it_lies_in"),
        Row("a recording without time", "one frame, or frames of equal or falling times",
            "No time passed between the frames", "the report, with the values that were measured", 0,
            REPORT + "test_frames_between_which_no_time_passes_are_reported"),
        Row("a gzip bomb", "1 MB that unfolds into 1 GB of newlines, of {} lines, or of other lines",
            "a gap, or that it is no recording", "what came before it; at most 3 s of CPU", None,
            BOMBS + "test_a_bomb_costs_neither_three_seconds_nor_200_mb"),
        Row("a mark that a listener has no room for", "one of two has too many waiting", "the mark is lost to 1 of 2",
            "the other has it", 1,
            MARKS + "test_a_mark_that_one_of_two_listeners_lost_is_an_error_and_says_whose"),
        Row("a mark of another time", "more than a minute from now and from the job", "–", "marks of this time", None,
            MARKS + "test_a_mark_of_another_time_is_not_taken"),
        Row("a mark while the disk is slow", "its frame is dropped", "the mark, with the next frame", "the recording",
            None, RECORDER + "test_a_mark_outlives_the_frame_that_a_slow_disk_cost"),
    ]  # fmt: skip
