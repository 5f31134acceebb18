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
    SpecError,
    UserError,
)
from regimescope.spec import (
    DEFAULT_ENGINE,
    DEFAULT_MIN_WIDTH,
    DEFAULT_MODEL,
    ScanSpec,
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

app = typer.Typer(
    name="regimescope",
    help="Find, prove and explain execution regimes in LLM decoding.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Model = Annotated[
    str, typer.Argument(help="Built-in architecture with random weights, path, or hub id.")
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
    """Find, prove and explain execution regimes in LLM decoding."""


@app.command()
def scan(
    context: typer.Context,
    model: Model = DEFAULT_MODEL,
    engine: Annotated[str, typer.Option(help="Engine that decodes.")] = DEFAULT_ENGINE,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps or xpu.")] = "auto",
    dtype: Annotated[str, typer.Option(help="float32, float16 or bfloat16.")] = "float32",
    budgets: Annotated[
        str | None,
        typer.Option(help="Fixed plan: START:STOP:STEP with STOP included, or a list A,B,C."),
    ] = None,
    span: Annotated[
        str | None, typer.Option("--range", help="LOW:HIGH to search; 64:1024 if left out.")
    ] = None,
    axis: Annotated[str, typer.Option(help="budget, context, prompt or capacity.")] = "budget",
    min_width: Annotated[
        int, typer.Option(help="Width of a slow interval that the search must not miss.")
    ] = DEFAULT_MIN_WIDTH,
    prevalence: Annotated[
        float, typer.Option(help="Least share of processes that are slow in it.")
    ] = 1.0,
    budget: Annotated[int, typer.Option(help="Tokens decoded on an axis other than budget.")] = 32,
    certify: Annotated[
        bool, typer.Option("--certify", help="Final check in six fresh processes, not two.")
    ] = False,
    prompt_tokens: Annotated[int, typer.Option(help="Tokens of the prompt.")] = 65,
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
    engine_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Option of the engine; VALUE may be JSON."),
    ] = None,
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
        _refuse_beside_resume(given)
    spec = None if resume is not None else make_spec(context.params)
    folder = resume or out or api.default_folder(spec or ScanSpec())
    try:
        if spec is None:
            run = api.resume(folder, observer=watcher)
        else:
            run = api.scan(spec, out=folder, observer=watcher, given=given)
    except KeyboardInterrupt:
        kept = f"Finished trials are kept; go on with --resume {folder}" if folder.exists() else ""
        _say(f"Interrupted. {kept}".rstrip())
        raise typer.Exit(INTERRUPTED) from None
    _present(run, folder, as_json=as_json)


@app.command()
def analyze(
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="A run folder, or CSV or case files of one sweep."),
    ],
    x: Annotated[str | None, typer.Option(help="Column of the decoding budget.")] = None,
    y: Annotated[str | None, typer.Option(help="Column of the latency in seconds.")] = None,
    margin: Annotated[float, typer.Option(help="Least slowdown that counts.")] = DEFAULT_MARGIN,
    as_json: AsJson = False,
) -> None:
    """Say whether measurements made elsewhere have regimes."""
    from regimescope import api

    _present(api.load(*sources, x=x, y=y), None, as_json=as_json, margin=margin)


@app.command()
def report(run: RunFolderArgument, as_json: AsJson = False) -> None:
    """Draw the verdict on a run folder again: summary and report.html."""
    from regimescope import api

    _present(api.load(run), run, as_json=as_json)


@app.command()
def engines() -> None:
    """List the engines and how to install those that are missing."""
    from regimescope.engines.registry import describe_engines
    from regimescope.report.text import print_engines

    print_engines(_console(), describe_engines())


@app.command()
def doctor(
    engine: Annotated[str, typer.Option(help="Engine that decodes.")] = DEFAULT_ENGINE,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps or xpu.")] = "auto",
    model: Annotated[str, typer.Option(help="Model to examine with.")] = "tiny",
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
    run: Run, folder: Path | None, *, as_json: bool, margin: float = DEFAULT_MARGIN
) -> None:
    """Conclude, write the page where there is a folder, and print."""
    from regimescope import api
    from regimescope.report.consoles import write_out
    from regimescope.report.text import print_conclusion
    from regimescope.results import to_json

    conclusion = api.analyze(run, margin=margin)
    page = None
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


def _refuse_beside_resume(given: dict[str, Any]) -> None:
    """Refuse settings that a resumed run could not honor."""
    others = sorted(set(given) - {"resume", "as_json", "quiet"})
    if others:
        names = ", ".join(name.upper() if name == "model" else _flag(name) for name in others)
        raise SpecError(
            f"--resume goes on with the run's own spec; {names} cannot be given beside it.",
            remedy="Leave them out, or start a new scan with --out.",
        )


def _flag(name: str) -> str:
    """Return an option as it stands on the command line."""
    return f"--{name.replace('_', '-')}"


def _console(*, stderr: bool = False) -> Console:
    """Return a console; colors only on a terminal."""
    from regimescope.report.consoles import LastingConsole

    return LastingConsole(stderr=stderr, highlight=False)


def _say(message: str) -> None:
    """Print lines on standard error; what came from outside cannot steer the terminal."""
    from regimescope.report.escaping import plain

    with contextlib.suppress(BrokenPipeError):  # nobody listens; the exit status still tells
        for line in message.splitlines():
            typer.echo(plain(line, limit=MOST_CHARACTERS), err=True)


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
