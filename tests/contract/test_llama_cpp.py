"""The engine llama_cpp with a real model: SmolLM2-135M, quantized to four bits."""

import json
import urllib.error
import urllib.request

import pytest
from msgspec.structs import replace
from tests.small_model import gguf_path

from regimescope.engines import llama_cpp_request
from regimescope.engines.base import (
    Engine,
    EngineRequest,
    Fills,
    Generation,
    Session,
    TellsGeneration,
)
from regimescope.engines.gguf_file import read_header, read_strings
from regimescope.engines.llama_cpp import LlamaCppEngine
from regimescope.engines.llama_cpp_model import read_model, unfinished_tokens
from regimescope.engines.llama_cpp_server import RequestWriter
from regimescope.engines.registry import get_engine
from regimescope.errors import CapabilityError, EngineError, SpecError, UserError
from regimescope.reasons import Reason
from regimescope.records import Cell
from regimescope.testing import assert_engine

MODEL = gguf_path()
# The header of the file with all its tokens; the tensors begin behind it.
HEADER_BYTES = 2_000_000
PROMPT = [5, 96, 1, 2, 40, 41, 7]
REQUEST = EngineRequest(
    model=str(MODEL), device="cpu", dtype="float32", seed=3, options={"threads": 1, "n_ctx": 256}
)


@pytest.fixture(scope="module")
def session():
    session = LlamaCppEngine().open(REQUEST)
    yield session
    session.close()


def beginning(length):
    """Return the first bytes of the model's file."""
    with MODEL.open("rb") as file:
        return file.read(length)


def cell(budget=3, **other):
    return Cell(budget=budget, prompt_tokens=len(PROMPT), **other)


def run(session, budget=3, prompt=PROMPT, **other):
    """Run one generation to its end and return what is known of it."""
    steps = list(session.generate(prompt, cell(budget, **other)))
    assert [step.tokens for step in steps] == [1] * budget
    return session.last_generation()


# --- generation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [1, 6])
def test_every_token_is_a_step_and_the_budget_is_exact(session, budget):
    known = run(session, budget)
    assert known.cached_tokens == 0
    assert known.readings["server_prefill_s"] > 0
    assert (known.readings["server_decode_s"] > 0.001) is (budget > 1)


def test_the_same_prompt_again_is_computed_again(session):
    run(session)
    assert run(session) == Generation(0, session.last_generation().readings)


def test_a_prompt_that_ends_a_text_does_not_end_the_generation(session):
    """Token 2 is the end of a text in this model."""
    run(session, prompt=[2, 2, 2])


def test_an_abandoned_generation_ends_and_leaves_the_session_usable(session):
    steps = session.generate(PROMPT, cell(200))
    next(steps)
    next(steps)
    steps.close()
    known = session.last_generation()
    assert known.cached_tokens == 0
    assert run(session).cached_tokens == 0


def test_tokens_that_arrive_together_are_counted(session):
    """The first byte of a character is kept back by the server until the character is complete."""
    lead = read_model(REQUEST.model).unfinished[0]
    request = json.loads(RequestWriter([]).write(PROMPT, 4, keep=False))
    request["logit_bias"] = [[lead, 100.0]]
    chunks = session._server.stream(json.dumps(request).encode())
    steps = list(session._steps(chunks, 4, len(PROMPT), 0))
    assert sum(step.tokens for step in steps) == 4
    assert len(steps) < 4


def test_the_context_ends_where_the_facts_say(session):
    """Asked for more, the server stops; the engine refuses that before, and says so after."""
    prompt = [7] * 250
    positions = session.facts().positions
    assert positions == 255
    with pytest.raises(CapabilityError, match="need 257 positions"):
        session.generate(prompt, cell(7))
    chunks = session._server.stream(RequestWriter([]).write(prompt, 20, keep=False))
    with pytest.raises(EngineError, match="6 of 20 tokens") as caught:
        list(session._steps(chunks, 20, len(prompt), 0))
    assert caught.value.reason is Reason.TOKEN_COUNT_MISMATCH
    assert len(prompt) + 6 - 1 == positions


def test_another_count_of_prompt_tokens_is_an_error(session):
    chunks = session._server.stream(RequestWriter([]).write(PROMPT, 1, keep=False))
    with pytest.raises(EngineError, match="7 tokens instead of 8") as caught:
        list(session._steps(chunks, 1, 8, 0))
    assert caught.value.reason is Reason.TOKEN_COUNT_MISMATCH


def test_what_the_server_refuses_is_an_error(session):
    chunks = session._server.stream(RequestWriter([]).write([10**6], 1, keep=False))
    with pytest.raises(EngineError, match=r"refused the request: .*invalid tokens"):
        next(chunks)
    chunks = session._server.stream(b"{")
    with pytest.raises(EngineError):
        next(chunks)
    run(session)


def test_the_port_of_the_server_is_closed_to_others(session):
    address = session._server._server.listening_address
    assert address.startswith("http://127.0.0.1:")
    request = urllib.request.Request(f"{address}/completion", data=b'{"prompt": "a"}')
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(request)


# --- depth and capacity ---------------------------------------------------------------------------


def test_a_fill_serves_the_next_generation_and_only_that(session):
    session.fill(20, cell(depth=20))
    assert run(session, depth=20).cached_tokens == 0
    with pytest.raises(EngineError, match="depth 20 is asked for, 0"):
        session.generate(PROMPT, cell(depth=20))
    session.fill(20)
    session.fill(0)
    run(session)


def test_a_fill_is_kept_and_not_computed_again(session):
    session.fill(60)
    chunks = session._server.stream(session._writer.write([*session._held, 9], 1, keep=True))
    assert list(chunks)[-1].timings.cache_n == 60


def test_a_fill_that_got_lost_is_an_error(session):
    session.fill(20)
    chunks = session._server.stream(session._writer.write([*session._held, 9], 1, keep=False))
    with pytest.raises(EngineError, match="kept 0 of 20"):
        list(session._steps(chunks, 1, 1, 20))


def test_a_fill_leaves_room_for_a_prompt_and_a_token(session):
    with pytest.raises(CapabilityError, match="Depth 255 need 257"):
        session.fill(255)
    with pytest.raises(EngineError, match="0 or more"):
        session.fill(-1)


def test_a_capacity_is_a_context_of_its_own(session):
    first = session._server
    session.fill(0, cell(capacity=600))
    second = session._server
    assert second is not first
    run(session, capacity=600)
    assert session._server is second
    with pytest.raises(CapabilityError, match="has room for 600"):
        session.generate(PROMPT, cell(594, capacity=600))
    # Without a capacity the context is that of the options again.
    run(session)
    assert session._server not in (first, second)


def test_room_ends_with_the_capacity_or_where_training_did():
    model = read_model(REQUEST.model)
    assert model.positions == 8192
    assert llama_cpp_request.usable(300, model) == 300
    assert llama_cpp_request.usable(100_000, model) == 8192
    assert llama_cpp_request.usable(100_000, model._replace(positions=None)) == 100_000


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "request_", "message"),
    [
        ([], cell(), "a prompt and a budget"),
        (PROMPT, cell(0), "a prompt and a budget"),
        ([49152], cell(), "0 to 49151"),
        ([-1], cell(), "0 to 49151"),
        (PROMPT, cell(kv_cache="off"), "without its KV cache"),
        (PROMPT, cell(batch=2), "one sequence"),
        (PROMPT, cell(depth=3), "depth 3"),
    ],
)
def test_requests_that_cannot_be_served_are_refused(session, prompt, request_, message):
    with pytest.raises((EngineError, CapabilityError), match=message):
        session.generate(prompt, request_)


def test_steps_without_stamps_are_refused(session):
    assert not LlamaCppEngine().capabilities().unstamped
    with pytest.raises(CapabilityError, match="--observer"):
        session.generate(PROMPT, cell(), stamped=False)


def test_a_closed_session_says_so():
    session = LlamaCppEngine().open(REQUEST)
    session.close()
    session.close()
    with pytest.raises(EngineError, match="closed"):
        session.generate(PROMPT, cell())
    with pytest.raises(EngineError, match="closed"):
        session.fill(3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (beginning(HEADER_BYTES), "cut short"),
        (beginning(5000), "cut short"),
        (b"GGUF", "cut short"),
        (b"", "no GGUF file"),
        (b"GGML" + bytes(100), "no GGUF file"),
        (b"GGUF" + (99).to_bytes(4, "little") + bytes(100), "version 99"),
    ],
)
def test_files_that_would_crash_the_library_are_refused_before(tmp_path, content, message):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        LlamaCppEngine().open(replace(REQUEST, model=str(path)))
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("model", "message"),
    [("", "no file"), ("gpt2", "no file 'gpt2'"), (str(MODEL.parent), "is a folder")],
)
def test_names_that_mean_no_file_are_refused(model, message):
    with pytest.raises(SpecError, match=message):
        LlamaCppEngine().inspect(replace(REQUEST, model=model))


def test_a_file_that_llama_cpp_does_not_load_is_an_engine_error(tmp_path):
    """An architecture that no release knows, in a file that is otherwise whole."""
    path = tmp_path / "model.gguf"
    key = b"general.architecture" + (8).to_bytes(4, "little") + (5).to_bytes(8, "little")
    content = MODEL.read_bytes()
    assert content.count(key + b"llama") == 1
    path.write_bytes(content.replace(key + b"llama", key + b"nosuc"))
    with pytest.raises(EngineError, match="cannot load"):
        LlamaCppEngine().open(replace(REQUEST, model=str(path)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device": "mps"}, "no device 'mps'"),
        ({"dtype": "float16"}, "are q4_1; float16"),
        ({"options": {"cache": "static"}}, "Known options: n_ctx"),
        ({"options": {"n_ctx": 0}}, "Options of the engine llama_cpp"),
        ({"options": {"cache_type": "q4_k"}}, "Options of the engine llama_cpp"),
        ({"options": {"n_batch": 64}}, "n_ubatch 512 is larger"),
        ({"options": {"cache_type": "q8_0", "flash_attention": "off"}}, "need flash attention"),
    ],
)
def test_requests_that_make_no_sense_are_refused(change, message):
    with pytest.raises(UserError, match=message) as caught:
        LlamaCppEngine().inspect(replace(REQUEST, **change))
    assert caught.value.remedy


# --- facts ----------------------------------------------------------------------------------------


def test_facts_are_those_of_the_file():
    facts = LlamaCppEngine().inspect(replace(REQUEST, options={}))
    assert (facts.device, facts.dtype, facts.weights) == ("cpu", "q4_1", "file")
    assert (facts.vocabulary, facts.layers) == (49152, 30)
    assert (facts.kv_heads, facts.head_dim) == (3, 64)
    assert facts.positions == llama_cpp_request.DEFAULT_N_CTX - 1
    # A q4_1 block holds 32 elements in 20 bytes; the norms and some tables are larger.
    assert facts.settings["parameters"] * 20 / 32 < facts.weight_bytes < MODEL.stat().st_size
    assert facts.settings["tokens_never_chosen"] == 239
    for dtype in ("file", "q4_1"):
        assert LlamaCppEngine().inspect(replace(REQUEST, dtype=dtype)).dtype == "q4_1"


def test_options_reach_the_library():
    options = {
        "threads": 1,
        "n_ctx": 300,
        "flash_attention": "on",
        "cache_type": "q8_0",
        "n_batch": 64,
        "n_ubatch": 32,
    }
    session = LlamaCppEngine().open(replace(REQUEST, options=options))
    assert options.items() <= session.facts().settings.items()
    assert session.facts().positions == 299
    run(session, prompt=PROMPT * 6)
    session.close()


def test_protocols_and_registry(session):
    engine: Engine = get_engine("llama_cpp")
    as_session: Session = session
    assert isinstance(engine, LlamaCppEngine)
    assert isinstance(as_session, Fills)
    assert isinstance(as_session, TellsGeneration)
    assert session.counters() == {}
    assert session.facts().versions.keys() == {"xllamacpp"}


def test_the_engine_keeps_the_contract():
    """What does not apply: its tokens are not told, it has no wait, and one way of caching."""
    request = replace(REQUEST, options={"threads": 1, "n_ctx": 64})
    results = assert_engine(LlamaCppEngine(), request)
    skipped = {result.name for result in results if not result.applicable}
    assert skipped <= {
        "unstamped",
        "same-tokens",
        "prompt-matters",
        "cache-changes-no-token",
        "cache-kinds",
        "counters",
        "wait",
        "synchronization",
        "inspect-loads-nothing",
    }
    assert "depth" not in skipped
    assert "capacity" not in skipped


# --- tokens that end inside a character -----------------------------------------------------------


def test_tokens_that_end_inside_a_character_are_found():
    """In the letters of GPT-2; against the decoder of the language."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {
        byte: chr(256 + index) for index, byte in enumerate(others)
    }
    texts = [text.encode() for text in ("a", "é", "€", "😀", " b", "né€😀")]
    pieces = [text[:end] for text in texts for end in range(1, len(text) + 1)]
    pieces += [text[start:] for text in texts for start in range(1, len(text))]
    expected = []
    for index, piece in enumerate(pieces):
        whole = piece.decode("utf-8", errors="ignore")
        tail = piece[len(piece) - 3 :] if len(piece) > 3 else piece
        # Inside a character: a first byte with too few bytes behind it.
        leads = [at for at, byte in enumerate(tail) if byte >= 0xC0]
        if leads and not whole.encode().endswith(tail[leads[-1] :]):
            expected.append(index)
    tokens = ["".join(letters[byte] for byte in piece) for piece in pieces]
    assert 10 < len(expected) < len(pieces) - 10
    assert list(unfinished_tokens("gpt2", tokens)) == expected


def test_single_bytes_of_sentence_pieces_are_found():
    tokens = ["a", "<0x41>", "<0xC3>", "<0x80>", "<0xE2>", "▁é", "<0xF0>", "<0xF0>x"]
    assert unfinished_tokens("llama", tokens) == (2, 4, 6)
    assert unfinished_tokens("rwkv", tokens) == ()


def test_lists_of_strings_are_read_from_a_header():
    assert read_strings(MODEL, "general.languages") == ["en"]
    assert read_strings(MODEL, "nosuch") == []
    # A list of numbers is not one of strings.
    assert read_strings(MODEL, "tokenizer.ggml.token_type") == []
    assert len(read_strings(MODEL, "tokenizer.ggml.tokens")) == 49152
    assert read_header(MODEL).metadata["llama.context_length"] == 8192
