"""scikit-learn: every few steps the main thread fits and evaluates a probe, beside workers that are ahead."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import endless, fed_by

REQUIREMENTS = ("scikit-learn>=1.5,<2",)
CASE = Case(("main_process",), ("cpu", "queued"), cores=1.0, never=("lock", "sleep", "fetch", "disk"))
STEPS, EVALUATES_S = 15, 3.0


def main(gpu: Gpu) -> None:
    import numpy as np
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier

    features = np.random.default_rng(0).random((6000, 60))
    labels = (features[:, 0] + features[:, 1] > 1.0).astype(int)
    ready = fed_by([lambda: endless(lambda: b"")] * 2)

    def batches() -> Iterator[bytes]:
        while True:
            for _ in range(STEPS):
                yield next(ready)
            end = time.monotonic() + EVALUATES_S
            while time.monotonic() < end:
                KNeighborsClassifier(15).fit(features, labels).predict(features[:1500])
                LogisticRegression(max_iter=200).fit(features, labels)

    gpu.train(batches(), 0.2)
