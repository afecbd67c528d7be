"""What the ranker looks at: one named function a feature, each a column over all configurations.

Features are ratios of physics, times, or the knobs themselves, so that they mean the same on
another chip. The order of ``FEATURES`` is part of a trained model; models name their features,
and loading checks the names.
"""

from costmodel.ranking.features import fill, kind, pipeline, tile, times, traffic
from costmodel.ranking.features.matrix import feature_matrix, features_at, fixed_features
from costmodel.ranking.features.registry import FEATURES, FIXED, Context, FixedContext

__all__ = [
    "FEATURES",
    "FIXED",
    "Context",
    "FixedContext",
    "feature_matrix",
    "features_at",
    "fill",
    "fixed_features",
    "kind",
    "pipeline",
    "tile",
    "times",
    "traffic",
]
