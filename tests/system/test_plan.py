"""`remanence plan`: what it prints, draws and refuses."""

import json
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest

from remanence.core.vector import FlatModel
from remanence.registry import models
from system.conftest import Call
from system.running import EXPERIMENT, Ended, good, refused, run_fork

SIZE = ["--parameters", "6603710"]
LINKS = ["--external", "10", "--internal", "100"]
USUAL = ["plan", *SIZE, *LINKS, "--snr", "1023"]


def planned(call: Call, *more: str | Path) -> dict:
    ended = good(call(*USUAL, *more, "--json"))
    assert ended.err == ""
    return ended.json


def test_the_table_and_what_follows_from_it(call: Call) -> None:
    told = good(call(*USUAL, "--select-seconds", "0.015", "--compute-seconds", "0.02")).out
    lines = [" ".join(line.split()) for line in told.splitlines()]
    for line in (
        "10 sites, 10 devices of each, 50 iterations; a model of 26.4 MB",
        "seconds of a round with edges (FedGS) without (FedAvg)",
        "links of the cloud 42.264 422.637",
        "links within sites 211.319 -",
        "selecting 0.750 -",
        "computing 1.000 1.000",
        "all 255.332 423.637",
        "a round with edges is cheaper: 0.6027 of the time without",
        "T L / (M (L - 1)) = 5.55556 (Proposition 4, for selection in no time)",
        "B_int / B_ext must exceed 5.56653; it is 10, a margin of 4.43347",
        "iterations in a round: at most 89",
    ):
        assert line in lines
    assert sum(line.startswith("note: ") for line in lines) == 3


def test_json(call: Call) -> None:
    found = planned(call)
    assert found["hierarchy_seconds"] == pytest.approx(253.582, abs=1e-3)
    assert found["fedavg_seconds"] == pytest.approx(422.637, abs=1e-3)
    assert found["hierarchy_to_fedavg"] == pytest.approx(0.6)
    assert found["cheaper"] is True
    assert found["condition"] == pytest.approx(
        {"bandwidth_ratio": 10, "must_exceed": 500 / 90, "margin": 10 - 500 / 90, "most_iterations": 89,
         "proposition_4": 500 / 90}
    )  # fmt: skip
    assert len(found["notes"]) == 3
    assert (found["runs"], found["picture"]) == ([], None)


def test_no_ratio_is_enough(call: Call) -> None:
    """JSON has no infinity."""
    alone = planned(call, "--devices-per-site", "1")
    assert alone["condition"] == {
        "bandwidth_ratio": 10, "must_exceed": None, "margin": None, "most_iterations": 0, "proposition_4": None,
    }  # fmt: skip
    told = good(call(*USUAL, "--devices-per-site", "1")).out
    assert "no B_int / B_ext is enough" in told
    assert "not even 1 pays" in told
    assert "inf" not in told


@pytest.mark.parametrize("links", [["--internal", "100,50"], ["--external=10,9"], ["--snr", "1023,1023,500"]])
def test_links_that_differ_have_times_alone(links: list[str], call: Call) -> None:
    found = planned(call, *links)
    assert found["condition"] is None
    assert found["hierarchy_seconds"] > 0
    assert found["cheaper"] is True
    told = good(call(*USUAL, *links)).out
    assert "Proposition 4 does not apply" in told
    assert "must exceed" not in told


def test_ratios_in_decibel(call: Call) -> None:
    """30 dB are 1000."""
    of_both = [good(call("plan", *SIZE, *LINKS, *snr, "--json")).json for snr in (["--snr", "1000"], ["--snr-db=30"])]
    assert of_both[0] == of_both[1]
    three = ["--snr-db=-3,0,30.5"]
    assert good(call("plan", *SIZE, *LINKS, *three, "--json")).json["hierarchy_seconds"] > 0


def test_the_size_of_a_model(call: Call) -> None:
    """FEMNIST's, by its name, by its parameters and by its bits."""
    named = ["--model", "simple-cnn", "--shape", "1,28,28", "--classes", "62", "--set", "model.hidden=2048"]
    for size in (named, SIZE, ["--bits", str(6_603_710 * 32)]):
        assert good(call("plan", *size, *LINKS, "--snr", "1023", "--json")).json["bits"] == 6_603_710 * 32


@pytest.mark.parametrize("name", models.names())
def test_every_model_is_as_large_as_what_it_sends(name: str, call: Call) -> None:
    shape = (9,) if name == "fasttext" else (3, 32, 32)
    size = ["--model", name, "--shape", ",".join(map(str, shape)), "--classes", "7"]
    found = good(call("plan", *size, *LINKS, "--snr", "1", "--json")).json
    assert found["bits"] == 32 * len(FlatModel(models.create(name, {}).build(shape, 7)).w)


def test_a_model_that_no_memory_holds(call: Call) -> None:
    size = ["--model", "mlp", "--shape", "64", "--classes", "10", "--set", "model.hidden=[1000000000000]"]
    assert good(call("plan", *size, *LINKS, "--snr", "1", "--json")).json["bits"] > 1e15


# Pictures


@pytest.mark.parametrize("more", [[], ["--devices-per-site", "1"], ["--internal", "0.001"], ["--internal", "70,100"]])
def test_a_picture(more: list[str], call: Call, tmp_path: Path) -> None:
    path = tmp_path / "new" / "plan.svg"
    assert planned(call, *more, "--picture", path)["picture"] == str(path)
    text = path.read_text()
    assert xml.etree.ElementTree.fromstring(text).tag.endswith("svg")
    for word in ("When edges pay", "M = 10", "Iterations in a round, T"):
        assert word in text
    assert "var(--" not in text
    assert f"picture: {path}" in good(call(*USUAL, *more, "--picture", path)).out


def test_a_huge_fleet_has_a_picture(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "huge.svg"
    planned(call, "--sites", "1000000000", "--devices-per-site", "1000000000", "--picture", path)
    assert "cheaper" in path.read_text()


def test_without_the_extra_that_draws(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    refused(
        call(*USUAL, "--picture", "plan.svg"), "--picture: altair is not installed: pip install 'remanence[report]'"
    )
    assert planned(call)["cheaper"] is True


def test_pictures_as_page_and_pixels(call: Call, tmp_path: Path) -> None:
    planned(call, "--picture", tmp_path / "plan.png")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    planned(call, "--picture", tmp_path / "plan.HTML")
    page = (tmp_path / "plan.HTML").read_text()
    assert page.startswith("<!doctype html>")
    assert 'src="http' not in page
    data = json.loads(page.partition('id="charts">')[2].partition("</script>")[0])
    points = data["specs"]["plan"]["datasets"]["points"]
    assert {"sites": "M = 10", "devices": 10, "bound": 90.0, "most": 89} in [
        point | {"bound": round(point["bound"], 6)} for point in points
    ]
    assert "The most iterations that pay" in page


# Time to accuracy


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ended, Ended]:
    """Four devices a round without edges; two sites with two devices in each of three iterations."""
    folder = tmp_path_factory.mktemp("plan")
    (folder / "small.toml").write_text(EXPERIMENT)
    words = ["run", folder / "small.toml", "--runs", folder / "runs", "--json", "--quiet", "--set"]
    edges = ["topology={name='sites', iterations=3}", "--set", "devices.sites=2", "--set", "devices.per_round=2"]
    flat, sites = (good(run_fork(folder, *words, *more)) for more in (["rounds=6"], edges))
    return flat, sites


def test_rounds_times_seconds(runs: tuple[Ended, Ended], call: Call) -> None:
    """Each run with its own fleet: 1e8 bits take 1 s a way outside and 0.1 s inside."""
    folders = [ended.json["run"] for ended in runs]
    words = ["plan", "--bits", "100000000", *LINKS, "--snr", "1023", "--accuracy", "0.15", "--json"]
    flat, sites = good(call(*words, *folders)).json["runs"]
    assert flat["round_seconds"] == pytest.approx(2 * 4)
    assert sites["round_seconds"] == pytest.approx(2 * 2 + 3 * 0.2 * 2)
    for found, folder in zip((flat, sites), folders, strict=True):
        events = map(json.loads, (Path(folder) / "events.jsonl").read_text().splitlines())
        curve = [(event["round"], event["accuracy"]) for event in events if event["event"] == "round"]
        assert found["rounds"] == next(number for number, accuracy in curve if accuracy >= 0.15)
        assert found["seconds"] == pytest.approx(found["rounds"] * found["round_seconds"])
        assert found["best"] == max(accuracy for _, accuracy in curve)
    assert (flat["fleet"], sites["fleet"]) == ("4 devices a round", "2 sites, 2 devices of each, 3 iterations")


def test_what_is_never_reached(runs: tuple[Ended, Ended], call: Call) -> None:
    folder = runs[0].json["run"]
    found = planned(call, folder, "--accuracy", "1")["runs"][0]
    assert (found["rounds"], found["seconds"]) == (None, None)
    told = good(call(*USUAL, folder, "--accuracy", "1")).out
    assert f"never (best {found['best']:.4g})" in told
    assert "fedavg, seed 1: 4 devices a round" in told


# What is refused


BAD = [
    (["plan"], "--external", "required"),
    (["plan", *LINKS, "--snr", "1"], "--parameters", "required"),
    (["plan", *SIZE, *LINKS], "--snr", "--snr-db", "required"),
    ([*USUAL, "--snr-db", "3"], "--snr-db", "not allowed with"),
    ([*USUAL, "--bits", "3"], "--bits", "not allowed with"),
    ([*USUAL, "--external", "0"], "--external: '0' is not allowed: must be one number or two from 1e-09 to 1e+09 MHz"),
    ([*USUAL, "--external", "1,2,3"], "--external: '1,2,3'"),
    ([*USUAL, "--internal", "fast"], "--internal: 'fast'"),
    ([*USUAL, "--internal", "nan"], "--internal: 'nan'"),
    ([*USUAL, "--internal", "inf"], "--internal: 'inf'"),
    ([*USUAL, "--internal=-5"], "--internal: '-5'"),
    ([*USUAL, "--internal="], "--internal: ''"),
    ([*USUAL, "--snr", "0"], "--snr: '0' is not allowed: must be one number or three from 1e-12 to 1e+12"),
    ([*USUAL, "--snr", "1,2"], "--snr: '1,2'"),
    (["plan", *SIZE, *LINKS, "--snr-db", "1000"], "--snr-db: '1000'", "from -120 to 120 dB"),
    ([*USUAL, "--sites", "0"], "--sites: '0' is not allowed: must be a whole number from 1 to 1,000,000,000"),
    ([*USUAL, "--sites", "9" * 5000], "--sites: '999"),
    ([*USUAL, "--devices-per-site", "2.5"], "--devices-per-site: '2.5'"),
    ([*USUAL, "--iterations", "-1"], "--iterations: '-1'"),
    ([*USUAL, "--iterations", "²"], "--iterations: '²'"),
    ([*USUAL, "--select-seconds=-1"], "--select-seconds: '-1' is not allowed: must be a number from 0 to 1e+09 s"),
    ([*USUAL, "--compute-seconds", "1,1"], "--compute-seconds: '1,1'"),
    (["plan", "--parameters", "many", *LINKS, "--snr", "1"], "--parameters: 'many'"),
    (["plan", "--bits", "1" + "0" * 30, *LINKS, "--snr", "1"], "--bits: '1000"),
    ([*USUAL, "--classes", "10"], "--classes: is for --model"),
    ([*USUAL, "--set", "model.hidden=3"], "--set: is for --model"),
    ([*USUAL, "--accuracy", "0.8"], "--accuracy: is for runs"),
    ([*USUAL, "some-run"], "--accuracy: must be given with RUN"),
    ([*USUAL, "some-run", "--accuracy", "80"], "--accuracy: '80' is not allowed: must be a number from 0 to 1"),
    ([*USUAL, "some-run", "--accuracy", "0.8"], "some-run: not a run folder"),
    ([*USUAL, "--picture", "plan.jpg"], "--picture: 'plan.jpg' is not allowed: must end in .svg, .png or .html"),
    ([*USUAL, "--picture", "folder.svg"], "--picture: folder.svg is a folder"),
    ([*USUAL, "--picture", "good.toml/plan.svg"], "--picture: good.toml/plan.svg cannot be written"),
]
MODEL = ["plan", *LINKS, "--snr", "1", "--model"]
BAD += [
    ([*MODEL, "mlp"], "--shape: must be given with --model"),
    ([*MODEL, "mlp", "--shape", "64"], "--classes: must be given with --model"),
    ([*MODEL, "mpl", "--shape", "64", "--classes", "10"], "--model: unknown model 'mpl'; did you mean 'mlp'"),
    ([*MODEL, "mlp", "--shape", "a", "--classes", "10"], "--shape: 'a'"),
    ([*MODEL, "mlp", "--shape", "64", "--classes", "0"], "--classes: '0'"),
    ([*MODEL, "simple-cnn", "--shape", "64", "--classes", "10"], "--shape: model 'simple-cnn' needs images"),
    ([*MODEL, "mlp", "--shape", "64", "--classes", "10", "--set", "model.hiden=[3]"], "model.hiden", "'hidden'"),
    ([*MODEL, "mlp", "--shape", "64", "--classes", "10", "--set", "model.hidden=x"], "model.hidden: 'x'"),
    ([*MODEL, "mlp", "--shape", "64", "--classes", "10", "--set", "train.lr=1"], "--set: must be model.KEY=VALUE"),
    ([*MODEL, "mlp", "--shape", "64", "--classes", "10", "--set", "model=3"], "--set: must be model.KEY=VALUE"),
]


@pytest.mark.parametrize(("arguments", "words"), [(a, w) for a, *w in BAD], ids=[" ".join(a)[-60:] for a, *_ in BAD])
def test_mistakes_are_one_line(arguments: list[str], words: list[str], call: Call, inside: Path) -> None:
    (inside / "folder.svg").mkdir()
    refused(call(*arguments), *words)


def test_nothing_is_drawn_for_bad_input(call: Call, inside: Path) -> None:
    refused(call(*USUAL, "--picture", "plan.svg", "--accuracy", "0.8"))
    assert not (inside / "plan.svg").exists()
