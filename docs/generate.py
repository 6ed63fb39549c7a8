"""Writes the reference pages of this folder from the code, so that they can't drift; a test compares them.

Belongs here: turning registries and settings into Markdown. Does not belong here: anything said only in a page; that
is in the code's own descriptions. Run it after changing a setting, a rule or a check: `make docs`.
"""

from __future__ import annotations

import datetime
import json
import re
import tempfile
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_origin

import typer
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from typer.testing import CliRunner

from dms_assets.cli import app as dms_app
from dms_assets.contract import FRAMES, WINDOWS
from dms_assets.definitions import build_defs as dms_definitions
from dms_assets.validation import EXACT, ROWS_CODES, RULES
from resources.config import ENV_PREFIX, PROJECT, Settings
from resources.findings import Finding
from tests.builders import dms as cache_builders
from tests.builders.vin import tiny_store
from tests.builders.vin_damage import CORRUPTORS
from vin_assets.cli import app as vin_app
from vin_assets.definitions import build_defs as vin_definitions
from vin_assets.vin_store.generation import capture
from vin_assets.vin_store.integrity import BLOCKING_CODES, check_store
from vin_assets.vin_store.integrity import RULES as STORE_RULES
from vin_assets.vin_store.store import VinOfflineStoreConfig

HERE = Path(__file__).resolve().parent
_NOTICE = "<!-- Written by docs/generate.py from {source}; change that and run `make docs`. -->\n"
# Digests differ between runs, and Python's words on broken JSON between its versions.
_OF_THIS_RUN = re.compile(r"\b[0-9a-f]{12}\b|[^:]*: line \d+ column \d+ \(char \d+\)")
_TYPES = {
    int: "whole number",
    float: "number",
    str: "text",
    bool: "true or false",
    Path: "path",
    SecretStr: "secret",
    Any: "any value",
    datetime.date: "date",
}


def _type(annotation: Any) -> str:
    """A type in the words of someone who writes the file."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_type(one) for one in arguments if one is not types.NoneType)
    if origin is tuple:
        return f"list of: {_type(arguments[0])}"
    if origin is dict:
        return f"table of: {_type(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "entries with the keys below"
    return _TYPES.get(annotation, getattr(annotation, "__name__", "any value"))


def cell(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _limits(field: FieldInfo) -> str:
    signs = {"ge": "at least {}", "gt": "above {}", "le": "at most {}", "lt": "below {}"}
    found = [
        text.format(getattr(rule, name))
        for rule in field.metadata
        for name, text in signs.items()
        if hasattr(rule, name)
    ]
    return f", {' and '.join(found)}" if found else ""


def _default(field: FieldInfo) -> str:
    """The default as the file would hold it; paths of the project relative to its folder."""
    value = field.default
    if field.is_required():
        return "required"
    if value is None or value in ((), {}):
        return "none"
    if isinstance(value, tuple):
        return "[" + ", ".join(_literal(one) for one in value) + "]"
    return _literal(value)


def _literal(value: Any) -> str:
    if isinstance(value, Path):
        value = str(value.relative_to(PROJECT)) if value.is_relative_to(PROJECT) else str(value)
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _model(annotation: Any) -> type[BaseModel] | None:
    """The section behind a field: a model itself, or a list of models."""
    candidates = (annotation, *get_args(annotation))
    return next((one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)), None)


def _section(model: type[BaseModel], path: tuple[str, ...], listed: bool) -> Iterator[str]:
    title = ".".join(path)
    heading = f"`[[{title}]]`" if listed else f"`[{title}]`" if path else "Top of the file"
    yield f"\n## {heading}\n"
    if path and model.__doc__:
        yield model.__doc__.strip().split("\n\n")[0] + "\n"
    yield "| key | what it is | type | default |\n|---|---|---|---|"
    below = []
    for name, field in model.model_fields.items():
        inner = _model(field.annotation)
        if inner is not None:
            below.append((inner, (*path, name), get_origin(field.annotation) is tuple))
            continue
        what = cell(field.description or "")
        yield f"| `{name}` | {what} | {_type(field.annotation)}{_limits(field)} | `{_default(field)}` |"
    for inner, where, is_list in below:
        yield from _section(inner, where, is_list)


def configuration() -> str:
    """The reference of everything that can be configured."""
    example = f"{ENV_PREFIX}NIGHTLY__MAX_ROUTES"
    head = f"""{_NOTICE.format(source="resources/config.py")}
# Configuration

Everything has a default; `pipeline.toml` beside the packages, or the file that `{ENV_PREFIX}CONFIG` names, holds what
you change. `pipeline.example.toml` is a file to copy from. Relative paths are relative to the file's folder.

An environment variable overrides each value: `[nightly] max_routes` is `{example}`. Lists and tables are JSON.
A mistake is reported with the file and the key; values are never quoted, because they may be secrets.
"""
    return head + "\n".join(_section(Settings, (), False)) + "\n"


def _first_paragraph(text: str | None) -> str:
    return cell(" ".join((text or "").strip().split("\n\n")[0].split()))


def cache_rules() -> str:
    """What each rule on a DMS cache means, from the registry of rules."""
    kinds = {(FRAMES,): "frames", (WINDOWS,): "windows", (FRAMES, WINDOWS): "both"}
    lines = [
        f"""{_NOTICE.format(source="dms_assets/validation.py")}
# Rules on a DMS feature cache

A cache is looked at as a whole and everything that is wrong is told at once: the rule's code, the file, how many rows,
the first of them, and what to do. Codes of the check `rows_fill_spans` are {_codes(ROWS_CODES)}; every other one
belongs to `cache_valid`. A file is refused on reading (`load`) only for what stands under "on reading".

| code | holds when | caches | severity | on reading | how to fix |
|---|---|---|---|---|---|"""
    ]
    exact = {rule.code: rule for rule in EXACT}
    for rule in RULES:
        strict = exact.get(rule.code)
        reading = "as said" if strict is rule else _first_paragraph(strict.check.__doc__) if strict else ""
        lines.append(
            f"| `{rule.code}` | {_first_paragraph(rule.check.__doc__)} | {kinds[rule.kinds]} | {rule.severity} "
            f"| {reading} | {cell(rule.how_to_fix)} |"
        )
    return "\n".join(lines) + "\n"


def store_rules() -> str:
    """What each integrity rule on a VIN store means; the examples are what a damaged store really answers."""
    lines = [
        f"""{_NOTICE.format(source="vin_assets/vin_store/integrity.py")}
# Rules on a VIN store

`{"`, `".join(code for code in STORE_RULES if code in BLOCKING_CODES)}` mean that the store can't be used at all: they
fail `store_readable`, which blocks. Every other one costs only what it names and belongs to `store_integrity`; the
healthy rest is computed. The examples are findings on a tiny store that was damaged in this one way.

| code | what is wrong | severity | for example | how to fix |
|---|---|---|---|---|"""
    ]
    for code, rule in STORE_RULES.items():
        found = _example(code)
        example = f"{found.where}: {found.text}"
        lines.append(
            f"| `{code}` | {_first_paragraph(rule.__doc__)} | {found.severity} | {cell(example)} "
            f"| {cell(found.how_to_fix)} |"
        )
    return "\n".join(lines) + "\n"


def checks() -> str:
    """What each check of both code locations means."""
    lines = [
        f"""{_NOTICE.format(source="the checks of both code locations")}
# What each check means

A check that fails names its findings: a code, the place, what is wrong in numbers, and how to fix it. An ERROR makes
results wrong or missing; a WARN is worth a look. Checks of a partitioned asset answer per store or per route. A check
that could not run has not failed; that is told apart, in the alerts as well.

The codes of `store_readable` and `store_integrity` are explained under [rules on a store](vin-rules.md), those of
`cache_valid` and `rows_fill_spans` under [rules on a cache](dms-rules.md). Thresholds are
[configuration](configuration.md).

| asset | check | passes when |
|---|---|---|"""
    ]
    seen: dict[tuple[str, str], str] = {}
    for definitions in (vin_definitions(Settings()), dms_definitions(Settings())):
        for one in definitions.asset_checks or ():
            for spec in one.check_specs:
                path = spec.asset_key.path
                asset = "/".join(("dms", "<baseline>", path[-1]) if len(path) == 3 else path)
                row = f"| `{asset}` | `{spec.name}` | {_first_paragraph(spec.description)} |"
                seen.setdefault((asset, spec.name), row)
    return "\n".join([*lines, *seen.values()]) + "\n"


def command_line() -> str:
    """The two commands: what each sub-command does, an example, its options, the keys of its JSON."""
    lines = [
        f"""{_NOTICE.format(source="vin_assets/cli.py and dms_assets/cli.py")}
# Command line

For people without the user interface, and for shell pipelines. Every sub-command has `--help` and `--json`; tables fit
80 columns, colours and progress bars are off when the output is piped. `--install-completion` sets up the shell.

The examples work in the project's folder after `make run` and `. .venv/bin/activate`. JSON is one document; its keys
stay, and keys may be added.
"""
    ]
    with tempfile.TemporaryDirectory() as folder:
        shapes = _json_shapes(Path(folder))
    for name, app in (("vin-store", vin_app), ("dms-cache", dms_app)):
        lines.append(f"## `{name}`\n\n{app.info.help} {app.info.epilog}\n")
        for command in typer.main.get_group(app).commands.values():
            example = (command.epilog or "").removeprefix("Example: ")
            note = "<!-- may fail -->\n" if command.name == "coverage" else ""
            keys = _codes_in_order(shapes[f"{name} {command.name}"])
            lines.append(f"### `{name} {command.name}`\n\n{command.help}\n\n{note}```console\n$ {example}\n```\n")
            lines.append("| option | what it is |\n|---|---|")
            for one in command.params:
                names = " ".join(one.opts) if one.param_type_name == "option" else one.name
                if one.name != "help":
                    lines.append(f"| `{names}` | {cell(getattr(one, 'help', None) or '')} |")
            lines.append(f"\nJSON: {keys}.\n")
    return "\n".join(lines)


def _codes_in_order(codes: Iterable[str]) -> str:
    return ", ".join(f"`{code}`" for code in codes)


def _json_shapes(folder: Path) -> dict[str, list[str]]:
    """The keys of every sub-command's JSON, from running it on a small store and two small caches."""
    store = str(tiny_store(folder / "stores", 11))
    frames = cache_builders.healthy(FRAMES)
    first = str(cache_builders.write(folder / "cache" / "flow" / f"{cache_builders.UID}.npz", frames))
    (folder / "videos").mkdir()
    (folder / "wanted.csv").write_text(f"uid,t_start,t_end\n{cache_builders.UID},0,1\n")
    chosen = ["--root", str(folder)]
    runs: list[tuple[str, typer.Typer, list[str]]] = [
        ("vin-store inspect", vin_app, [store]),
        ("vin-store stats", vin_app, [store]),
        ("vin-store coverage", vin_app, [store]),
        ("vin-store check", vin_app, [store]),
        ("dms-cache inspect", dms_app, [first]),
        ("dms-cache check", dms_app, chosen),
        ("dms-cache coverage", dms_app, [*chosen, "--wanted", str(folder / "wanted.csv")]),
        ("dms-cache plan", dms_app, [*chosen, "--wanted", str(folder / "wanted.csv")]),
        ("dms-cache merge", dms_app, [first, first, "--out", str(folder / "merged.npz")]),
        ("dms-cache self-test", dms_app, []),
    ]
    found = {}
    environment = {"VIN_DMS_DMS__VIDEO_ROOT": str(folder / "videos")}
    for name, app, arguments in runs:
        done = CliRunner().invoke(app, [name.split()[1], *arguments, "--json"], env=environment)
        document = json.loads(done.stdout)
        found[name] = list(document) if isinstance(document, dict) else [f"list of {key}" for key in document[0]]
    return found


def _example(code: str) -> Finding:
    """What a store says that was damaged in the way that the rule `code` is about."""
    with tempfile.TemporaryDirectory() as folder:
        config = VinOfflineStoreConfig(tiny_store(Path(folder), 11))
        before = capture(config) if code == "generation_changed" else None
        CORRUPTORS[code](config.store_dir)
        found = next(one for one in check_store(config, expected=before) if one.code == code)
        text = _OF_THIS_RUN.sub("...", found.text.replace(folder, ""))
        return replace(found, text=text, where=found.where.replace(folder, ""))


def _codes(codes: Iterable[str]) -> str:
    return ", ".join(f"`{code}`" for code in sorted(codes))


PAGES: dict[str, Callable[[], str]] = {
    "configuration.md": configuration,
    "dms-rules.md": cache_rules,
    "vin-rules.md": store_rules,
    "checks.md": checks,
    "command-line.md": command_line,
}


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
