import json

import pytest

from regimescope.report.escaping import encodable, plain, script_json


@pytest.mark.parametrize(
    ("outside", "shown"),
    [
        ("gpt2", "gpt2"),
        ("\x1b[31mred\x1b[0m", "[31mred[0m"),
        ("a\r\nb\tc", "a b c"),
        ("a\u2028b\u2029c", "a b c"),
        ("\u202edesrever\u202c", "desrever"),
        ("bell\x07 null\x00 delete\x7f c1\x9b", "bell null delete c1"),
        ("lone \ud800 surrogate", "lone  surrogate"),
        ("[red]x[/red] <b>", "[red]x[/red] <b>"),
        ("模型 é 👩\u200d💻", "模型 é 👩\u200d💻"),
        (None, "None"),
        (12, "12"),
    ],
)
def test_outside_strings_become_one_line_without_control_characters(outside, shown):
    assert plain(outside) == shown


def test_a_long_string_is_cut_and_says_so():
    assert plain("x" * 501) == "x" * 500 + " ... (1 more characters)"
    assert plain("x" * 500) == "x" * 500


@pytest.mark.parametrize(
    "hostile",
    ["</script><script>alert(1)</script>", "<!--", "]]>", "\u2028\u2029", "&lt;", 'a"b\\'],
)
def test_json_in_a_script_element_neither_ends_it_nor_loses_anything(hostile):
    text = script_json({"name": hostile, hostile: [1, 2.5, None]})
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"name": hostile, hostile: [1, 2.5, None]}


def test_characters_an_encoding_lacks_become_escapes():
    assert encodable("é模", "latin-1") == "é\\u6a21"
    assert encodable("é模", "utf-8") == "é模"
