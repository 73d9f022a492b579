from __future__ import annotations

import json
import re

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from shared.errors import InputFileError, RequestError
from shared.store import open_store
from train.probe import ProbeConfig, probe, read_labels, sampled_rows, summed_scores, table
from train.tasks import run_task


@pytest.fixture(scope="module")
def store(tmp_path_factory, small_store):
    return small_store(tmp_path_factory.mktemp("probe") / "store", splits={"train": 24, "val": 12})


@pytest.fixture
def labels(store, tmp_path):
    """What a video shows as its label; train and val videos are the parts of split1, the other way round of split2."""
    lines = ["video_id,label,split1,split2,url"]
    for video in open_store(store).manifest_set("default").video_ids:
        part = "train" if video.startswith("train") else "test"
        other = {"train": "test", "test": "train"}[part]
        lines.append(f"{video},thing {int(video[-3:]) % 12},{part},{other},x")
    path = tmp_path / "labels.csv"
    path.write_text("\n".join([*lines, "gone,thing 3,train,train,x", "unused,,train,test,x", ""]))
    return path


def config(store, labels, tmp_path, **values):
    given = {
        "task": "linear_probe",
        "store": store,
        "stream": "default",
        "labels": labels,
        "out": tmp_path / "out.json",
    }
    return ProbeConfig.model_validate(given | {"splits": ["split1", "split2"]} | values)


def test_classes_are_told_apart_and_shuffled_ones_are_not(store, labels, tmp_path):
    result = probe(config(store, labels, tmp_path))
    assert (result["classes"], result["videos_without_rows"]) == (12, 1)
    assert result["accuracy"] > 0.9
    first = result["splits"]["split1"]
    assert (first["train_videos"], first["test_videos"], first["chance"]) == (24, 12, 1 / 12)
    assert first["interval"][0] <= first["accuracy"] <= first["interval"][1]
    header, *lines = labels.read_text().splitlines()[:37]
    shuffled = [re.sub(r"thing \d+", f"thing {number // 3}", line) for number, line in enumerate(lines)]
    labels.write_text("\n".join([header, *shuffled]))
    assert probe(config(store, labels, tmp_path))["accuracy"] < 0.5


def test_it_is_the_svm_of_the_protocol(store, labels, tmp_path):
    """Rows of training videos as samples, scores of a test video's rows added: written out with scikit-learn."""
    stream = open_store(store).stream("default")
    labelled = read_labels(labels, ["split1"], stream)
    train_V, test_V = (np.flatnonzero(labelled.parts["split1"] == part) for part in ("train", "test"))
    samples = [
        (row, labelled.class_V[v]) for v in train_V for row in stream.read(labelled.video_V[v]).astype(np.float32)
    ]
    machine = LinearSVC(C=100, random_state=0).fit(np.stack([row for row, _ in samples]), [c for _, c in samples])
    scores = [
        machine.decision_function(stream.read(labelled.video_V[v]).astype(np.float32)).sum(axis=0) for v in test_V
    ]
    expected = np.mean(machine.classes_[np.argmax(scores, axis=1)] == labelled.class_V[test_V])
    assert probe(config(store, labels, tmp_path, rows=None, splits=["split1"]))["accuracy"] == expected


def test_scores_of_a_videos_rows_are_added(store, labels, tmp_path):
    stream, settings = open_store(store).stream("default"), config(store, labels, tmp_path, rows=None)
    rows_ND, owner_N = sampled_rows(stream, np.arange(36), None, normalise=False)
    machine = LinearSVC(C=1, random_state=0).fit(rows_ND, owner_N % 12)
    found_VC = summed_scores(machine, stream, np.array([4, 30]), settings)
    for place, video in enumerate((4, 30)):
        expected_C = machine.decision_function(stream.read(video).astype(np.float32)).sum(axis=0)
        np.testing.assert_allclose(found_VC[place], expected_C)


def test_rows_are_spread_evenly_and_all_taken_where_there_are_few(store):
    stream = open_store(store).stream("default")
    held = int(stream.rows_per_video[0])
    rows_ND, owner_N = sampled_rows(stream, np.array([0, 1]), 3, normalise=False)
    assert owner_N.tolist() == [0, 0, 0, 1, 1, 1]
    places = [(2 * k + 1) * held // 6 for k in range(3)]
    np.testing.assert_array_equal(rows_ND[:3], stream.read(0)[places].astype(np.float32))
    everything, _ = sampled_rows(stream, np.array([0]), None, normalise=False)
    np.testing.assert_array_equal(everything, stream.read(0).astype(np.float32))
    many, _ = sampled_rows(stream, np.array([0]), held + 50, normalise=True)
    np.testing.assert_allclose(np.linalg.norm(many, axis=1), 1, rtol=1e-6)


def test_two_classes_and_a_solver_that_is_stopped(store, labels, tmp_path):
    lines = [line for line in labels.read_text().splitlines() if ",thing 1," in line or ",thing 2," in line]
    labels.write_text("\n".join(["video_id,label,split1,split2,url", *lines]))
    result = probe(config(store, labels, tmp_path, max_iterations=1))
    assert result["accuracy"] > 0.9
    assert "not converged: raise max_iterations" in table(result)


def test_what_does_not_fit_is_refused(store, labels, tmp_path):
    with pytest.raises(InputFileError, match="has no column 'split3'"):
        probe(config(store, labels, tmp_path, splits=["split3"]))
    with pytest.raises(InputFileError, match="cannot be read"):
        probe(config(store, tmp_path / "none.csv", tmp_path))
    with pytest.raises(RequestError, match="has no stream 'nope'"):
        probe(config(store, labels, tmp_path, stream="nope"))
    (tmp_path / "other.csv").write_text("video_id,label,split1\nx,a,train\n")
    with pytest.raises(RequestError, match="none of the 1 videos"):
        probe(config(store, tmp_path / "other.csv", tmp_path, splits=["split1"]))
    labels.write_text(labels.read_text().replace(",test,", ",unused,"))
    with pytest.raises(RequestError, match="column 'split1' gives 24 videos of 12 classes to train on and 0 to test"):
        probe(config(store, labels, tmp_path))


def test_as_a_config(store, labels, tmp_path):
    path = tmp_path / "probe.yaml"
    path.write_text(f"task: linear_probe\nstore: {store}\nstream: default\nlabels: {labels}\nout: {tmp_path}/o.json\n")
    text = run_task(path, ["splits=[split1]", "C=10"])
    result = json.loads((tmp_path / "o.json").read_text())
    assert result["settings"]["C"] == 10
    assert f"top-1 {result['accuracy']:7.2%}" in text
    with pytest.raises(RequestError, match="task 'other' is unknown; expected retrieval or linear_probe"):
        run_task(path, ["task=other"])
