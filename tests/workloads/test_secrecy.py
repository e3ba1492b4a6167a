"""Known secrets in text. What encodes and decodes them here is the standard library, never the Masker's patterns."""

from __future__ import annotations

import base64
import binascii
import html
import json
import quopri
import re
import shlex
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, quote_plus, unquote, unquote_plus

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from workloads.secrecy import REDACTED, SHORTEST_VALUE, Masker

CORPUS = sorted(
    file
    for folder in ("corpus", "logs")
    for file in (Path(__file__).parent / "nccl" / folder).rglob("*.*")
    if file.is_file()
)
PRINTABLE = string.ascii_letters + string.digits + string.punctuation
ODD = PRINTABLE + " \n\t" + "\"'\\%&<=+/" * 4 + "äß\xa0€漢𝄞"
secrets = st.one_of(
    st.text(PRINTABLE, min_size=12, max_size=80),
    st.text(ODD, min_size=16, max_size=80),
    st.lists(
        st.text(string.ascii_letters + string.digits + "+/", min_size=64, max_size=64), min_size=2, max_size=4
    ).map("\n".join),
).map(str.strip)
around = st.text(PRINTABLE + " \n", max_size=12)


def each_byte(form: str) -> Callable[[str], str]:
    return lambda text: "".join(form.format(byte) for byte in text.encode())


def each_character(form: str) -> Callable[[str], str]:
    return lambda text: "".join(form.format(ord(character)) for character in text)


def from_numbers(pattern: str, base: int) -> Callable[[str], str]:
    return lambda text: bytes(int(number, base) & 255 for number in re.findall(pattern, text)).decode(
        "utf-8", "replace"
    )


def unescaped(text: str) -> str:
    """Undo backslashes as Python and C do."""
    return re.sub(
        r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}|[0-7]{3}|.)",
        lambda match: (
            chr(int(match[1][1:], 16))
            if match[1][0] in "uUx" and len(match[1]) > 1
            else chr(int(match[1], 8))
            if match[1].isdigit() and len(match[1]) == 3
            else {"n": "\n", "t": "\t", "r": "\r"}.get(match[1], match[1])
        ),
        text,
        flags=re.DOTALL,
    )


def of_bytes(text: str) -> str:
    return unescaped(text).encode("latin-1", "replace").decode("utf-8", "replace")


def of_utf16(text: str) -> str:
    return unescaped(text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def runs(alphabet: str, decode: Callable[[str], bytes], group: int) -> Callable[[str], str]:
    """Return the function that decodes each run of an alphabet from each of its first characters."""

    def all_of(text: str) -> Iterator[str]:
        for run in re.findall(f"[{alphabet}]+", re.sub(r"\s", "", text)):
            for start in range(group):
                for end in range(group):
                    part = run[start : len(run) - end]
                    try:
                        yield decode(part).decode("utf-8", "replace")
                    except (ValueError, binascii.Error):
                        continue

    return lambda text: "\n".join(all_of(text))


def base64_of(text: str) -> bytes:
    return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)


def base32_of(text: str) -> bytes:
    return base64.b32decode(text, casefold=True)


def of_json(text: str) -> str:
    try:
        return str(json.loads(text))
    except ValueError:  # broken by the mask
        return unescaped(text)


def wrapped(text: str, width: int, end: str = "\n") -> str:
    return end.join(text[at : at + width] for at in range(0, len(text), width))


Codec = tuple[Callable[[str], str], Callable[[str], str]]
"""Encoder of a text with a secret in it, and its inverse."""
from_base64 = runs("A-Za-z0-9+/_-", base64_of, 4)
CODECS: dict[str, Codec] = {
    "plain": (str, str),
    "JSON": (json.dumps, of_json),
    "JSON with Unicode": (lambda text: json.dumps(text, ensure_ascii=False), of_json),
    "JSON in JSON": (lambda text: json.dumps(json.dumps(text)), lambda text: of_json(of_json(text))),
    "repr": (repr, unescaped),
    "ascii": (ascii, unescaped),
    "repr of bytes": (lambda text: repr(text.encode()), of_bytes),
    "shell": (shlex.quote, lambda text: text.replace("'\"'\"'", "'")),
    "shell with backslashes": (lambda text: re.sub(r"([^\w\n])", r"\\\1", text, flags=re.ASCII), unescaped),
    "percent": (lambda text: quote(text, safe=""), unquote),
    "percent with slashes": (quote, unquote),
    "percent in lower case": (
        lambda text: re.sub("%..", lambda match: match[0].lower(), quote(text, safe="")),
        unquote,
    ),
    "percent and plus": (quote_plus, unquote_plus),
    "percent for each byte": (each_byte("%{:02X}"), unquote),
    "percent for each byte in lower case": (each_byte("%{:02x}"), unquote),
    "percent twice": (lambda text: quote(quote(text, safe=""), safe=""), lambda text: unquote(unquote(text))),
    "JSON in percent": (lambda text: quote(json.dumps(text), safe=""), lambda text: of_json(unquote(text))),
    "percent in JSON": (lambda text: json.dumps(quote(text, safe="")), lambda text: unquote(of_json(text))),
    "HTML": (html.escape, html.unescape),
    "HTML in JSON": (lambda text: json.dumps(html.escape(text)), lambda text: html.unescape(of_json(text))),
    "HTML decimal": (each_character("&#{};"), html.unescape),
    "HTML hexadecimal": (each_character("&#x{:x};"), html.unescape),
    "hexadecimal": (lambda text: text.encode().hex(), lambda text: _of_hex(text)),
    "hexadecimal in upper case": (lambda text: text.encode().hex().upper(), lambda text: _of_hex(text)),
    "hexadecimal with colons": (lambda text: text.encode().hex(":"), lambda text: _of_hex(text)),
    "hexadecimal with spaces": (lambda text: text.encode().hex(" "), lambda text: _of_hex(text)),
    "0x": (each_byte("0x{:02x}, "), lambda text: _of_hex(text.replace("0x", ""))),
    "\\x": (each_byte("\\x{:02x}"), of_bytes),
    "octal": (each_byte("\\{:03o}"), of_bytes),
    "decimal": (lambda text: str(list(text.encode())), from_numbers(r"\d+", 10)),
    "\\u": (
        lambda text: "".join(f"\\u{unit:04x}" for unit in memoryview(text.encode("utf-16-le")).cast("H")),
        of_utf16,
    ),
    "base64": (lambda text: base64.b64encode(text.encode()).decode(), from_base64),
    "base64 for URLs": (lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="), from_base64),
    "base64 in 64 columns": (lambda text: wrapped(base64.b64encode(text.encode()).decode(), 64), from_base64),
    "base64 in 76 columns": (lambda text: wrapped(base64.b64encode(text.encode()).decode(), 76, "\r\n"), from_base64),
    "base64 in JSON": (
        lambda text: json.dumps(wrapped(base64.b64encode(text.encode()).decode(), 76)),
        lambda text: from_base64(of_json(text)),
    ),
    "base64 in percent": (
        lambda text: quote(base64.b64encode(text.encode()).decode(), safe=""),
        lambda text: from_base64(unquote(text)),
    ),
    "base32": (lambda text: base64.b32encode(text.encode()).decode(), runs("A-Za-z2-7", base32_of, 8)),
    "base85": (
        lambda text: base64.b85encode(text.encode()).decode(),
        runs(re.escape("".join(set(PRINTABLE) - set("\"',./:[\\]"))), base64.b85decode, 5),
    ),
    "ascii85": (lambda text: base64.a85encode(text.encode()).decode(), runs("!-u", base64.a85decode, 5)),
    "quoted-printable": (
        lambda text: quopri.encodestring(text.encode()).decode(),
        lambda text: quopri.decodestring(text.encode()).decode("utf-8", "replace"),
    ),
    "UTF-16 as text": (
        lambda text: text.encode("utf-16-le", "replace").decode("latin-1"),
        lambda text: text.replace("\0", ""),
    ),
    "lines of a terminal": (lambda text: wrapped(text, 20, "\r\n"), lambda text: text.replace("\r\n", "")),
    "lines in JSON": (lambda text: json.dumps(wrapped(text, 20)), lambda text: of_json(text).replace("\n", "")),
    "lines of a log": (
        lambda text: wrapped(text, 30, "\n\x1b[36m(RayTrainWorker pid=71, ip=10.0.0.7)\x1b[0m "),
        lambda text: re.sub(r"\n\x1b.*?m\(.*?\)\x1b.*?m ", "", text),
    ),
}


def _of_hex(text: str) -> str:
    digits = re.sub("[^0-9a-fA-F*]", "", text)
    return "\n".join(
        bytes.fromhex(run[start : start + (len(run) - start) // 2 * 2]).decode("utf-8", "replace")
        for run in digits.split("*")
        for start in range(2)
    )


@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=15, deadline=None)
@given(secret=secrets, before=around, after=around)
@example(secret="0000 +0000000123", before="", after="")
@example(secret="a=b\\nc%0Ad&#32;e\\'f", before="\\", after="\\")
def test_known_secret_cannot_be_decoded(name: str, secret: str, before: str, after: str) -> None:
    assume(len("".join(secret.split())) >= 12 and len(set(secret)) > 5)  # one of which its surroundings are no part
    # A prefix within the only letters and digits in sequence hides them.
    assume(
        name != "lines of a log"
        or re.search("[A-Za-z0-9]{12}|[A-Za-z0-9]{4}.*?[^A-Za-z0-9].*[A-Za-z0-9]{4}", secret[:32])
    )
    encode, decode = CODECS[name]
    text = encode(before + secret + after)
    assert secret not in decode(Masker([secret]).text(text))


def test_known_secret_is_found_at_each_offset_of_longer_data() -> None:
    secret = "correct-horse/battery+staple"
    masker = Masker([secret])
    for before in range(8):
        for after in range(8):
            data = b"u" * before + secret.encode() + b":" * after
            for encode in (base64.b64encode, base64.urlsafe_b64encode, base64.b32encode, base64.b85encode):
                text = encode(data).decode()
                assert REDACTED in masker.text(f"got {text} from it"), (encode, before, after)


@pytest.mark.parametrize("encode", [base64.b64encode, base64.b32encode, base64.b85encode, base64.a85encode, bytes.hex])
def test_shortest_known_secret_is_found_encoded(encode: Callable[[bytes], bytes | str]) -> None:
    value = "h7Kq2x"
    assert len(value) == SHORTEST_VALUE
    text = encode(value.encode())
    assert REDACTED in Masker([value]).text(f"= {text if isinstance(text, str) else text.decode()} =")


def test_lines_of_a_private_key_are_known() -> None:
    lines = [base64.b64encode(bytes(range(start, start + 48))).decode() for start in (0, 60, 120)]
    key = "\n".join(["-----BEGIN PRIVATE KEY-----", *lines, "-----END PRIVATE KEY-----"])
    for known in (key, key.replace("\n", "\\n")):
        text = "\n".join(f"12:00:0{at} worker | {line}" for at, line in enumerate(lines))
        masked = Masker([known]).text(text)
        assert not any(line[:24] in masked for line in lines)
        assert masked.count("worker | ") == 3


def test_rest_of_a_long_known_secret_goes_with_its_head() -> None:
    secret = base64.b64encode(bytes(each * 7 % 256 for each in range(1500))).decode()
    masker = Masker([secret])
    for text in (secret, secret.encode().hex(), base64.b64encode(secret.encode()).decode(), "\n".join(secret)):
        assert len(masker.text(f"<{text}>")) < 12


@pytest.mark.parametrize("text", ["the cat sat on a mat", "thec atsat", "THECAT", "t-h-e-c-a-t", "dGhl", "74 68 65"])
def test_short_known_secret_leaves_ordinary_text(text: str) -> None:
    assert Masker(["thecat"]).text(text) == text


def test_masker_without_usable_values_is_false() -> None:
    assert not Masker(["", "short", "******"])
    assert Masker(["longer"])


def test_known_words_leave_the_corpus_of_logs() -> None:
    masker = Masker(["correct horse battery staple", "a8F2kd93Lq0z", "-----BEGIN KEY-----\n" + "ab12" * 16])
    for file in CORPUS:
        text = file.read_text(errors="replace")
        assert masker.text(text) == text, file
