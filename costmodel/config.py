"""How it is computed: one kernel configuration, and a table of many as columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from costmodel.errors import ConfigError, unknown_name

#: kernel families, one file each in ``costmodel.kernels``
TEMPLATES: tuple[str, ...] = (
    "tile", "split_k", "persistent_tma", "warp_specialized", "matvec", "packed",
)  # fmt: skip

Column = NDArray[np.int64]

#: no knob of any chip comes near it, and products of four knobs stay within 64 bits
MOST_KNOB = 2**15


@dataclass(frozen=True)
class KernelConfig:
    """One way to run a GEMM kernel.

    ``block_m`` and ``block_n`` are along the problem's M and N, also when ``swap`` is set: then
    the kernel computes the transposed product, so that N meets the matrix unit's row side.
    Blocks are powers of two but for "warp_specialized" and "packed" (the same kernel, on operands
    copied into aligned rows first), whose columns go in steps of 8.
    ``group_m`` rows of tiles share columns of B in L2. ``load_bits`` is the widest load that the
    alignment hints promise to the compiler. ``epilogue_parts`` cuts the output tile into 1 or 2
    stores. A knob that a chip lacks is None.
    """

    template: str
    block_m: int
    block_n: int
    block_k: int
    group_m: int | None = 8
    split_k: int = 1
    num_warps: int | None = 4
    num_stages: int | None = 3
    load_bits: int | None = 128
    swap: bool = False
    epilogue_parts: int = 1

    def __post_init__(self) -> None:
        if self.template not in TEMPLATES:
            raise unknown_name("template", self.template, TEMPLATES)
        for name in KNOBS[1:]:
            value = getattr(self, name)
            if name == "swap":
                if not isinstance(value, bool):
                    raise ConfigError(f"swap must be True or False, got {value!r}")
                continue
            if value is None and name in OPTIONAL_KNOBS:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_KNOB:
                raise ConfigError(
                    f"{name} must be a positive whole number up to {MOST_KNOB}, got {value!r}"
                )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def parse(cls, text: str) -> KernelConfig:
        """Read what ``str`` writes. A knob that the text leaves out has the field's default.

        >>> KernelConfig.parse("split_k 64x64x128 w4 s6 g8 split2").split_k
        2

        Raises ``ConfigError`` for a word that is no knob.
        """
        template, *words = text.split() or [""]
        sizes = re.fullmatch(r"(\d+)x(\d+)x(\d+)", words[0]) if words else None
        if sizes is None:
            raise ConfigError(
                f"a configuration reads 'tile 128x128x64 w8 s3 g8': {text!r} has no blocks "
                "behind its template"
            )
        knobs: dict[str, Any] = {}
        for word in words[1:]:
            found = re.fullmatch(r"([a-z]+)(\d*)", word)
            name = _WORDS.get(found.group(1)) if found else None
            if found is None or name is None or (name == "swap") == bool(found.group(2)):
                raise ConfigError(f"{word!r} in {text!r} is no knob; known: {', '.join(_WORDS)}")
            knobs[name] = True if name == "swap" else int(found.group(2))
        m, n, k = (int(size) for size in sizes.groups())
        return cls(template, m, n, k, **knobs)

    def __str__(self) -> str:
        text = f"{self.template} {self.block_m}x{self.block_n}x{self.block_k}"
        if self.num_warps is not None:
            text += f" w{self.num_warps}"
        if self.num_stages is not None:
            text += f" s{self.num_stages}"
        if self.group_m is not None:
            text += f" g{self.group_m}"
        if self.split_k > 1:
            text += f" split{self.split_k}"
        if self.swap:
            text += " swap"
        if self.epilogue_parts > 1:
            text += f" epi{self.epilogue_parts}"
        if self.load_bits not in (None, 128):
            text += f" load{self.load_bits}"
        return text


KNOBS: tuple[str, ...] = tuple(f.name for f in fields(KernelConfig))
#: knobs that a chip may lack
OPTIONAL_KNOBS = {"group_m", "num_warps", "num_stages", "load_bits"}
#: how ``str`` abbreviates the knobs behind the blocks
_WORDS = {
    "w": "num_warps", "s": "num_stages", "g": "group_m", "split": "split_k", "swap": "swap",
    "epi": "epilogue_parts", "load": "load_bits",
}  # fmt: skip


class ConfigTable:
    """Many configurations as columns: one int64 array a knob, all of one length.

    ``template`` holds the index into ``TEMPLATES``, ``swap`` 0 or 1, and a knob that the chip
    lacks 0. Columns are read as attributes: ``table.block_m``.
    """

    template: Column
    block_m: Column
    block_n: Column
    block_k: Column
    group_m: Column
    split_k: Column
    num_warps: Column
    num_stages: Column
    load_bits: Column
    swap: Column
    epilogue_parts: Column

    def __init__(self, **columns: Any) -> None:
        if set(columns) != set(KNOBS):
            odd = sorted(set(columns) ^ set(KNOBS))
            raise ConfigError(f"a table needs exactly the columns {KNOBS}; differing: {odd}")
        arrays = [np.atleast_1d(np.asarray(columns[name], dtype=np.int64)) for name in KNOBS]
        for name, array in zip(KNOBS, np.broadcast_arrays(*arrays), strict=True):
            setattr(self, name, array)

    @classmethod
    def of(cls, configs: ConfigTable | KernelConfig | Iterable[KernelConfig]) -> ConfigTable:
        """Take a table as it is; make one from a configuration or several."""
        if isinstance(configs, ConfigTable):
            return configs
        rows = [configs] if isinstance(configs, KernelConfig) else list(configs)
        return cls(
            **{name: [encode_knob(name, getattr(row, name)) for row in rows] for name in KNOBS}
        )

    def __len__(self) -> int:
        return len(self.block_m)

    @overload
    def __getitem__(self, index: int) -> KernelConfig: ...
    @overload
    def __getitem__(self, index: slice | NDArray[Any]) -> ConfigTable: ...
    def __getitem__(self, index: Any) -> KernelConfig | ConfigTable:
        """A configuration for a whole number, a table for a slice, mask or index array."""
        if isinstance(index, (int, np.integer)):
            return KernelConfig(
                **{name: _decode(name, int(getattr(self, name)[index])) for name in KNOBS}
            )
        return ConfigTable(**{name: getattr(self, name)[index] for name in KNOBS})

    def __iter__(self) -> Iterator[KernelConfig]:
        return (self[row] for row in range(len(self)))

    def is_template(self, name: str) -> NDArray[np.bool_]:
        mask: NDArray[np.bool_] = self.template == TEMPLATES.index(name)
        return mask

    @staticmethod
    def concat(tables: Iterable[ConfigTable]) -> ConfigTable:
        parts = list(tables)
        return ConfigTable(**{k: np.concatenate([getattr(t, k) for t in parts]) for k in KNOBS})

    @staticmethod
    def grid(**knobs: Any) -> ConfigTable:
        """The Cartesian product of the given values, a sequence or a scalar for each knob."""
        values = [
            np.atleast_1d([encode_knob(k, v) for v in np.atleast_1d(knobs[k])]) for k in KNOBS
        ]
        mesh = np.meshgrid(*values, indexing="ij")
        return ConfigTable(**{k: m.ravel() for k, m in zip(KNOBS, mesh, strict=True)})


def encode_knob(name: str, value: Any) -> int:
    """The number that stands for a knob's value in a table; 0 for a knob that a chip lacks."""
    if name == "template" and isinstance(value, str):
        if value not in TEMPLATES:
            raise unknown_name("template", value, TEMPLATES)
        return TEMPLATES.index(value)
    return 0 if value is None else int(value)


def _decode(name: str, value: int) -> Any:
    if name == "template":
        return TEMPLATES[value]
    if name == "swap":
        return bool(value)
    return None if value == 0 and name in OPTIONAL_KNOBS else value
