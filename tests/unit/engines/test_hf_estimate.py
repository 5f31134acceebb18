import pytest

from regimescope.engines import hf_estimate
from regimescope.engines.hf_estimate import Setup, check_memory, memory_need
from regimescope.engines.hf_load import Shape
from regimescope.errors import CapabilityError
from regimescope.records import Cell

# Ten layers, of which four keep 100 positions; 1,000 parameters.
SHAPE = Shape(
    vocabulary=50,
    positions=4096,
    layers=10,
    heads=8,
    kv_heads=2,
    head_dim=16,
    parameters=1000,
    attention="sdpa",
    window=100,
    windowed_layers=4,
    full_layers=6,
)
SETUP = Setup("some-model", "cpu", "float32")
CELL = Cell(budget=301, prompt_tokens=500, batch=3, kv_cache="on")
# Keys and values of a position of a layer of one sequence, in float32.
ROW = 2 * 2 * 16 * 4


def need(cell=CELL, shape=SHAPE, **setup):
    return memory_need(shape, SETUP._replace(**setup), cell)


def test_need_is_weights_cache_and_logits():
    found = need()
    assert found.positions == 500 + 301 - 1
    assert found.weights == 4000
    assert found.cache == found.cache_on_device == 3 * ROW * (6 * 800 + 4 * 100)
    assert found.logits == 3 * 50 * 4
    assert found.scores == 0
    assert found.on_device == found.weights + found.cache + found.logits


def test_half_precision_halves_everything():
    whole, half = need(), need(dtype="bfloat16")
    assert 2 * half.on_device == whole.on_device


def test_depth_counts_and_a_larger_capacity_wins():
    assert need(Cell(budget=1, prompt_tokens=1, depth=2000)).positions == 2001
    assert need(Cell(budget=1, prompt_tokens=1, capacity=3000)).positions == 3000
    assert need(Cell(budget=11, prompt_tokens=90, capacity=50)).positions == 100


def test_window_longer_than_the_context_saves_nothing():
    found = need(Cell(budget=1, prompt_tokens=60))
    assert found.cache == ROW * 10 * 60


def test_model_holds_no_more_than_its_positions():
    assert need(Cell(budget=9000, prompt_tokens=10)).positions == 4096


def test_without_a_cache_there_is_none():
    found = need(Cell(budget=301, prompt_tokens=500, kv_cache="off"))
    assert found.cache == 0


def test_model_that_computes_all_logits_needs_them():
    shape = SHAPE._replace(all_logits=True)
    assert need(shape=shape).logits == 3 * 500 * 50 * 4
    off = Cell(budget=301, prompt_tokens=500, kv_cache="off")
    assert need(off, shape).logits == 800 * 50 * 4


@pytest.mark.parametrize(
    ("shape", "setup"),
    [(SHAPE._replace(attention="eager"), {}), (SHAPE, {"attention": "math"})],
)
def test_attention_that_writes_its_scores_needs_them(shape, setup):
    assert need(shape=shape, **setup).scores == 3 * 8 * 500 * 500 * 4
    deep = Cell(budget=2, prompt_tokens=10, depth=2000)
    assert need(deep, shape, **setup).scores == 8 * 10 * 2010 * 4
    off = Cell(budget=301, prompt_tokens=500, kv_cache="off")
    assert need(off, shape, **setup).scores == 8 * 800 * 800 * 4


def test_quantized_cache_is_an_eighth_of_float32():
    assert 8 * need(cache="quantized").cache == need().cache


def test_offloaded_cache_leaves_two_layers_on_the_device():
    found = need(cache="offloaded")
    assert 5 * found.cache_on_device == found.cache


def test_empty_cell_needs_one_position():
    assert need(Cell()).positions == 1


def test_shape_that_tells_nothing_of_its_heads_counts_weights():
    shape = SHAPE._replace(heads=None, kv_heads=None, head_dim=None, attention="eager")
    found = need(shape=shape)
    assert (found.cache, found.scores) == (0, 0)


# --- refusal --------------------------------------------------------------------------------------


@pytest.fixture
def free(monkeypatch):
    """Return a setter of the free memory of the device and of the host, in bytes."""

    def set_free(device, host=10**18):
        monkeypatch.setattr(hf_estimate, "free_bytes", lambda name: device)
        monkeypatch.setattr(hf_estimate, "host_free_bytes", lambda: host)

    return set_free


def test_exactly_enough_is_enough(free):
    wanted = need().on_device
    free(wanted)
    check_memory(SHAPE, SETUP, CELL)
    free(wanted - 1)
    with pytest.raises(CapabilityError):
        check_memory(SHAPE, SETUP, CELL)


def test_refusal_names_every_figure_and_the_way_out(free):
    free(1_000_000)
    with pytest.raises(CapabilityError) as caught:
        check_memory(SHAPE, SETUP, CELL)
    assert caught.value.message == (
        "some-model in float32 needs 4 MB on cpu: weights 4 kB, KV cache of 800 positions 3.99 MB, "
        "logits 600 B; 1 MB are free."
    )
    assert "smaller range" in caught.value.remedy
    assert "check_memory=false" in caught.value.remedy


def test_smaller_element_type_is_named_only_where_it_would_do(free):
    for room, named in ((0.6, True), (0.4, False)):
        free(int(need().on_device * room))
        with pytest.raises(CapabilityError) as caught:
            check_memory(SHAPE, SETUP, CELL)
        assert ("bfloat16" in caught.value.remedy) == named


def test_weights_too_large_ask_for_a_smaller_model(free):
    free(100)
    with pytest.raises(CapabilityError) as caught:
        check_memory(SHAPE, SETUP, CELL)
    assert "smaller model" in caught.value.remedy


def test_device_that_does_not_tell_is_believed(free):
    free(None)
    check_memory(SHAPE, SETUP._replace(device="xpu"), CELL)


def test_weights_from_files_pass_through_main_memory(free):
    setup = SETUP._replace(device="cuda")
    free(10**18, host=3999)
    check_memory(SHAPE, setup, CELL)
    with pytest.raises(CapabilityError, match="4 kB of main memory"):
        check_memory(SHAPE, setup._replace(is_file=True), CELL)


def test_offloaded_cache_must_fit_into_main_memory(free):
    found = need(cache="offloaded")
    setup = SETUP._replace(device="cuda", cache="offloaded")
    free(found.on_device, host=found.cache - found.cache_on_device)
    check_memory(SHAPE, setup, CELL)
    free(found.on_device, host=found.cache - found.cache_on_device - 1)
    with pytest.raises(CapabilityError, match="main memory"):
        check_memory(SHAPE, setup, CELL)
