"""What counts as a secret, in which spellings it is found, and that no cut between two chunks hides one."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from school import masking
from school.contracts import AgentSpec
from school.masking import Mask, looks_secret
from school.system import files, log, redaction
from school.system.sinks import Sink
from school.wording import printable

KEY = "sk-Abc123/def+456=ghi"


@pytest.fixture
def masked() -> Iterator[Mask]:
    mask = Mask.from_environment((), {"OPENAI_API_KEY": KEY})
    redaction.install(mask)
    yield mask
    redaction.install(None)


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("OPENAI_API_KEY", "sk-12345678", True),
        ("GITHUB_TOKEN", "ghp_abcdefgh", True),
        ("AWS_SECRET_ACCESS_KEY", "/a1B2c3D4e5F6", True),
        ("SECRET_KEY_BASE", "0123456789abcdef", True),
        ("PGPASSWORD", "correct horse", True),
        ("db_password", "correct horse", True),
        ("POSTGRES_PASSWORD", "postgres", False),
        ("POSTGRES_PASSWORD", "postgres1", True),
        ("X_SECRET", "abcdefghijklmnop", True),
        ("X_SECRET", "AbcDefGh", True),
        ("OPENAI_API_KEY", "short", False),
        ("SSH_KEY_FILE", "correct-horse-battery", False),
        ("SIGNING_KEY", "/etc/passwd", False),
        ("SIGNING_KEY", "~/.ssh/id_ed25519", False),
        ("MAX_TOKENS", "100000000", False),
        ("TOKENIZERS_PARALLELISM", "falsefalse", False),
        ("KEYBOARD_LAYOUT", "de-latin1-nodeadkeys", False),
        ("LANG", "en_US.UTF-8", False),
    ],
)
def test_what_looks_like_a_secret(name: str, value: str, *, secret: bool) -> None:
    assert looks_secret(name, value) is secret


def test_each_spelling_is_masked() -> None:
    mask = Mask.from_environment((), {"X_TOKEN": 'a"b/c\\d é?', "DATABASE_URL": "pg://me:hun%2Fter2two@h/d"})
    assert mask.text('says a"b/c\\d é? loud') == "says [masked X_TOKEN] loud"
    assert mask.text(json.dumps({"k": 'a"b/c\\d é?'})) == '{"k": "[masked X_TOKEN]"}'
    assert mask.text("?q=a%22b%2Fc%5Cd%20%C3%A9%3F&r") == "?q=[masked X_TOKEN]&r"
    assert mask.text("pg://me:hun%2Fter2two@h/d") == "pg://me:[masked DATABASE_URL]@h/d"
    assert mask.text("hun/ter2two") == "[masked DATABASE_URL]"


# Bytes before the key, so that it begins at each place in a group of three.
@pytest.mark.parametrize("before", ["", "a", "bc", "user:"])
@pytest.mark.parametrize("encode", [base64.standard_b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("key", [KEY, "ab1>>>???zz9", "hunter2!"])
def test_base64_is_masked_wherever_the_key_begins(before: str, encode: Any, key: str) -> None:
    mask = Mask.from_environment((), {"X_KEY": key})
    said = encode(f"{before}{key}, and more".encode())
    shown = mask.data(b"see " + said + b" end")
    assert b"[masked X_KEY]" in shown
    # What is left of the key are at most the two characters that it shares with its neighbours.
    others = len(shown) - len("see [masked X_KEY] end")
    assert others <= (len(before) + len(", and more")) * 4 / 3 + 4
    assert mask.text(said.decode()) != said.decode()


@pytest.mark.parametrize(
    "said",
    [
        b"736b2d4162633132332f6465662b3435363d676869",
        b"736B2D4162633132332F6465662B3435363D676869",
        b"sk-Abc123%2Fdef%2B456%3Dghi",
        b"sk-Abc123%2fdef%2b456%3dghi",
        b"ihg=654+fed/321cbA-ks",
        base64.b64encode(KEY.encode()),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 19, 64])
def test_an_encoded_key_is_masked_across_chunks(masked: Mask, said: bytes, size: int) -> None:
    raw = b"a word, " + said + b"\nend\n"
    stream = masked.stream()
    out = b"".join(stream(raw[at : at + size]) for at in range(0, len(raw), size)) + stream(b"", final=True)
    assert out == b"a word, [masked OPENAI_API_KEY]\nend\n"


def test_many_keys_are_found_like_one() -> None:
    mask = Mask.from_environment((), {f"K{n}_KEY": f"sk-{n:04}-live-9fJ2kQ7xW4nB8" for n in range(40)})
    assert mask.data(b"it is sk-0007-live-9fJ2kQ7xW4nB8.") == b"it is [masked K7_KEY]."
    assert mask.data(b"it is 8Bn4Wx7Qk2Jf9-evil-9000-ks.") == b"it is [masked K9_KEY]."
    harmless = b"sk-0007-live /a/long/path/with/0123456789abcdef0123456789abcdef\n" * 50
    assert mask.data(harmless) is harmless


def test_short_numbers_backwards_are_left_alone() -> None:
    mask = Mask.from_environment((), {"DB_PASSWORD": "1234567890123"})
    assert mask.text("3210987654321") == "3210987654321"
    assert Mask.from_environment((), {"A_KEY": "abc-1234"}).text("4321-cba") == "4321-cba"


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ('KEY = "sk-Abc" + "123/def+456=ghi"', [0]),
        ("x = 1\nKEY = (\n  'sk-Abc123'\n  f'/def+456'\n  r\"=ghi\"\n)", [2]),
        ('x\n  "sk-Abc123/" \\\n  "def+456=ghi"', [1]),
        ('"".join(["sk-Abc", "123/def", "+456=ghi"])', [0]),
        ("const k = `sk-Abc` +\n  `123/def+456=ghi`;", [0]),
        ('"c2stQWJjMTIz" "L2RlZis0NTY9Z2hp"', [0]),
        ('a = "sk-Abc"\nb = "123/def+456"', []),
        ("sk-Abc and then some", []),
    ],
)
def test_a_key_in_pieces_is_found_where_it_begins(masked: Mask, text: str, places: list[int]) -> None:
    assert masked.pieced(text.split("\n")) == places
    assert masking.pieced(text.split("\n")) == places


def test_the_longer_of_two_secrets_wins_and_lines_of_a_key_count() -> None:
    mask = Mask.from_environment(
        (),
        {"A_KEY": "abcdefg1", "B_KEY": "abcdefg1ijkl", "PEM_SECRET": "--begin--\nMIIEowIBAAKCAQEA\n--end--"},
    )
    assert mask.text("abcdefg1ijkl abcdefg1") == "[masked B_KEY] [masked A_KEY]"
    assert mask.text("x MIIEowIBAAKCAQEA y") == "x [masked PEM_SECRET] y"
    assert mask.text("--end--") == "--end--"


def test_named_variables_are_keys_whatever_they_are_called() -> None:
    assert Mask.from_environment(["WORD"], {"WORD": "open sesame"}).text("open sesame!") == "[masked WORD]!"
    assert not Mask.from_environment(["WORD"], {"WORD": "http://127.0.0.1:8000/v1"})
    assert not Mask.from_environment(["WORD"], {})


def test_an_agent_teaches_its_key_and_what_is_made_like_one(
    masked: Mask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", "plain-word-key")
    monkeypatch.setenv("OTHER", "Zz9Yy8Xx7Ww6Vv5Uu4Tt3")
    monkeypatch.setenv("MODEL", "claude-sonnet-4-20250514")
    spec = AgentSpec(
        name="a",
        kind="model",
        api_key_env="MINE",
        env=["OTHER", "MODEL"],
        set_env={"THEIR_TOKEN": "literal-value", "MODE": "production"},
    )
    masking.learn(spec)
    said = "plain-word-key Zz9Yy8Xx7Ww6Vv5Uu4Tt3 claude-sonnet-4-20250514 literal-value production"
    assert masked.text(said) == (
        "[masked MINE] [masked OTHER] claude-sonnet-4-20250514 [masked THEIR_TOKEN] production"
    )
    record = masked.value({"agent": spec.model_dump(), "output": {"set_env": "literal-value"}})
    assert record["agent"]["set_env"] == spec.set_env
    assert record["output"] == {"set_env": "[masked THEIR_TOKEN]"}


def test_learning_without_a_mask_changes_nothing() -> None:
    redaction.install(None)
    masking.learn(AgentSpec(name="a", kind="model", api_key_env="MINE"))
    assert masking.text(KEY) == KEY


@pytest.mark.parametrize("size", [1, 2, 7, 20, 21, 22, 1000])
def test_no_cut_between_chunks_hides_a_secret(masked: Mask, size: int) -> None:
    raw = f"sk sk-Abc sk-Abc123 {KEY}{KEY}\n{KEY} end sk-Ab".encode()
    stream = masked.stream()
    said = b"".join(stream(raw[at : at + size]) for at in range(0, len(raw), size)) + stream(b"", final=True)
    mark = b"[masked OPENAI_API_KEY]"
    assert said == b"sk sk-Abc sk-Abc123 " + mark * 2 + b"\n" + mark + b" end sk-Ab"


def test_an_output_that_ends_within_a_secret_does_not_show_its_beginning(masked: Mask) -> None:
    stream = masked.stream()
    assert stream(f"key: {KEY[:-1]}".encode()) + stream(b"", final=True) == b"key: [masked]"


def test_what_is_harmless_is_not_held_back(masked: Mask) -> None:
    assert masked.stream()(b"a line\n") == b"a line\n"


def test_a_sink_keeps_only_what_is_masked_on_disk_and_in_memory(masked: Mask, tmp_path: Path) -> None:
    sink = Sink(tmp_path / "out", 60, masked.stream())
    for chunk in (b"begin ", KEY[:9].encode(), KEY[9:].encode() + b"\n", b"x" * 100, KEY.encode()):
        sink.write(chunk)
    kept = sink.finish()
    assert kept == (tmp_path / "out").read_bytes()
    assert kept.startswith(b"begin [masked OPENAI")
    assert kept.endswith(b"[masked OPENAI_API_KEY]")
    assert sink.total == 6 + 23 + 1 + 100 + 23


@pytest.mark.usefixtures("masked")
def test_records_journals_logs_and_the_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files.write_json(tmp_path / "record.json", {"output": f"it is {KEY}", "n": 12345678, KEY: [KEY]})
    assert files.read_json(tmp_path / "record.json") == {
        "output": "it is [masked OPENAI_API_KEY]",
        "n": 12345678,
        "[masked OPENAI_API_KEY]": ["[masked OPENAI_API_KEY]"],
    }
    files.append_json_line(tmp_path / "journal.jsonl", {"why": KEY})
    log.configure("test", path=tmp_path / "log.jsonl", to_stderr=True)
    try:
        int(KEY)
    except ValueError:
        log.get("test").exception("it.failed", why=f"no {KEY}")
    log.configure("test", path=None, to_stderr=True, level="warning")
    assert printable(f"{KEY}\x1b") == "[masked OPENAI_API_KEY]\\x1b"
    for path in tmp_path.iterdir():
        if path.is_file():
            assert KEY not in path.read_text()
            assert "[masked OPENAI_API_KEY]" in path.read_text()
    assert KEY not in "".join(capsys.readouterr())


def test_a_number_that_is_a_password_spoils_no_record(tmp_path: Path) -> None:
    redaction.install(Mask.from_environment((), {"DB_PASSWORD": "12345678"}))
    try:
        files.write_json(tmp_path / "r.json", {"start": 12345678, "text": "x12345678y"})
    finally:
        redaction.install(None)
    assert files.read_json(tmp_path / "r.json") == {"start": 12345678, "text": "x[masked DB_PASSWORD]y"}
