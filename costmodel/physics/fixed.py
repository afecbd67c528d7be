"""What a configuration brings to the estimate whatever M, N and K are: knobs, slots, rates."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from costmodel.config import TEMPLATES

Column = NDArray[np.float64]


class Knobs(Protocol):
    """Configurations as columns: a ``ConfigTable``, or what ``FixedColumns`` keep of one."""

    @property
    def block_m(self) -> NDArray[Any]: ...
    @property
    def block_n(self) -> NDArray[Any]: ...
    @property
    def block_k(self) -> NDArray[Any]: ...
    @property
    def split_k(self) -> NDArray[Any]: ...
    @property
    def group_m(self) -> NDArray[Any]: ...
    @property
    def num_stages(self) -> NDArray[Any]: ...
    @property
    def load_bits(self) -> NDArray[Any]: ...
    def is_template(self, name: str) -> NDArray[np.bool_]: ...
    def __len__(self) -> int: ...


#: ``slots``: programs that the chip holds at once; ``alone_us``: a step's arithmetic of one block
#: that has its unit to itself; ``depth``: steps that share a load's latency; ``issue_us``: the
#: least time of a step, however little it loads and multiplies; ``a_lines`` and ``b_lines``: how
#: much more than its bytes a load moves, by lines that it takes part of; ``a_slower`` and
#: ``b_slower``: how much longer it takes than its bytes, by these and by narrow words;
#: ``filled_row``: what a row outside an operand costs, in rows; ``descriptors_us``: their first use
NAMES = (
    "template", "block_m", "block_n", "block_k", "split_k", "group_m", "num_stages", "load_bits",
    "slots", "alone_us", "depth", "issue_us",
    "a_lines", "b_lines", "a_slower", "b_slower", "filled_row", "descriptors_us",
)  # fmt: skip


class FixedColumns:
    """``NAMES`` as rows of one matrix, [names, configurations], so that one call takes them all."""

    def __init__(self, matrix: Column) -> None:
        self.matrix = matrix
        (
            self.template, self.block_m, self.block_n, self.block_k, self.split_k, self.group_m,
            self.num_stages, self.load_bits, self.slots, self.alone_us, self.depth, self.issue_us,
            self.a_lines, self.b_lines, self.a_slower, self.b_slower,
            self.filled_row, self.descriptors_us,
        ) = matrix  # fmt: skip

    @classmethod
    def of(cls, table: Knobs, **own: NDArray[Any]) -> FixedColumns:
        """From a table's knobs and the columns that it lacks, by name."""
        rows = [own[name] if name in own else getattr(table, name) for name in NAMES]
        return cls(np.array(rows, dtype=np.float64).reshape(len(NAMES), len(table)))

    def take(self, rows: NDArray[np.int64]) -> FixedColumns:
        """Those of some rows."""
        return FixedColumns(self.matrix.take(rows, axis=1))

    @classmethod
    def concat(cls, parts: list[FixedColumns]) -> FixedColumns:
        return cls(np.concatenate([part.matrix for part in parts], axis=1))

    def is_template(self, name: str) -> NDArray[np.bool_]:
        mask: NDArray[np.bool_] = self.template == TEMPLATES.index(name)
        return mask

    def __len__(self) -> int:
        return int(self.matrix.shape[1])
