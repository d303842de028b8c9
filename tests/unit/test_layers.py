"""Imports run one way: what decides never learns of what does, and a publisher needs no daemon."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# From left to right; a module imports from its own layer and from those before it.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("acklast_topology",),
    (
        "apart",
        "errors",
        "outcome",
        "policy",
        "progress",
        "faults",
        "fingerprint",
        "redact",
        "unquoted",
        "printable",
        "cron",
        "template",
    ),
    ("decide", "forecast", "canary"),
    ("http",),
    ("config", "handlers", "telemetry"),
    (
        "ledger",
        "pacing",
        "lenient",
        "frames",
        "acks",
        "receiver",
        "broker",
        "carriers",
        "management",
        "instance",
        "notify",
        "hosts",
        "asyncapi",
    ),
    (
        "settle",
        "letters",
        "channels",
        "ways",
        "moving",
        "replace",
        "clearing",
        "custody",
        "resend",
        "manifest",
        "absence",
    ),
    ("lane",),
    ("judge",),
    ("settled",),
    ("delivery",),
    (
        "consumer",
        "outage",
        "readiness",
        "upkeep",
        "intake",
        "fair_intake",
        "inlets",
        "letterbox",
        "leaving",
        "drain",
        "overlong",
        "chores",
        "pruner",
        "reconciler",
        "inquiry",
        "asking",
        "stuck",
        "reporter",
        "lane_queues",
        "fleet",
        "sampler",
        "gauges",
        "outlook",
        "steering",
        "reloading",
        "stop",
        "telling",
        "vitals",
        "watchdog",
        "health",
        "probes",
        "relay",
        "redriver",
        "schedule",
    ),
    ("errands", "assembly"),
    ("runtime",),
    ("cli", "console"),
    ("testing",),
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
# The package itself offers what handlers are written with; `python -m acklast` is the command line.
RANK |= {"acklast": RANK["handlers"], "__main__": RANK["cli"]}

PUBLISHER_NEEDS = {"acklast_topology", "aio_pika", "aiormq", "pamqp"}


def imports_of(source: str, package: str) -> Iterator[str]:
    """Every module that ``source`` imports, anywhere in it, by its full name.

    ``from a import b`` gives ``a.b``: whether b is a module or a name in one, its layer is read from the
    same place. ``package`` is where relative imports start.
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = _base(package, level, module)
                yield from (f"{base}.{alias.name}" for alias in names)


def _base(package: str, level: int, module: str | None) -> str:
    if level == 0:
        return module or ""
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - level + 1], *([module] if module else [])])


def unit_of(module: str) -> str | None:
    """The part of the house that a full module name lies in; None where it is somebody else's."""
    match module.split("."):
        case ["acklast_topology", *_]:
            return "acklast_topology"
        case ["acklast", part, *_] if part in RANK or (ROOT / "daemon/acklast" / f"{part}.py").exists():
            return part
        case ["acklast", *_]:
            return "acklast"
        case _:
            return None


def wrong_imports(unit: str, source: str, package: str) -> list[str]:
    """The imports in ``source`` that lead from ``unit`` to a layer on its right."""
    reached = ((module, unit_of(module)) for module in imports_of(source, package))
    return [module for module, other in reached if other and RANK[other] > RANK[unit]]


def foreign_imports(source: str, package: str) -> list[str]:
    """What a publisher would have to install for ``source`` beyond the client library."""
    allowed = PUBLISHER_NEEDS | sys.stdlib_module_names
    return [module for module in imports_of(source, package) if module.split(".")[0] not in allowed]


def modules(source_root: str) -> list[tuple[str, Path]]:
    """(package, file) of every module below ``source_root``."""
    base = ROOT / source_root
    return [(".".join(path.relative_to(base).parts[:-1]), path) for path in sorted(base.rglob("*.py"))]


def unit_of_file(path: Path) -> str:
    part = path.relative_to(ROOT / "daemon/acklast").parts[0].removesuffix(".py")
    return "acklast" if part == "__init__" else part


DAEMON = [pytest.param(package, path, id=str(path.relative_to(ROOT))) for package, path in modules("daemon")]
TOPOLOGY = [
    pytest.param(package, path, id=str(path.relative_to(ROOT))) for package, path in modules("topology")
]


@pytest.mark.parametrize(("package", "path"), DAEMON)
def test_imports_run_one_way(package: str, path: Path) -> None:
    unit = unit_of_file(path)
    assert unit in RANK, f"{unit} has no layer: give it one in LAYERS"
    assert wrong_imports(unit, path.read_text(), package) == []


@pytest.mark.parametrize(("package", "path"), TOPOLOGY)
def test_a_publisher_needs_the_client_library_alone(package: str, path: Path) -> None:
    assert foreign_imports(path.read_text(), package) == []


def test_there_is_no_circle_inside_a_layer() -> None:
    graph: dict[str, set[str]] = {}
    for package, path in modules("daemon"):
        unit = unit_of_file(path)
        others = {unit_of(module) for module in imports_of(path.read_text(), package)}
        # The package's own __init__ is left out: it only hands on.
        graph.setdefault(unit, set()).update(
            other for other in others if other not in {None, unit, "acklast"}
        )
    del graph["acklast"]
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(f"these import one another: {' -> '.join(circle.args[1])}")


@pytest.mark.parametrize(
    ("unit", "source"),
    [
        ("decide", "from acklast.ledger.api import Ledger"),
        ("decide", "def f():\n    import acklast.settle"),
        ("ledger", "from acklast import delivery"),
        ("ledger", "from .. import runtime"),
        ("errors", "if TYPE_CHECKING:\n    from .decide import classify"),
    ],
)
def test_a_wrong_import_is_seen_wherever_it_stands(unit: str, source: str) -> None:
    package = "acklast.ledger" if unit == "ledger" else "acklast"
    assert len(wrong_imports(unit, source, package)) == 1


def test_a_right_import_passes() -> None:
    source = "import asyncpg\nfrom acklast import errors, faults\nfrom acklast_topology import names"
    assert wrong_imports("ledger", source, "acklast.ledger") == []


@pytest.mark.parametrize(
    "source", ["import pydantic", "def f():\n    from acklast.errors import AcklastError"]
)
def test_a_foreign_import_is_seen(source: str) -> None:
    assert len(foreign_imports(source, "acklast_topology")) == 1
