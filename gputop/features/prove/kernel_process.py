"""The process that runs the kernels: started, told the stages, killed if it hangs."""

from __future__ import annotations

from time import monotonic

from gputop.features.prove.experiment import CudaFailed, Message, Ready, Stage
from gputop.model.clean_text import clean_text
from gputop.system.children import our_program, ours
from gputop.system.dialogue import Dialogue, ProgramGone

READY_S = 60.0
"""How long CUDA may take to start: it compiles the kernels, and may have to wake the GPU first."""
SILENT_S = 5.0
MORE_S = 0.2


class KernelsFailed(Exception):
    """CUDA cannot run the kernels, or has stopped: one line."""


class Kernels:
    """The program that uses CUDA on one GPU.

    ``close`` it, whatever happens.
    """

    def __init__(self, uuid: str) -> None:
        """Start it on this GPU, by UUID since CUDA numbers GPUs in its own order."""
        environment = ours(CUDA_VISIBLE_DEVICES=uuid)
        self._dialogue = Dialogue[Message](
            our_program(f"{__package__}.cuda_program"), environment, Message
        )
        self._is_ready = False

    def ready(self) -> Ready:
        """Wait for CUDA. Raises KernelsFailed."""
        while True:
            for message in self.heard(MORE_S):
                if isinstance(message, Ready):
                    return message

    def begin(self, stage: Stage) -> None:
        """Run this from now on."""
        self._dialogue.tell(stage)

    def heard(self, wait_s: float = 0.0) -> list[Message]:
        """New messages, waiting at most ``wait_s``.

        Raises KernelsFailed, also where the program hangs.
        """
        try:
            messages = self._dialogue.heard(wait_s)
        except ProgramGone as gone:
            raise KernelsFailed(f"the program that uses CUDA {clean_text(str(gone))}") from None
        for message in messages:
            if isinstance(message, CudaFailed):
                raise KernelsFailed(clean_text(message.reason)[:300])
            self._is_ready = self._is_ready or isinstance(message, Ready)
        silent_s = monotonic() - self._dialogue.heard_at
        if silent_s > (SILENT_S if self._is_ready else READY_S):
            what = "a kernel has not ended" if self._is_ready else "CUDA has not started"
            raise KernelsFailed(f"{what} for {silent_s:.0f} s")
        return messages

    def close(self) -> None:
        """End it, and what it does to the GPU with it."""
        self._dialogue.close()
