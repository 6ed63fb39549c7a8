"""The extractors themselves: faces in real video, flow, a user's own model, and the files that they need."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import cv2
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from dms_assets.baselines import Baseline, BaselineConfigError, Weight, registry
from dms_assets.cache_schema import RouteCache, WindowCache
from dms_assets.cache_store import CacheStore
from dms_assets.extraction.extractor import ExtractorError, open_extractor
from dms_assets.extraction.extractors.facemesh import CHANNELS, Face, FaceMesh, features, head_pose
from dms_assets.extraction.extractors.flow import Flow
from dms_assets.extraction.run_route import run_route
from dms_assets.extraction.weights import WeightsError, resolve_weights
from resources.files import FileRoot
from tests.builders.video import clip, encode, numbered_frame, there_and_back

FACES = registry({})["facemesh"]
SIZE = (704, 576)
Bgr = NDArray[np.uint8]


def bgr(frames: list[Bgr]) -> list[Bgr]:
    return [np.ascontiguousarray(frame[:, :, ::-1]) for frame in frames]


@pytest.fixture(scope="module")
def clean() -> list[Bgr]:
    return bgr(clip("carphone_pristine", SIZE))


@pytest.fixture(scope="module")
def model() -> FaceMesh:
    return cast(FaceMesh, open_extractor(FACES, resolve_weights(FACES)))


@pytest.fixture(scope="module")
def faces(clean: list[Bgr], model: FaceMesh) -> list[Face | None]:
    return [model.face(image) for image in clean]


# --- facemesh


def test_the_registry_names_the_channels_that_the_extractor_gives() -> None:
    assert FACES.channels == CHANNELS


def test_a_face_is_found_in_the_clean_clip_and_in_few_frames_of_the_degraded_one(
    faces: list[Face | None], model: FaceMesh
) -> None:
    assert sum(face is not None for face in faces) > 0.95 * len(faces)
    degraded = bgr(clip("carphone_distorted", SIZE))[::3]
    assert sum(model.row(image, None).feat is not None for image in degraded) < 0.5 * len(degraded)


def test_no_face_is_found_where_there_is_none(model: FaceMesh) -> None:
    for image in (np.zeros((120, 200, 3), np.uint8), cv2.resize(numbered_frame(7), (640, 400))):
        assert model.row(np.asarray(image, np.uint8), None).feat is None


def test_yaw_pitch_and_roll_agree_with_solve_pnp(faces: list[Face | None]) -> None:
    # Nose tip, chin, outer eye corners, mouth corners of a generic head in millimetres: x to its left, y down, z back.
    head = np.array(
        [[0, 0, 0], [0, 63.6, 12.5], [43.3, -32.7, 26], [-43.3, -32.7, 26], [28.9, 28.9, 24.1], [-28.9, 28.9, 24.1]]
    )
    camera = np.array([[SIZE[0], 0, SIZE[0] / 2], [0, SIZE[0], SIZE[1] / 2], [0, 0, 1]], float)
    mine, theirs = [], []
    for face in faces:
        if face is None:
            continue
        points = np.ascontiguousarray(face.mesh[[1, 152, 263, 33, 291, 61], :2])
        _, turn, _ = cv2.solvePnP(head, points, camera, None)
        across, _, back = cv2.Rodrigues(turn)[0].T
        angles = (np.arctan2(-back[0], back[2]), np.arcsin(back[1]), np.arctan2(across[1], across[0]))
        theirs.append(np.degrees(angles))
        mine.append(head_pose(face.mesh))
    for axis in range(3):
        assert np.corrcoef(np.array(mine)[:, axis], np.array(theirs)[:, axis])[0, 1] > 0.9
        assert abs(np.mean(np.array(mine)[:, axis] - np.array(theirs)[:, axis])) < 10  # the same sense


def test_a_mirrored_frame_gives_the_mirrored_head(clean: list[Bgr], model: FaceMesh) -> None:
    index = {name: number for number, name in enumerate(CHANNELS)}
    pairs = []
    for image in clean[::10]:
        there, back = model.row(image, None).feat, model.row(np.ascontiguousarray(image[:, ::-1]), None).feat
        assert there is not None
        assert back is not None
        pairs.append((there, back))
    one, other = (np.array(side) for side in zip(*pairs, strict=True))
    for name in ("yaw_deg", "roll_deg"):
        assert np.abs(one[:, index[name]] + other[:, index[name]]).mean() < 3
    assert np.abs(one[:, index["pitch_deg"]] - other[:, index["pitch_deg"]]).mean() < 3
    assert np.abs(one[:, index["left_ear"]] - other[:, index["right_ear"]]).mean() < 0.05
    assert np.abs(one[:, index["left_iris_x"]] + other[:, index["right_iris_x"]]).mean() < 0.05


def test_irises_lie_between_the_corners_of_their_eyes(faces: list[Face | None]) -> None:
    for face in faces:
        if face is not None:
            for iris, (outer, inner) in zip(face.irises, ((263, 362), (33, 133)), strict=True):
                low, high = sorted((face.mesh[outer, 0], face.mesh[inner, 0]))
                assert low < iris[0] < high
            assert np.isfinite(features(face)).all()


def test_a_box_of_the_driver_is_where_the_face_is_looked_for(clean: list[Bgr], model: FaceMesh) -> None:
    height, width = clean[0].shape[:2]
    two = np.concatenate([clean[0], clean[60]], axis=1)
    for left in (0, width):
        box = np.array([left + 0.2 * width, 0, left + 0.8 * width, height], np.float32)
        face = model.face(two, box)
        assert face is not None
        assert left < face.mesh[:, 0].mean() < left + width
    assert model.face(two, np.array([2 * width + 5000, 0, 2 * width + 6000, 50], np.float32)) is None


def test_features_repeat_to_the_bit_in_a_new_process(clean: list[Bgr], model: FaceMesh, tmp_path: Path) -> None:
    frames = clean[::24]
    np.save(tmp_path / "frames.npy", np.stack(frames))
    code = (
        "import sys, hashlib, numpy as np\n"
        "from dms_assets.baselines import registry\n"
        "from dms_assets.extraction.extractor import open_extractor\n"
        "from dms_assets.extraction.weights import resolve_weights\n"
        "baseline = registry({})['facemesh']\n"
        "model = open_extractor(baseline, resolve_weights(baseline))\n"
        "rows = [model.row(image, None).feat for image in np.load(sys.argv[1])[::-1]]\n"
        "print(hashlib.sha256(np.stack(rows[::-1]).tobytes()).hexdigest())\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "frames.npy")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]).stdout
    rows = [model.row(image, None).feat for image in frames]
    assert printed.strip() == hashlib.sha256(np.stack(cast(list[Any], rows)).tobytes()).hexdigest()


def test_a_real_clip_becomes_a_cache(tmp_path: Path) -> None:
    for name in ("caches", "videos"):
        (tmp_path / name).mkdir()
    for uid, source in (("clean", "carphone_pristine"), ("degraded", "carphone_distorted")):
        encode(there_and_back(clip(source, SIZE), 60), tmp_path / "videos" / f"{uid}.hevc", crf=18)
        caches = CacheStore(FileRoot(tmp_path / "caches"))
        report = run_route(FACES, uid, [[0, 2.9]], caches=caches, videos=FileRoot(tmp_path / "videos"))
        cache = cast(RouteCache, caches.load("facemesh", uid))
        assert caches.findings("facemesh", uid) == []
        assert cache.meta["weight_sha256"] == FACES.weight_sha256
        assert report.box_source == "detector"
        if uid == "clean":
            assert cache.valid.mean() > 0.95
        else:
            assert (cache.fail == 3).mean() > 0.5


# --- flow


def test_the_flow_of_a_static_window_is_exactly_zero_and_of_a_moving_one_is_not(clean: list[Bgr]) -> None:
    baseline = registry({})["flow"]
    model = cast(Flow, open_extractor(baseline, {}))
    box = np.array([0, 0, *SIZE], np.float32)

    def embed(images: list[Bgr]) -> NDArray[np.floating]:
        steps: list[Any] = []
        for image in images:
            steps.append(model.prepare(image, box, steps[-1] if steps else None))
        return model.window(steps)

    assert embed([clean[0]] * 16).shape == (model.dim,) == (120,)
    assert not embed([clean[0]] * 16).any()
    assert np.abs(embed(clean[:16])).max() > 1e-4
    np.testing.assert_array_equal(embed(clean[:16]), embed(clean[:16]))


def test_flow_has_the_sense_of_the_movement() -> None:
    baseline = dataclasses.replace(registry({})["flow"], win_len=2)
    model = cast(Flow, open_extractor(baseline, {}))
    noise = cv2.GaussianBlur(np.random.default_rng(3).integers(0, 255, (400, 640, 3)).astype(np.uint8), (0, 0), 12)
    picture = np.asarray(cv2.normalize(noise, noise, 0, 255, cv2.NORM_MINMAX), np.uint8)
    box = np.array([100, 100, 540, 300], np.float32)
    first = model.prepare(picture, box, None)
    moved = model.window([first, model.prepare(np.roll(picture, 8, axis=1), box, first)])
    assert moved[0::2] == pytest.approx(8 / 640, rel=0.2)
    assert np.abs(moved[1::2]).max() < 2e-3


# --- a user's own model


def save_model(path: Path, nodes: list[Any], shape: list[int], outputs: dict[str, list[int]], **metadata: str) -> Path:
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes) for name, sizes in outputs.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(made, metadata)
    onnx.save(made, str(path))
    return path


@pytest.fixture
def frame_model(tmp_path: Path) -> Path:
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[2, 3], keepdims=0),
        helper.make_node("ReduceMax", ["x"], ["top"], axes=[1, 2, 3], keepdims=0),
    ]
    return save_model(
        tmp_path / "frame.onnx", nodes, [1, 3, 8, 16], {"mean": [1, 3], "top": [1]}, channels="red, green, blue"
    )


@pytest.fixture
def clip_model(tmp_path: Path) -> Path:
    nodes = [helper.make_node("ReduceMean", ["x"], ["mean"], axes=[2, 3, 4], keepdims=0)]
    return save_model(tmp_path / "clip.onnx", nodes, [1, 5, 3, 8, 16], {"mean": [1, 5]})


def onnx_entry(path: Path, **entry: Any) -> dict[str, Any]:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    options = {"input_size": [16, 8], "outputs": ["mean"], **entry.pop("options", {})}
    weights = {"model": {"path": str(path), "sha256": digest}}
    return {"extractor": "onnx", "code_version": "1", "weights": weights, "options": options, **entry}


def shades(count: int) -> list[Bgr]:
    """RGB frames whose red rises, whose green is 100 and whose blue is 20."""
    return [np.full((64, 128, 3), (2 * number, 100, 20), np.uint8) for number in range(count)]


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Baseline], RouteCache | WindowCache]:
    (tmp_path / "videos").mkdir()
    encode(shades(60), tmp_path / "videos" / "r.mp4", crf=4)

    def run(baseline: Baseline) -> RouteCache | WindowCache:
        caches = CacheStore(FileRoot(tmp_path / "caches"))
        run_route(baseline, "r", [[0, 2.9]], caches=caches, videos=FileRoot(tmp_path / "videos"))
        assert caches.findings(baseline.name, "r") == []
        return caches.load(baseline.name, "r")

    return run


def test_a_frame_model_runs_by_configuration_alone(
    run: Callable[[Baseline], RouteCache | WindowCache], frame_model: Path
) -> None:
    cache = cast(RouteCache, run(registry({"mine": onnx_entry(frame_model)})["mine"]))
    assert cache.channels == ["red", "green", "blue"]
    assert cache.valid.all()
    np.testing.assert_allclose(cache.feat[:, 1:].astype(float) * 255, [[100, 20]] * 30, atol=4)
    np.testing.assert_allclose(np.diff(cache.feat[:, 0].astype(float)).mean() * 255, 4, atol=0.5)
    assert cache.meta["model_ids"] == ["frame.onnx"]
    assert (cache.box == [0, 0, 128, 64]).all()


def test_a_clip_model_runs_by_configuration_alone(
    run: Callable[[Baseline], RouteCache | WindowCache], clip_model: Path
) -> None:
    entry = onnx_entry(clip_model, kind="windows", win_len=5)
    cache = cast(WindowCache, run(registry({"mine": entry})["mine"]))
    assert (cache.win_len, cache.D, cache.m) == (5, 5, 26)
    assert (np.diff(cache.emb.astype(float), axis=1) > 0).all()  # red rises from frame to frame of every window
    np.testing.assert_array_equal(cache.emb[1:, :-1], cache.emb[:-1, 1:])


def test_normalisation_colour_order_and_layout_are_as_declared(tmp_path: Path, frame_model: Path) -> None:
    image = np.full((20, 20, 3), (255, 51, 0), np.uint8)  # blue, green, red
    nodes = [helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1, 2], keepdims=0)]
    last = save_model(tmp_path / "last.onnx", nodes, [1, 8, 16, 3], {"mean": [1, 3]}, channels='["a", "b", "c"]')
    for path, layout in ((frame_model, "nchw"), (last, "nhwc")):
        for colour, right in (("rgb", [-1, 0.2, 1]), ("bgr", [3, 0.2, -0.5])):
            options = {"mean": [0.5, 0.0, 0.5], "std": [0.5, 1.0, 0.5], "layout": layout, "colour": colour}
            if colour == "bgr":
                options |= {"mean": [0.25, 0.0, 0.25], "std": [0.25, 1.0, 0.5]}
            baseline = registry({"mine": onnx_entry(path, options=options)})["mine"]
            model = cast(Any, open_extractor(baseline, resolve_weights(baseline)))
            np.testing.assert_allclose(model.row(image, None).feat, right, atol=1e-6)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"options": {"outputs": ["nowhere"]}}, "nowhere"),
        ({"options": {"input_size": [8, 8]}}, "frame.onnx"),
        ({"options": {"layout": "ntchw"}}, "layout"),
        ({"channels": ["a", "b"]}, "2 channels are named, but frame.onnx gives 3"),
        ({"options": {"outputs": []}}, "3 channels are named, but frame.onnx gives 4"),
    ],
)
def test_a_model_that_does_not_fit_its_entry_says_so(frame_model: Path, entry: dict[str, Any], message: str) -> None:
    baseline = registry({"mine": onnx_entry(frame_model, **entry)})["mine"]
    with pytest.raises(ExtractorError, match=message):
        open_extractor(baseline, resolve_weights(baseline))


def test_outputs_without_names_are_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("ReduceMean", ["x"], ["mean"], axes=[2, 3], keepdims=0)]
    path = save_model(tmp_path / "bare.onnx", nodes, [1, 3, 8, 16], {"mean": [1, 3]})
    baseline = registry({"mine": onnx_entry(path)})["mine"]
    with pytest.raises(ExtractorError, match=r"baselines\.mine\.channels"):
        open_extractor(baseline, resolve_weights(baseline))


def test_wrong_options_are_named_when_the_configuration_is_read(frame_model: Path) -> None:
    for option, value in (("input_size", [0, 8]), ("std", [0, 1, 1]), ("colour", "grey"), ("sise", 3)):
        with pytest.raises(BaselineConfigError, match=rf"baselines\.mine\.options\.{option}"):
            registry({"mine": onnx_entry(frame_model, options={option: value})})


# --- weights


def test_a_weight_with_another_sha256_is_refused_before_it_is_read(frame_model: Path) -> None:
    baseline = registry({"mine": onnx_entry(frame_model)})["mine"]
    assert resolve_weights(baseline) == {"model": frame_model}
    with open(frame_model, "ab") as file:
        file.write(b"!")
    with pytest.raises(WeightsError, match=r"mine: weight model .*has sha256 .*is declared; .*put the declared file"):
        resolve_weights(baseline)


def test_a_missing_weight_says_what_to_do(frame_model: Path) -> None:
    baseline = registry({"mine": onnx_entry(frame_model)})["mine"]
    frame_model.unlink()
    with pytest.raises(WeightsError, match=r"can't be read at .*frame\.onnx.*baselines\.mine\.weights\.model\.path"):
        resolve_weights(baseline)
    absent = Weight("0" * 64, package="no-such-package", file="x.tflite")
    with pytest.raises(WeightsError, match=r"no-such-package, not installed; install .*baselines\.b\.weights\.m\.path"):
        resolve_weights(Baseline(name="b", extractor="facemesh", weights={"m": absent}))


def test_a_configured_path_takes_the_place_of_the_package(tmp_path: Path) -> None:
    copy = tmp_path / "mesh.tflite"
    copy.write_bytes(resolve_weights(FACES)["mesh"].read_bytes())
    moved = registry({"facemesh": {"weights": {"mesh": {"path": str(copy)}}}})["facemesh"]
    assert resolve_weights(moved)["mesh"] == copy
    copy.write_bytes(b"another model")
    with pytest.raises(WeightsError, match="is declared"):
        resolve_weights(moved)
