"""One root key is edited, and every other byte stays."""

from __future__ import annotations

import tomllib

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from proxy.codex.toml_edit import KEY, NotToml, lines_with, parse, with_value, without_value

URL = "http://127.0.0.1:10110/v1"
BEFORE = "https://example.invalid/v1"

keys = st.text("abcdef-_", min_size=1, max_size=6)
values = st.one_of(
    st.integers(-9, 9),
    st.booleans(),
    st.text(max_size=6),
    st.floats(allow_nan=True),
    st.lists(st.integers(0, 3), max_size=3),
)
tables = st.dictionaries(keys, st.one_of(values, st.dictionaries(keys, values, max_size=3)))
headers = st.sampled_from(["", "# a comment\n", "#:schema x\n", "\n\n", "\ufeff"])


@given(tables, headers)
def test_a_key_that_was_not_there_comes_and_goes_without_a_trace(
    table: dict[str, object], header: str
) -> None:
    content = (header + tomlkit.dumps(table)).encode()
    written = with_value(content, URL)

    assert parse(written) == {**parse(content), KEY: URL}
    assert without_value(written, None) == content


@given(tables, headers)
def test_a_key_that_was_there_gets_its_value_back(table: dict[str, object], header: str) -> None:
    content = (header + tomlkit.dumps({KEY: BEFORE, **table})).encode()

    assert without_value(with_value(content, URL), BEFORE) == content


@pytest.mark.parametrize(
    ("content", "written"),
    [
        (None, f'{KEY} = "{URL}"\n'),
        (b"", f'{KEY} = "{URL}"\n'),
        (b"[a]\r\n", f'{KEY} = "{URL}"\r\n[a]\r\n'),
        (b"#:schema x", f'#:schema x\n{KEY} = "{URL}"\n'),
        (b"#:schema x\n#:y\n# z\n", f'#:schema x\n#:y\n{KEY} = "{URL}"\n# z\n'),
        (f"{KEY} = '' # mine\n".encode(), f'{KEY} = "{URL}" # mine\n'),
        (f"a = 1\n'{KEY}'   =   ''\n".encode(), f"a = 1\n'{KEY}'   =   \"{URL}\"\n"),
    ],
)
def test_the_key_is_put_where_the_root_table_is(content: bytes | None, written: str) -> None:
    assert with_value(content, URL) == written.encode()


def test_a_key_of_the_same_name_in_a_table_is_another_one() -> None:
    content = f'[model_providers.x]\n{KEY} = "{BEFORE}"\n'.encode()
    table = tomllib.loads(with_value(content, URL).decode())

    assert table == {KEY: URL, "model_providers": {"x": {KEY: BEFORE}}}


@pytest.mark.parametrize("content", [b"a = \n", b"\xff", b"a = 1\na = 2\n", b"x = " + b"[" * 9999])
def test_what_is_no_toml_is_refused(content: bytes) -> None:
    with pytest.raises(NotToml):
        with_value(content, URL)
    with pytest.raises(NotToml):
        without_value(content, None)


@pytest.mark.parametrize(
    "content",
    [
        f"{KEY} = 'x'\n\n[[a]]\na.b = 1\n[b]\n\n[a.b]\n",
        f"{KEY} = 'x'\ny = {'[' * 150}{']' * 150}\n",
    ],
)
def test_what_would_come_out_differently_elsewhere_is_left_alone(content: str) -> None:
    tomllib.loads(content)

    with pytest.raises(NotToml):
        with_value(content.encode(), URL)
    with pytest.raises(NotToml):
        without_value(content.encode(), None)


def test_an_edit_that_would_break_the_rest_is_not_made() -> None:
    content = f"{KEY}.x = 1\na.b.c={{}}"
    tomllib.loads(content)

    with pytest.raises(NotToml):
        without_value(content.encode(), BEFORE)


def test_a_value_of_another_kind_is_not_replaced() -> None:
    with pytest.raises(NotToml):
        with_value(f"{KEY} = [1]\n".encode(), URL)


def test_the_lines_of_a_value_are_found_in_what_is_no_toml_too() -> None:
    assert lines_with(f"\xff\na = '{URL}'\n{URL}".encode("latin-1"), URL) == (2, 3)
    assert lines_with(b"", URL) == ()
