"""``relay.py HOST PORT``: what ssh may have as its ProxyCommand, between its pipes and a port."""

from __future__ import annotations

import os
import select
import socket
import sys

with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as there:
    while True:
        readable, _, _ = select.select([0, there], [], [])
        for source in readable:
            data = os.read(0, 65536) if source == 0 else there.recv(65536)
            if not data:
                sys.exit(0)
            if source == 0:
                there.sendall(data)
            else:
                os.write(1, data)
