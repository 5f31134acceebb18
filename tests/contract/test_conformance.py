"""The transformers engine under the conformance suite: caches, attention and element types."""

import pytest

from regimescope.engines.base import EngineRequest
from regimescope.engines.registry import get_engine
from regimescope.testing import CHECK_NAMES, assert_engine, check_engine

# One setting differs from the usual in each, since the settings do not know each other.
SETTINGS = [
    ("float32", {}),
    ("bfloat16", {}),
    ("float16", {}),
    ("float32", {"attention": "eager"}),
    ("float32", {"attention": "math"}),
    ("bfloat16", {"attention": "flash"}),
    ("float32", {"cache": "static"}),
    ("float32", {"cache": "static", "attention": "eager"}),
    ("float32", {"cache": "quantized"}),
    ("float32", {"loop": "generate"}),
]
# Checks that open sessions of other kinds, the same ones whatever the setting.
ONCE = ("cache-kinds", "unknown-model", "unknown-device", "unknown-dtype", "unknown-option")


def request(dtype="float32", model="tiny", **options):
    return EngineRequest(model=model, device="cpu", dtype=dtype, seed=3, options=options)


def named(setting):
    dtype, options = setting
    return "-".join([dtype, *options.values()])


@pytest.mark.parametrize("name", CHECK_NAMES)
def test_the_usual_setting_keeps_every_rule(name):
    assert_engine(get_engine("hf"), request(), only=[name])


@pytest.mark.parametrize("setting", SETTINGS[1:], ids=named)
def test_every_setting_keeps_the_contract(setting):
    dtype, options = setting
    checks = [name for name in CHECK_NAMES if name not in ONCE]
    results = assert_engine(get_engine("hf"), request(dtype, **options), only=checks)
    applied = {result.name for result in results if result.applicable}
    assert {"exact-budget", "same-tokens", "beyond-positions", "batch", "depth"} <= applied


def test_inspecting_a_larger_model_does_not_load_it():
    engine = get_engine("hf")
    (result,) = check_engine(engine, request(model="gpt2"), only=["inspect-loads-nothing"])
    assert result.applicable
    assert result.passed, result.detail
