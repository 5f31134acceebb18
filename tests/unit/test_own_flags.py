"""Options of the engine that have a flag of their own."""

import pytest

from regimescope.errors import SpecError
from regimescope.spec import ScanSpec, make_spec, to_command


def test_flags_become_options_of_the_engine():
    spec = make_spec({"positions": 4096, "trust_remote_code": True, "engine_option": ["threads=2"]})
    assert spec.engine_options == {"threads": 2, "positions": 4096, "trust_remote_code": True}


def test_flags_left_out_leave_no_option():
    assert make_spec({"positions": None, "trust_remote_code": False}).engine_options == {}


def test_concurrency_is_an_option_of_an_engine_that_asks_a_server():
    assert make_spec({"concurrency": 4}).engine_options == {"concurrency": 4}
    with pytest.raises(SpecError, match="--concurrency is given a second time"):
        make_spec({"concurrency": 4, "engine_option": ["concurrency=2"]})


def test_positions_are_not_given_twice():
    with pytest.raises(SpecError, match="--positions is given a second time"):
        make_spec({"positions": 4096, "engine_option": ["positions=4096"]})


@pytest.mark.parametrize("value", ["true", "false", "1", "yes"])
@pytest.mark.parametrize("flag", [True, False])
def test_trust_is_not_an_ordinary_option(value, flag):
    options = {"trust_remote_code": flag, "engine_option": [f"trust_remote_code={value}"]}
    with pytest.raises(SpecError, match="a flag of its own") as caught:
        make_spec(options)
    assert "--trust-remote-code" in caught.value.remedy


def test_command_names_trust_by_its_flag():
    options = {"trust_remote_code": True, "positions": 4096}
    command = to_command(ScanSpec(model="own", engine_options=options))
    assert "--trust-remote-code" in command
    assert command[-2:] == ["--engine-option", "positions=4096"]
    assert not [word for word in command if "trust_remote_code" in word]
