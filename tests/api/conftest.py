"""No test here sees a launcher's environment, or leaves a watch running."""

import pytest

from tests.support.watched import watched_alone

alone = pytest.fixture(autouse=True)(watched_alone)
