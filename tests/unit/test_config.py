"""The configuration: file, environment, defaults, and errors that name file and key without quoting values."""

from pathlib import Path

import pytest

from resources.config import PROJECT, ConfigurationError, load_settings


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("resources.config.PROJECT", tmp_path)
    monkeypatch.delenv("VIN_DMS_CONFIG", raising=False)


def write(folder: Path, text: str) -> Path:
    file = folder / "pipeline.toml"
    file.write_text(text)
    return file


def test_defaults_need_no_file() -> None:
    settings = load_settings()
    assert settings.dms.cache_root == PROJECT / "results" / "baselines_dms"
    assert settings.nightly.timezone == "UTC"
    assert settings.alerts.urls == ()


def test_paths_in_a_file_are_relative_to_it_and_the_environment_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(
        tmp_path,
        "output_root = 'out'\n[vin]\nstore_roots = ['a', '/b']\naliases = {x = 'c/x'}\n[nightly]\nmax_routes = 7\n",
    )
    monkeypatch.setenv("VIN_DMS_NIGHTLY__MAX_ROUTES", "9")
    monkeypatch.setenv("VIN_DMS_ALERTS__URLS", '["json://user:secret@localhost"]')
    settings = load_settings(file)
    assert settings.output_root == tmp_path / "out"
    assert settings.vin.store_roots == (tmp_path / "a", Path("/b"))
    assert settings.vin.aliases == {"x": tmp_path / "c/x"}
    assert settings.nightly.max_routes == 9
    assert settings.alerts.urls[0].get_secret_value() == "json://user:secret@localhost"
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[dms]\ncache_rot = 'x'\n", "dms.cache_rot"),
        ("[nightly]\nmax_routes = 0\n", "nightly.max_routes"),
        ("[nightly]\ntimezone = 'Europe/Berlln'\n", "nightly.timezone"),
        ("[vin.drift]\nmax_quantile_shift = 'much'\n", "vin.drift.max_quantile_shift"),
        ("[[alerts.mutes]]\nuntil = 'soon'\n", "alerts.mutes.0.until"),
    ],
)
def test_a_wrong_value_names_file_and_key(tmp_path: Path, text: str, key: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file)
    assert (caught.value.file, caught.value.key) == (str(file), key)
    assert str(file) in str(caught.value)


def test_a_wrong_environment_variable_is_named_and_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIN_DMS_NIGHTLY__MAX_ROUTES", "hunter2")
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert "VIN_DMS_NIGHTLY__MAX_ROUTES" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    monkeypatch.delenv("VIN_DMS_NIGHTLY__MAX_ROUTES")
    monkeypatch.setenv("VIN_DMS_ALERTS__URLS", "json://user:hunter2@localhost")
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert "VIN_DMS_ALERTS" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_file_that_is_missing_or_no_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml: can't be read"):
        load_settings(tmp_path / "nowhere.toml")
    with pytest.raises(ConfigurationError, match=r"pipeline\.toml: is no TOML"):
        load_settings(write(tmp_path, "[dms\n"))


def test_the_documented_example_is_in_force_as_it_stands() -> None:
    example = Path(__file__).parents[2] / "pipeline.example.toml"
    settings = load_settings(example)
    assert settings.nightly.timezone == "Europe/Berlin"
    assert settings.dms.baselines["clip_model"] == {"extractor": "external", "kind": "windows"}
    text = example.read_text()
    sections = {"": settings, "vin": settings.vin, "dms": settings.dms, "nightly": settings.nightly}
    for name, section in {**sections, "alerts": settings.alerts, "vin.drift": settings.vin.drift}.items():
        for key in type(section).model_fields:
            assert key in text, f"{name}.{key} is not in the example"
