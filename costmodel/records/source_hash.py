"""Which kernel a measured time belongs to: a hash of the template's source."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

#: each template's own file; what it shares with others stands in common.py
_SHARED_SOURCE = "common.py"
#: templates of several kernels
_SOURCES = {
    "warp_specialized": ("reduce_parts.py", "warp_specialized.py"),
    "packed": ("pack.py", "reduce_parts.py", "warp_specialized.py"),
}


@cache
def kernel_hash(template: str) -> str:
    """First 12 hex digits of the SHA-256 of a template's source: rows of other kernels differ."""
    folder = resources.files("costmodel.kernels")
    digest = hashlib.sha256()
    for name in _SOURCES.get(template, (_SHARED_SOURCE, f"{template}.py")):
        digest.update(folder.joinpath(name).read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()[:12]
