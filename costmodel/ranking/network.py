"""A small network that imitates the trees: good enough to say which rows they need to see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.errors import ModelError

Matrix = NDArray[np.float32]

#: a file may not ask for more: ours has two hidden layers of 128
MOST_LAYERS = 8
MOST_WIDTH = 1024


@dataclass(frozen=True)
class Network:
    """Layers of ``weights`` [inputs, outputs] and ``biases``, with max(x, 0) between them.

    Features are held to [``low``, ``high``], the range that it was fitted on: past it trees stay
    as they are and a network would not.
    """

    low: Matrix
    high: Matrix
    weights: tuple[Matrix, ...]
    biases: tuple[Matrix, ...]

    def predict(self, rows: Matrix) -> NDArray[np.float64]:
        """One number for each row of [rows, features]."""
        values = np.minimum(np.maximum(rows, self.low), self.high)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            values = values @ weight
            values += bias
            np.maximum(values, 0, out=values)
        return np.asarray(values @ self.weights[-1] + self.biases[-1], dtype=np.float64)[:, 0]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays to store."""
        stored = {"screen_low": self.low, "screen_high": self.high}
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            stored |= {f"screen_weight_{layer}": weight, f"screen_bias_{layer}": bias}
        return stored

    @classmethod
    def checked(
        cls, arrays: dict[str, NDArray[Any]], n_features: int, where: str
    ) -> Network | None:
        """Rebuild from stored arrays; None where there are none.

        Every shape and number is checked first: raises ``ModelError`` naming file and array.
        """
        if not any(name.startswith("screen_") for name in arrays):
            return None

        def read(name: str, *shape: int | None) -> Matrix:
            array = arrays.get(name)
            if array is None or array.dtype.kind != "f" or array.ndim != len(shape):
                raise ModelError(f"{where}: array {name!r} is missing or has another form")
            for have, want in zip(array.shape, shape, strict=True):
                if not 1 <= have <= MOST_WIDTH or want not in (None, have):
                    raise ModelError(f"{where}: array {name!r} has the shape {array.shape}")
            # summed over a layer, larger numbers would overflow
            if not (np.abs(array) <= 1e6).all():
                raise ModelError(f"{where}: array {name!r} holds numbers past a million")
            return np.ascontiguousarray(array, dtype=np.float32)

        low, high = read("screen_low", n_features), read("screen_high", n_features)
        layers = sum(name.startswith("screen_weight_") for name in arrays)
        if not 1 <= layers <= MOST_LAYERS:
            raise ModelError(f"{where}: a screen of {layers} layers; 1 to {MOST_LAYERS} are read")
        weights: list[Matrix] = []
        biases: list[Matrix] = []
        width: int = n_features
        for layer in range(layers):
            last = 1 if layer == layers - 1 else None
            weights.append(read(f"screen_weight_{layer}", width, last))
            width = weights[-1].shape[1]
            biases.append(read(f"screen_bias_{layer}", width))
        return cls(low, high, tuple(weights), tuple(biases))
