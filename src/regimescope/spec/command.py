"""The command line that measures a spec again. Layer: ``spec``."""

from __future__ import annotations

import msgspec

from regimescope.spec.scan_spec import DEFAULT_HIGH, ScanSpec

_OPTIONS = (
    "axis",
    "min_width",
    "prevalence",
    "budget",
    "certify",
    "prompt_tokens",
    "depth",
    "capacity",
    "kv_cache",
    "batch",
    "arms",
    "mode",
    "order",
    "processes",
    "repeats",
    "seed",
    "warm_up_s",
    "trial_timeout_s",
    "sentinel_every",
    "observer",
    "counters_every",
    "identify",
    "max_seconds",
    "max_tokens",
    "isolation",
)


def to_command(spec: ScanSpec) -> list[str]:
    """Return the command line that measures a spec again; settings at their default are left out.

    The result contains what the user gave, such as a model path.
    """
    # A name that looks like an option must not become one; it stands behind all options.
    is_option_like = spec.model.startswith("-")
    command = ["regimescope", "scan", *([] if is_option_like else [spec.model])]
    command += ["--engine", spec.engine, "--device", spec.device, "--dtype", spec.dtype]
    if spec.budgets:
        command += ["--budgets", ",".join(map(str, spec.budgets))]
    else:
        command += ["--range", f"{spec.low}:{spec.high or DEFAULT_HIGH}"]
    default = ScanSpec()
    for key in _OPTIONS:
        value = getattr(spec, key)
        if value == getattr(default, key):
            continue
        flag = f"--{key.replace('_', '-')}"
        if isinstance(value, bool):
            command.append(flag)
        else:
            command += [flag, ",".join(value) if isinstance(value, tuple) else str(value)]
    for name, value in spec.engine_options.items():
        if name == "trust_remote_code":  # never without its own flag
            command += ["--trust-remote-code"] if value is True else []
            continue
        command += ["--engine-option", f"{name}={msgspec.json.encode(value).decode()}"]
    return [*command, "--", spec.model] if is_option_like else command
