"""Tuned tables of vLLM and SGLang: for each M the winner, and no time.

A file's name says the rest: ``N=..,K=..,device_name=..,dtype=fp8_w8a8,block_shape=[128, 128].json``
for a product with a scale for each block, ``E=..,N=..,device_name=..[,dtype=..].json`` for the
products of a mixture of experts, whose K no file names. The winners become claims.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from costmodel.errors import RecordError
from costmodel.records.claims import Claim
from costmodel.records.exchange.names import config_named, device_named, dtype_named
from costmodel.records.exchange.report import Given, ImportReport
from costmodel.records.log import decode

#: a field of the name; a block shape is the one that holds a comma
_FIELD = re.compile(r"([A-Za-z_]+)=(\[[^\]]*\]|[^,]*)")
#: keys of the document that are no M
_NOTES = ("triton_version",)


def read(data: bytes, report: ImportReport, given: Given) -> None:
    """Take a table's winners. Raises ``RecordError`` for a name or a document that is none."""
    fields = dict(_FIELD.findall(Path(report.file).name.removesuffix(".json")))
    if "N" not in fields or "device_name" not in fields or not {"E", "K"} & set(fields):
        raise RecordError(
            "a tuned table is named N=..,K=..,device_name=.. or E=..,N=..,device_name=..; this "
            f"file is {Path(report.file).name[:120]!r}"
        )
    table = decode(data)
    if not isinstance(table, Mapping):
        raise RecordError("a tuned table is an object with a winner for each M")
    experts = fields.get("E")
    device_name = given.device_name or fields["device_name"].replace("_", " ")
    dtype = given.dtype or fields.get("dtype")
    if dtype is None:
        report.assume("dtype fp16: a table without one is of 16-bit weights, fp16 or bf16")
    notes = [f"{name}={fields[name]}" for name in ("E", "block_shape") if name in fields]
    if experts is not None:
        report.lost["K of the experts' products (the file names none)"] += 1
    version = table.get("triton_version")
    for size, knobs in table.items():
        if size in _NOTES:
            continue
        with report.at(f"M={size!s:.20}"):
            if not isinstance(knobs, Mapping):
                raise RecordError("a winner is an object of knobs")
            config, foreign = config_named(knobs)
            report.claims.append(
                Claim(
                    "fused_moe" if experts is not None else "scaled_gemm",
                    int(size), int(fields["N"]), None if experts is not None else int(fields["K"]),
                    dtype_named(dtype or "fp16"), device_name, given.source or "tuned-table",
                    Path(report.file).name[:200], device=device_named(device_name),
                    layout="nt", config=config, triton=given.triton or version,
                    detail=", ".join(notes) + foreign or None,
                )
            )  # fmt: skip
