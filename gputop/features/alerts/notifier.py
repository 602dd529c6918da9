"""Sends one notification by apprise: a program of its own, so that what apprise loads stays out of gputop.

``python -I -S notifier.py``, standard library only until ``path`` is known. On stdin is one JSON object: ``path``
(what modules are imported from), ``urls``, ``title``, ``body``. Addresses carry tokens: none is ever printed.
"""

from __future__ import annotations

import json
import logging
import sys


def main() -> int:
    """Send to each address; the exit status is 1 where one did not take it."""
    request = json.load(sys.stdin)
    sys.path[:] = request["path"]
    try:
        import apprise
    except ImportError:
        print("apprise is not installed")  # noqa: T201
        return 1
    # What it logs quotes addresses.
    logging.disable(logging.CRITICAL)
    refused: list[str] = []
    for number, url in enumerate(request["urls"], 1):
        service = apprise.Apprise()
        is_known = service.add(url)
        if not is_known or not service.notify(title=request["title"], body=request["body"]):
            refused.append(f"address {number}" + ("" if is_known else " is not one that apprise knows"))
    sent = len(request["urls"]) - len(refused)
    print(f"sent to {sent} of {len(request['urls'])}" + (f"; failed: {', '.join(refused)}" if refused else ""))  # noqa: T201
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
