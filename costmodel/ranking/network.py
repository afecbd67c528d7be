"""A small network beside the trees: it errs elsewhere, and is quick enough to see every row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.errors import ModelError

Matrix = NDArray[np.float32]

#: a file may not ask for more: ours has four networks of three hidden layers
MOST_NETWORKS = 16
MOST_LAYERS = 8
MOST_WIDTH = 1024
#: past this a layer of floats of 32 bits loses what it says; ours stay below a hundred thousand
_MOST_HELD = 1e12


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
        """One number for each row of [rows, features], or of several such stacked: [..., rows].

        Those of a stack are multiplied each by itself, so that what is said of one does not depend
        on the others: a product of matrices rounds by how many rows come along.
        """
        across, biases = self._across
        turned = rows.swapaxes(-1, -2)
        values = np.minimum(np.maximum(turned, self.low[:, None]), self.high[:, None])
        for weight, bias in zip(across[:-1], biases[:-1], strict=True):
            values = weight @ values
            values += bias
            np.maximum(values, 0, out=values)
        said: NDArray[np.float64] = (across[-1] @ values + biases[-1])[..., 0, :].astype(np.float64)
        return said

    @cached_property
    def _across(self) -> tuple[list[Matrix], list[Matrix]]:
        """Weights [outputs, inputs] and biases [outputs, 1].

        Few rows go through wide layers, and a product of matrices is the quicker the longer its
        left side.
        """
        across = [np.ascontiguousarray(weight.T) for weight in self.weights]
        return across, [bias[:, None] for bias in self.biases]

    def arrays(self, number: int) -> dict[str, NDArray[Any]]:
        """The arrays to store of the network of this number."""
        own = f"network_{number}_"
        stored = {f"{own}low": self.low, f"{own}high": self.high}
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            stored |= {f"{own}weight_{layer}": weight, f"{own}bias_{layer}": bias}
        return stored

    @classmethod
    def all_checked(
        cls, arrays: dict[str, NDArray[Any]], n_features: int, where: str
    ) -> tuple[Network, ...]:
        """Rebuild from stored arrays, in their order; none where there are none.

        Every shape and number is checked first: raises ``ModelError`` naming file and array.
        """
        count = len({name.split("_")[1] for name in arrays if name.startswith("network_")})
        if count > MOST_NETWORKS:
            raise ModelError(f"{where}: {count} networks, more than {MOST_NETWORKS}")
        return tuple(cls._checked(arrays, f"network_{i}_", n_features, where) for i in range(count))

    @classmethod
    def _checked(
        cls, arrays: dict[str, NDArray[Any]], own: str, n_features: int, where: str
    ) -> Network:
        def read(name: str, *shape: int | None) -> Matrix:
            array = arrays.get(own + name)
            if array is None or array.dtype.kind != "f" or array.ndim != len(shape):
                raise ModelError(f"{where}: array {own + name!r} is missing or has another form")
            for have, want in zip(array.shape, shape, strict=True):
                if not 1 <= have <= MOST_WIDTH or want not in (None, have):
                    raise ModelError(f"{where}: array {own + name!r} has the shape {array.shape}")
            if not (np.abs(array) <= 1e6).all():
                raise ModelError(f"{where}: array {own + name!r} holds numbers past a million")
            return np.ascontiguousarray(array, dtype=np.float32)

        low, high = read("low", n_features), read("high", n_features)
        layers = sum(name.startswith(f"{own}weight_") for name in arrays)
        if not 1 <= layers <= MOST_LAYERS:
            raise ModelError(f"{where}: a network of {layers} layers; 1 to {MOST_LAYERS} are read")
        weights: list[Matrix] = []
        biases: list[Matrix] = []
        width: int = n_features
        for layer in range(layers):
            last = 1 if layer == layers - 1 else None
            weights.append(read(f"weight_{layer}", width, last))
            width = weights[-1].shape[1]
            biases.append(read(f"bias_{layer}", width))
        # the most that each layer can hold, of features within their range
        held = np.maximum(np.abs(low), np.abs(high)).astype(np.float64)
        for weight, bias in zip(weights, biases, strict=True):
            held = held @ np.abs(weight) + np.abs(bias)
            if not (held <= _MOST_HELD).all():
                raise ModelError(f"{where}: the network {own[:-1]} may reach {held.max():.3g}")
        return cls(low, high, tuple(weights), tuple(biases))
