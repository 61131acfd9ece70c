"""The rules of the architecture that a program can check, on every module there is."""

import ast
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import pytest

import lifecycle

ROOT = Path(__file__).parent.parent
PACKAGES = ("lifecycle", "proxy", "harness")
FILE_LINES = 300
FUNCTION_LINES = 60
OPEN_NURSERIES = frozenset(
    {"lifecycle/turn.py", "proxy/serve.py", "proxy/ingress/http.py", "proxy/ingress/websocket.py"}
)
ABOVE_THE_LEAVES = tuple(f"proxy.{x}" for x in ("ingress", "turns", "serve", "cli", "runtime"))
MUTABLE = frozenset({"dict", "list", "set", "bytearray", "Counter", "deque", "defaultdict"})


@dataclass(frozen=True)
class Module:
    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    def imports(self) -> Iterator[str]:
        """Every module that may be imported: `from a import b` is either `a` or `a.b`."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                name = "." * node.level + (node.module or "")
                yield from (name, *(f"{name}.{alias.name}" for alias in node.names))


def is_in(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def lifecycle_knows_only_itself(module: Module) -> Iterator[str]:
    if module.path.startswith("lifecycle/"):
        known = {"lifecycle", "trio", *sys.stdlib_module_names}
        yield from (x for x in module.imports() if x.partition(".")[0] not in known)


def lifecycle_is_entered_at_its_door(module: Module) -> Iterator[str]:
    if module.path.startswith("proxy/"):
        public = {"lifecycle", *(f"lifecycle.{name}" for name in lifecycle.__all__)}
        yield from (x for x in module.imports() if is_in(x, "lifecycle") and x not in public)


def the_leaves_of_the_proxy_know_nothing_above_or_beside_them(module: Module) -> Iterator[str]:
    for leaf, other in (("accounts", "upstream"), ("upstream", "accounts")):
        if module.path.startswith(f"proxy/{leaf}/"):
            banned = (*ABOVE_THE_LEAVES, f"proxy.{other}")
            yield from (x for x in module.imports() if is_in(x, *banned))


def the_harness_speaks_only_the_wire(module: Module) -> Iterator[str]:
    """But what puts a fault in, and what times a decision: no wire shows 20 us."""
    inside = {"harness/inject.py", "harness/bench/decisions.py"}
    if module.path.startswith("harness/") and module.path not in inside:
        pure = "proxy.accounts.routing" if module.path == "harness/simulate.py" else "harness"
        ours = (x for x in module.imports() if is_in(x, "lifecycle", "proxy"))
        yield from (x for x in ours if not is_in(x, pure) and x != pure.rpartition(".")[0])


def nobody_imports_the_command_line(module: Module) -> Iterator[str]:
    """But the two that start it: as it is, or with a fault in it."""
    if module.path not in {"proxy/__main__.py", "harness/inject.py"}:
        yield from (x for x in module.imports() if is_in(x, "proxy.cli"))


def state_lives_in_no_module(module: Module) -> Iterator[str]:
    """A filled table may be `Final`; in the harness, whose process has one run, UPPER_CASE does."""
    for node in module.tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
            note = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
            constant = note.startswith("Final") or (is_harness(module) and target.isupper())
            dunder = target.startswith("__")
            if not dunder and is_mutable(node.value) and not (constant and is_filled(node.value)):
                yield target


def is_harness(module: Module) -> bool:
    return module.path.startswith("harness/")


def is_mutable(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        call = value.func.value if isinstance(value.func, ast.Subscript) else value.func
        return ast.unparse(call).rpartition(".")[2] in MUTABLE
    displays = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
    return isinstance(value, displays)


def is_filled(value: ast.expr) -> bool:
    return any(ast.iter_child_nodes(value)) and not isinstance(value, ast.Call)


def nothing_is_global(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Global):
            yield f"global {', '.join(node.names)}"


def files_and_functions_can_be_read_in_one_go(module: Module) -> Iterator[str]:
    if len(module.text.splitlines()) > FILE_LINES:
        yield f"{len(module.text.splitlines())} lines"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield f"{node.name}: {lines} lines"


def every_module_says_what_it_owns(module: Module) -> Iterator[str]:
    if not ast.get_docstring(module.tree):
        yield "no docstring"


def what_is_pure_reads_no_clock_and_knows_no_runtime(module: Module) -> Iterator[str]:
    """A module says that it is pure in its first sentence, or in its rules."""
    said = ast.get_docstring(module.tree) or ""
    if re.search(r"\bpure\b", said.partition("\n\nTheory of operation")[0]):
        impure = ("trio", "time", "proxy.runtime")
        yield from (x for x in module.imports() if is_in(x, *impure))


def a_name_has_one_docstring(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            for one, two in pairwise(body):
                if is_text(one) and is_text(two):
                    yield f"line {two.lineno}"


def is_text(node: ast.AST) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def nurseries_are_opened_in_four_places(module: Module) -> Iterator[str]:
    if module.path not in OPEN_NURSERIES and not is_harness(module):
        nodes = (x for x in ast.walk(module.tree) if isinstance(x, ast.Attribute | ast.Name))
        names = ((x, x.attr if isinstance(x, ast.Attribute) else x.id) for x in nodes)
        yield from (f"line {x.lineno}" for x, name in names if name == "open_nursery")


Rule = Callable[[Module], Iterator[str]]
BREACHES: list[tuple[Rule, str, str]] = [
    (lifecycle_knows_only_itself, "lifecycle/turn.py", "import hypercorn"),
    (lifecycle_knows_only_itself, "lifecycle/turn.py", "from proxy.config import Config"),
    (lifecycle_knows_only_itself, "lifecycle/turn.py", "from .ask import Ask"),
    (lifecycle_is_entered_at_its_door, "proxy/turns.py", "from lifecycle.ledger import Ledger"),
    (lifecycle_is_entered_at_its_door, "proxy/turns.py", "from lifecycle import ledger"),
    (lifecycle_is_entered_at_its_door, "proxy/turns.py", "import lifecycle.ledger"),
    (
        the_leaves_of_the_proxy_know_nothing_above_or_beside_them,
        "proxy/upstream/http.py",
        "from proxy.accounts.pool import AccountPool",
    ),
    (
        the_leaves_of_the_proxy_know_nothing_above_or_beside_them,
        "proxy/accounts/pool.py",
        "from proxy import runtime",
    ),
    (the_harness_speaks_only_the_wire, "harness/plan.py", "import lifecycle"),
    (the_harness_speaks_only_the_wire, "harness/simulate.py", "from proxy.accounts import pool"),
    (the_harness_speaks_only_the_wire, "harness/plan.py", "from proxy.accounts import routing"),
    (nobody_imports_the_command_line, "proxy/serve.py", "from proxy import cli"),
    (state_lives_in_no_module, "proxy/turns.py", "cache = {}"),
    (state_lives_in_no_module, "proxy/turns.py", "CACHE: Final = {}"),
    (state_lives_in_no_module, "proxy/turns.py", "TABLE = {1: 2}"),
    (state_lives_in_no_module, "proxy/turns.py", "totals: Final = collections.Counter[str]()"),
    (state_lives_in_no_module, "harness/plan.py", "seen = [1]"),
    (nothing_is_global, "proxy/turns.py", "def f():\n    global x\n    x = 1"),
    (files_and_functions_can_be_read_in_one_go, "proxy/turns.py", "\n" * 301),
    (files_and_functions_can_be_read_in_one_go, "proxy/turns.py", "def f():" + "\n    x" * 60),
    (every_module_says_what_it_owns, "proxy/turns.py", "import trio"),
    (
        what_is_pure_reads_no_clock_and_knows_no_runtime,
        "proxy/frames.py",
        '"""Frames, pure: x."""\nfrom proxy.runtime import Runtime',
    ),
    (
        what_is_pure_reads_no_clock_and_knows_no_runtime,
        "lifecycle/lanes.py",
        '"""Lanes.\n\nRules for this file: pure; x."""\nimport trio',
    ),
    (a_name_has_one_docstring, "proxy/turns.py", "class C:\n    x = 1\n    'one'\n    'two'"),
    (nurseries_are_opened_in_four_places, "proxy/turns.py", "trio.open_nursery()"),
    (nurseries_are_opened_in_four_places, "proxy/turns.py", "async with open_nursery(): pass"),
]
RULES = list(dict.fromkeys(rule for rule, _, _ in BREACHES))


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    files = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    return [Module(str(x.relative_to(ROOT)), x.read_text("utf-8")) for x in files]


@pytest.mark.parametrize("rule", RULES)
def test_every_module_keeps_to_the_rule(rule: Rule, modules: list[Module]) -> None:
    assert [(x.path, breach) for x in modules for breach in rule(x)] == []


@pytest.mark.parametrize(("rule", "path", "text"), BREACHES)
def test_the_rule_notices_a_breach(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Module(path, text))) != []


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (lifecycle_is_entered_at_its_door, "proxy/turns.py", "from lifecycle import Ask"),
        (
            the_harness_speaks_only_the_wire,
            "harness/simulate.py",
            "from proxy.accounts.routing import route",
        ),
        (the_harness_speaks_only_the_wire, "harness/run.py", "from harness.proxy import start"),
        (state_lives_in_no_module, "proxy/turns.py", "TABLE: Final = {1: 2}"),
        (state_lives_in_no_module, "proxy/turns.py", "TABLE = MappingProxyType({1: 2})"),
        (state_lives_in_no_module, "proxy/turns.py", "__all__ = ['x']"),
        (state_lives_in_no_module, "harness/plan.py", "TABLE = {1: 2}"),
        (nobody_imports_the_command_line, "proxy/__main__.py", "from proxy.cli import main"),
    ],
)
def test_the_rule_lets_pass_what_is_meant_to(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Module(path, text))) == []


def test_the_server_whose_private_methods_are_overridden_has_an_upper_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (hypercorn,) = (x for x in project["dependencies"] if x.startswith("hypercorn"))

    assert hypercorn == "hypercorn>=0.18,<0.19"
