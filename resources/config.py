"""The one configuration: a TOML file, every value of which an environment variable overrides.

Belongs here: what can be set, its default, its unit, and errors that name file and key. Does not belong here: what a
value is used for. Imports no Dagster. The documented example is `pipeline.example.toml`.

The file is `$VIN_DMS_CONFIG`, else `pipeline.toml` beside the packages, else none: the defaults describe what
`make run` prepares. The variable for `[nightly] max_routes` is `VIN_DMS_NIGHTLY__MAX_ROUTES`; lists, tables are JSON.
"""

from __future__ import annotations

import datetime
import os
import tomllib
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

PROJECT = Path(__file__).resolve().parent.parent
ENV_PREFIX = "VIN_DMS_"


class ConfigurationError(ValueError):
    """The configuration can't be used. `file` is where it comes from, `key` the dotted key at fault ("" for none)."""

    def __init__(self, file: str, key: str, problem: str) -> None:
        super().__init__(f"{file}: {key}: {problem}" if key else f"{file}: {problem}")
        self.file = file
        self.key = key
        self.problem = problem


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class DriftSettings(_Section):
    """When a change against the previous statistics of a store, or against the other stores, is worth a look."""

    max_relative_change: float = Field(0.25, gt=0, description="of a count or a mean, as a share of the earlier value")
    max_quantile_shift: float = Field(0.25, gt=0, description="of p05, p50 or p95, in earlier p05-p95 widths")
    max_finite_share_drop: float = Field(0.02, ge=0, le=1, description="of the share of finite labels")


class VinSettings(_Section):
    """VIN offline stores and the raw dataset they were made from."""

    store_roots: tuple[Path, ...] = Field(
        (PROJECT / ".run" / "input" / "vin_stores",), description="folders whose sub-folders are stores"
    )
    aliases: dict[str, Path] = Field({}, description="more stores, or other names for some: name -> folder")
    raw_roots: tuple[Path, ...] = Field(
        (PROJECT / ".run" / "input" / "raw",), description="raw datasets are opened below these folders only"
    )
    raw_data_root: Path | None = Field(
        PROJECT / ".run" / "input" / "raw",
        description="replaces the raw data root that a store's manifest names, which is a path of another machine",
    )
    max_samples: int | None = Field(None, ge=0, description="rows scanned per store; absent: all")
    raw_coverage_min: float = Field(
        0.01, ge=0, le=1, description="share of the raw dataset's snippets that a store should hold"
    )
    finite_labels_min: float = Field(
        0.95, ge=0, le=1, description="share of finite labels among the counted candidates"
    )
    drift: DriftSettings = DriftSettings()


class DmsSettings(_Section):
    """DMS feature caches, the driver videos behind them, and the spans that are wanted."""

    cache_root: Path = Field(PROJECT / "results" / "baselines_dms", description="holds cache/ and summ/")
    video_root: Path = Field(PROJECT / ".run" / "input" / "driver_video", description="holds <uid>.hevc, .mp4 or .mkv")
    boxes_root: Path | None = Field(None, description="pose caches <uid>.npz with driver boxes; absent: none")
    wanted_spans: Path = Field(
        PROJECT / ".run" / "input" / "anchor_spans.csv",
        description="CSV or Parquet of uid, t_start, t_end, or of uid, t_anchor with `window_s`",
    )
    window_s: float | None = Field(None, gt=0, description="seconds before each t_anchor that are wanted")
    settle_s: float = Field(60.0, ge=0, description="a file younger than this may still be being copied: it is left")
    keep_aside_days: float = Field(30.0, ge=0, description="how long caches that were moved aside are kept")
    block_ticks: int = Field(600, ge=1, description="ticks per stored block of an extraction, which a killed run keeps")
    max_file_mib: int = Field(4096, ge=1, description="declared size of a cache's members above which it is refused")
    min_free_gib: float = Field(1.0, ge=0, description="extraction stops before less than this is free")
    routes_covered_min: float = Field(1.0, ge=0, le=1, description="share of routes whose wanted spans are all stored")
    rebuild_stale: bool = Field(False, description="rebuild caches of another code version or other weights")
    baselines: dict[str, dict[str, Any]] = Field(
        {}, description="new baselines, or thresholds and paths of registered ones, by name"
    )


class NightlySettings(_Section):
    """What runs at night, in which time zone, and how much of it."""

    timezone: str = Field("UTC", description="IANA name, such as Europe/Berlin")
    vin_cron: str = Field("0 2 * * *", description="when changed VIN stores are computed")
    dms_cron: str = Field("30 2 * * *", description="when missing spans are extracted")
    reconcile_cron: str = Field("0 * * * *", description="when files written by other programs are adopted")
    stores_cron: str = Field("30 6 * * *", description="when coverage and statistics of whole stores are made")
    sync_interval_s: int = Field(60, ge=1, description="how often partitions are brought in step with the disk")
    max_routes: int = Field(500, ge=1, description="routes per baseline and night; the rest is carried over")
    range_size: int = Field(50, ge=1, description="routes per run")
    attempts: int = Field(3, ge=1, description="nights in a row that a failing route is tried with unchanged inputs")
    keep_runs_days: float = Field(
        90.0, gt=0, description="how long runs are kept of which everything was recorded anew since"
    )

    @field_validator("timezone")
    @classmethod
    def _known(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError):
            raise ValueError(f"{value!r} is no time zone; IANA names such as Europe/Berlin are expected") from None
        return value


class Mute(_Section):
    """A known failure that raises no alert until a date. Empty fields match everything."""

    asset: str = Field("", description="asset key, such as vin/store_coverage")
    check: str = Field("", description="name of the check")
    partition: str = Field("", description="store or route")
    until: datetime.date = Field(description="the first day on which it is told again")
    reason: str = Field("", description="for those who read the file later")


class AlertSettings(_Section):
    """Who is told when something fails."""

    urls: tuple[SecretStr, ...] = Field((), description="Apprise URLs; they hold secrets: set them by environment")
    file: Path = Field(PROJECT / "results" / "alerts.jsonl", description="where alerts go while there is no URL")
    interval_s: int = Field(30, ge=1, description="how often an alert sensor looks")
    settle_s: float = Field(20.0, ge=0, description="what appears within it on one route or store is one alert")
    watch_s: float = Field(300.0, gt=0, description="the other location counts as down after so long without a tick")
    repeat_hours: float = Field(24.0, gt=0, description="when a failure that goes on is told again")
    max_items: int = Field(20, ge=1, description="failures listed in one message; the rest is counted")
    digest_cron: str = Field("0 7 * * *", description="when the morning digest is sent")
    webserver_url: str = Field("http://127.0.0.1:3000", description="for links to pages")
    mutes: tuple[Mute, ...] = Field((), description="known failures")


class Settings(BaseSettings):
    """Everything that can be configured. Paths in a file are relative to that file's folder."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    output_root: Path = Field(PROJECT / "results" / "published", description="where results are published")
    keep_results: int = Field(10, ge=1, description="versions of a result that are kept")
    vin: VinSettings = VinSettings()
    dms: DmsSettings = DmsSettings()
    nightly: NightlySettings = NightlySettings()
    alerts: AlertSettings = AlertSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Environment first, then the file's values, which `load_settings` passes as keyword arguments."""
        return (env_settings, init_settings)


def configuration_file() -> Path | None:
    """The file in force: `$VIN_DMS_CONFIG`, else `pipeline.toml` beside the packages if there is one."""
    named = os.environ.get(ENV_PREFIX + "CONFIG")
    if named:
        return Path(named).absolute()
    default = PROJECT / "pipeline.toml"
    return default if default.exists() else None


def _absolute(values: Any, folder: Path, model: type[BaseModel]) -> Any:
    """`values` with every relative path made absolute against the file's folder."""
    if not isinstance(values, dict):
        return values
    result = dict(values)
    for name, field in model.model_fields.items():
        value = result.get(name)
        if value is None:
            continue
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            result[name] = _absolute(value, folder, annotation)
        elif "Path" in str(annotation):
            result[name] = _below(value, folder)
    return result


def _below(value: Any, folder: Path) -> Any:
    if isinstance(value, str):
        return str(folder / Path(value).expanduser())
    if isinstance(value, list):
        return [_below(item, folder) for item in value]
    if isinstance(value, dict):
        return {key: _below(item, folder) for key, item in value.items()}
    return value


def load_settings(file: Path | None = None) -> Settings:
    """The settings of `file` (default: `configuration_file()`) and the environment.

    Raises:
        ConfigurationError: the file is missing or no TOML, a key is unknown, or a value has the wrong type or range.
            Values are never quoted: they may be secrets.
    """
    file = file or configuration_file()
    values: dict[str, Any] = {}
    if file is not None:
        try:
            values = tomllib.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigurationError(str(file), "", f"can't be read ({error.strerror})") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigurationError(str(file), "", f"is no TOML: {error}") from None
        values = _absolute(values, file.parent, Settings)
    try:
        return Settings(**values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ConfigurationError(*_place(file, first["loc"]), first["msg"]) from None
    except SettingsError as error:
        name = str(error).split('"')[1] if '"' in str(error) else ""
        raise ConfigurationError("environment", ENV_PREFIX + name.upper(), "is no JSON of the expected form") from None


def _place(file: Path | None, location: tuple[int | str, ...]) -> tuple[str, str]:
    """Where a faulty value comes from: the environment variable if it is set, else the file; and the dotted key."""
    for length in range(len(location), 0, -1):
        variable = ENV_PREFIX + "__".join(str(part) for part in location[:length]).upper()
        if variable in os.environ:
            return f"environment variable {variable}", ".".join(map(str, location))
    return str(file or "environment"), ".".join(map(str, location))


def settings_or_defaults() -> tuple[Settings, ConfigurationError | None]:
    """The settings in force; the built-in defaults and the error where the configuration is broken."""
    try:
        return load_settings(), None
    except ConfigurationError as error:
        return Settings.model_construct(), error
