"""Other tools' results: what they measured becomes rows, what they merely say becomes claims."""

from __future__ import annotations

from costmodel.records.exchange.convert import FORMATS, Format, import_files, read_file
from costmodel.records.exchange.report import Given, ImportReport, Refusal
from costmodel.records.exchange.triton_cache import listen, listener

__all__ = [
    "FORMATS",
    "Format",
    "Given",
    "ImportReport",
    "Refusal",
    "import_files",
    "listen",
    "listener",
    "read_file",
]
