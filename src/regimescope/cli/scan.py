"""``regimescope scan``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regimescope.cli.options import (
    AsJson,
    Capacity,
    Device,
    ElementType,
    EngineName,
    EngineOptions,
    Model,
    OutputFolder,
    Positions,
    Quiet,
    TrustRemoteCode,
)
from regimescope.cli.output import INTERRUPTED, REMOTE_CODE, console, options_given, present, say
from regimescope.spec import (
    DEFAULT_ENGINE,
    DEFAULT_MIN_WIDTH,
    DEFAULT_MODEL,
    ScanSpec,
    check_beside_resume,
    make_spec,
)

# What a run may be taken up with: a larger limit, or trust in the code of its model.
RESUMED_WITH = ("max_tokens", "max_seconds", "trust_remote_code")


def scan(
    context: typer.Context,
    model: Model = DEFAULT_MODEL,
    engine: EngineName = DEFAULT_ENGINE,
    device: Device = "auto",
    dtype: ElementType = "float32",
    budgets: Annotated[
        str | None,
        typer.Option(
            help="Fixed plan of budgets, or of values of --axis: START:STOP:STEP, or a list A,B,C."
        ),
    ] = None,
    span: Annotated[
        str | None,
        typer.Option(
            "--range",
            help="LOW:HIGH to search; 64:1024 if left out. To find the end of a slow interval, the "
            "search may go on outside.",
        ),
    ] = None,
    axis: Annotated[str, typer.Option(help="budget, context, prompt or capacity.")] = "budget",
    min_width: Annotated[
        int, typer.Option(help="Width of a slow interval that the search must not miss.")
    ] = DEFAULT_MIN_WIDTH,
    prevalence: Annotated[
        float, typer.Option(help="Least share of processes that are slow in it.")
    ] = 1.0,
    budget: Annotated[
        int | None,
        typer.Option(help="Tokens decoded on an axis other than budget; 32 if left out."),
    ] = None,
    certify: Annotated[
        bool, typer.Option("--certify", help="Final check in six fresh processes, not two.")
    ] = False,
    prompt_tokens: Annotated[int, typer.Option(help="Tokens of the prompt.")] = 65,
    depth: Annotated[
        int | None, typer.Option(help="KV positions in place before the prompt, not decoded.")
    ] = None,
    capacity: Capacity = None,
    positions: Positions = None,
    kv_cache: Annotated[str, typer.Option(help="on or off.")] = "on",
    batch: Annotated[int, typer.Option(help="Sequences decoded together.")] = 1,
    concurrency: Annotated[
        int | None,
        typer.Option(help="Requests at once to a server, the measured one included."),
    ] = None,
    arms: Annotated[
        str, typer.Option(help="warm: a process per block; fresh: a process per trial; or both.")
    ] = "warm",
    mode: Annotated[
        str, typer.Option(help="independent: a generation per budget; nested: one long one.")
    ] = "independent",
    order: Annotated[str, typer.Option(help="random, ascending or descending.")] = "random",
    processes: Annotated[int, typer.Option(help="Process runs, the unit of replication.")] = 3,
    repeats: Annotated[int, typer.Option(help="Visits to every budget in each process.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of order, prompts, random weights.")] = 0,
    warm_up_s: Annotated[float, typer.Option(help="Least seconds of warm-up a process.")] = 3.0,
    trial_timeout_s: Annotated[float, typer.Option(help="Longest seconds of a trial.")] = 3600.0,
    sentinel_every: Annotated[
        int, typer.Option(help="Trials between visits to a fixed small budget; 0 for none.")
    ] = 5,
    observer: Annotated[
        bool, typer.Option("--observer", help="Measure what stamping every token costs.")
    ] = False,
    max_seconds: Annotated[
        float | None, typer.Option(help="Start no trial after this wall time.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Decode no more tokens than this.")] = None,
    counters_every: Annotated[
        int, typer.Option(help="Steps between readings of counters in a trial; 0 for none.")
    ] = 64,
    identify: Annotated[
        bool, typer.Option("--identify", help="Keep host, user and home folder in the run.")
    ] = False,
    isolation: Annotated[str, typer.Option(help="auto, process or inline.")] = "auto",
    engine_option: EngineOptions = None,
    trust_remote_code: TrustRemoteCode = False,
    out: OutputFolder = None,
    resume: Annotated[
        Path | None, typer.Option(help="Finish this run folder; its own spec holds.")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Measure this machine and say whether it has latency regimes."""
    from regimescope import api
    from regimescope.report.progress import make_observer

    watcher = make_observer(console(stderr=True), quiet=quiet)
    given = options_given(context)
    if resume is not None:
        check_beside_resume(set(given) - {"resume", "as_json", "quiet", *RESUMED_WITH})
    spec = None if resume is not None else make_spec(context.params)
    if trust_remote_code:
        say(REMOTE_CODE)
    folder = resume or out or api.default_folder(spec or ScanSpec())
    try:
        if spec is None:
            resumed = {name: given[name] for name in RESUMED_WITH if name in given}
            run = api.resume(folder, observer=watcher, **resumed)
        else:
            run = api.scan(spec, out=folder, observer=watcher, given=given)
    except KeyboardInterrupt:
        kept = f"Finished trials are kept; go on with --resume {folder}" if folder.exists() else ""
        say(f"Interrupted. {kept}".rstrip())
        raise typer.Exit(INTERRUPTED) from None
    present(run, folder, as_json=as_json, quiet=quiet)
