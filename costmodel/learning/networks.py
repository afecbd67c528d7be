"""Fit the networks that share the ranker's word with its trees: Adam in numpy, a shape at a time.

What decides a choice is how the configurations of one shape differ. So each row's error counts
twice: as it is, and several times over once its shape's mean error is taken out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from costmodel.learning.shares import row_weights
from costmodel.ranking.network import Network

Column = NDArray[np.float64]
Matrices = list[NDArray[np.float32]]

#: layers of each network: the first sees the whole shortlist, and is small to be quick
HIDDEN = ((64, 64, 64), (256, 256, 256), (256, 256, 256), (256, 256, 256))
EPOCHS = 60
#: how often an error counts once its shape's mean is taken out
_WITHIN = 3.0
#: shapes of a step, and rows drawn of each, by hand: drawn by their weights, so that none is drawn
#: to count for nothing
_SHAPES, _ROWS = 32, 32
#: features are held to so many standard deviations: past what was seen a network is a guess
_HELD = 6.0
_RATE, _WARM_UP = 2e-3, 0.1
#: a small start keeps smooth what no fitted row is near: on shapes and kernels that took no part
#: the usual one, 2.4, errs by four fifths more (data/results/disjoint.py)
_START = 0.4
#: decay of Adam's two means (Kingma and Ba, arXiv 1412.6980)
_DECAY, _SQUARE_DECAY = 0.9, 0.999


def network_of(
    features: Sequence[NDArray[np.float32]],
    targets: Sequence[Column],
    times_us: Sequence[Column],
    *,
    hidden: Sequence[int],
    epochs: int = EPOCHS,
    seed: int = 0,
) -> Network:
    """A network that says ``targets`` of ``features``, [rows, features] for each shape.

    Rows count by ``row_weights`` of their times: as often as they are drawn.
    """
    draw = np.random.default_rng(seed)
    rows = np.concatenate(features)
    mean, scale = rows.mean(axis=0), rows.std(axis=0) + 1e-6
    inputs = np.clip((rows - mean) / scale, -_HELD, _HELD).astype(np.float32)
    wanted = np.concatenate(targets).astype(np.float32)
    counted = [np.cumsum(row_weights(t)) for t in times_us]
    starts = np.cumsum([0, *(len(t) for t in times_us[:-1])])
    layers = _drawn([rows.shape[1], *hidden, 1], draw)
    adam = _Adam(layers)
    rates = _rates(epochs * -(-len(starts) // _SHAPES))
    for _ in range(epochs):
        order = draw.permutation(len(starts))
        for first in range(0, len(order), _SHAPES):
            shapes = order[first : first + _SHAPES]
            batch = np.concatenate([starts[s] + _drawn_rows(counted[s], draw) for s in shapes])
            adam.descend(_slopes(layers, inputs[batch], wanted[batch]), next(rates))
    depth = len(layers) // 2
    # the network takes features as they are: their scaling goes into its first layer
    weights = (layers[0] / scale[:, None], *layers[1:depth])
    biases = (layers[depth] - (mean / scale) @ layers[0], *layers[depth + 1 :])
    return Network(
        np.maximum(rows.min(axis=0), mean - _HELD * scale).astype(np.float32),
        np.minimum(rows.max(axis=0), mean + _HELD * scale).astype(np.float32),
        tuple(w.astype(np.float32) for w in weights),
        tuple(b.astype(np.float32) for b in biases),
    )


def _drawn_rows(counted: Column, draw: np.random.Generator) -> NDArray[np.int64]:
    """``_ROWS`` rows of a shape, whose running sum of weights this is, some of them repeatedly."""
    places = np.searchsorted(counted, draw.random(_ROWS) * counted[-1], side="right")
    return np.asarray(np.minimum(places, len(counted) - 1), dtype=np.int64)


def _drawn(sizes: Sequence[int], draw: np.random.Generator) -> Matrices:
    """Weights of all layers, then their biases, evenly from -``_START`` to ``_START`` over the
    root of a layer's inputs.
    """

    def even(inputs: int, *shape: int) -> NDArray[np.float32]:
        drawn = draw.uniform(-_START, _START, shape) / np.sqrt(inputs)
        return np.asarray(drawn, dtype=np.float32)

    pairs = list(pairwise(sizes))
    return [*(even(a, a, b) for a, b in pairs), *(even(a, b) for a, b in pairs)]


def _rates(steps: int) -> Iterator[float]:
    """Learning rates: a short way up, then down along a cosine."""
    warm = max(1, round(_WARM_UP * steps))
    for step in range(steps):
        if step < warm:
            yield _RATE * (step + 1) / warm
        else:
            yield _RATE * 0.5 * (1 + np.cos(np.pi * (step - warm) / max(steps - warm, 1)))


def _slopes(layers: Matrices, inputs: NDArray[np.float32], wanted: NDArray[np.float32]) -> Matrices:
    """Derivatives of the loss by weights, then by biases, for ``_ROWS`` rows of each shape."""
    depth = len(layers) // 2
    weights, biases = layers[:depth], layers[depth:]
    held = [inputs]
    for number, (matrix, bias) in enumerate(zip(weights, biases, strict=True)):
        values = held[-1] @ matrix
        values += bias
        held.append(values if number == depth - 1 else np.maximum(values, 0))
    error = (held[-1][:, 0] - wanted).reshape(-1, _ROWS)
    within = error - error.mean(axis=1, keepdims=True)
    slope = (error + np.float32(_WITHIN) * within).reshape(-1, 1) * np.float32(2 / error.size)
    by_weight: Matrices = []
    by_bias: Matrices = []
    for number in reversed(range(depth)):
        by_weight.insert(0, held[number].T @ slope)
        by_bias.insert(0, slope.sum(axis=0))
        if number:
            slope = (slope @ weights[number].T) * (held[number] > 0)
    return by_weight + by_bias


class _Adam:
    """Descent with running means of slopes and of their squares, in place."""

    def __init__(self, layers: Matrices) -> None:
        self.layers = layers
        self.means = [np.zeros_like(layer) for layer in layers]
        self.squares = [np.zeros_like(layer) for layer in layers]
        self.step = 0

    def descend(self, slopes: Matrices, rate: float) -> None:
        self.step += 1
        rate *= np.sqrt(1 - _SQUARE_DECAY**self.step) / (1 - _DECAY**self.step)
        parts = zip(self.layers, slopes, self.means, self.squares, strict=True)
        for layer, slope, mean, square in parts:
            mean += np.float32(1 - _DECAY) * (slope - mean)
            square += np.float32(1 - _SQUARE_DECAY) * (slope * slope - square)
            layer -= np.float32(rate) * mean / (np.sqrt(square) + np.float32(1e-8))
