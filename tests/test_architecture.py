"""Rules of the architecture that a program can check, applied to every module."""

import ast
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

import lifecycle

ROOT = Path(__file__).parent.parent
PACKAGES = ("lifecycle", "proxy", "harness")
FUNCTION_LINES = 60
LAYERS: Final = (
    "lifecycle",
    "proxy",
    "proxy.errors",
    "proxy.refusal",
    "proxy.headers",
    "proxy.files",
    "proxy.database_file",
    "proxy.database",
    "proxy.keys",
    "proxy.responses",
    "proxy.accounts",
    "proxy.journal",
    "proxy.home",
    "proxy.config",
    "proxy.upstream",
    "proxy.turn",
    "proxy.runtime",
    "proxy.ingress",
    "proxy.server",
    "proxy.control",
    "proxy.service",
    "proxy.codex",
    "proxy.status",
    "proxy.process",
    "proxy.cli",
    "proxy.__main__",
    "proxy.launcher",
)
"""From the bottom up: a module imports its own package and those listed before it, no others."""
OPEN_NURSERIES = frozenset(
    {
        "lifecycle/leases.py",  # a turn
        "proxy/ingress/http.py",  # an exchange
        "proxy/ingress/websocket.py",  # a socket
        "proxy/process/serve.py",  # the service, the connections
    }
)
COMMAND_LINE = frozenset(
    {"proxy/__main__.py", "proxy/launcher/__main__.py", "harness/recall/inject.py"}
)
LOADS_THE_HARNESS = "proxy/cli/main.py"
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


def layer_of(name: str) -> str | None:
    """The layer that a dotted name belongs to; the name of a value in `proxy` has none."""
    return next((x for x in LAYERS if x != "proxy" and is_in(name, x)), None)


def packages_only_import_what_is_below_them(module: Module) -> Iterator[str]:
    mine = layer_of(module.path.removesuffix(".py").replace("/", "."))
    if mine is not None:
        banned = LAYERS[LAYERS.index(mine) + 1 :]
        yield from (x for x in module.imports() if layer_of(x) in banned)


def every_package_has_a_layer(module: Module) -> Iterator[str]:
    is_product = module.path.startswith(("lifecycle/", "proxy/"))
    if is_product and module.path != "proxy/__init__.py":
        name = module.path.removesuffix(".py").replace("/", ".")
        if layer_of(name) is None:
            yield name


def lifecycle_imports_only_the_standard_library_and_trio(module: Module) -> Iterator[str]:
    if module.path.startswith("lifecycle/"):
        known = {"lifecycle", "trio", *sys.stdlib_module_names}
        yield from (x for x in module.imports() if x.partition(".")[0] not in known)


def lifecycle_is_imported_through_its_face(module: Module) -> Iterator[str]:
    if module.path.startswith("proxy/"):
        public = {"lifecycle", *(f"lifecycle.{name}" for name in lifecycle.__all__)}
        yield from (x for x in module.imports() if is_in(x, "lifecycle") and x not in public)


def accounts_and_upstream_do_not_know_each_other(module: Module) -> Iterator[str]:
    for leaf, other in (("accounts", "upstream"), ("upstream", "accounts")):
        if module.path.startswith(f"proxy/{leaf}/"):
            yield from (x for x in module.imports() if is_in(x, f"proxy.{other}"))


def the_harness_speaks_only_the_wire(module: Module) -> Iterator[str]:
    """Except for what injects a fault, what times a decision, and the model of accounts."""
    inside = {"harness/recall/inject.py", "harness/bench/decisions.py"}
    if module.path.startswith("harness/") and module.path not in inside:
        is_model = module.path.startswith("harness/simulate/")
        ours = (x for x in module.imports() if is_in(x, "lifecycle", "proxy"))
        yield from (x for x in ours if not (is_model and is_in(x, "proxy.accounts")))


def the_product_does_not_import_the_harness(module: Module) -> Iterator[str]:
    if not module.path.startswith("harness/") and module.path != LOADS_THE_HARNESS:
        yield from (x for x in module.imports() if is_in(x, "harness"))


def only_entry_points_import_the_command_line(module: Module) -> Iterator[str]:
    if module.path not in COMMAND_LINE and not module.path.startswith("proxy/cli/"):
        yield from (x for x in module.imports() if is_in(x, "proxy.cli"))


def modules_hold_no_state(module: Module) -> Iterator[str]:
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


def functions_can_be_read_in_one_go(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield f"{node.name}: {lines} lines"


def every_module_says_what_it_owns(module: Module) -> Iterator[str]:
    if not ast.get_docstring(module.tree):
        yield "no docstring"


def pure_modules_read_no_clock_and_know_no_runtime(module: Module) -> Iterator[str]:
    """A module says that it is pure in its first paragraph, or in its rules."""
    said = ast.get_docstring(module.tree) or ""
    if re.search(r"\bpure\b", said.partition("\n\nTheory of operation")[0]):
        yield from (x for x in module.imports() if is_in(x, "trio", "time", "proxy.runtime"))


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


def nurseries_are_opened_in_listed_files(module: Module) -> Iterator[str]:
    if module.path not in OPEN_NURSERIES and not is_harness(module):
        nodes = (x for x in ast.walk(module.tree) if isinstance(x, ast.Attribute | ast.Name))
        names = ((x, x.attr if isinstance(x, ast.Attribute) else x.id) for x in nodes)
        yield from (f"line {x.lineno}" for x, name in names if name == "open_nursery")


def a_logger_has_the_name_of_its_module(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("getLogger"):
            name = ast.unparse(node)
            quietens_a_library = name.endswith("('httpx')")
            if "__name__" not in name and not quietens_a_library:
                yield f"line {node.lineno}: {name}"


Rule = Callable[[Module], Iterator[str]]
RUN: Final = "proxy/turn/run.py"
BREACHES: list[tuple[Rule, str, str]] = [
    (packages_only_import_what_is_below_them, RUN, "from proxy.ingress.http import respond"),
    (packages_only_import_what_is_below_them, RUN, "from proxy import server"),
    (packages_only_import_what_is_below_them, RUN, "from proxy.runtime import Runtime"),
    (packages_only_import_what_is_below_them, "proxy/keys.py", "import proxy.accounts.pool"),
    (packages_only_import_what_is_below_them, "lifecycle/lanes.py", "import proxy.errors"),
    (every_package_has_a_layer, "proxy/other/thing.py", ""),
    (every_package_has_a_layer, "proxy/thing.py", ""),
    (
        lifecycle_imports_only_the_standard_library_and_trio,
        "lifecycle/lanes.py",
        "import hypercorn",
    ),
    (
        lifecycle_imports_only_the_standard_library_and_trio,
        "lifecycle/lanes.py",
        "from .ask import Ask",
    ),
    (lifecycle_is_imported_through_its_face, RUN, "from lifecycle.ledger import Ledger"),
    (lifecycle_is_imported_through_its_face, RUN, "from lifecycle import ledger"),
    (lifecycle_is_imported_through_its_face, RUN, "import lifecycle.ledger"),
    (
        accounts_and_upstream_do_not_know_each_other,
        "proxy/upstream/client.py",
        "from proxy.accounts.pool import AccountPool",
    ),
    (
        accounts_and_upstream_do_not_know_each_other,
        "proxy/accounts/pool.py",
        "from proxy import upstream",
    ),
    (the_harness_speaks_only_the_wire, "harness/recall/plan.py", "import lifecycle"),
    (the_harness_speaks_only_the_wire, "harness/simulate/load.py", "from proxy import turn"),
    (the_harness_speaks_only_the_wire, "harness/recall/plan.py", "from proxy.accounts import pool"),
    (the_product_does_not_import_the_harness, RUN, "from harness.recall import plan"),
    (only_entry_points_import_the_command_line, "proxy/process/serve.py", "from proxy import cli"),
    (modules_hold_no_state, RUN, "cache = {}"),
    (modules_hold_no_state, RUN, "CACHE: Final = {}"),
    (modules_hold_no_state, RUN, "TABLE = {1: 2}"),
    (modules_hold_no_state, RUN, "totals: Final = collections.Counter[str]()"),
    (modules_hold_no_state, "harness/recall/plan.py", "seen = [1]"),
    (nothing_is_global, RUN, "def f():\n    global x\n    x = 1"),
    (functions_can_be_read_in_one_go, RUN, "def f():" + "\n    x" * 60),
    (every_module_says_what_it_owns, RUN, "import trio"),
    (
        pure_modules_read_no_clock_and_know_no_runtime,
        "proxy/responses/frames.py",
        '"""Frames, pure: x."""\nfrom proxy.runtime import Runtime',
    ),
    (
        pure_modules_read_no_clock_and_know_no_runtime,
        "lifecycle/lanes.py",
        '"""Lanes.\n\nRules for this file: pure; x."""\nimport trio',
    ),
    (a_name_has_one_docstring, RUN, "class C:\n    x = 1\n    'one'\n    'two'"),
    (a_logger_has_the_name_of_its_module, RUN, "logger = logging.getLogger('turnlane')"),
    (nurseries_are_opened_in_listed_files, RUN, "trio.open_nursery()"),
    (nurseries_are_opened_in_listed_files, RUN, "async with open_nursery(): pass"),
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
        (packages_only_import_what_is_below_them, RUN, "from proxy import __version__"),
        (packages_only_import_what_is_below_them, RUN, "from proxy.turn.outbox import Outbox"),
        (lifecycle_is_imported_through_its_face, RUN, "from lifecycle import Ask"),
        (
            the_harness_speaks_only_the_wire,
            "harness/simulate/simulate.py",
            "from proxy.accounts.routing import route",
        ),
        (the_harness_speaks_only_the_wire, "harness/recall/run.py", "from harness.recall import x"),
        (modules_hold_no_state, RUN, "TABLE: Final = {1: 2}"),
        (modules_hold_no_state, RUN, "TABLE = MappingProxyType({1: 2})"),
        (modules_hold_no_state, RUN, "__all__ = ['x']"),
        (modules_hold_no_state, "harness/recall/plan.py", "TABLE = {1: 2}"),
        (
            only_entry_points_import_the_command_line,
            "proxy/__main__.py",
            "from proxy.cli.main import main",
        ),
    ],
)
def test_the_rule_allows_what_it_should(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Module(path, text))) == []


def test_the_server_whose_private_methods_are_overridden_has_an_upper_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (hypercorn,) = (x for x in project["dependencies"] if x.startswith("hypercorn"))

    assert hypercorn == "hypercorn>=0.18,<0.19"
