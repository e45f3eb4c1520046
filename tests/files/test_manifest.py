"""The grammar of `.safepoint`: what each line means, what it finds, and what every fault says."""

from __future__ import annotations

import fnmatch
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from testbed.sweep import many

import safepoint
from safepoint import ManifestError, RefusedFileError
from safepoint.cli.judge.compare import files_of_ranks
from safepoint.ledger.sides import Side
from safepoint.manifest import load, parse
from safepoint.patterns import excluded, matches
from safepoint.program import SETTINGS
from safepoint.retention import FORM, Keep

EXAMPLE = """\
    u.npy                   # the files that make a save point, one per line
    history.csv   append    # a file that only grows
    keep = 2                # a setting"""

PLAIN = ("move", False, None, False)


def lines(text: str) -> list[tuple[Any, ...]]:
    """Kind, whole directory, zstd level and optional of each entry, in the order of the lines."""
    return [(entry.kind, entry.tree, entry.compress, entry.optional) for entry in parse(text).entries]


def found(work: str | os.PathLike[str], text: str, rank: int = 0, size: int = 1) -> dict[str, tuple[Any, ...]]:
    """What the manifest means in `work`, by path."""
    matches, _ = parse(text).find(os.fspath(work), os.lstat, rank, size)
    return {path: (m.entry.kind, m.entry.tree, m.entry.compress, m.entry.optional) for path, m in matches.items()}


def make(work: Path, *names: str) -> None:
    """Files of these names; those that end in a slash are directories."""
    for name in names:
        path = work / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")


# Names.


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("u.npy", "u.npy"),
        ("   u.npy   ", "u.npy"),
        ("\tu.npy\t", "u.npy"),
        ("./u.npy", "u.npy"),
        ("sub//u.npy", "sub/u.npy"),
        ("u.npy # a comment", "u.npy"),
        ("u#1.npy", "u#1.npy"),
        ('"# no comment"', "# no comment"),
        ("'# no comment'", "# no comment"),
        ('u"1".npy', 'u"1".npy'),
        ("rock'n'roll", "rock'n'roll"),
        ("a=b", "a=b"),
        ("compress", "compress"),
        ("keep", "keep"),
        ('"keep=3"', "keep=3"),
        ('"two words.dat"', "two words.dat"),
        ("'two words.dat'", "two words.dat"),
        ('"  "', "  "),
        (r'"say \"hi\""', 'say "hi"'),
        (r'"back\\slash"', "back\\slash"),
        (r'"two\nlines"', "two\nlines"),
        (r'"a\ttab"', "a\ttab"),
        (r"'no \n escape'", r"no \n escape"),
        (r"back\slash", r"back\slash"),
        ("поле.dat", "поле.dat"),
        ('"поле и волна.dat"', "поле и волна.dat"),
        ("u\u0301.npy", "u\u0301.npy"),
        ('"no\u00a0break"', "no\u00a0break"),
        ("🌊.npy", "🌊.npy"),
        ("'u[1].npy'", "u[1].npy"),
        ("'*.npy'", "*.npy"),
        ("'really?'", "really?"),
        ("u[[]1].npy", "u[1].npy"),
        ("[*].npy", "*.npy"),
        ("'u,v.npy'", "u,v.npy"),
        ('"T=300,p=1.dat"', "T=300,p=1.dat"),
        ("'a;b'", "a;b"),
        ("'u.npy' # u, v; w", "u.npy"),
        ("'{rank}.npy'", "{rank}.npy"),
        ("{{rank}}.npy", "{rank}.npy"),
        ('"{{}}"', "{}"),
        ("..u.npy", "..u.npy"),
        (".hidden", ".hidden"),
        (".safepoint.dat", ".safepoint.dat"),
        ("sub/.safepoint", "sub/.safepoint"),
    ],
)
def test_a_name_means_exactly_one_file(tmp_path: Path, line: str, name: str) -> None:
    """Bare, in double quotes or in single quotes, with escapes, spaces, comments and other alphabets."""
    make(tmp_path, name, "other.npy", "u1.npy", "reallyx", "0.npy")
    assert found(tmp_path, line) == {name: PLAIN}


@pytest.mark.parametrize(
    "data",
    [
        b"u.npy\nv.npy compress\nkeep = 3\n",
        b"u.npy\r\nv.npy compress\r\nkeep = 3\r\n",
        b"u.npy\r\nv.npy compress # zstd\r\nkeep=3",
        b"\xef\xbb\xbfu.npy\nv.npy compress\nkeep = 3\n",
        b"\xef\xbb\xbf# by an editor\r\n\r\n'u.npy'\r\n\"v.npy\"\tcompress\r\nkeep = 3",
        b"\n\n   # comment\n\t\n  u.npy\n\n#v.npy\nv.npy   compress   #keep = 9\n  keep   =   3  # sets\n",
    ],
)
def test_line_ends_byte_order_mark_comments_and_blanks_do_not_matter(tmp_path: Path, data: bytes) -> None:
    (tmp_path / ".safepoint").write_bytes(data)
    manifest = load(str(tmp_path))
    entries = [(entry.text, entry.compress) for entry in manifest.entries]
    assert (entries, manifest.setting("keep")) == ([("u.npy", None), ("v.npy", 3)], Keep(3))


def test_a_name_that_is_not_utf8_is_found(tmp_path: Path) -> None:
    name = b"caf\xe9.dat"
    (tmp_path / os.fsdecode(name)).write_bytes(b"")
    (tmp_path / ".safepoint").write_bytes(name + b"\n")
    matches, _ = load(str(tmp_path)).find(str(tmp_path), os.lstat)
    assert [os.fsencode(path) for path in matches] == [name]


@pytest.mark.parametrize("name", ["carriage\rreturn", "line\r\nend", "ends with\r"])
def test_a_carriage_return_in_a_quoted_name_stays_one(tmp_path: Path, name: str) -> None:
    make(tmp_path, name)
    (tmp_path / ".safepoint").write_bytes(quoted(name).encode() + b"\n")
    matches, _ = load(str(tmp_path)).find(str(tmp_path), os.lstat)
    assert list(matches) == [name]


def quoted(name: str) -> str:
    """The name as a manifest can have it: literally if possible, else with everything escaped that means something."""
    if "'" not in name and "\n" not in name:
        return f"'{name}'"
    for special in "[*?":
        name = name.replace(special, "\0" if special == "[" else f"[{special}]")
    name = name.replace("\0", "[[]").replace("{", "{{").replace("}", "}}")
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t") + '"'


def file_names() -> st.SearchStrategy[str]:
    """Anything that a file can be called, also what is not UTF-8."""
    text = st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1)
    tricky = st.text("[]*?{}\\\"'#= \n\t\r.~\x85\u2028a", min_size=1, max_size=12)
    raw = st.binary(min_size=1, max_size=40).map(os.fsdecode).filter(lambda name: "\0" not in name and "/" not in name)
    return st.one_of(text, tricky, raw)


@settings(max_examples=many(300))
@given(file_names())
@example("[")
@example("*'?")
@example("{rank}'")
@example("\n")
@example("'\\n\n")
@example("a\rb")
@example("\ufeff")
def test_any_file_name_quoted_means_exactly_that_file(name: str) -> None:
    """Whatever a file is called, there is a line that means it and nothing else."""
    raw = os.fsencode(name)
    assume(name not in (".", "..", ".safepoint", ".safepoint.d") and len(raw) <= 255)
    with tempfile.TemporaryDirectory() as work:
        for other in (name, "a", "x", "0"):
            Path(work, other).write_bytes(b"")
        Path(work, ".safepoint").write_bytes(os.fsencode(quoted(name)) + b"\n")
        matches, missing = load(work).find(work, os.lstat)
        assert (list(matches), missing) == ([name], [])


# Attributes and settings.


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("u", PLAIN),
        ("u compress", ("move", False, 3, False)),
        ("u compress=1", ("move", False, 1, False)),
        ("u compress=9", ("move", False, 9, False)),
        ("u compress=22", ("move", False, 22, False)),
        ("u append", ("append", False, None, False)),
        ("u copy", ("copy", False, None, False)),
        ("u optional", ("move", False, None, True)),
        ("u copy compress=19 optional", ("copy", False, 19, True)),
        ("u optional append", ("append", False, None, True)),
        ("u/", ("move", True, None, False)),
        ("'u v/' optional", ("move", True, None, True)),
        ('"u/" copy compress', ("copy", True, 3, False)),
    ],
)
def test_attributes_say_how_a_file_is_saved(text: str, entry: tuple[Any, ...]) -> None:
    assert lines(text) == [entry]


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("", "keep", Keep(2)),
        ("keep = 3", "keep", Keep(3)),
        ("keep=3", "keep", Keep(3)),
        ("keep =3", "keep", Keep(3)),
        ("  keep= 3   # comment", "keep", Keep(3)),
        ("keep = 100", "keep", Keep(100)),
        ("keep = all", "keep", Keep(10**9)),
        ("ledger = full", "ledger", 3),
        ("edges = 0", "edges", 0),
        ("", "copy_open_below", 64 << 20),
        ("copy_open_below = 64 MiB", "copy_open_below", 64 << 20),
        ("copy_open_below=64MiB", "copy_open_below", 64 << 20),
        ("copy_open_below = 1 KiB", "copy_open_below", 1 << 10),
        ("copy_open_below = 2G", "copy_open_below", 2 << 30),
        ("copy_open_below = 1 TB", "copy_open_below", 1 << 40),
        ("copy_open_below = 4096", "copy_open_below", 4096),
        ("copy_open_below = 10 B", "copy_open_below", 10),
        ("copy_open_below = 0", "copy_open_below", 0),
        ("", "copy_append_below", 64 << 20),
        ("copy_append_below = 1 GiB", "copy_append_below", 1 << 30),
    ],
)
def test_settings_have_a_value_and_a_default(line: str, name: str, value: object) -> None:
    manifest = parse(f"u.npy\n{line}\n", settings=SETTINGS)
    assert (manifest.setting(name), len(manifest.entries)) == (value, 1)


# Which files are found.

SOME = (
    "a.npy", "b.npy", "b.txt", ".hidden.npy", "sub/c.npy", "sub/deep/d.npy", "sub/.e.npy", "tree/x", "tree/y",
    ".safepoint", ".safepoint.d/FORMAT", ".safepoint.d/z.npy", ".dot/f.npy", "dir.npy/",
)  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("*.npy", ["a.npy", "b.npy"]),
        ('"*.npy"', ["a.npy", "b.npy"]),
        ("?.npy", ["a.npy", "b.npy"]),
        ("[a-c].*", ["a.npy", "b.npy", "b.txt"]),
        ("[!a].npy", ["b.npy"]),
        ("*", ["a.npy", "b.npy", "b.txt"]),
        (".*", [".hidden.npy"]),
        (".*.npy", [".hidden.npy"]),
        (".safepoint*", []),
        (".safepoint.[d]/*", []),
        (".s*/*", []),
        (".s*/", []),
        ("*/*.npy", ["sub/c.npy"]),
        (".*/*.npy", [".dot/f.npy"]),
        ("sub/*", ["sub/c.npy"]),
        ("sub/.*", ["sub/.e.npy"]),
        ("**", ["a.npy", "b.npy", "b.txt", "sub/c.npy", "sub/deep/d.npy", "tree/x", "tree/y"]),
        ("**/*.npy", ["a.npy", "b.npy", "sub/c.npy", "sub/deep/d.npy"]),
        ("sub/**/*.npy", ["sub/c.npy", "sub/deep/d.npy"]),
        ("*/", ["dir.npy", "sub", "tree"]),
        ("t*/", ["tree"]),
        (".*/", [".dot"]),
        ("tree/", ["tree"]),
        ("'tree/'", ["tree"]),
        ("sub/deep/", ["sub/deep"]),
        ("none/", []),
        ("none*", []),
        ("a.npy/none", []),
    ],
)
def test_a_glob_means_the_files_that_the_shell_would_list(tmp_path: Path, pattern: str, paths: list[str]) -> None:
    """Without a trailing slash files only, with it directories; hidden ones by a dot; never the save points."""
    make(tmp_path, *SOME)
    assert sorted(found(tmp_path, pattern)) == paths


def test_a_file_and_a_directory_found_by_a_slash_are_told_apart(tmp_path: Path) -> None:
    make(tmp_path, "run/x", "run.npy")
    assert found(tmp_path, "run*/\nrun*") == {"run": ("move", True, None, False), "run.npy": PLAIN}


def test_entries_without_any_file_are_missing_unless_optional(tmp_path: Path) -> None:
    make(tmp_path, "a.npy")
    _, missing = parse("a.npy\nb.npy\nc.npy optional\n*.vtk\n*.txt optional\nd/\n").find(str(tmp_path), os.lstat)
    assert [(entry.line, entry.text) for entry in missing] == [(2, "b.npy"), (4, "*.vtk"), (6, "d/")]


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("*.npy compress\na.npy copy", {"a.npy": ("copy", None), "b.npy": ("move", 3)}),
        ("a.npy copy\n*.npy compress", {"a.npy": ("move", 3), "b.npy": ("move", 3)}),
        ("*.npy compress\n?.npy compress=9\n[b]* append", {"a.npy": ("move", 9), "b.npy": ("append", None)}),
        ("'a.npy' append\n**\nb.npy copy", {"a.npy": ("move", None), "b.npy": ("copy", None)}),
    ],
)
def test_if_several_lines_match_a_file_the_last_decides(tmp_path: Path, text: str, kinds: dict[str, Any]) -> None:
    make(tmp_path, "a.npy", "b.npy")
    assert {path: (entry[0], entry[2]) for path, entry in found(tmp_path, text).items()} == kinds


@pytest.mark.parametrize("text", ["run/\nrun/a\nrun/*.npy\n", "run/a\n**/*.npy\nrun/\n", "run/\nrun/sub/\nrun/sub/*\n"])
def test_a_file_in_a_listed_directory_is_saved_as_part_of_it(tmp_path: Path, text: str) -> None:
    make(tmp_path, "run/a", "run/b.npy", "run/sub/c.npy")
    assert found(tmp_path, text) == {"run": ("move", True, None, False)}


@pytest.mark.parametrize(
    ("text", "line", "path"),
    [
        ("run/\nrun/a append\n", 2, "run/a"),
        ("run/a copy\nrun/\n", 1, "run/a"),
        ("u\nrun/ copy\nrun/* compress\n", 3, "run/a"),
        ("run/\nrun/sub/ copy\n", 2, "run/sub"),
    ],
)
def test_a_file_in_a_listed_directory_cannot_be_saved_in_another_way(
    tmp_path: Path, text: str, line: int, path: str
) -> None:
    make(tmp_path, "run/a", "run/sub/c")
    with pytest.raises(RefusedFileError) as caught:
        found(tmp_path, text)
    assert str(caught.value).startswith(f".safepoint:{line}: {path} lies in run/, which is listed too")


@pytest.mark.parametrize(
    ("line", "rank", "size", "paths"),
    [
        ("p-{rank}.h5", 0, 1, ["p-0.h5"]),
        ("p-{rank}.h5", 3, 8, ["p-3.h5"]),
        ("p-{rank:04d}.h5", 3, 8, ["p-0003.h5"]),
        ("p-{rank}-of-{size}.h5", 3, 8, ["p-3-of-8.h5"]),
        ("p-{rank:x}.h5", 10, 11, ["p-a.h5"]),
        ("rank-{rank}/*.vtk", 3, 8, ["rank-3/a.vtk", "rank-3/b.vtk"]),
        ("rank-{rank}/", 3, 8, ["rank-3"]),
        ('"p-{rank}.h5"', 3, 8, ["p-3.h5"]),
        ("'p-{rank}.h5'", 3, 8, ["p-{rank}.h5"]),
        ("p-{{rank}}.h5", 3, 8, ["p-{rank}.h5"]),
        ("p-{{{rank}}}.h5", 3, 8, ["p-{3}.h5"]),
        ("{size}.h5", 3, 8, ["8.h5"]),
    ],
)
def test_rank_and_size_name_the_files_of_each_rank(
    tmp_path: Path, line: str, rank: int, size: int, paths: list[str]
) -> None:
    make(
        tmp_path, "p-0.h5", "p-3.h5", "p-0003.h5", "p-3-of-8.h5", "p-a.h5", "rank-3/a.vtk", "rank-3/b.vtk",
        "rank-4/a.vtk", "p-{rank}.h5", "p-{3}.h5", "8.h5",
    )  # fmt: skip
    assert sorted(found(tmp_path, line, rank, size)) == paths


KNOWN = (
    "bundle_from, copy_append_below, copy_open_below, domain, drain, drain_rate, edges, every, keep, ledger, local, "
    "mtbf, pack_threads, partner, remote, remote_keep, stall_timeout, store"
)
# Faults.

FAULTS = [  # a line, and what its message must say
    ("u appendd", "unknown attribute appendd; did you mean append?"),
    ("u compres", "unknown attribute compres; did you mean compress?"),
    ("u compess=9", "unknown attribute compess=9; did you mean compress?"),
    ("u option", "unknown attribute option; did you mean optional?"),
    ("u zip", "unknown attribute zip; one name a line, then its attributes (append, "),
    ("u v", "unknown attribute v; one name a line, then its attributes (append, "),
    ("two words.dat", "unknown attribute words.dat; one name a line, then its attributes (append, "),
    ("u copy=1", "unknown attribute copy=1; did you mean copy?"),
    ("u copy copy", "copy is given twice"),
    ("u append mark", "a mark is the last file of every set, and kept whole: leave append out"),
    ("u compress compress=9", "compress is given twice"),
    ("u compress=0", "compress takes a level from 1 to 22, not 0"),
    ("u compress=23", "compress takes a level from 1 to 22, not 23"),
    ("u compress=-1", "compress takes a level from 1 to 22, not -1"),
    ("u compress=max", "compress takes a level from 1 to 22, not max"),
    ("u compress=", "compress takes a level from 1 to 22, not nothing"),
    ("u append compress", "an append file grows in place"),
    ("u compress=3 append", "an append file grows in place"),
    ("u/ append", "directories"),
    ("u/ append copy", "directories"),
    ("!", "! is to stand before a name"),
    ("!u/x copy", "what is excluded has no attributes, such as copy"),
    ("!first", "!first excludes first, which is listed in line 1: leave one line out"),
    ("!u/*.tmp", "!u/*.tmp excludes nothing that is listed"),
    ("!fir*", "!fir* excludes first, which is listed in line 1: leave one line out"),
    ("!**", "!** excludes first, which is listed in line 1: leave one line out"),
    ("!../u", "../u leads outside the working directory"),
    ("!'u", "'u: a quote is not closed, or text follows it"),
    ("kep = 3", "unknown setting kep; did you mean keep?"),
    ("copy_open_bellow = 1", "unknown setting copy_open_bellow; did you mean copy_open_below?"),
    ("colour = 3", f"unknown setting colour (known: {KNOWN})"),
    ("u.npy = 3", f"unknown setting u.npy (known: {KNOWN})"),
    ("ledger = loud", "ledger takes one of off, minimal, modify, full, not loud"),
    ("edges = -1", "edges takes a whole number from 0, not -1"),
    ("keep = 0", f"keep {FORM}, not 0"),
    ("keep = -1", f"keep {FORM}, not -1"),
    ("keep = two", f"keep {FORM}, not two"),
    ("keep = 2.5", f"keep {FORM}, not 2.5"),
    ("keep = 2 3", f"keep {FORM}, not 2 3"),
    ("keep =", f"keep {FORM}, not nothing"),
    ("keep=", f"keep {FORM}, not nothing"),
    ("copy_open_below = lots", "copy_open_below takes a size, such as 64 MiB, not lots"),
    ("copy_open_below = 1.5 MiB", "copy_open_below takes a size, such as 64 MiB, not 1.5 MiB"),
    ("copy_open_below = -1", "copy_open_below takes a size, such as 64 MiB, not -1"),
    ("copy_open_below =", "copy_open_below takes a size, such as 64 MiB, not nothing"),
    ("/etc/passwd", "/etc/passwd leads outside the working directory"),
    ("'/etc/passwd'", "/etc/passwd leads outside the working directory"),
    ("/", "/ leads outside the working directory"),
    ("..", ".. leads outside the working directory"),
    ("../u", "../u leads outside the working directory"),
    ("a/../../u", "a/../../u leads outside the working directory"),
    ("a/..", "a/.. leads outside the working directory"),
    ("a/../u", "a/../u leads outside the working directory"),
    ("*/../u", "*/../u leads outside the working directory"),
    ("{rank:/>3}", "{rank:/>3}: {rank} and {size} are known"),
    (".", ". cannot be saved: it holds the save points"),
    ("./", "./ cannot be saved: it holds the save points"),
    (".safepoint", ".safepoint cannot be saved: it holds the save points"),
    (".safepoint.d", ".safepoint.d cannot be saved: it holds the save points"),
    (".safepoint.d/", ".safepoint.d/ cannot be saved: it holds the save points"),
    (".safepoint.d/FORMAT", ".safepoint.d/FORMAT cannot be saved: it holds the save points"),
    ("./.safepoint.d/*", "./.safepoint.d/* cannot be saved: it holds the save points"),
    ("'.safepoint.d/x'", ".safepoint.d/x cannot be saved: it holds the save points"),
    ("first", "first is listed in line 1 already"),
    ("./first", "./first is listed in line 1 already"),
    ("'first' copy", "first is listed in line 1 already"),
    ("first/", "first/ is listed in line 1 already"),
    ('"two words.dat', '"two words.dat: a quote is not closed, or text follows it'),
    ("'two words.dat", "'two words.dat: a quote is not closed, or text follows it"),
    ("u 'compress", "'compress: a quote is not closed, or text follows it"),
    ('"u"v', '"u"v: a quote is not closed, or text follows it'),
    ('"u\\"', '"u\\": a quote is not closed, or text follows it'),
    (r'"u\x41"', r"unknown escape \x"),
    ("u.npy, history.csv", "u.npy, history.csv: one name a line, without commas; quote a name that has one"),
    ("u.npy,history.csv", "u.npy,history.csv: one name a line"),
    ("u.npy; v.npy", "u.npy; v.npy: one name a line"),
    ("u.npy;v.npy # both", "u.npy;v.npy # both: one name a line"),
    ("u.npy,", "u.npy,: one name a line"),
    ("u.npy ,", "u.npy ,: one name a line"),
    (", u.npy", ", u.npy: one name a line"),
    ("u.npy append, history.csv", "u.npy append, history.csv: one name a line"),
    ("u.npy compress,optional", "u.npy compress,optional: one name a line"),
    ("'u.npy', 'v.npy'", "'u.npy', 'v.npy': one name a line"),
    ('"u.npy","v.npy"', "one name a line"),
    ("INCAR,WAVECAR", "INCAR,WAVECAR: one name a line"),
    ("fields/*.vtk, u.npy", "fields/*.vtk, u.npy: one name a line"),
    ("u.npy history.csv", "unknown attribute history.csv; one name a line, then its attributes ("),
    ('""', "the name is empty"),
    ("''", "the name is empty"),
    ("' '/", "' '/: a quote is not closed, or text follows it"),
    ("u\0v", "NUL byte"),
    ("'u\0v'", "NUL byte"),
    ("keep = 2\nkeep=2", "keep is set twice"),
    ("u mark\nv mark", "u (line 3) is the mark already: only one file is the last"),
    *((f'"p-{name}.h5"', f"p-{name}.h5: {{rank}} and {{size}} are known") for name in (
        "{name}", "{}", "{0}", "{", "}", "{rank", "rank}", "{rank:q}", "{rank!z}", "{rank.name}", "{rank[0]}",
        "{rank:{width}}", "{RANK}", "{ rank}", "{rank:99999999999999999999}",
    )),
]  # fmt: skip


@pytest.mark.parametrize(("line", "cause"), FAULTS)
def test_a_fault_names_file_line_and_cause(line: str, cause: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse(f"first\n# comment\n{line}\nlast\n", "run/.safepoint", SETTINGS)
    place, colon, text = str(caught.value).partition(f":{3 + line.count(chr(10))}: ")
    assert (place, bool(colon), cause in text) == ("run/.safepoint", True, True), str(caught.value)


@pytest.mark.parametrize("name", ["{rank:9223372036854775000}", "{rank:c}", "{size:c}/{rank:c}"])
def test_a_format_that_gives_no_file_name_is_a_fault(tmp_path: Path, name: str) -> None:
    """Not an error of some other kind, here or when the file is looked for."""
    with pytest.raises(ManifestError, match=r"^\.safepoint:2: "):
        found(tmp_path, f'first\n"p-{name}.h5"\n')


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n\n   \n", "keep = 3\n", "\r\n"])
def test_an_empty_manifest_is_a_fault_that_shows_an_example(text: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse(text, "run/.safepoint")
    assert str(caught.value) == f"run/.safepoint: no file is listed; for example\n{EXAMPLE}"


def test_without_a_manifest_init_shows_how_to_write_one_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ManifestError) as caught:
        safepoint.init(tmp_path)
    text = str(caught.value)
    assert text.startswith(f"no manifest {tmp_path}/.safepoint: ") and text.endswith(f", for example\n{EXAMPLE}"), text
    assert os.listdir(tmp_path) == []


def test_the_example_that_is_shown_is_a_manifest() -> None:
    manifest = parse(EXAMPLE, settings={"keep": (int, 0)})
    assert (lines(EXAMPLE), manifest.settings) == ([PLAIN, ("append", False, None, False)], {"keep": 2})


def test_a_manifest_that_cannot_be_read_is_a_fault_that_names_it(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").mkdir()
    with pytest.raises(ManifestError) as caught:
        safepoint.init(tmp_path)
    assert str(caught.value) == f"cannot read the manifest {tmp_path}/.safepoint: Is a directory"


def test_a_faulty_manifest_stops_init_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / ".safepoint").write_bytes(b"\xef\xbb\xbfu.npy\r\nv.npy compres\r\n")
    with pytest.raises(ManifestError) as caught:
        safepoint.init(tmp_path)
    cause = f"{tmp_path}/.safepoint:2: unknown attribute compres; did you mean compress?"
    assert (str(caught.value), os.listdir(tmp_path)) == (cause, [".safepoint"])


def any_text() -> st.SearchStrategy[str]:
    words = [
        "{", "}", "rank", "size", "[", "]", "0", ".", ":", "!", "r", '"', "'", "\\", " ", "\n", "\r", "#", "=", "keep",
        "copy_open_below", "compress", "append", "copy", "optional", "*", "**", "/", "..", "a", "\0", "\ufeff", "5",
    ]  # fmt: skip
    return st.one_of(st.text(), st.lists(st.sampled_from(words), max_size=14).map("".join))


@settings(max_examples=many(1500))
@given(any_text())
@example("{rank[0]}")
@example("{rank:{size[0]}}")
@example("keep = " + "9" * 5000)
@example("a compress=" + "9" * 5000)
@example("keep = \u0663")
@example("a compress=\u00b2")
@example("\udcff")
def test_any_text_is_a_manifest_or_a_manifest_error(text: str) -> None:
    """Whatever a manifest holds, nothing but `ManifestError` comes out of it."""
    try:
        manifest = parse(text, settings=SETTINGS)
    except ManifestError as error:
        assert str(error).startswith(".safepoint:")
    else:
        assert manifest.entries


def test_in_place_nothing_moves_and_all_else_is_as_it_was(tmp_path: Path) -> None:
    """With a mark in a listed directory too, which else would be a second copy of it."""
    (tmp_path / "out").mkdir()
    for name in ("u", "log", "out/a", "out/done"):
        (tmp_path / name).write_text(name)
    listed = parse("u compress\nlog append\nout/\nout/done mark\n").in_place()
    found, missing = listed.find(str(tmp_path), os.lstat)
    assert {path: match.entry.kind for path, match in found.items()} == {"u": "copy", "log": "append", "out": "copy"}
    assert not missing and listed.entries[0].compress == 3 and listed.entries[3].mark


def test_files_of_ranks_are_known_whatever_settings_a_manifest_has(tmp_path: Path) -> None:
    """`compare` leaves them out where the numbers of ranks differ; it needs a ledger, so it meets such manifests."""
    lines = "u-{rank}.dat\nv.dat\nledger = modify\nedges = 3\nevery = 10 steps\nmtbf = 1 d\n"
    (tmp_path / ".safepoint").write_text(lines)
    (tmp_path / "log.jsonl").touch()
    side = Side(str(tmp_path))
    side.work = str(tmp_path)
    assert files_of_ranks([side]) == {"u-*.dat"}


def slowly(parts: list[str], pattern: list[str], *, hidden: bool) -> bool:
    """What `matches` means, word for word."""
    if not pattern:
        return not parts
    shown = [hidden or part[:1] != "." for part in parts]
    if pattern[0] == "**":
        return any(slowly(parts[n:], pattern[1:], hidden=hidden) for n in range(len(parts) + 1) if all(shown[:n]))
    fits = bool(parts) and (shown[0] or pattern[0][:1] == ".") and fnmatch.fnmatchcase(parts[0], pattern[0])
    return fits and slowly(parts[1:], pattern[1:], hidden=hidden)


@given(
    st.lists(st.sampled_from(["a", "b", ".a", "ab"]), max_size=5),
    st.lists(st.sampled_from(["**", "*", "a", "a*", ".a", ".*"]), max_size=5), st.booleans(),
)  # fmt: skip
def test_a_path_matches_a_pattern_component_by_component(parts: list[str], pattern: list[str], hidden: bool) -> None:
    assert matches(parts, pattern, hidden=hidden) == slowly(parts, pattern, hidden=hidden)


def test_a_pattern_of_many_stars_takes_no_longer_than_its_length_says() -> None:
    """It may lie in a set that came from elsewhere; word for word this would take years."""
    assert not excluded(["**/a/" * 40 + "b"], "a/" * 200 + "c")
