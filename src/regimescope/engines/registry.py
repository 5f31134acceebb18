"""Looking engines up by name. Layer: ``engines``.

The built-in ones are listed here as text, so that finding one imports one module and listing them
imports none. Others announce themselves in the entry-point group ``regimescope.engines`` with a
class, or a function without arguments, that makes an ``Engine``.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, NamedTuple, cast

from regimescope.engines.base import Engine
from regimescope.errors import CapabilityError, MissingDependencyError, SpecError
from regimescope.units import listing

GROUP = "regimescope.engines"


class BuiltIn(NamedTuple):
    """An engine of this package.

    Attributes:
        target: ``module:class``.
        requires: Top-level modules that it imports when it is used.
        install: The line that installs them.
        description: One line for people.
    """

    target: str
    requires: tuple[str, ...]
    install: str
    description: str


class EngineRow(NamedTuple):
    """What is known of an engine without importing it.

    Attributes:
        name: Name in specs and on the command line.
        state: Whether the modules it needs are there.
        install: The line that installs it.
        description: One line for people.
    """

    name: str
    state: Literal["installed", "missing"]
    install: str
    description: str


BUILT_IN: dict[str, BuiltIn] = {
    "hf": BuiltIn(
        "regimescope.engines.hf:HfEngine",
        ("torch", "transformers"),
        "pip install 'regimescope[hf]'",
        "PyTorch with transformers, on cpu, cuda, mps and xpu",
    ),
    "llama_cpp": BuiltIn(
        "regimescope.engines.llama_cpp:LlamaCppEngine",
        ("xllamacpp",),
        # Spelled as every release of pip finds the extra.
        "pip install 'regimescope[llama-cpp]'",
        "GGUF models in the server core of llama.cpp, on cpu, Metal and CUDA",
    ),
    "mlx": BuiltIn(
        "regimescope.engines.mlx:MlxEngine",
        ("mlx", "mlx_lm"),
        "pip install 'regimescope[mlx]'",
        "MLX with mlx-lm, on the GPU of Apple silicon and on cpu",
    ),
    "openai": BuiltIn(
        "regimescope.engines.openai_http:OpenAIEngine",
        ("httpx", "httpx_sse"),
        "pip install 'regimescope[openai]'",
        "any OpenAI-compatible server over HTTP; --engine-option url=URL, model 'server'",
    ),
    "simulated": BuiltIn(
        "regimescope.engines.simulated:SimulatedEngine",
        (),
        "pip install regimescope",
        "virtual clock with regimes injected on request, for tests and demonstrations",
    ),
}


def engine_names() -> tuple[str, ...]:
    """Return the names of all engines, the built-in ones first."""
    return (*BUILT_IN, *sorted(_plug_ins()))


def get_engine(name: str) -> Engine:
    """Return an engine by name.

    Raises:
        SpecError: No engine has this name.
        MissingDependencyError: A library that the engine needs is not installed.
        CapabilityError: An engine of another package cannot be loaded.
    """
    built_in = BUILT_IN.get(name)
    if built_in is not None:
        absent = [module for module in built_in.requires if not _is_installed(module)]
        if absent:
            raise MissingDependencyError(
                f"Engine {name!r} needs {listing(absent)}, which is not installed.",
                remedy=f"Install it: {built_in.install}",
            )
        module, _, attribute = built_in.target.partition(":")
        return cast(Engine, getattr(importlib.import_module(module), attribute)())
    plug_in = _plug_ins().get(name)
    if plug_in is None:
        raise _unknown(name)
    return _load(plug_in)


def describe_engines() -> tuple[EngineRow, ...]:
    """Return a row for every engine, without importing any of them."""
    rows = [
        EngineRow(name, _state(*engine.requires), engine.install, engine.description)
        for name, engine in BUILT_IN.items()
    ]
    for name, plug_in in sorted(_plug_ins().items()):
        package, install = _package(plug_in), f"pip install {_package(plug_in)}"
        rows.append(EngineRow(name, _state(_top(plug_in)), install, f"from package {package}"))
    return tuple(rows)


def _plug_ins() -> dict[str, EntryPoint]:
    """Return the engines that other packages announce; a built-in name is not given away."""
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in BUILT_IN}


def _load(plug_in: EntryPoint) -> Engine:
    """Import an engine of another package and check that it is one.

    Whatever goes wrong in code that is not ours is told as one clear error with its cause.
    """
    package = _package(plug_in)
    try:
        engine = plug_in.load()()
    except ImportError as error:
        raise MissingDependencyError(
            f"Engine {plug_in.name!r} of package {package} cannot be imported: {error}.",
            remedy=f"Install what is missing, or reinstall it: pip install {package}",
        ) from error
    except Exception as error:
        raise CapabilityError(
            f"Engine {plug_in.name!r} of package {package} is broken: "
            f"{type(error).__name__}: {error}.",
            remedy=f"Update or remove the package {package}.",
        ) from error
    lacking = _lacking(engine)
    if lacking:
        raise CapabilityError(
            f"Engine {plug_in.name!r} of package {package} is no engine: it lacks "
            f"{listing(lacking)}.",
            remedy=f"Update or remove the package {package}.",
        )
    return cast(Engine, engine)


def _lacking(engine: Any) -> list[str]:
    """Return the members of ``Engine`` that an object does not have."""
    lacking = [] if isinstance(getattr(engine, "name", None), str) else ["name"]
    methods = ("capabilities", "inspect", "open")
    return lacking + [method for method in methods if not callable(getattr(engine, method, None))]


def _unknown(name: str) -> SpecError:
    """Return the error for a name that no engine has."""
    names = engine_names()
    close = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    return SpecError(
        f"There is no engine {name!r}.", remedy=f"{hint}Known engines: {listing(names, most=20)}."
    )


def _state(*modules: str) -> Literal["installed", "missing"]:
    """Return whether all modules can be found."""
    return "installed" if all(map(_is_installed, modules)) else "missing"


def _is_installed(module: str) -> bool:
    """Return whether a top-level module can be found, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # what find_spec says of a module that was loaded without a spec
        return False


def _top(plug_in: EntryPoint) -> str:
    """Return the top-level module of an entry point; finding a submodule would import it."""
    return plug_in.module.partition(".")[0]


def _package(plug_in: EntryPoint) -> str:
    """Return the name of the package that announces an entry point."""
    return plug_in.dist.name if plug_in.dist is not None else _top(plug_in)
