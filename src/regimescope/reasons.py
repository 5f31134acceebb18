"""The closed list of reason codes, each with the sentence a user reads.

Layer: bottom (beside ``units`` and ``errors``). Source: method, section 15, and formats, section 0.
"""

from __future__ import annotations

from enum import Enum


class Reason(str, Enum):
    """Why a verdict is limited, refused or annotated. The value is the code used in files."""

    # input
    EMPTY = "empty"
    INVALID_LATENCY = "invalid_latency"
    INVALID_BUDGET = "invalid_budget"
    NO_DECODE_STEPS = "no_decode_steps"
    DUPLICATE_TRIAL_ID = "duplicate_trial_id"
    POSSIBLE_DUPLICATES = "possible_duplicates"
    MIXED_SERIES = "mixed_series"
    TOKEN_COUNT_MISMATCH = "token_count_mismatch"
    TOKENS_NOT_VERIFIED = "tokens_not_verified"
    BACKEND_FAILURES = "backend_failures"
    CACHED_PROMPT = "cached_prompt"
    # plan
    TOO_FEW_BUDGETS = "too_few_budgets"
    TOO_FEW_NORMAL_BUDGETS = "too_few_normal_budgets"
    NO_REPLICATION = "no_replication"
    SINGLE_PROCESS = "single_process"
    TOO_FEW_PROCESSES = "too_few_processes"
    MISSING_PROCESS_RUN = "missing_process_run"
    FIXED_ORDER = "fixed_order"
    MISSING_ORDER = "missing_order"
    ORDER_CONFOUNDED = "order_confounded"
    TIME_AND_AXIS_CONFOUNDED = "time_and_axis_confounded"
    CAPACITY_COVARIES = "capacity_covaries"
    NO_CONTROL = "no_control"
    GAP_TOO_WIDE = "gap_too_wide"
    LIMIT_REACHED = "limit_reached"
    INTERRUPTED = "interrupted"
    # noise
    OBSERVER_EFFECT = "observer_effect"
    DRIFT_VETO = "drift_veto"
    WARM_UP_SUSPECTED = "warm_up_suspected"
    TIED_TIMER = "tied_timer"
    ZERO_SPREAD = "zero_spread"
    NOISY = "noisy"
    BETWEEN_PROCESS_SPREAD = "between_process_spread"
    OCCASION_SHIFT = "occasion_shift"
    GROWTH_WITHIN_POINT = "growth_within_point"
    # shape
    CURVE_INADMISSIBLE = "curve_inadmissible"
    CURVE_FAILED = "curve_failed"
    REDUCED_DEGREE = "reduced_degree"
    FLAT_CURVE = "flat_curve"
    NOT_INCREASING = "not_increasing"
    NO_ABSOLUTE_REFERENCE = "no_absolute_reference"
    BELOW_MARGIN = "below_margin"
    AMBIGUOUS_SHAPE = "ambiguous_shape"
    PERIOD_UNRESOLVED = "period_unresolved"
    LEFT_CENSORED = "left_censored"
    RIGHT_CENSORED = "right_censored"
    # edges and position
    REFERENCE_MISMATCH = "reference_mismatch"
    TRANSITION_ZONE = "transition_zone"
    BOUNDARY_CONTRADICTION = "boundary_contradiction"
    HISTORY_DEPENDENT = "history_dependent"
    PREFIX_NOT_SUFFICIENT = "prefix_not_sufficient"
    AXIS_MIXED = "axis_mixed"
    NO_TRACES = "no_traces"
    CHUNKED_STREAM = "chunked_stream"
    SHORT_TRACE = "short_trace"
    # imports only
    SUMMARY_STATISTICS_ONLY = "summary_statistics_only"
    BUDGET_EQUALS_PROCESS = "budget_equals_process"
    CACHED_PROMPT_UNKNOWN = "cached_prompt_unknown"
    INTERPOLATED_TIMES = "interpolated_times"
    PHASE_UNSYNCHRONIZED = "phase_unsynchronized"
    MIXED_PHASES = "mixed_phases"
    TAIL_STATISTIC = "tail_statistic"
    CLIENT_SIDE_TIMES = "client_side_times"
    SPECULATIVE_DECODING = "speculative_decoding"
    ROUNDED_VALUES = "rounded_values"
    KERNEL_ONLY = "kernel_only"
    AXIS_FROM_USER = "axis_from_user"
    UNITS_FROM_USER = "units_from_user"
    VERSION_UNKNOWN = "version_unknown"


# What is worth knowing and limits a grade, but never withholds a verdict.
NOTES = frozenset(
    {
        Reason.POSSIBLE_DUPLICATES,
        Reason.TOKENS_NOT_VERIFIED,
        Reason.SINGLE_PROCESS,
        Reason.MISSING_PROCESS_RUN,
        Reason.FIXED_ORDER,
        Reason.MISSING_ORDER,
        Reason.CAPACITY_COVARIES,
        Reason.WARM_UP_SUSPECTED,
        Reason.TIED_TIMER,
        Reason.ZERO_SPREAD,
        Reason.REDUCED_DEGREE,
        Reason.NO_ABSOLUTE_REFERENCE,
        Reason.NO_TRACES,
        Reason.CHUNKED_STREAM,
        Reason.SHORT_TRACE,
        Reason.SUMMARY_STATISTICS_ONLY,
        Reason.BUDGET_EQUALS_PROCESS,
        Reason.CACHED_PROMPT_UNKNOWN,
        Reason.INTERPOLATED_TIMES,
        Reason.PHASE_UNSYNCHRONIZED,
        Reason.MIXED_PHASES,
        Reason.CLIENT_SIDE_TIMES,
        Reason.SPECULATIVE_DECODING,
        Reason.ROUNDED_VALUES,
        Reason.KERNEL_ONLY,
        Reason.AXIS_FROM_USER,
        Reason.UNITS_FROM_USER,
        Reason.VERSION_UNKNOWN,
    }
)

_MEANINGS: dict[Reason, str] = {
    Reason.EMPTY: "there are no measurements",
    Reason.INVALID_LATENCY: "a latency is missing, infinite, zero or negative",
    Reason.INVALID_BUDGET: "a budget is not a positive whole number",
    Reason.NO_DECODE_STEPS: "a budget of one token has no decode step to time",
    Reason.DUPLICATE_TRIAL_ID: "two trials carry the same id",
    Reason.POSSIBLE_DUPLICATES: "identical rows without ids may be the same measurement twice",
    Reason.MIXED_SERIES: "the rows belong to different series and must not be pooled",
    Reason.TOKEN_COUNT_MISMATCH: "trials with another token count than their budget are left out",
    Reason.TOKENS_NOT_VERIFIED: "the number of tokens produced was not recorded",
    Reason.BACKEND_FAILURES: "more than a third of the trials of some {one} failed",
    Reason.CACHED_PROMPT: "trials whose prompt came from a cache in part are left out",
    Reason.TOO_FEW_BUDGETS: "fewer than 6 {many}",
    Reason.TOO_FEW_NORMAL_BUDGETS: "fewer than 4 normal {many} to draw the baseline from",
    Reason.NO_REPLICATION: "one trial for each {one}, so the noise is unknown",
    Reason.SINGLE_PROCESS: "all trials ran in one process",
    Reason.TOO_FEW_PROCESSES: "fewer than 6 processes, too few to confirm a regime",
    Reason.MISSING_PROCESS_RUN: "which process measured each row is unknown",
    Reason.FIXED_ORDER: "{many} were visited in a fixed order, so time and {one} are mixed",
    Reason.MISSING_ORDER: "the order of the trials is unknown, so drift cannot be tested",
    Reason.ORDER_CONFOUNDED: "what ran before a trial differs between {many}",
    Reason.TIME_AND_AXIS_CONFOUNDED: "one monotone pass mixes time with the swept axis",
    Reason.CAPACITY_COVARIES: "the allocated capacity follows the swept axis",
    Reason.NO_CONTROL: "no normal {one} on one side of the slow interval",
    Reason.GAP_TOO_WIDE: "the grid has gaps wider than the regimes looked for",
    Reason.LIMIT_REACHED: "planned trials are missing: the run ended early, or they were lost",
    Reason.INTERRUPTED: "the measurement was interrupted",
    Reason.OBSERVER_EFFECT: "stamping every token changes the total time",
    Reason.DRIFT_VETO: "the machine changed its speed during blocks, which were left out",
    Reason.WARM_UP_SUSPECTED: "first trials are slower than later ones",
    Reason.TIED_TIMER: "many equal times: the timer is coarse",
    Reason.ZERO_SPREAD: "repeats are identical, so a floor replaces the noise estimate",
    Reason.NOISY: "the scatter is too large to see a slowdown of 1.25x",
    Reason.BETWEEN_PROCESS_SPREAD: "processes differ in level",
    Reason.OCCASION_SHIFT: "occasions differ in level",
    Reason.GROWTH_WITHIN_POINT: "repeats of one {one} rise in order",
    Reason.CURVE_INADMISSIBLE: "no convex increasing curve lies below the measurements",
    Reason.CURVE_FAILED: "no expected-latency curve could be fitted",
    Reason.REDUCED_DEGREE: "few normal {many}, so the baseline is simpler than usual",
    Reason.FLAT_CURVE: "latency does not depend on the {one}; did it reach the backend?",
    Reason.NOT_INCREASING: "latency falls with the {one} throughout",
    Reason.NO_ABSOLUTE_REFERENCE: "if every {one} is slow, nothing here can show it",
    Reason.BELOW_MARGIN: "a real but small deviation, below the margin of 1.25x",
    Reason.AMBIGUOUS_SHAPE: "two shapes explain the measurements about equally well",
    Reason.PERIOD_UNRESOLVED: "too few periods measured to be sure of the period",
    Reason.LEFT_CENSORED: "slow from the first {one} on",
    Reason.RIGHT_CENSORED: "no recovery up to the last {one}",
    Reason.REFERENCE_MISMATCH: "the {many} on both sides disagree about what is normal",
    Reason.TRANSITION_ZONE: "the edge is gradual, not a single token",
    Reason.BOUNDARY_CONTRADICTION: "more than one change inside an edge bracket",
    Reason.HISTORY_DEPENDENT: "the edges move with the order of the trials",
    Reason.PREFIX_NOT_SUFFICIENT: "the first tokens of a trial do not tell whether it is slow",
    Reason.AXIS_MIXED: "neither budget nor context length alone explains both edges",
    Reason.NO_TRACES: "no per-token times, so nothing can be said about positions",
    Reason.CHUNKED_STREAM: "the stream delivers several tokens in a chunk",
    Reason.SHORT_TRACE: "traces shorter than 24 tokens",
    Reason.SUMMARY_STATISTICS_ONLY: "only means or medians are given, not the single runs",
    Reason.BUDGET_EQUALS_PROCESS: "each {one} had its own process; the two cannot be told apart",
    Reason.CACHED_PROMPT_UNKNOWN: "whether the prompt was cached is unknown",
    Reason.INTERPOLATED_TIMES: "per-token times are interpolated, not measured",
    Reason.PHASE_UNSYNCHRONIZED: "prefill and decode were timed without synchronizing the device",
    Reason.MIXED_PHASES: "prefill and decode are not separated",
    Reason.TAIL_STATISTIC: "tail percentiles carry no grade",
    Reason.CLIENT_SIDE_TIMES: "times were taken on the client side of a network",
    Reason.SPECULATIVE_DECODING: "speculative decoding makes steps of unequal token counts",
    Reason.ROUNDED_VALUES: "values are rounded coarsely",
    Reason.KERNEL_ONLY: "one kernel was timed, not a model",
    Reason.AXIS_FROM_USER: "the swept axis is taken from the command line",
    Reason.UNITS_FROM_USER: "the units are taken from the command line",
    Reason.VERSION_UNKNOWN: "the version of the tool that wrote the file is unknown",
}


# What can be done about a limit, by who chose what was measured. Nobody is asked to repeat a
# measurement with options of ours that somebody else has made.
_REMEDIES: dict[Reason, dict[str, str]] = {
    Reason.TOO_FEW_BUDGETS: {
        "search": "use a smaller --min-width or a wider --range",
        "plan": "measure more of them",
        "import": "a curve needs more of them",
    },
    Reason.NO_REPLICATION: {
        "search": "the candidates alone are repeated",
        "plan": "use --processes 3 or more",
    },
    Reason.SINGLE_PROCESS: {
        "search": "what is slow in some processes only is looked for with --prevalence",
        "plan": "use --processes 3 or more",
    },
    Reason.LIMIT_REACHED: dict.fromkeys(("search", "plan"), "--resume measures them"),
    Reason.INTERRUPTED: dict.fromkeys(("search", "plan"), "--resume finishes it"),
    Reason.DRIFT_VETO: dict.fromkeys(
        ("search", "plan"), "let it cool, end other load, see `regimescope doctor`"
    ),
    Reason.WARM_UP_SUSPECTED: {
        "search": "warm-ups are left out of the curve; a longer --warm-up-s shows when they end",
        "plan": "warm-ups are left out of the curve; a longer --warm-up-s shows when they end",
        "import": "they stay in the curve",
    },
    Reason.LEFT_CENSORED: {
        "search": "use a lower --range",
        "plan": "start the sweep lower",
        "import": "smaller ones would show where it begins",
    },
    Reason.RIGHT_CENSORED: {
        "search": "use a higher --range",
        "plan": "extend the sweep upwards",
        "import": "larger ones would show whether it ends",
    },
}


def meaning(
    reason: Reason, *, one: str = "budget", many: str = "budgets", origin: str | None = None
) -> str:
    """Return the sentence, without a final period, that explains a reason code to a user.

    Args:
        reason: The code.
        one: What a value of the swept axis is called.
        many: What several of them are called.
        origin: Who chose what was measured (``search``, ``plan`` or ``import``), for what can be
            done about it; without it nothing is recommended.
    """
    sentence = _MEANINGS[reason].format(one=one, many=many)
    remedy = _REMEDIES.get(reason, {}).get(origin or "")
    return f"{sentence}; {remedy}" if remedy else sentence
