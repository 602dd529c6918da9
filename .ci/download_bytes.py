"""``download_bytes.py REQUIREMENT…``: how many bytes pip would load for them, without loading them."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request


def main() -> None:
    words = [
        "install",
        "--dry-run",
        "--quiet",
        "--ignore-installed",
        "--report",
        "-",
        *sys.argv[1:],
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words], check=True, stdout=subprocess.PIPE, text=True
    )
    urls = [item["download_info"]["url"] for item in json.loads(done.stdout)["install"]]
    total = 0
    for url in urls:
        with urllib.request.urlopen(
            urllib.request.Request(url, method="HEAD"), timeout=60
        ) as answer:
            total += int(answer.headers["Content-Length"])
    print(total)


if __name__ == "__main__":
    main()
