"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    str, typer.Argument(help="Built-in architecture with random weights, path, or hub id.")
]
EngineName = Annotated[str, typer.Option(help="Engine that decodes.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, mps or xpu; llama_cpp: gpu or cpu.")]
ElementType = Annotated[
    str, typer.Option(help="float32, float16 or bfloat16; a GGUF file has its own.")
]
EngineOptions = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Option of the engine; VALUE may be JSON."),
]
OutputFolder = Annotated[
    Path | None, typer.Option("--out", help="Run folder to make; must not exist.")
]
RunFolderArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress; warnings only.")]
Capacity = Annotated[
    int | None,
    typer.Option(help="KV positions allocated; left out, the engine decides."),
]
Positions = Annotated[
    int | None,
    typer.Option(help="Longest context of random weights; left out, the published one."),
]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
]
