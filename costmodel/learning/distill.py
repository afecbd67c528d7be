"""A network that imitates fitted trees, taught by what they say of shapes that nobody measured."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from costmodel.problem import Gemm
from costmodel.profile import HardwareProfile
from costmodel.ranking.network import Network
from costmodel.ranking.shelf import shelf_of
from costmodel.ranking.trees import Trees

Column = NDArray[np.float64]

#: shapes drawn beside the measured ones, and the size of the largest; each brings its shortlist
DRAWN_SHAPES = 3000
_LARGEST = 16384
#: what sizes are multiples of, as often as each is drawn
_MULTIPLES, _OFTEN = (1, 2, 8, 16, 64, 128), (0.2, 0.05, 0.2, 0.25, 0.15, 0.15)
#: rows of a shape: those that the trees put first, and as many of the others
_FIRST = 64
HIDDEN = (128, 128)
EPOCHS = 40
_BATCH = 2048
_RATE, _LEAST_RATE = 3e-3, 1e-5
#: decay of Adam's two means (Kingma and Ba, arXiv 1412.6980)
_DECAY, _SQUARE_DECAY = 0.9, 0.999


def screen_of(trees: Trees, problems: Sequence[Gemm], profile: HardwareProfile) -> Network:
    """A network that says what trees say, of shapes like those that they were fitted on."""
    alike = [*problems, *drawn_problems(problems, DRAWN_SHAPES)]
    return taught(*lessons(trees, alike, profile))


def drawn_problems(alike: Sequence[Gemm], count: int, seed: int = 0) -> list[Gemm]:
    """Random sizes, log-uniform up to 16384, with the types and layouts of given problems."""
    draw = np.random.default_rng(seed)
    kinds = sorted({(problem.dtype, problem.layout) for problem in alike})
    problems = []
    for _ in range(count):
        sizes = np.exp2(draw.uniform(0, np.log2(_LARGEST), 3))
        multiple = draw.choice(_MULTIPLES, 3, p=_OFTEN)
        m, n, k = (np.maximum(np.round(sizes / multiple), 1) * multiple).astype(int).tolist()
        dtype, layout = kinds[draw.integers(len(kinds))]
        problems.append(Gemm(m, n, k, dtype=dtype, layout=layout))
    return problems


def lessons(
    trees: Trees, problems: Sequence[Gemm], profile: HardwareProfile, seed: int = 0
) -> tuple[NDArray[np.float32], Column, Column]:
    """Features [rows, features], what the trees say of them, and weights: those of fast rows."""
    draw = np.random.default_rng(seed)
    features, said, weights = [], [], []
    for problem in problems:
        (short,) = shelf_of(problem, profile).priced([problem], profile).shortlists(profile)
        log_ratio = trees.predict(short.features)
        times = short.estimate_us * np.exp(log_ratio)
        order = np.argsort(times, kind="stable")
        others = draw.permutation(order[_FIRST:])[:_FIRST]
        rows = np.concatenate([order[:_FIRST], others])
        # a row that takes twice the best's time counts a quarter, and every shape the same
        weight = (times.min() / times[rows]) ** 2
        features.append(short.features[rows])
        said.append(log_ratio[rows])
        weights.append(weight / weight.sum())
    return np.concatenate(features), np.concatenate(said), np.concatenate(weights)


def taught(
    rows: NDArray[np.float32],
    target: Column,
    weight: Column,
    *,
    hidden: Sequence[int] = HIDDEN,
    epochs: int = EPOCHS,
    seed: int = 0,
) -> Network:
    """Fit a network by Adam on weighted squares, its rate falling along a cosine."""
    draw = np.random.default_rng(seed)
    mean, scale = rows.mean(axis=0), rows.std(axis=0) + 1e-6
    inputs = ((rows - mean) / scale).astype(np.float32)
    wanted = target.astype(np.float32)
    even = (weight / weight.mean()).astype(np.float32)
    sizes = [rows.shape[1], *hidden, 1]
    weights = [
        (draw.standard_normal((a, b)) * np.sqrt(2 / a)).astype(np.float32)
        for a, b in pairwise(sizes)
    ]
    layers = [*weights, *(np.zeros(b, dtype=np.float32) for b in sizes[1:])]
    adam = _Adam(layers)
    batch = min(_BATCH, len(inputs))
    steps = epochs * (len(inputs) // batch)
    for step in range(steps):
        start = step % (len(inputs) // batch) * batch
        if start == 0:
            order = draw.permutation(len(inputs))
        some = order[start : start + batch]
        slopes = _slopes(layers, inputs[some], wanted[some], even[some])
        rate = _LEAST_RATE + _RATE * 0.5 * (1 + np.cos(np.pi * step / steps))
        adam.descend(slopes, rate)
    depth = len(weights)
    # the network takes features as they are: their scaling goes into its first layer
    first = layers[0] / scale[:, None]
    bias = layers[depth] - (mean / scale) @ layers[0]
    return Network(
        rows.min(axis=0), rows.max(axis=0),
        (first.astype(np.float32), *layers[1:depth]),
        (bias.astype(np.float32), *layers[depth + 1 :]),
    )  # fmt: skip


Matrices = list[NDArray[np.float32]]


def _slopes(
    layers: Matrices,
    inputs: NDArray[np.float32],
    wanted: NDArray[np.float32],
    weight: NDArray[np.float32],
) -> Matrices:
    """Derivatives of the weighted mean square by weights, then by biases."""
    depth = len(layers) // 2
    weights, biases = layers[:depth], layers[depth:]
    held = [inputs]
    for number, (matrix, bias) in enumerate(zip(weights, biases, strict=True)):
        values = held[-1] @ matrix + bias
        held.append(values if number == depth - 1 else np.maximum(values, 0))
    slope = ((held[-1][:, 0] - wanted) * weight)[:, None] * np.float32(2 / weight.sum())
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
