"""Which GPUs to watch: ``--gpus`` and ``--visible``. Pure: gets facts and strings, gives positions."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.model.snapshot import GpuStatic
from gputop.model.source import UsageError


def choose(gpus: Sequence[GpuStatic], spec: str | None, cuda_visible: str | None) -> tuple[int, ...]:
    """Positions in ``gpus`` of those to watch, in their order there.

    ``spec`` is the value of ``--gpus`` (None: all); ``cuda_visible`` is that of CUDA_VISIBLE_DEVICES when
    ``--visible`` was asked for (None: not asked, or unset). Raises UsageError for a GPU that does not exist.
    """
    chosen = range(len(gpus)) if cuda_visible is None else _cuda_visible(gpus, cuda_visible)
    if spec is not None:
        wanted = _named(gpus, spec)
        chosen = [i for i in chosen if i in wanted]
        if not chosen:
            raise UsageError(
                f"--gpus {spec}: CUDA_VISIBLE_DEVICES={cuda_visible} hides these GPUs: drop one of the two"
            )
    return tuple(sorted(set(chosen)))


def _named(gpus: Sequence[GpuStatic], spec: str) -> set[int]:
    """Positions of the GPUs in a comma list of indices and UUID prefixes; a parent brings its MIG instances."""
    words = [word.strip() for word in spec.split(",") if word.strip()]
    if not words:
        raise UsageError("--gpus: name at least one GPU, like --gpus 0,2 or --gpus GPU-3f2c")
    found: set[int] = set()
    for word in words:
        if word.isascii() and word.isdigit():
            matches = [i for i, gpu in enumerate(gpus) if gpu.index == int(word)]
        else:
            matches = [i for i, gpu in enumerate(gpus) if gpu.uuid.lower().startswith(word.lower())]
            if len(matches) > 1:
                raise UsageError(f"--gpus {word}: fits {len(matches)} GPUs: give more of the UUID")
        if not matches:
            raise UsageError(f"--gpus {word}: no such GPU: this machine has {_existing(gpus)}")
        found.update(matches)
    parents = {gpus[i].uuid for i in found}
    found.update(i for i, gpu in enumerate(gpus) if gpu.mig_parent in parents)
    return found


def _existing(gpus: Sequence[GpuStatic]) -> str:
    whole = [gpu.index for gpu in gpus if gpu.mig_parent is None]
    split = [gpu.index for gpu in gpus if gpu.mig_parent is not None]
    if not whole:
        return "none"
    text = f"GPU {whole[0]}" if len(whole) == 1 else f"GPUs {_run(whole)}"
    return f"{text} and MIG instances {_run(split)}" if split else text


def _run(indices: Sequence[int]) -> str:
    if len(indices) > 2 and indices[-1] - indices[0] == len(indices) - 1:
        return f"{indices[0]}–{indices[-1]}"
    return ", ".join(map(str, indices))


def _cuda_visible(gpus: Sequence[GpuStatic], value: str) -> list[int]:
    """What CUDA would see: entries in order up to the first that is invalid, as the CUDA programming guide says."""
    seen: list[int] = []
    for entry in value.split(","):
        word = entry.strip()
        if word.isascii() and word.isdigit():
            matches = [i for i, gpu in enumerate(gpus) if gpu.mig_parent is None and gpu.index == int(word)]
        elif word.startswith(("GPU-", "MIG-")):
            matches = [i for i, gpu in enumerate(gpus) if gpu.uuid.startswith(word) or _old_mig_name(gpu) == word]
        else:
            break
        if len(matches) != 1 or matches[0] in seen:
            break
        seen.append(matches[0])
    visible = {gpus[i].uuid for i in seen}
    return seen + [i for i, gpu in enumerate(gpus) if gpu.mig_parent in visible and i not in seen]


def _old_mig_name(gpu: GpuStatic) -> str | None:
    """MIG-GPU-<uuid>/<gpu instance>/<compute instance>, the form of drivers before R470."""
    if gpu.mig_parent is None or gpu.mig_instance is None:
        return None
    return f"MIG-{gpu.mig_parent}/{gpu.mig_instance}"
