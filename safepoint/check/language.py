"""The text of a template → `template.Template`; and everything that is wrong with it, each fault at its place.

(1) A file gives a template or faults, never both: else a run would look for what nobody has written.
(2) All faults of all files are told before anything runs.
(3) A template is data: it names no path and no code, and nothing in it is expanded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from lark import Token

from safepoint.check import vocabulary
from safepoint.check.draft import Draft
from safepoint.check.sense import judge
from safepoint.check.sentences import Fault, Faults, Reader, TooMany, shown
from safepoint.check.template import KINDS, Template
from safepoint.errors import UsageError

STANDARD = Path(__file__).with_name("standard")  # the templates that are shipped
ALL = "standard"  # the name of those that run unless others are named
ENDING = ".tpl"
LARGEST = 1 << 20  # bytes of a file
ID = re.compile("[a-z0-9-]+")


def parse(text: str, path: Path) -> tuple[Template | None, list[Fault]]:
    """The template, or its faults in the order of their places. `path`: where the text is from."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    faults = Faults(path)
    template = None
    try:
        if ID.fullmatch(path.stem) is None:
            faults.tell(None, f"the name of the file is {shown(path.stem)}, expected a-z, 0-9 and - alone")
        template = _template(text, path, faults)
    except TooMany:
        pass
    return (None, sorted(faults.told, key=lambda one: one[1:3])) if faults.told else (template, [])


def _template(text: str, path: Path, faults: Faults) -> Template | None:
    if not text.strip():
        faults.tell(None, "the file is empty, expected Name=…")
        return None
    reader = Reader(text, faults)
    statements = list(reader.statements())
    draft = Draft(faults, reader.end)
    draft.read(statements)
    conditions = judge(draft)
    if draft.name is None or draft.size is None or faults.told:
        return None
    kind, expect = draft.heads.get("kind"), draft.heads.get("expect")
    return Template(
        id=path.stem,
        name=draft.name,
        size=draft.size,
        functions=dict(sorted(draft.functions.items())),
        conditions=tuple(conditions),
        bound=draft.bound,
        kind=kind.lower() if kind is not None else KINDS[0],
        expect=_expected(expect),
        text=draft.text if draft.text is not None else explanation(text),
        path=path,
        lines={number: at.line or 1 for number, at in sorted(draft.places.items())},
    )


def _expected(word: Token | None) -> str | int:
    if word is None:
        return "none"
    return int(word) if word.type == "INT" else word.lower()


def explanation(text: str) -> str:
    """The comment with which a template begins."""
    lines = []
    for line in text.split("\n"):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        lines.append(line.strip().removeprefix("#").removeprefix(" "))
    return "\n".join(lines).strip("\n")


def _read(path: Path) -> tuple[Template | None, list[Fault]]:
    """Of a file. What the system says of it is a fault too."""
    try:
        if path.is_dir():
            return None, [Fault(path, 1, 1, f"is a directory, expected a file {ENDING}")]
        if path.exists() and not path.is_file():
            return None, [Fault(path, 1, 1, "is no regular file")]
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        return None, [Fault(path, 0, 0, getattr(error, "strerror", None) or str(error))]
    return parse_bytes(data, path)


def parse_bytes(data: bytes, path: Path) -> tuple[Template | None, list[Fault]]:
    """As `parse`, of what a file has."""
    if len(data) > LARGEST:
        return None, [Fault(path, 1, 1, "is larger than 1 MiB")]
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        return None, [Fault(path, line, column, f"found the byte 0x{data[error.start]:02x}, expected UTF-8")]
    return parse(text, path)


def faults(path: Path) -> list[Fault]:
    """All that is wrong with a file, in the order of the lines; empty: it is a template."""
    return _read(path)[1]


def read(path: Path) -> Template:
    """The template in a file. UsageError: it is none; the message has a line for each fault."""
    template, told = _read(path)
    if template is None:
        raise UsageError("\n".join(map(str, told)))
    return template


def shipped() -> dict[str, Path]:
    """The templates that come with the library, by name."""
    return {path.stem: path for path in sorted(STANDARD.glob(f"*{ENDING}"))}


def standard() -> list[str]:
    """The names of those that run unless others are named."""
    try:
        lines = (STANDARD / "standard.txt").read_text("utf-8").splitlines()
    except FileNotFoundError:
        return []
    words = (line.partition("#")[0].strip() for line in lines)
    return [word for word in words if word]


def _paths(word: str) -> list[Path]:
    """What a word of `-t` means. A name that is shipped wins over a file or a directory of that name: `./` before it
    says that the file is meant."""
    known = shipped()
    if word == ALL:
        missing = [name for name in standard() if name not in known]
        if missing or not known:
            raise UsageError(f"this copy of safepoint lacks templates: {', '.join(missing) or 'all'}; install it again")
        return [known[name] for name in standard()]
    if word in known:
        return [known[word]]
    path = Path(word)
    if path.is_dir():
        found = sorted(path.glob(f"*{ENDING}"))
        if not found:
            raise UsageError(f"no template is in {word}: its files should end with {ENDING}")
        return found
    if path.exists():
        return [path]
    near = vocabulary.nearest(word, (*known, ALL))
    raise UsageError(f"no template and no file is named {shown(word)}" + (f"; {near}?" if near else ""))


def load(words: Iterable[str]) -> list[Template]:
    """The templates that are meant by NAME, FILE or DIR, each once, in this order. UsageError: one of them is wrong, or
    two have the same name; the message has a line for each fault of each."""
    chosen = {path.resolve(): path for word in words for path in _paths(word)}
    templates: dict[str, Template] = {}
    told: list[str] = []
    for path in chosen.values():
        template, wrong = _read(path)
        told += map(str, wrong)
        if template is None:
            continue
        if template.id in templates:
            told.append(f"{path}:1:1: {templates[template.id].path} has the same name; rename one of them")
        templates.setdefault(template.id, template)
    if told:
        raise UsageError("\n".join(told))
    return list(templates.values())
