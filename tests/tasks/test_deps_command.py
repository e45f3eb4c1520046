"""`safepoint deps`: what it prints, in all its forms, and what it says when it cannot."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from testbed import task_graphs

from safepoint.cli.judge.deps import deps
from safepoint.errors import UsageError
from safepoint.tasks import Graph

DESIGN = """\
void relax(double h, int n) {
  double a[100], b[100]; int i;
  for (i = 1; i < 99; i++) b[i] = h*(a[i-1]+a[i+1]);
  a[0] = b[1];
  update(&a[0], h);
}
"""
LOOP = """\
def smooth(n, h):
    a = [1.0] * n
    for step in range(3):
        b = a[:]
        left = sum(b)
        right = max(b)
        a = [h * t for t in b]
    return a


def other(n):
    print(n)
"""


@pytest.fixture
def written(tmp_path: Path) -> dict[str, str]:
    found = {"c": tmp_path / "relax.c", "py": tmp_path / "smooth.py"}
    found["c"].write_text(DESIGN, "utf-8")
    found["py"].write_text(LOOP, "utf-8")
    return {kind: str(path) for kind, path in found.items()}


def run(*words: str) -> Result:
    return CliRunner().invoke(deps, words, catch_exceptions=True)


def said(*words: str) -> str:
    result = run(*words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def refused(*words: str) -> str:
    error = run(*words).exception
    assert isinstance(error, UsageError), error
    return str(error)


def test_the_example_of_the_design(written: dict[str, str]) -> None:
    pytest.importorskip("tree_sitter_c", reason="no tree-sitter-c: pip install '.[deps]'")
    rows = {line.split()[0]: " ".join(line.split()) for line in said(written["c"], "relax").splitlines()}
    assert rows["3"].startswith("3 b[i] = h*(a[i-1]+a[i+1]) loop in h a out b weight 400 flow on a from 2")
    assert rows["4"] == "4 a[0] = b[1] in b out a weight 1 flow on a from 2, flow on b from 2 3, anti on a from 3"
    assert "in a? h *? output? out a? *? output?" in rows["5"] and "flow on a from 2 4" in rows["5"]
    assert rows["levels:"] == "levels: {2 2b} {3} {4} {5}"


def test_inside_opens_a_loop(written: dict[str, str]) -> None:
    text = said(written["py"], "smooth", "--inside", "3")
    assert "smooth(n, h), inside line 3" in text
    assert "levels: {4} {5 6 7}" in text


def test_inside_another_line_names_those_that_can_be_opened(written: dict[str, str]) -> None:
    assert refused(written["py"], "smooth", "--inside", "4").startswith(f"{written['py']}:4: no loop")
    assert refused(written["py"], "smooth", "--inside", "4").endswith("in lines: 3")
    assert "--inside needs the name of a function" in refused(written["py"], "--inside", "3")


def test_json_is_the_same_each_time_and_holds_what_the_text_says(written: dict[str, str]) -> None:
    """Whatever the seed of hashes is: sets must not decide the order."""
    code = "from safepoint.cli.judge.deps import deps; deps()"
    outputs = {task_graphs.python("-c", code, written["py"], "--json", PYTHONHASHSEED=seed) for seed in ("1", "2")}
    assert len(outputs) == 1
    smooth, other = json.loads(outputs.pop())["functions"]
    assert [each["name"] for each in smooth["statements"]] == ["2", "3", "8"]
    assert smooth["statements"][1]["in"] == ["a", "b", "h"]
    assert {"kind": "flow", "on": "a", "from": "2", "to": "3"} in smooth["dependences"]
    assert smooth["levels"] == [["2"], ["3"], ["8"]]
    assert other["statements"][0]["out"] == ["output"]


def test_dot_draws_each_statement_and_each_kind_of_dependence(written: dict[str, str]) -> None:
    text = said(written["py"], "smooth", "--dot", "--inside", "3")
    assert text.startswith('digraph "smooth" {') and text.count("[label=") == 4
    assert "s0 -> s3 [style=dashed" in text and "{ rank=same; s1; s2; s3; }" in text


def test_graph_is_toml_whose_edges_are_the_values_that_flow(written: dict[str, str]) -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no tomllib")
    table = tomllib.loads(said(written["py"], "smooth", "--graph", "--inside", "3"))
    assert table["graph"] == "smooth" and table["code"] == "smooth_tasks.py"
    assert table["line-5"] == {"run": "line_5", "weight": 10.0, "in": {"b": "line-4.b"}}
    assert table["line-7"]["in"] == {"b": "line-4.b"}


def test_graph_is_read_as_a_graph_of_tasks_when_its_functions_are_written(tmp_path: Path) -> None:
    """One function stands for all of them here; what flows arrives under its name."""
    file = tmp_path / "tiny.py"
    file.write_text("def f(n):\n    a = [1, 2]\n    b = sum(a)\n    a[0] = 5\n    print(a, b)\n", "utf-8")
    text = said(str(file), "f", "--graph")
    functions = "".join(f"def line_{n}(**given):\n    return given\n\n\n" for n in range(2, 6))
    (tmp_path / "tiny_tasks.py").write_text(functions, "utf-8")
    (tmp_path / "tiny.toml").write_text(text, "utf-8")
    graph = Graph.read(tmp_path / "tiny.toml")
    edges = {name: [(edge.vertex.name, edge.output) for edge in each.edges] for name, each in graph.vertices.items()}
    assert edges == {
        "line-2": [],
        "line-3": [("line-2", "a")],
        "line-4": [("line-2", "a"), ("line-3", None)],
        "line-5": [("line-4", "a"), ("line-3", "b")],
    }


FIT = """\
from json import load as read
import math

def analyse(path, n):
    \"\"\"Not a statement.\"\"\"
    import json
    xs = [math.sqrt(i) for i in range(n)]
    read(xs)
    with open(path) as f:
        fit = json.load(f)
    print(f.name, fit)
    return sum(xs)
"""
BODIES = """\
import json

def line_7(n):
    return {"xs": [i ** 0.5 for i in range(n)]}

def line_8(xs):
    return {"xs": xs + [1.0]}

def line_9(path):
    with open(path) as f:
        return {"path": path, "fit": json.load(f)}

def line_11(fit):
    print(fit)

def line_12(xs):
    return sum(xs)
"""


def test_a_graph_hands_on_neither_modules_nor_what_with_opened_and_runs(tmp_path: Path) -> None:
    """None of them pickles. A docstring and imports are no vertices; what only orders is no argument."""
    file = tmp_path / "fit.py"
    file.write_text(FIT, "utf-8")
    text = said(str(file), "analyse", "--graph")
    assert "# To be imported there: json, math, read\n" in text
    assert [line for line in text.splitlines() if line.startswith("# returns")] == [
        "# returns a dict with: xs", "# returns a dict with: xs", "# returns a dict with: path, fit",
    ]  # fmt: skip
    assert "# uses f of line-9, which cannot be handed on: make one vertex of the two" in text
    (tmp_path / "fit_tasks.py").write_text(BODIES, "utf-8")
    (tmp_path / "in.json").write_text("[1]", "utf-8")
    filled = text.replace("# with = { n = … }", "with = { n = 3 }")
    filled = filled.replace("# with = { path = … }", f"with = {{ path = '{tmp_path / 'in.json'}' }}")
    (tmp_path / "fit.toml").write_text(filled, "utf-8")
    graph = Graph.read(tmp_path / "fit.toml")
    assert {name: [(e.vertex.name, e.output) for e in each.edges] for name, each in graph.vertices.items()} == {
        "line-7": [], "line-8": [("line-7", "xs")], "line-9": [("line-8", None)],
        "line-11": [("line-9", "fit")], "line-12": [("line-8", "xs"), ("line-11", None)],
    }  # fmt: skip
    with ThreadPoolExecutor(1) as threads:
        assert graph.run(threads, directory=tmp_path)["line-12"] == sum(i**0.5 for i in range(3)) + 1


def test_a_name_that_is_bound_otherwise_too_is_a_value(tmp_path: Path) -> None:
    file = tmp_path / "bound.py"
    file.write_text(
        "import math\ndef f(a):\n    math = [1]\n    h = [2]\n    with a as h:\n        pass\n    return math, h\n"
    )
    text = said(str(file), "f", "--graph")
    assert "# returns a dict with: math\n" in text and "math = " in text and "h = " in text


def test_rows_of_many_reasons_are_folded_and_statements_of_one_line_explained(tmp_path: Path) -> None:
    file = tmp_path / "fit.py"
    file.write_text(FIT.replace("    read(xs)", "    b = len(xs); c = len(xs)\n" + "    read(xs)\n" * 8), "utf-8")
    listing = said(str(file), "analyse")
    assert max(map(len, listing.splitlines())) <= 170 and "Not a statement" not in listing
    (found,) = json.loads(said(str(file), "analyse", "--json"))["functions"]
    told = " ".join(listing.split())
    for each in found["dependences"]:
        assert each["on"] == "leaving" or f"{each['kind']} on {each['on']} from" in told
    assert listing.splitlines()[-2:] == [
        "pairs that only read the same: 1 of 105",
        "8b: a further statement of the same line",
    ]


def test_forms_exclude_each_other_and_need_one_function(written: dict[str, str]) -> None:
    assert "exclude each other" in refused(written["py"], "--dot", "--json")
    assert "--graph needs the name of a function; there are smooth, other" in refused(written["py"], "--graph")


def test_an_unknown_function_is_an_error_that_names_those_there_are(written: dict[str, str]) -> None:
    assert refused(written["py"], "smoth") == f"{written['py']}: no function smoth; there are smooth, other"


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("a.py", "def f():\n    x = (1\n", ":2: no Python: "),
        ("a.py", "x = 1\n", ": no function in it"),
        ("a.py", "def f():\n    return\nreturn\n", ":3: no Python: "),
        ("a.c", "int f(void) {\n  int x = 1\n  return x;\n}\n", ":2:12: not read as C: missing ;"),
        ("a.c", "int f(void) {\n  EACH(x, list) { x = 1; }\n  return (;\n}\n", ":2:16: not read as C: "),
        ("a.c", "int x;\n", ": no function in it"),
        ("a.f90", "end\n", ": read are Python (.py) and C (.c, .h)"),
        ("a.py", "def f():\n    x = '\ud8ff'\n", ":2: not in UTF-8"),
    ],
)
def test_a_source_that_cannot_be_read_is_an_error_with_file_and_line(
    tmp_path: Path, name: str, text: str, error: str
) -> None:
    if name.endswith(".c"):
        pytest.importorskip("tree_sitter_c", reason="no tree-sitter-c: pip install '.[deps]'")
    file = tmp_path / name
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    assert refused(str(file)).startswith(f"{file}{error}")


def test_without_tree_sitter_c_is_refused_with_what_to_install(tmp_path: Path) -> None:
    """In another process, in which the package cannot be found."""
    file = tmp_path / "a.c"
    file.write_text(DESIGN, "utf-8")
    code = (
        "import sys; sys.modules['tree_sitter'] = None\nfrom safepoint.tasks.deps import analyses\n"
        "try: analyses(sys.argv[1])\nexcept Exception as error: print(type(error).__name__, error)"
    )
    said = task_graphs.python("-c", code, file)
    assert said.startswith("UsageError tree_sitter is missing") and "pip install '.[deps]'" in said
