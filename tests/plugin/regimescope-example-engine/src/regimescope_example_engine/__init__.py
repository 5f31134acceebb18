"""An engine for regimescope: a gated recurrent network in numpy, with random weights."""

from regimescope_example_engine.engine import ExampleEngine

__all__ = ["ExampleEngine"]
