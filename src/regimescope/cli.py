"""The command line: arguments in, exit status out, no logic.

Exit status: 0 done, 1 a failure while measuring or inside the tool, 2 unusable input or arguments,
130 interrupted.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from regimescope import __version__
from regimescope.errors import (
    MeasurementError,
    MissingDependencyError,
    UserError,
)
from regimescope.spec import (
    DEFAULT_ENGINE,
    DEFAULT_MIN_WIDTH,
    DEFAULT_MODEL,
    ScanSpec,
    check_beside_resume,
    make_spec,
)

if TYPE_CHECKING:
    from rich.console import Console

    from regimescope.records import Run

FAILED, UNUSABLE, INTERRUPTED = 1, 2, 130
# Below, lotteries of processes and kernels are common (method, section 1.4). Written here too, so
# that --help does without the statistics.
DEFAULT_MARGIN = 1.25
# A line of an error names a path and a list of choices; longer ones are library output.
MOST_CHARACTERS = 2000
REMOTE_CODE = "Warning: code that comes with the model runs here with all your rights."
# What a run may be taken up with: a larger limit, or trust in the code of its model.
RESUMED_WITH = ("max_tokens", "max_seconds", "trust_remote_code")

app = typer.Typer(
    name="regimescope",
    help="Find, confirm and locate slow execution regimes of autoregressive decoding.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Model = Annotated[
    str, typer.Argument(help="Built-in architecture with random weights, path, or hub id.")
]
EngineName = Annotated[str, typer.Option(help="Engine that decodes.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, mps or xpu.")]
ElementType = Annotated[str, typer.Option(help="float32, float16 or bfloat16.")]
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


def _show_version(wanted: bool) -> None:
    """Print the version and end."""
    if wanted:
        typer.echo(f"regimescope {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Find, confirm and locate slow execution regimes of autoregressive decoding."""


@app.command()
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
    capacity: Annotated[
        int | None, typer.Option(help="KV positions allocated; left out, the engine decides.")
    ] = None,
    positions: Annotated[
        int | None,
        typer.Option(help="Longest context of random weights; left out, the published one."),
    ] = None,
    kv_cache: Annotated[str, typer.Option(help="on or off.")] = "on",
    batch: Annotated[int, typer.Option(help="Sequences decoded together.")] = 1,
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
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
    ] = False,
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

    watcher = make_observer(_console(stderr=True), quiet=quiet)
    given = _given(context)
    if resume is not None:
        check_beside_resume(set(given) - {"resume", "as_json", "quiet", *RESUMED_WITH})
    spec = None if resume is not None else make_spec(context.params)
    if trust_remote_code:
        _say(REMOTE_CODE)
    folder = resume or out or api.default_folder(spec or ScanSpec())
    try:
        if spec is None:
            resumed = {name: given[name] for name in RESUMED_WITH if name in given}
            run = api.resume(folder, observer=watcher, **resumed)
        else:
            run = api.scan(spec, out=folder, observer=watcher, given=given)
    except KeyboardInterrupt:
        kept = f"Finished trials are kept; go on with --resume {folder}" if folder.exists() else ""
        _say(f"Interrupted. {kept}".rstrip())
        raise typer.Exit(INTERRUPTED) from None
    _present(run, folder, as_json=as_json, quiet=quiet)


@app.command()
def analyze(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="A run folder, or files of one sweep: of a known tool, or CSV."
        ),
    ],
    x: Annotated[str | None, typer.Option(help="Column of the decoding budget.")] = None,
    y: Annotated[str | None, typer.Option(help="Column of the latency in seconds.")] = None,
    axis: Annotated[
        str | None,
        typer.Option(help="What to read of a tool's file: budget, prompt, context, batch."),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(help="Pattern for file names; its groups, such as budget, tell lengths."),
    ] = None,
    budget: Annotated[int | None, typer.Option(help="Budget, where files lack it.")] = None,
    prompt_tokens: Annotated[int | None, typer.Option(help="Prompt, where files lack it.")] = None,
    batch: Annotated[int | None, typer.Option(help="Batch, where files lack it.")] = None,
    margin: Annotated[float, typer.Option(help="Least slowdown that counts.")] = DEFAULT_MARGIN,
    as_json: AsJson = False,
) -> None:
    """Say whether measurements made elsewhere have regimes."""
    from regimescope import api

    lengths = {"budget": budget, "prompt_tokens": prompt_tokens, "batch": batch}
    told = {name: value for name, value in lengths.items() if value is not None}
    run = api.load(*sources, x=x, y=y, axis=axis, pattern=pattern, lengths=told)
    _present(run, None, as_json=as_json, margin=margin)


@app.command()
def report(run: RunFolderArgument, as_json: AsJson = False) -> None:
    """Draw the verdict on a run folder again: summary and report.html; with --json neither."""
    from regimescope import api

    # A script that asks for the object is spared the page and the libraries that draw it.
    _present(api.load_folder(run), None if as_json else run, as_json=as_json)


@app.command()
def engines() -> None:
    """List the engines and how to install those that are missing."""
    from regimescope.engines.registry import describe_engines
    from regimescope.report.text import print_engines

    print_engines(_console(), describe_engines())


@app.command()
def serve(
    context: typer.Context,
    model: Model = DEFAULT_MODEL,
    engine: EngineName = DEFAULT_ENGINE,
    device: Device = "auto",
    dtype: ElementType = "float32",
    host: Annotated[str, typer.Option(help="Address; only this machine.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port, 1024 to 65535.")] = 8000,
    token_env: Annotated[
        str | None,
        typer.Option(help="Environment variable with the bearer token that clients must send."),
    ] = None,
    max_waiting: Annotated[int, typer.Option(help="Requests in hand; one more gets 429.")] = 64,
    seed: Annotated[int, typer.Option(help="Seed of random weights.")] = 0,
    engine_option: EngineOptions = None,
) -> None:
    """Serve a model over HTTP, OpenAI-compatible, one request at a time, to be measured."""
    from regimescope.serve import run_server

    given = make_spec(context.params)
    run_server(given, host=host, port=port, token_env=token_env, max_waiting=max_waiting, say=_say)


@app.command()
def doctor(
    engine: EngineName = DEFAULT_ENGINE,
    device: Device = "auto",
    model: Annotated[
        str | None, typer.Option(help="Model to examine with; a small built-in one if left out.")
    ] = None,
    trials: Annotated[int, typer.Option(help="Short trials for the noise floor.")] = 30,
    as_json: AsJson = False,
) -> None:
    """Say what this machine can measure, and what to fix before."""
    from msgspec.json import encode

    from regimescope.doctor import Wanted, examine
    from regimescope.report.consoles import write_out
    from regimescope.report.doctor_text import print_examination

    found = examine(Wanted(engine, device, model, trials))
    if as_json:
        write_out(encode(found) + b"\n")
    else:
        print_examination(_console(), found)
    if found.synchronization.verdict == "does not wait":
        raise typer.Exit(FAILED)


def _present(
    run: Run,
    folder: Path | None,
    *,
    as_json: bool,
    margin: float = DEFAULT_MARGIN,
    quiet: bool = False,
) -> None:
    """Conclude, write the page where there is a folder, and print."""
    from regimescope import api
    from regimescope.report.consoles import write_out
    from regimescope.report.text import print_conclusion
    from regimescope.results import to_json

    conclusion = api.analyze(run, margin=margin)
    page = None
    if folder is not None and not quiet:
        _say("writing the report")
    try:
        page = api.publish(run, conclusion, folder) if folder is not None else None
    except MissingDependencyError as error:
        # The measurement is done and its verdict worth more than its page.
        _say(f"No {api.REPORT} was written: {error}")
    if as_json:
        write_out(to_json(conclusion))
        return
    print_conclusion(_console(), run, conclusion, folder=folder, report_path=page)


def _given(context: typer.Context) -> dict[str, Any]:
    """Return the options that stand on the command line, not the defaults."""
    return {
        name: value if isinstance(value, (bool, int, float, list)) else str(value)
        for name, value in context.params.items()
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    }


def _console(*, stderr: bool = False) -> Console:
    """Return a console; colors only on a terminal."""
    from regimescope.report.consoles import LastingConsole

    return LastingConsole(stderr=stderr, highlight=False)


def _say(message: str) -> None:
    """Print lines on standard error; what came from outside cannot steer the terminal."""
    from regimescope.report.consoles import wrapped
    from regimescope.report.escaping import plain

    width = _console(stderr=True).width
    with contextlib.suppress(BrokenPipeError):  # nobody listens; the exit status still tells
        for line in message.splitlines():
            typer.echo(wrapped(plain(line, limit=MOST_CHARACTERS), width), err=True)


def _fail(message: str, status: int) -> NoReturn:
    """Print an error and end."""
    _say(f"Error: {message}")
    sys.exit(status)


def main() -> None:
    """Run the command line; the only place where an error becomes an exit status."""
    # A scheduler that ends a job sends SIGTERM; it deserves the same tidy end as Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except UserError as error:
        _fail(str(error), UNUSABLE)
    except OSError as error:
        # Standard output on a full disk, for one; files of ours raise errors of our own.
        _fail(f"{error.strerror or error}.", FAILED)
    except MeasurementError as error:
        _fail(str(error), FAILED)


if __name__ == "__main__":
    main()
