"""The user's line for the compiler, taken apart: what compiles, what links, in which order the sources come.

What stands on the line stays in its order, as linkers need it. A line that makes anything else than a program
or objects is refused, with what to do.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safepoint.errors import UsageError
from safepoint.threads.compilers import Family, family, is_source

TAKES_NEXT = {"-I", "-D", "-U", "-L", "-l", "-J", "-isystem", "-include", "-Xlinker", "-module", "-module-dir", "-T",
              "-u", "-z", "-target", "-arch", "-framework", "-Xclang", "-mllvm", "-iquote", "-idirafter"}  # fmt: skip
LINKS = re.compile(r"-l.*|-L.*|-Wl,.*|-static.*|-rdynamic|-(no-)?pie|-B(static|dynamic)|-[Tuz]|-framework|-Xlinker")
FIXED_WIDTH = re.compile(r"-ffixed-line-length-(\w+)|-extend[-_]source(?:[ =]?\d+)?|-Mextend|-132")
FORMS = {"-ffree-form": True, "-ffixed-form": False, "-free": True, "-fixed": False, "-Mfree": True, "-Mfixed": False}
DEPENDENCIES = {"-MD": 1, "-MMD": 1, "-MP": 1, "-MF": 2, "-MT": 2, "-MQ": 2}  # words; they would name our text
OTHER = {"-E", "-S", "-M", "-MM", "-fsyntax-only", "-shared", "-x", "--version", "-###"}
INPUTS = (".o", ".a", ".so", ".obj", ".lo", ".dylib")


class Word(NamedTuple):
    """A flag with what belongs to it, or a file. `kind`: flag, link, source, input."""

    kind: str
    parts: tuple[str, ...]


class Line(NamedTuple):
    compiler: tuple[str, ...]
    family: Family
    words: tuple[Word, ...]
    output: str | None
    objects_only: bool  # -c
    directory: Path  # in which it stands

    @property
    def sources(self) -> list[str]:
        return [word.parts[0] for word in self.words if word.kind == "source"]

    @property
    def module_directory(self) -> str:
        """Where the user's line puts modules."""
        for word in self.words:
            for flag in ("-J", "-module-dir", "-module"):
                if word.kind == "flag" and word.parts[0].startswith(flag) and word.parts != (flag,):
                    return word.parts[1] if len(word.parts) > 1 else word.parts[0][len(flag) :].lstrip("=")
        return ""

    def compiling(self, *, openmp: bool) -> list[str]:
        """Compiler and flags for one source, without those of modules and of OpenMP, unless that is wanted, and without
        those that turn warnings into errors: the text is not the user's."""
        found = list(self.compiler)
        for word in self.words:
            if word.kind != "flag" or word.parts[0].startswith(("-J", "-module", "-Werror")):
                continue
            if openmp or not self.is_openmp(word.parts[0]):
                found += word.parts
        return found

    def linking(self, objects: dict[str, str], more: Sequence[str]) -> list[str]:
        """Compiler, flags and inputs, each source or object replaced by what `objects` has for it; `more` comes after
        the last of them, so that what follows may be libraries that it needs."""
        words = [word for word in self.words if not word.parts[0].startswith(("-J", "-module"))]
        last = max((at for at, word in enumerate(words) if word.kind in ("source", "input")), default=len(words) - 1)
        found = list(self.compiler)
        for at, word in enumerate(words):
            found += [objects.get(part, part) for part in word.parts]
            if at == last:
                found += more
        return found

    def reading(self, beside: Path) -> dict[str, Any]:
        """What the line says of how a source is read: directories of INCLUDE files, names of the preprocessor, form."""
        include, defines, width, free = [beside], list[str](), None, None
        for word in (word for word in self.words if word.kind == "flag"):
            flag, value = word.parts[0], word.parts[-1] if len(word.parts) > 1 else word.parts[0][2:]
            if flag.startswith("-I"):
                include.append(self.directory / value)
            elif flag.startswith("-D"):
                defines.append(value)
            elif found := FIXED_WIDTH.fullmatch(flag):
                width = int(found[1]) if (found[1] or "").isdecimal() else 132 if "132" in flag else 10_000
            elif flag in FORMS:
                free = FORMS[flag]
        return {"include": tuple(include), "defines": tuple(defines), "width": width, "free": free}

    def is_openmp(self, flag: str) -> bool:
        return bool(re.fullmatch(self.family.openmp, flag))

    @property
    def openmp(self) -> bool:
        return any(word.kind == "flag" and self.is_openmp(word.parts[0]) for word in self.words)


def parse(words: Sequence[str], directory: Path | None = None) -> Line:
    """Raises `UsageError` for a line that makes no program and no object, or names no compiler or source. `directory`:
    where it stands, if not here."""
    here = directory or Path()
    found = list(_expanded(words, here))
    if not found:
        raise UsageError(
            "the line for the compiler is missing: safepoint threads build -o heat -- gfortran -O2 -fopenmp heat.f90"
        )
    kept, output, only, at = list[Word](), None, False, 1
    while at < len(found):
        word, more = found[at], found[at + 1 : at + 2]
        at += 1
        if word in OTHER:
            raise UsageError(f"{word} on the line for the compiler: only programs and objects (-c) are built")
        if word in TAKES_NEXT | {"-o", "-MF", "-MT", "-MQ"} and not more:
            raise UsageError(f"{word} is the last word of the line for the compiler, and needs another one")
        if word in DEPENDENCIES:
            at += DEPENDENCIES[word] - 1
        elif word == "-c":
            only = True
        elif word == "-o":
            output, at = more[0], at + 1
        elif word.startswith("-o") and len(word) > 2 and not word.startswith(("-openmp", "-opt")):
            output = word[2:]
        elif word in TAKES_NEXT:
            kept.append(Word("link" if LINKS.fullmatch(word) else "flag", (word, more[0])))
            at += 1
        else:
            kept.append(_one(word))
    line = Line((found[0],), family(found[0]), tuple(kept), output, only, here)
    _check(line)
    return line


def _one(word: str) -> Word:
    if word.startswith("-"):
        return Word("link" if LINKS.fullmatch(word) else "flag", (word,))
    if is_source(word):
        return Word("source", (word,))
    if word.endswith(INPUTS) or re.search(r"\.so\.[\d.]+$", word):
        return Word("input", (word,))
    raise UsageError(f"{word} on the line for the compiler is neither a flag nor a source, object or library")


def _check(line: Line) -> None:
    files = [word.parts[0] for word in line.words if word.kind in ("source", "input")]
    for file in files:
        if not (line.directory / file).exists():
            raise UsageError(f"{file}: No such file; nothing was built")
    if not files or (line.objects_only and not line.sources):
        raise UsageError("no source is on the line for the compiler")
    if line.objects_only and line.output and len(line.sources) > 1:
        raise UsageError("-c with -o and several sources: no compiler takes that")


def _expanded(words: Sequence[str], here: Path) -> Iterator[str]:
    """With the words of files that are named as @FILE."""
    for word in words:
        if not word.startswith("@"):
            yield word
            continue
        try:
            yield from _expanded(shlex.split((here / word[1:]).read_text("utf-8")), here)
        except OSError as error:
            raise UsageError(f"{word[1:]}: {error.strerror}; nothing was built") from error
