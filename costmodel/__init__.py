"""Predicts the fastest Triton GEMM configuration for a shape on a chip, and says why.

>>> import costmodel as cm
>>> answer = cm.predict_best((4096, 4096, 4096), "h200-sxm")
>>> answer.config.template
'persistent_tma'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from costmodel.config import ConfigTable as ConfigTable
    from costmodel.config import KernelConfig as KernelConfig
    from costmodel.doctor.diagnose import diagnose as diagnose
    from costmodel.dropin.autotune import autotune as autotune
    from costmodel.dropin.products import addmm as addmm
    from costmodel.dropin.products import explain_matmul as explain_matmul
    from costmodel.dropin.products import linear as linear
    from costmodel.dropin.products import matmul as matmul
    from costmodel.dropin.pruner import triton_prune as triton_prune
    from costmodel.errors import CostModelError as CostModelError
    from costmodel.learning.evaluate import evaluate as evaluate
    from costmodel.learning.train import train as train
    from costmodel.measure.climb import ladder as ladder
    from costmodel.measure.tune import tune as tune
    from costmodel.physics.estimate import estimate as estimate
    from costmodel.predict import Prediction as Prediction
    from costmodel.predict import predict_best as predict_best
    from costmodel.predict import predict_many as predict_many
    from costmodel.problem import Gemm as Gemm
    from costmodel.profile import HardwareProfile as HardwareProfile
    from costmodel.profile import detect_profile as detect_profile
    from costmodel.profile import list_profiles as list_profiles
    from costmodel.profile import load_profile as load_profile
    from costmodel.resources.footprint import footprint as footprint
    from costmodel.space.candidates import candidates as candidates
    from costmodel.space.prune import prune as prune

#: public name -> the module it lives in; loaded on first use, so that importing stays quick
_HOMES = {
    "ConfigTable": "config",
    "CostModelError": "errors",
    "Gemm": "problem",
    "HardwareProfile": "profile",
    "KernelConfig": "config",
    "Prediction": "predict",
    "addmm": "dropin.products",
    "autotune": "dropin.autotune",
    "candidates": "space.candidates",
    "detect_profile": "profile",
    "diagnose": "doctor.diagnose",
    "estimate": "physics.estimate",
    "evaluate": "learning.evaluate",
    "explain_matmul": "dropin.products",
    "footprint": "resources.footprint",
    "ladder": "measure.climb",
    "linear": "dropin.products",
    "list_profiles": "profile",
    "load_profile": "profile",
    "matmul": "dropin.products",
    "predict_best": "predict",
    "predict_many": "predict",
    "prune": "space.prune",
    "train": "learning.train",
    "triton_prune": "dropin.pruner",
    "tune": "measure.tune",
}
__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("triton-costmodel")
    if name not in _HOMES:
        raise AttributeError(f"module 'costmodel' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"costmodel.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
