"""One knob at a time: what each neighbour of a configuration would cost, and a knob forced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from costmodel.config import KNOBS, TEMPLATES, KernelConfig
from costmodel.errors import ConfigError, unknown_name
from costmodel.predict import Prediction, predict_best
from costmodel.price import price
from costmodel.space.prune import Rejection

#: templates whose programs can split K, by the one that does not
_SPLITTING = {"tile": "split_k"}


@dataclass(frozen=True)
class Neighbour:
    """A configuration with one knob changed.

    ``change`` is its predicted time over the chosen one's, less 1; None where the chip cannot run
    it, and ``rejection`` says why.
    """

    knob: str
    value: str
    config: str
    time_us: float | None
    change: float | None
    bound: str | None
    rejection: str | None


def neighbours(prediction: Prediction) -> tuple[Neighbour, ...]:
    """The chosen configuration with each knob one step lower and higher, priced together."""
    chosen = prediction.config
    changed = list(_changes(chosen))
    priced = price(
        prediction.problem, [chosen, *(config for *_, config in changed)], prediction.profile,
        prediction.source,
    )  # fmt: skip
    own = priced.time_us.get(chosen)
    found = []
    for knob, value, config in changed:
        time_us = priced.time_us.get(config)
        why = priced.rejections.get(config)
        if why is not None and why.reason == "knobs":
            continue  # the chip holds this knob fixed: there is no step to take
        change = None if time_us is None or not own else time_us / own - 1.0
        found.append(
            Neighbour(
                knob, value, str(config), time_us, change, priced.bound.get(config),
                None if why is None else _short(why),
            )
        )  # fmt: skip
    return tuple(found)


def _changes(chosen: KernelConfig) -> Iterable[tuple[str, str, KernelConfig]]:
    """(knob, value, configuration) of every neighbour, knob after knob."""
    steps: dict[str, list[int]] = {}
    for knob in ("block_m", "block_n", "block_k", "group_m", "split_k", "num_warps"):
        value = getattr(chosen, knob)
        if value is not None:
            steps[knob] = [value // 2, value * 2] if value > 1 else [value * 2]
    if chosen.num_stages is not None:
        steps["num_stages"] = [n for n in (chosen.num_stages - 1, chosen.num_stages + 1) if n]
    if chosen.load_bits is not None:
        steps["load_bits"] = [16 if chosen.load_bits >= 128 else 128]
    steps["epilogue_parts"] = [3 - chosen.epilogue_parts] if chosen.epilogue_parts < 3 else []
    for knob, values in steps.items():
        for value in values:
            yield knob, str(value), changed(chosen, {knob: value})
    yield "swap", str(not chosen.swap).lower(), replace(chosen, swap=not chosen.swap)


def changed(config: KernelConfig, knobs: Mapping[str, Any]) -> KernelConfig:
    """``config`` with other knobs; a plain tile to be split along K takes the template for it."""
    knobs = dict(knobs)
    template = knobs.get("template", config.template)
    split = knobs.get("split_k", config.split_k)
    if "template" not in knobs:
        back = {other: one for one, other in _SPLITTING.items()}
        if split > 1:
            template = _SPLITTING.get(template, template)
        elif config.split_k > 1:
            template = back.get(template, template)
    return replace(config, **(knobs | {"template": template}))


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """``["num_stages=5", "swap=true"]`` as knobs. Raises ``ConfigError``, ``UnknownNameError``."""
    knobs: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name, text = name.strip().lower(), text.strip().lower()
        if not equals or not text:
            raise ConfigError(f"a setting reads num_stages=5, got {setting!r}")
        if name not in KNOBS:
            raise unknown_name("knob", name, KNOBS)
        knobs[name] = _value(name, text)
    return knobs


def _value(name: str, text: str) -> Any:
    if name == "template":
        if text not in TEMPLATES:
            raise unknown_name("template", text, TEMPLATES)
        return text
    if name == "swap":
        if text not in ("true", "false", "1", "0"):
            raise ConfigError(f"swap is true or false, got {text!r}")
        return text in ("true", "1")
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{name} must be a whole number, got {text!r}") from None


def forced(prediction: Prediction, config: KernelConfig) -> Prediction | Rejection:
    """The prediction with ``config`` in place of the chosen one, or why the chip cannot run it."""
    if prediction.source == "measured" and config != prediction.config:
        # a measured answer speaks for its own configuration alone
        prediction = predict_best(prediction.problem, prediction.profile, use_measured=False)
    priced = price(prediction.problem, [config], prediction.profile, prediction.source)
    if config in priced.rejections:
        return priced.rejections[config]
    if prediction.source == "measured":
        return prediction
    return replace(
        prediction, config=config, time_us=priced.time_us[config],
        interval=priced.interval[config], bound=priced.bound[config],
    )  # fmt: skip


def _short(rejection: Rejection) -> str:
    told = rejection.meaning
    if rejection.unit:
        told += f": {rejection.excess}"
    return told
