"""Parses kernel names: function, short form, category.

Only the name itself is used: a category is a convention of those who name kernels, never a measurement.
"""

from __future__ import annotations

import re
from functools import lru_cache

CATEGORIES = (
    "gemm", "attention", "normalisation", "elementwise", "reduction", "copy", "communication", "other",
)  # fmt: skip
"""Categories of GPU work, in the order in which they are printed for equal times."""

_ANONYMOUS = re.compile(
    r"\(anonymous namespace\)::|\{anonymous\}::|<unnamed>::|_GLOBAL__N_[\w.]*::|_INTERNAL_\w+::"
)
_TYPES = frozenset(
    {
        "int",
        "float",
        "double",
        "half",
        "long",
        "unsigned int",
        "bool",
        "char",
        "__half",
        "__nv_bfloat16",
    }
)
_WRAPPERS = frozenset(
    {"Kernel", "Kernel2", "device_kernel", "kentry", "kernel", "kernel2", "globalKernel"}
)
"""Functions that only start what their first template argument names: of CUTLASS and CuTe."""
_GENERIC = re.compile(
    r"(?:vectorized_|unrolled_|legacy_)?elementwise_kernel\w*$|reduce_kernel$|multi_tensor_apply_kernel$"
)
_OPERATION = re.compile(
    r"\b(\w+?)(?:_kernel_cuda|_kernel_impl|_cuda|_kernel|Functor|Ops)\b|\bCUDAFunctor(?:OnSelf|OnOther)?_(\w+)"
)
_SAYS_NOTHING = re.compile(
    r"(gpu|.*elementwise|.*reduce|opmath|opmath_gpu|Binary|AUnary|BUnary|Unary|.*OnSelf|.*OnOther|func_wrapper|Base|.*impl)$",
    re.IGNORECASE,
)


@lru_cache(maxsize=4096)
def qualified(kernel: str) -> str:
    """The function's name with its namespaces, without return type, template arguments and parameters."""
    return _split(kernel)[0]


def _split(kernel: str) -> tuple[str, str]:
    """The qualified name, and the text of its template arguments."""
    text = _ANONYMOUS.sub("", kernel)
    if text.startswith("std::enable_if<"):
        text = _after_brackets(text, len("std::enable_if")).removeprefix("::type").lstrip()
    text = text.removeprefix("void ").lstrip()
    depth, name, begin, end = 0, [], 0, len(text)
    for at, letter in enumerate(text):
        if letter == "<":
            begin = at + 1 if depth == 0 else begin
            depth += 1
        elif letter == ">" and text[at - 1 : at] != "-":
            depth = max(0, depth - 1)
            end = at if depth == 0 else end
        elif letter == "(" and depth == 0:
            break
        elif depth == 0:
            name.append(letter)
    return "".join(name).strip(), text[begin:end] if begin else ""


def _after_brackets(text: str, at: int) -> str:
    """The text after the bracket that opens at a place.

    Brackets in parentheses are comparisons.
    """
    depth = parentheses = 0
    for place in range(at, len(text)):
        letter = text[place]
        parentheses += (letter == "(") - (letter == ")")
        if parentheses == 0:
            depth += (letter == "<") - (letter == ">")
        if depth == 0:
            return text[place + 1 :]
    return text


@lru_cache(maxsize=4096)
def short_name(kernel: str) -> str:
    """A kernel's own name, or the wrapped one.

    A wrapper runs its template argument: ``elementwise Mul``.
    """
    name, arguments = _split(kernel)
    last = name.rsplit("::", 1)[-1].strip()
    if last in _WRAPPERS and arguments:
        inner = _split(re.sub(r"^(?:\w+::)*enable_\w+<", "", arguments))[0].split(",")[0]
        inner = inner.rsplit("::", 1)[-1].strip()
        if inner and inner not in _WRAPPERS and inner not in _TYPES:
            return inner
        return "::".join(name.split("::")[-2:])
    if _GENERIC.fullmatch(last):
        # PyTorch's generic kernels say what they do only in their arguments.
        operation = _operation(kernel)
        kind = (
            "multi_tensor"
            if last.startswith("multi")
            else "reduce"
            if last == "reduce_kernel"
            else "elementwise"
        )
        return f"{kind} {operation}" if operation else last
    return last or kernel


def _operation(kernel: str) -> str:
    """The functor or function that a generic kernel applies.

    Empty if no name says anything.
    """
    head = kernel.find("<")
    for match in _OPERATION.finditer(kernel, max(0, head)):
        word = (match[1] or match[2] or "").strip("_")
        if word and not _SAYS_NOTHING.fullmatch(word):
            return word
    return ""


_CATEGORY: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (label, re.compile(words, re.IGNORECASE))
    for label, words in (
        ("elementwise", r"triton_poi"),
        ("attention", r"flash|fmha|attn|attention|mha_|sdpa|mla_|sage_fwd"),
        ("normalisation", r"norm|bn_fw|bn_bw|rsqrt|welford|gammabeta|rowwisemoments"),
        ("reduction", r"triton_red|triton_per|splitkreduce|reducesplitk"),
        (
            "gemm",
            r"gemm|gemv|matmul|nvjet|xmma|cublas|tensorop|bmm_|_mm_|triton_tem|convol|conv\d|_conv|dgrad|wgrad|fprop"
            r"|winograd|implicit|cask|scudnn|hcudnn|cgemm",
        ),
        (
            "copy",
            r"copy|memcpy|memset|transpose|nchwtonhwc|nhwctonchw|permute|indexselect|gather|scatter|im2",
        ),
        ("reduction", r"reduce|softmax|scan|sort|topk|argmax"),
        (
            "elementwise",
            r"elementwise|multi_tensor|foreach|pointwise|dropout|fill|arange|act_and_mul|triton_",
        ),
    )
)
"""The first that a name holds. Triton's own names list every fused operator: there the kind of loop says more."""


@lru_cache(maxsize=4096)
def category(kernel: str) -> str:
    """The category of a computing kernel by its name.

    ``other`` if the name does not tell.
    """
    name, arguments = _split(kernel)
    last = name.rsplit("::", 1)[-1]
    wrapped = last in _WRAPPERS
    for text in (short_name(kernel), *((name, arguments) if wrapped else ())):
        for label, pattern in _CATEGORY:
            if pattern.search(text):
                return label
    return "other"
