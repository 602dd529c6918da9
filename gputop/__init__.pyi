from gputop.api.batches import dataloader_bench as dataloader_bench
from gputop.api.largest_batch import max_batch as max_batch
from gputop.api.reading import frames as frames
from gputop.api.reading import load as load
from gputop.api.reading import mark as mark
from gputop.api.reading import snapshot as snapshot
from gputop.api.reading import trace as trace
from gputop.api.watch import watch as watch

__version__: str
__all__: list[str]
_HOMES: dict[str, str]
