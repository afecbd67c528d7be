"""Which kernel a measured time belongs to: a hash of the template's source."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

#: what a template shares with others, or finishes with, beside its own file
_SHARED_SOURCES = ("common.py",)
_MORE_SOURCES = {"warp_specialized": ("reduce_parts.py",)}


@cache
def kernel_hash(template: str) -> str:
    """First 12 hex digits of the SHA-256 of a template's source: rows of other kernels differ."""
    folder = resources.files("costmodel.kernels")
    digest = hashlib.sha256()
    shared = _MORE_SOURCES.get(template, _SHARED_SOURCES)
    for name in (*shared, f"{template}.py"):
        digest.update(folder.joinpath(name).read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()[:12]
