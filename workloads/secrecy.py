"""Removal of secrets from text: known values in every encoding, and text that looks like a secret by name or shape.

It prefers to remove too much. It runs on the cluster too, where images have just Ray and PyTorch: it imports only the
standard library.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path

REDACTED = "***"
SHORTEST_VALUE = 6  # characters: a shorter known value may be part of an ordinary word
FEWEST_CHARACTERS = 3  # different ones: a line of dashes is no secret
SHORTEST_SPLIT = 12  # characters: a shorter value with white space in it may be two ordinary words
LONGEST_TOKEN_FILE = 4096

_LINE = re.compile(r"(?!-----)\S{16,}")  # of a value with several lines: secret without the others
_HEAD = 32  # units of a pattern; what follows them is compared unit by unit
_WINDOW, _OVERLAP = 2**17, 2**14  # characters; an encoded head is shorter than the overlap

_SLASH = r"(?:\\|%(?:25){0,4}5[cC])"  # up to eight: escapes within escapes
_GAP = (
    r"(?:[ \t\n\r\v\f\0]|\x1b\[[0-9;]{0,16}m"
    # The prefix of a log's line: Ray's `(name pid=7) `, kubectl's `[pod/name/container] `.
    r"|(?<=\n)(?:\([^()\n]{1,120}\)|\[[^\[\]\n]{1,120}\])(?=[ \x1b])|(?<=m)\([^()\n]{1,120}\)(?=[ \x1b])"
    rf"|{_SLASH}{{1,8}}(?:[nrtvf]|(?:u00|x)(?:0[09a-dA-D]|20)|0(?:00|1[1-5]|40|(?![0-7]))|(?=[ \t]))"
    r"|%(?:25){0,4}(?:0[09a-dA-D]|20)|&(?:amp;){0,4}#(?:32|9|1[0-3]|[xX](?:20|0?[9a-dA-D]));"
    r"|=(?:20|0[9A-D]|\r?\n))"
)
_SPACE = r"[ \t\n\r\v\f\0]"
_NUL = r"(?:\0|\\{1,8}(?:u0000|x00|000)|%00)"  # of UTF-16
_HEX_GAP = r"(?:[ \t\n\r:;,.|_'\"=-]|0[xX]|\\{1,8}[xXnr]|%(?:25){0,4})*+"
_LIST_GAP = r"[,;\s]{1,4}+"
_ENTITIES = {'"': "quot", "'": "apos", "&": "amp", "<": "lt", ">": "gt"}

_EXACT, _LOWER, _DIGITS = range(3)  # views of a text
_NOT_ALPHANUMERIC = bytes(byte for byte in range(256) if not (byte < 128 and chr(byte).isalnum()))
_NOT_HEX = bytes(byte for byte in range(256) if byte not in b"0123456789abcdef")
_LOWER_CASE = bytes(range(256)).lower()


class Masker:
    """Removes known secrets from text, in every encoding of `encodings`."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._values: set[str] = set()
        self._encodings: list[Encoding] = []
        for value in known:
            self.add(value)

    def add(self, value: str) -> None:
        """Add a secret and each of its long lines to the known ones. Values shorter than SHORTEST_VALUE are ignored."""
        value = value.strip()
        lines = re.split(r"(?:[\r\n]|\\[nr])+", value)
        for each in {value, *(line for line in lines if _LINE.fullmatch(line))} - self._values:
            if len(each) >= SHORTEST_VALUE and len(set(each)) >= FEWEST_CHARACTERS:
                self._values.add(each)
                self._encodings += encodings(each)
        self._anchors = {anchor for encoding in self._encodings for anchor in encoding.anchors}

    def __bool__(self) -> bool:
        """Return whether a secret is known."""
        return bool(self._values)

    def text(self, text: str) -> str:
        """Return the text without the known values. The time is linear in the text's length."""
        if not self._encodings:
            return text
        return without(text, (span for at in range(0, len(text), _WINDOW) for span in self._spans(text, at)))

    def _spans(self, text: str, start: int) -> Iterator[tuple[int, int]]:
        end = min(len(text), start + _WINDOW + _OVERLAP)
        views = _views(text[start:end])
        there = {anchor for anchor in self._anchors if anchor[1] in views[anchor[0]]}
        for encoding in self._encodings if there else ():
            if not there.isdisjoint(encoding.anchors):
                yield from encoding.spans(text, start, end)


def _views(text: str) -> tuple[bytes, bytes, bytes]:
    """Return what encodings leave of a text: its letters and digits, the same in lower case, its hexadecimal digits.

    Bytes are translated and searched at more than 1 GB/s, which is ten times the speed of patterns.
    """
    data = text.encode("utf-8", "surrogatepass")
    if b"\\" in data:
        data = data.replace(b"\\n", b"").replace(b"\\r", b"").replace(b"\\t", b"")
    exact = data.translate(None, _NOT_ALPHANUMERIC)
    lower = exact.translate(_LOWER_CASE)
    return exact, lower, lower.translate(None, _NOT_HEX)


@dataclass(frozen=True)
class Encoding:
    """One encoding of a value.

    Attributes:
        units: Pattern of each unit, in sequence.
        gap: Possessive pattern between two units: no text makes a search slow.
        anchors: View and bytes: only a text of which one view has its bytes may have the value.
    """

    units: Sequence[str]
    gap: str
    anchors: Sequence[tuple[int, bytes]]

    def spans(self, text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield start and end of each occurrence that begins in a part of the text."""
        for match in self._head.finditer(text, start, end):
            at = match.end()
            for unit in self._rest:
                if (more := unit.match(text, at)) is None:
                    break  # cut or changed: the head alone is unmistakable
                at = more.end()
            yield match.start(), at

    @cached_property
    def _head(self) -> re.Pattern[str]:
        return re.compile(self.gap.join(self.units[:_HEAD]))

    @cached_property
    def _rest(self) -> list[re.Pattern[str]]:
        compiled = {unit: re.compile(self.gap + unit) for unit in set(self.units[_HEAD:])}
        return [compiled[unit] for unit in self.units[_HEAD:]]


def encodings(value: str) -> list[Encoding]:
    """Return the encodings of a value that are found in text.

    Escapes of JSON, Python, C, shells, URLs, HTML and quoted-printable, mixed and nested; UTF-16; bytes as hexadecimal,
    octal or decimal numbers; base64 and base32 at any offset within longer data; base85 and ascii85, of eight bytes
    at any offset. In a value of SHORTEST_SPLIT characters there may be white space, line ends, the colors of a
    terminal and the prefix of a log's line.
    """
    data, *wide = [value.encode(each, "surrogatepass").lstrip(b"\0") for each in ("utf-8", "utf-16-be", "utf-16-le")]
    digits = [(_DIGITS, each.encode()) for each in sorted(_numbers(value, data, wide))]
    forms = [
        *_written(value, [*digits, *_anchors(re.split(f"{_GAP}+", value), _LOWER)]),
        *(Encoding([_hex(byte) for byte in each], _HEX_GAP, digits) for each in {data, *wide}),
        Encoding([str(byte) for byte in data], _LIST_GAP, digits),
    ]
    gap = f"{_GAP}*+"
    for offset in range(3):
        core = _core(base64.b64encode, 6, data, offset)
        forms.append(Encoding([_BASE64.get(each, each) for each in core], gap, _anchors([core], _EXACT)))
    for offset in range(5):
        core = _core(base64.b32encode, 5, data, offset)
        forms.append(Encoding([f"[{each}{each.lower()}]" for each in core], gap, _anchors([core], _LOWER, False)))
    for encode in (base64.b85encode, base64.a85encode):
        for offset in range(4):
            part = data if offset == 0 and len(data) < 12 else data[offset : len(data) - (len(data) - offset) % 4]
            core = encode(part).decode() if len(part) >= SHORTEST_VALUE else ""
            letters = re.sub(r"\\[nrt]|[^A-Za-z0-9]", "", core[:_HEAD])
            forms += _written(core, _anchors([letters], _EXACT, False)) if core else []
    return forms


def _written(text: str, anchors: Sequence[tuple[int, bytes]]) -> Iterator[Encoding]:
    """Yield the encodings that keep a text's characters: with gaps, and, if it has what is a gap, with white space."""
    for gap in (_GAP, _SPACE):
        pieces = [re.sub(r"\\+", r"\\", piece) for piece in re.split(f"{gap}+", text) if piece]
        length = sum(map(len, pieces))
        if length < SHORTEST_VALUE:  # too little to be known without its white space
            yield Encoding([re.escape(each) for each in text], "", anchors)
            return
        pieces[0] = pieces[0].lstrip("\\=") or pieces[0]  # units that may be empty: a search would stop everywhere
        split = length >= SHORTEST_SPLIT
        units = [_escaped(each) for each in pieces[0]]
        between = rf"(?:\+|{gap}){'*+' if split else '++'}"  # a plus sign is a space of a URL
        for piece in pieces[1:]:
            taken = len(piece) - len(piece.lstrip("+"))
            first, *others = [f"{_escaped(each)}{'?+' if at < taken else ''}" for at, each in enumerate(piece)]
            units += [between + first, *others]
        yield Encoding(units, f"{gap if split else _NUL}*+", anchors)
        if not re.search(_GAP, re.sub(_SPACE, "", text)):
            return


def _numbers(value: str, data: bytes, wide: Sequence[bytes]) -> set[str]:
    """Return the first bytes or characters of a value as the numbers that a text has if it escapes all of them."""
    points = [*map(ord, value[:8])]
    numbers: list[tuple[Iterable[int], str]] = [
        (points, "{:x}"),
        (points, "{}"),
        *((each[:15], "{:02x}") for each in wide),
    ]
    numbers += [(data[:8], form) for form in ("{:02x}", "0{:02x}", "25{:02x}", "{:o}", "{:03o}", "{}")]
    return {"".join(map(form.format, each)) for each, form in numbers}


def _core(encode: Callable[[bytes], bytes], bits: int, data: bytes, offset: int) -> str:
    """Return the characters, of `bits` each, that only these data decide, `offset` bytes within longer data."""
    text = encode(bytes(offset) + data).decode()
    return text[-(-8 * offset // bits) : 8 * (offset + len(data)) // bits]


def _anchors(pieces: Sequence[str], view: int, several: bool = True) -> list[tuple[int, bytes]]:
    """Return what a view of each text with these pieces has: a run that no escape divides, or nothing.

    If several, one of two is there: the prefix of a log's line may divide the other.
    """
    text = "\n".join(pieces)[:_HEAD]
    text = text[text[:1] in "nrtNRT" :]  # which a view lacks after a backslash
    text = text.lower() if view == _LOWER else text
    run, second, *_ = [*sorted(re.findall("[A-Za-z0-9]{4,}", text), key=len, reverse=True), "", ""]
    if several and len(run) >= SHORTEST_SPLIT:
        run, second = run[: len(run) // 2], run[len(run) // 2 :]
    return [(view, each.encode()) for each in ([run, second] if several and second else [run])]


@cache
def _escaped(character: str) -> str:
    """Return the pattern of a character and of its escapes."""
    point, data = ord(character), character.encode("utf-8", "surrogatepass")
    wide = character.encode("utf-16-be", "surrogatepass")
    number = "".join(f"[{each}{each.upper()}]" if each.isalpha() else each for each in f"{point:x}")
    units = [wide[at : at + 2] for at in range(0, len(wide), 2)]
    slash = f"{_SLASH}{{1,8}}"
    slashed = [
        rf"(?:U0{{0,6}}|[uxX]\{{0{{0,6}}){number}\}}?",
        slash.join(f"u{_hex(first)}{_hex(second)}" for first, second in units),
        slash.join(f"x{_hex(byte)}" for byte in data),
        slash.join(f"0?{byte:03o}" for byte in data),
    ]
    escapes = [
        "".join(f"%(?:25){{0,4}}{_hex(byte)}" for byte in data),
        "".join(rf"=(?:3D){{0,2}}{_hex(byte)}(?:=\r?\n)?" for byte in data),
        f"&(?:amp;){{0,4}}#(?:0{{0,4}}{point}|[xX]0{{0,4}}{number});",
    ]
    if 128 <= point < 256:  # Latin-1
        slashed.append(f"x{number}")
        escapes.append(f"%(?:25){{0,4}}{number}|={number.upper()}")
    if character in _ENTITIES:
        escapes.append(f"&(?:amp;){{0,4}}{_ENTITIES[character]};")
    if character == "'":
        escapes.append(r"""'\\{0,8}"'\\{0,8}"'|'\\{1,8}''""")  # in shells
    after_slash, other = f"{slash}(?:{'|'.join(slashed)})", "|".join(escapes)
    if character == "\\":
        return rf"(?:{after_slash}|{other}|{_SLASH}\0?){{0,16}}"  # none, if it ends a line: the gap took it
    if character == "=":
        return f"(?:{after_slash}|{_SLASH}{{0,8}}(?:{other}|=))?+"  # none, if it ends a line: the gap took it
    if character.isascii() and character.isalnum():
        return f"(?:{character}|{after_slash}|{other})"
    return f"(?:{after_slash}|{_SLASH}{{0,8}}(?:{other}|{re.escape(character)}))"


def _hex(byte: int) -> str:
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in f"{byte:02x}")


_BASE64 = {"+": f"(?:-|{_escaped('+')})", "/": f"(?:_|{_escaped('/')})"}

# In a log, KEY alone is too common a word.
_NAME = (
    r"(?:token|secret|passw(?:or)?d|passphrase|credentials?|authorization|cookie|connection[_-]?string"
    r"|(?:api|access|private|auth|signing|encryption|account|ssh|license)[_-]?key"
    r"|(?:client-key|client-certificate|certificate-authority)-data)"
)
# Environment variables with these names are omitted.
_SECRET_VARIABLE = re.compile(rf"(?i)key|{_NAME}|(?:^|_)(?:pass|pat)$|_(?:pwd|auth|dsn)$|^pgpass$")
_QUOTE = r"(?:\\{0,8}[\"'])"
_VALUE = (
    rf"(?!{_QUOTE}?{re.escape(REDACTED)}(?:[\s,;\"'\\&)\]}}]|\Z))"
    r"""(?P<secret>\\{1,8}["'][^"'\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|["'][^\n]*|[^\s]+)"""
)
_IS = r"(?:\s{0,8}(?:=>|[=:](?!>))\s{0,8})"
_SIGNATURE = r"(?:x-(?:amz|goog)-(?:signature|credential|security-token)|awsaccesskeyid|googleaccessid|signature|sig)"
_USER = r"[^\s\"':,/=-][^\s\"':,/]{0,255}"
_NO_WORD = rf"(?!{_QUOTE}?(?:\d{{1,5}}|true|false|none|null|ok|yes|no)(?:[\s,;\"'\\/)\]}}]|\Z))"
# Patterns for text in lower case. Each begins with a few characters, or a set of them: other text costs one pass.
_RULES = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?:authorization|cookie){_QUOTE}?\s{{0,8}}[:=]\s{{0,8}}(?P<secret>[^\r\n]+)",
        r"(?:bearer|basic)(?<!\wbearer)(?<!\wbasic)(?:\s{1,8}|%20|\+)(?P<secret>[^\s\"']+)",
        r"(?::|%3a)(?://|%2f%2f)(?P<secret>(?:[^\s\"'<>/]|/(?!/)){1,1024})(?:@|%40)",
        rf"{_NAME}[\w.-]{{0,64}}+{_QUOTE}?(?:{_IS}|%3d|\s{{1,8}}set by environment to\s{{1,8}}){_VALUE}",
        rf"pass(?<![a-z]pass){_QUOTE}?\s{{0,4}}(?:=>?|%3d)\s{{0,4}}{_NO_WORD}{_VALUE}",
        rf"pwd(?<![a-z]pwd){_QUOTE}?(?:=|:\s|%3d)(?!\s?{_QUOTE}?[/~])\s?{_NO_WORD}{_VALUE}",  # PWD is a folder
        rf"[_\"'](?:pass|pat|auth){_QUOTE}?\s{{0,4}}[:=]\s{{0,4}}{_NO_WORD}{_VALUE}",
        # Options of commands, and their elements in JSON.
        rf"--(?<![\w-]--)[\w-]{{0,64}}?(?:{_NAME}|-pass)[\w-]{{0,64}}+(?:\s{{1,8}}|{_QUOTE},\s{{0,8}})(?!-){_VALUE}",
        rf"-(?:u|-user|-proxy-user)(?<![\w-]-u)(?<![\w-]--user)[\s\"',=]{{0,8}}(?P<secret>{_USER}:(?!\d+\b|/)[^\s\"']+)",
        r"(?:sshpass|login[^\n]{1,200}?)\s-p[\s\"',=]{0,8}(?P<secret>[^\s\"']+)",
        r"env\s{1,8}\w{0,64}?(?:pass(?:word|wd)?|token|secret|_key)\w{0,16}\s{1,8}(?P<secret>\S+)",
        # .netrc
        r"(?:login|machine)\s{1,64}\S{1,256}\s{1,64}(?:account\s{1,64}\S{1,256}\s{1,64})?password\s{1,64}(?P<secret>\S+)",
        # Signed URLs of AWS, Google and Azure.
        rf"[?&;\"'6]{_SIGNATURE}(?:=|%3d)(?P<secret>[^&\s\"'<>\\]+)",
    )
)
# Formats of tokens.
_FORMATS = re.compile(
    r"(?:A(?:3T[A-Z0-9]|KIA|SIA|BIA|CCA)[0-9A-Z]{16}|(?:FwoGZXIvYXdz|IQoJb3JpZ2lu)[\w+/=%-]{20,4096}"  # AWS
    r"|gh[pousr]_\w{20,255}|github_pat_\w{20,255}|gl(?:pat|dt|rt|rtr|cbt|ptt|ft|soat|imt|agent|oas|ffct)-[\w.-]{20,255}"
    r"|hf_\w{20,64}|api_org_\w{20,64}"  # Hugging Face
    r"|xox[abeoprs]-[\w.-]{10,255}|xapp-[\w-]{10,255}|hooks\.slack\.com/\w{1,16}/[\w/]{20,255}"
    r"|AIza[\w-]{35}|ya29\.[\w-]{20,1024}|GOCSPX-[\w-]{20,64}|//0(?<=1//0)[\w-]{20,255}"  # Google
    r"|Q~(?<=\dQ~)[\w.~-]{31,40}"  # Azure, but for the first characters
    r"|sk-(?:(?<![A-Za-z0-9]sk-)|(?<=\\[nrt]sk-)|(?<=%[0-9A-F]{2}sk-))(?=[\w-]{0,64}\d)[\w-]{20,255}"
    r"|npm_[A-Za-z0-9]{30,64}|dckr_[a-z]{3}_[\w-]{20,64}|pypi-[\w-]{32,1024}"
    r"|hv[sbr]\.[\w-]{20,255}|pul-[0-9a-f]{40}|dapi[0-9a-f]{32}|AGE-SECRET-KEY-1[0-9A-Z]{50,64}"
    r"|eyJ[\w-]{10,512}+\.[\w-]{10,4096}+(?:\.[\w-]*){1,3}"  # JWT
    # PEM in base64, as in a kubeconfig: at each offset.
    r"|(?:LS0tLS1CRUdJTi|tLS0tLUJFR0lO|0tLS0tQkVHSU4)(?:[\w+/=-]|\\n|\n(?=[\w+/]{32}))*)"
)
_PRIVATE_KEY = re.compile(
    r"(?s)-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r".*?(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)"
)


def redacted(text: str, known: Masker | None = None) -> str:
    """Return the text without known secrets and without parts that look like a secret."""
    text = known.text(text) if known is not None else text
    lower = text.replace("İ", "i").lower()  # whose lower case alone is longer
    spans = [match.span("secret") for rule in _RULES for match in rule.finditer(lower)]
    spans += [match.span() for pattern in (_FORMATS, _PRIVATE_KEY) for match in pattern.finditer(text)]
    return without(text, spans)


def without(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return a text with REDACTED instead of each span. Spans may overlap."""
    parts, done = [], 0
    for start, end in sorted(spans):
        if start >= done:
            parts += [text[done:start], REDACTED]
        done = max(done, end)
    return "".join([*parts, text[done:]])


def sounds_secret(variable: str) -> bool:
    """Return whether an environment variable of this name may hold a secret."""
    return _SECRET_VARIABLE.search(variable) is not None


_OPTION = re.compile(r"--?[\w.-]+")
_NAMING = ("--secret", "--secrets")
"""Options of this project whose value is a name."""


def is_secret_option(word: object) -> bool:
    """Return whether a word of a command is an option whose value, the next word, is secret."""
    return isinstance(word, str) and bool(_OPTION.fullmatch(word)) and word not in _NAMING and sounds_secret(word)


def command_without_secrets(words: Sequence[str]) -> list[str]:
    """Return the words of a command without those that look like a secret."""
    return [REDACTED if is_secret_option(before) else redacted(word) for before, word in pairwise(["", *words])]


def known_secrets(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets that this process could leak: values of its variables, and Ray's token from its files."""
    values = {
        value.strip() for name, value in environment.items() if sounds_secret(name) and not name.endswith("_PATH")
    }
    values.update(ray_tokens(environment))
    return tuple(sorted(value for value in values if len(value) >= SHORTEST_VALUE))


def ray_tokens(environment: Mapping[str, str]) -> list[str]:
    """Return the tokens that Ray finds here, the one that it uses first.

    Ray reads its token from RAY_AUTH_TOKEN, otherwise from the file RAY_AUTH_TOKEN_PATH, otherwise from
    ~/.ray/auth_token (Ray 2.60).
    """
    tokens = [environment.get("RAY_AUTH_TOKEN", "").strip()]
    for path in (environment.get("RAY_AUTH_TOKEN_PATH"), f"{environment.get('HOME', '')}/.ray/auth_token"):
        try:
            with Path(path or "").open(encoding="utf-8", errors="replace") as file:
                tokens.append(file.read(LONGEST_TOKEN_FILE).strip())
        except (OSError, ValueError):
            continue  # no such file, so no secret
    return [token for token in tokens if token]
