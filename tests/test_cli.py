from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

import sobgnn
from sobgnn import SobolevClassifier, cli
from sobgnn.tables import Encoding


def small(paper, settings):
    """The estimator that the command would make, trained for a moment."""
    chosen = {name: value for name, value in settings.items() if value is not None}
    return SobolevClassifier(**{**chosen, "n_members": 2, "epochs": 20})


class Interrupted(SobolevClassifier):
    """Presses Ctrl-C at a stage of the fit."""

    stage = "sobolev"
    times = 1

    def fit(self, X, y, *, graph=None, progress=None):
        def pressed(seen):
            answer = progress(seen)
            if seen.stage == self.stage and not self.__dict__.get("done_"):
                self.done_ = True
                for _ in range(self.times):
                    signal.raise_signal(signal.SIGINT)
            return answer

        return super().fit(X, y, graph=graph, progress=pressed)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sobgnn.app.command.fit._estimator", small)
    return tmp_path


@pytest.fixture
def trees(here):
    """150 rows of three clusters: id, two numbers, a colour, and labels on 60 rows."""
    generator = np.random.default_rng(0)
    code = generator.integers(0, 3, 150)
    label = np.where(np.arange(150) < 60, np.array(["ash", "birch", "<b>cedar"])[code], "")
    frame = {
        "id": [f"t{i:03}" for i in range(150)],
        "height": 4.0 * code + generator.normal(size=150),
        "girth": -3.0 * code + generator.normal(size=150),
        "bark": np.array(["grey", "white", "red"])[code],
        "label": label,
    }
    pl.DataFrame(frame).write_csv(here / "trees.csv")
    return here / "trees.csv"


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


def test_fit_makes_a_run_folder_from_a_csv(here, trees, capsys):
    assert cli.main(["fit", "trees.csv", "--export", "parquet", "--export", "jsonl"]) == 0
    run = here / "runs" / "trees-1"
    assert {"predictions.csv", "metrics.json", "report.html", "table.json"} <= set(files(run))
    assert {"predictions.parquet", "predictions.jsonl"} <= set(files(run))
    assert list(here.rglob("*partial*")) == []
    predictions = pl.read_csv(run / "predictions.csv")
    assert predictions.columns[:3] == ["row", "id", "label"]
    assert predictions.height == 150
    assert predictions["id"][7] == "t007"
    total = predictions.select(pl.sum_horizontal(pl.col("^probability_.*$"))).to_series()
    np.testing.assert_allclose(total.to_numpy(), 1, atol=1e-5)
    metrics = json.loads((run / "metrics.json").read_text())
    assert (metrics["rows"], metrics["labels_given"], metrics["complete"]) == (150, 60, True)
    assert set(metrics["columns"]) == {"height", "girth", "bark"}
    assert "<b>cedar" not in (run / "report.html").read_text().split("<script>")[0]
    said = capsys.readouterr().out
    assert "One-hot encoded: bark (3 features)" in said
    assert "runs/trees-1/report.html" in said


def test_accept_marks_predictions_of_the_run_and_of_new_points(here, trees, capsys):
    assert cli.main(["fit", "trees.csv", "--out", "run", "--accept", "0.8", "--class-weight", "balanced"]) == 0
    found = pl.read_csv(here / "run/predictions.csv")
    assert found.columns[:4] == ["row", "id", "label", "decision"]
    accept = json.loads((here / "run/metrics.json").read_text())["accept"]
    assert accept["rows"] == 90
    assert (found["decision"][60:] == "accept").sum() == accept["rows_accepted"] > 0
    assert (found["decision"][:60] == "given").all()
    assert json.loads((here / "run/metrics.json").read_text())["settings"]["class_weight"] == "balanced"
    said = capsys.readouterr().out
    assert "Estimated accuracy" in said
    assert "Accepted at 0.8: " in said
    new = pl.DataFrame({"height": [4.0, 4e6], "girth": [-3.0, 0.0], "bark": ["white", "white"]})
    new.write_csv(here / "new.csv")
    assert cli.main(["predict", "run", "new.csv"]) == 0
    new = pl.read_csv(here / "new.predictions.csv", null_values="")
    assert new["far"].to_list() == [None, "far"]
    assert new["decision"][1] == "review"
    assert "Far from all training points" in capsys.readouterr().out


def test_a_reader_that_leaves_early_still_gets_its_run(here, trees):
    script = (
        "import sys; from sobgnn import SobolevClassifier, cli; from sobgnn.app.command import fit;"
        "fit._estimator = lambda paper, settings: SobolevClassifier(families=['linear'], random_state=0);"
        "sys.exit(cli.main(['fit', 'trees.csv', '--out', 'run']))"
    )
    command = f'{sys.executable} -c "{script}" | true; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0
    assert "Error" not in done.stderr
    assert (here / "run/report.html").exists()


def test_hidden_labels_are_measured_and_the_next_run_gets_the_next_number(here, capsys):
    assert cli.main(["fit", "digits", "--labels", "5", "--k", "8", "--seed", "3"]) == 0
    assert cli.main(["fit", "digits", "--labels", "5", "--k", "8", "--seed", "3"]) == 0
    first, second = (json.loads((here / f"runs/digits-{n}/metrics.json").read_text()) for n in (1, 2))
    assert first["labels_given"] == 50
    assert first["labels_hidden"] == 1797 - 50
    assert first["settings"]["k"] == 8
    assert first["accuracy"] == second["accuracy"] > 0.6
    assert np.sum(first["confusion"]) == 1747
    assert "on 1,747 hidden labels" in capsys.readouterr().out


def test_predict_labels_new_rows_as_the_model_does(here, trees, capsys):
    assert cli.main(["fit", "trees.csv", "--out", "run"]) == 0
    new = pl.read_csv(trees).drop("label").sample(40, seed=1, shuffle=True)
    before = files("run")
    for name, writer in (("new.csv", "write_csv"), ("new.parquet", "write_parquet")):
        getattr(new, writer)(here / name)
        assert cli.main(["predict", "run", name]) == 0
    assert files("run") == before
    found = pl.read_csv(here / "new.predictions.csv")
    assert found["id"].to_list() == new["id"].to_list()
    classifier = SobolevClassifier.load(here / "run/model")
    X = Encoding.load(here / "run").batch(new).X
    assert found["label"].to_list() == classifier.predict(X).tolist()
    tall = pl.when(pl.int_range(40) < 9).then(pl.lit("tall")).otherwise("height")
    new.with_columns(height=tall).write_csv("wrong.csv")
    assert cli.main(["predict", "run", "wrong.csv"]) == 0
    assert "treated as blank: height (9 cells)." in capsys.readouterr().out


def test_predict_refuses_in_one_line_and_writes_over_nothing_but_predictions(here, trees, capsys):
    assert cli.main(["fit", "trees.csv", "--out", "run"]) == 0
    (here / "other.csv").write_text("a,b\n1,2\n")
    pl.read_csv(trees).drop("girth").write_csv(here / "narrow.csv")
    os.mkfifo(here / "pipe")
    before = {name: (here / name).read_bytes() for name in files(here)}
    capsys.readouterr()
    for words, said in (
        ("trees.csv run", "The run comes first: sobgnn predict run trees.csv."),
        ("run narrow.csv", "Missing column 'girth'"),
        ("run trees.csv --export xml", "argument --export: invalid choice: 'xml' (choose"),
        ("run trees.csv --out /proc/x.csv", "/proc/x.csv cannot be used: No such file"),
        ("run trees.csv --out other.csv", "other.csv exists but does not hold predictions"),
        ("run trees.csv --out ./trees.csv", "trees.csv would be written, but is DATA itself"),
        ("run trees.csv --out nowhere/x.csv", "--out names a file in 'nowhere', but there is no such folder"),
        ("run trees.csv --out run/predictions.csv", "run/predictions.csv belongs to the run"),
        ("run trees.csv --out run/model/new.csv", "run/model/new.csv belongs to the run"),
        ("run trees.csv --out -", "--out must name a regular file"),
        ("run trees.csv --out pipe", "--out must name a regular file"),
        ("run trees.csv --out x.parquet", "--out names x.parquet, but predictions are written as CSV"),
    ):
        assert cli.main(["predict", *words.split()]) == 2
        shown = capsys.readouterr().err
        assert shown.startswith(f"sobgnn: {said}")
        assert shown.count("\n") == 1
    assert {name: (here / name).read_bytes() for name in files(here)} == before
    (here / "real.csv").write_text("row,label,probability_a\n")
    (here / "link.csv").symlink_to("real.csv")
    assert cli.main(["predict", "run", "trees.csv", "--out", "link.csv"]) == 0
    assert (here / "link.csv").is_symlink()
    assert (here / "real.csv").read_text().startswith("row,id,")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["fit", "nothing.csv"], "There is no file 'nothing.csv'."),
        (["fit", "nothing.xlsx"], "There is no file 'nothing.xlsx'."),
        (["fit", "photos/"], "There is no file 'photos'."),
        (["fit", "digitz"], "There is no data set 'digitz'."),
        (["fit", "digits", "--labels", "1.5"], "--labels must be"),
        (["fit", "digits", "--labels", "0"], "--labels must be"),
        (["fit", "trees.csv", "--accept", "95"], "--accept must be between 0 and 1, but got 95"),
        (
            ["fit", "trees.csv", "--class-weight", "even"],
            "argument --class-weight: invalid choice: 'even' (choose from",
        ),
        (["fit", "trees.csv", "--export", "xml"], "argument --export: invalid choice: 'xml' (choose from"),
        (["fit", "digits", "--labels", "abc"], "argument --labels: invalid float value: 'abc'"),
        (["fit", "trees.csv", "--label", "kind"], "--label names 'kind'"),
        (["fit", "trees.csv", "--drop", "kind"], "--drop names 'kind'"),
        (["fit", "trees.csv", "--id", "kind"], "--id names 'kind'"),
        (["fit", "trees.csv", "--out", "trees.csv"], "already exists"),
        (
            ["fit", "--k", "0", "trees.csv"],
            "argument --k: must be at least 1, but got 0. `sobgnn fit --help` says more.",
        ),
        (["fit", "trees.csv", "--k", "150"], "--k must be smaller than the number of rows, but got 150 for 150 rows"),
        (["fit", "trees.csv", "--seed", "-1"], "argument --seed: must be at least 0, but got -1"),
        (["fit", "trees.csv", "--out", "/proc/run"], "cannot be created"),
        (["tune", "trees.csv", "--storage", "trees.db"], "--storage must be a URL"),
        (["fit"], "DATA is missing. Name a file: sobgnn fit FILE. For a first try: sobgnn fit digits."),
        (["tune"], "the following arguments are required: DATA. `sobgnn tune --help` says more."),
        (["data"], "required: list|fetch. `sobgnn data --help` says more."),
        (["fit", "trees.csv", "--device", "abacus"], "abacus"),
        (["predict", "nowhere", "trees.csv"], "There is no run folder 'nowhere'"),
        (["predict", ".", "trees.csv"], "not a run folder"),
        (["predict", ".", "nothing.csv"], "There is no file"),
        (["predict", ".", "."], "'.' is a folder without pictures"),
        (["predict", "."], "DATA"),
        (["fit", "trees.csv", "--dept", "3"], "unrecognized arguments: --dept 3. `sobgnn fit --help` says more."),
        (["fitt"], "invalid choice: 'fitt' (choose from "),
        (["data", "fetch", "digitz"], "There is no data set"),
    ],
)
def test_wrong_input_is_one_line_and_code_two_and_leaves_no_file(here, trees, capsys, words, expected):
    assert cli.main(words) == 2
    said = capsys.readouterr()
    assert expected in said.err
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err
    assert files(here) == ["trees.csv"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fit bad.csv --labels 1.5", "--labels must be"),
        ("fit bad.csv --out made", "made already exists"),
        ("fit bad.csv --out s3://b/run", "--out must be a folder, but got s3://b/run: a URL is for shards."),
        ("fit bad.csv --device cuda:99", "There is no device 'cuda:99' here"),
        ("tune bad.csv --labels nan", "--labels must be"),
        ("tune bad.csv --out made", "made already exists"),
        ("predict nowhere bad.csv", "There is no run folder 'nowhere'"),
        ("label bad.csv --port {port}", "Port {port} is in use. Name another with --port, or leave it out."),
        ("fit made", "To label new rows: sobgnn predict made FILE. To fit again, name the data: sobgnn fit FILE."),
        ("tune made", "To label new rows: sobgnn predict made FILE."),
        ("fit begun", "begun holds labels, but no model yet: open its page with `sobgnn label DATA --out begun`"),
    ],
)
def test_what_is_wrong_beside_the_file_is_said_before_it_is_read(here, capsys, words, expected):
    (here / "bad.csv").touch()  # whoever reads it says that it is empty
    (here / "made").mkdir()
    (here / "made" / "table.json").touch()
    (here / "begun").mkdir()
    (here / "begun" / "labels.db").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.main(words.format(port=port).split()) == 2
    said = capsys.readouterr().err
    assert expected.format(port=port) in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "words", ["fit nothing.csv", "tune nothing.csv", "label nothing.csv", "predict run nothing.csv"]
)
def test_a_missing_file_is_said_before_anything_is_imported_that_takes_seconds(words):
    script = (
        "import sys; from sobgnn.cli import main; code = main(sys.argv[1:]);"
        "assert not {'torch', 'sklearn', 'polars', 'starlette'} & set(sys.modules); sys.exit(code)"
    )
    ended = subprocess.run([sys.executable, "-c", script, *words.split()], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (2, "sobgnn: There is no file 'nothing.csv'.\n")


def test_a_tilde_that_the_shell_has_left_is_the_home_folder(here, trees, monkeypatch):
    monkeypatch.setenv("HOME", str(here / "home"))
    (here / "home").mkdir()
    assert cli.main(["fit", str(trees), "--out=~/run"]) == 0
    assert (here / "home" / "run" / "model").is_dir()


def test_pictures_of_the_folder_one_is_in_are_predicted_beside_it(here, monkeypatch):
    for number in range(12):
        place = here / "photos" / ("dark", "light")[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 200 * (number % 2) + number).save(place / f"{number}.png")
    assert cli.main(["fit", "photos", "--out", "run"]) == 0
    monkeypatch.chdir(here / "photos" / "dark")
    assert cli.main(["predict", "../../run", ".."]) == 0
    assert pl.read_csv(here / "photos.predictions.csv").height == 12


def press(monkeypatch, stage, times=1):
    def make(paper, settings):
        Interrupted.stage, Interrupted.times = stage, times
        return Interrupted(n_members=2, epochs=200, random_state=settings["random_state"])

    monkeypatch.setattr("sobgnn.app.command.fit._estimator", make)


def test_ctrl_c_while_training_keeps_the_best_so_far(here, trees, monkeypatch, capsys):
    press(monkeypatch, "sobolev")
    before = signal.getsignal(signal.SIGINT)
    assert cli.main(["fit", "trees.csv", "--out", "run"]) == 130
    assert signal.getsignal(signal.SIGINT) == before
    assert json.loads((here / "run/metrics.json").read_text())["complete"] is False
    assert "Training was interrupted" in (here / "run/report.html").read_text()
    assert cli.main(["predict", "run", "trees.csv"]) == 0


@pytest.mark.parametrize(("stage", "times"), [("neighbors", 1), ("sobolev", 2)])
def test_ctrl_c_before_training_or_twice_leaves_nothing(here, trees, monkeypatch, capsys, stage, times):
    press(monkeypatch, stage, times)
    assert cli.main(["fit", "trees.csv", "--out", "run"]) == 130
    assert capsys.readouterr().err.endswith("sobgnn: Interrupted.\n")
    assert files(here) == ["trees.csv"]


def pressed_while_writing(monkeypatch, number, times=1):
    """Signals that come when the report is made."""
    import sobgnn.app.runs.page.render as page

    draw = page.render

    def render(*arguments):
        for _ in range(times):
            signal.raise_signal(number)
        return draw(*arguments)

    monkeypatch.setattr(page, "render", render)


def test_ctrl_c_while_the_run_is_written_lets_it_be_written(here, trees, monkeypatch, capsys):
    pressed_while_writing(monkeypatch, signal.SIGINT)
    before = signal.getsignal(signal.SIGINT)
    assert cli.main(["fit", "trees.csv", "--out", "run"]) == 130
    assert signal.getsignal(signal.SIGINT) == before
    assert "The model is trained and is being written." in " ".join(capsys.readouterr().err.split())
    assert json.loads((here / "run/metrics.json").read_text())["complete"] is True
    assert cli.main(["predict", "run", "trees.csv"]) == 0


@pytest.mark.parametrize(("number", "times", "code"), [(signal.SIGINT, 2, 130), (signal.SIGTERM, 1, 143)])
def test_what_ends_the_writing_leaves_nothing(here, trees, monkeypatch, capsys, number, times, code):
    pressed_while_writing(monkeypatch, number, times)
    assert cli.main(["fit", "trees.csv", "--out", "run"]) == code
    assert os.listdir(here) == ["trees.csv"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_an_encoding_that_is_not_found_can_be_named(here, trees, capsys):
    (here / "forest.csv").write_bytes(trees.read_text().replace("grey", "серый").encode("cp1251"))
    assert cli.main(["fit", "forest.csv", "--out", "run"]) == 2
    assert "--encoding" in capsys.readouterr().err
    assert cli.main(["fit", "forest.csv", "--out", "run", "--encoding", "cp1251"]) == 0
    assert cli.main(["predict", "run", "forest.csv"]) == 2
    assert cli.main(["predict", "run", "forest.csv", "--encoding", "cp1251"]) == 0
    assert cli.main(["fit", "forest.csv", "--out", "other", "--encoding", "klingon"]) == 2
    assert "must be a codec of Python" in capsys.readouterr().err


def test_data_sets_are_listed_with_their_place(here, capsys):
    assert cli.main(["data", "list"]) == 0
    assert "digits" in capsys.readouterr().out
    assert cli.main(["data", "fetch", "digits"]) == 0
    assert "1,797 rows, 64 features, 10 classes" in capsys.readouterr().out


def test_the_papers_command_line_is_passed_on(capsys):
    assert cli.main(["reproduce", "figure1", "--help"]) == 0
    assert "usage: sobgnn reproduce figure1" in capsys.readouterr().out
    assert cli.main(["reproduce", "table9"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_help_names_every_command_and_needs_no_torch():
    script = "import sys; from sobgnn.cli import main; main(['--help']); print('torch' in sys.modules)"
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    for name in ("fit", "predict", "tune", "data", "reproduce", "1 a bug in sobgnn, 2 wrong input"):
        assert name in done.stdout
    assert done.stdout.strip().endswith("False")


def test_the_version_is_that_of_the_package(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"sobgnn {sobgnn.__version__}\n"
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", sobgnn.__version__)


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "sobgnn", "predict", "nowhere", "nothing.csv"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (2, "sobgnn: There is no file 'nothing.csv'.\n")


def test_a_german_file_is_told_of_the_spreadsheet_which_predict_writes_too(here, capsys):
    rows = [f"{i % 2 * 5},{i % 10};{i * 37 % 11};{'ab'[i % 2] if i % 3 else ''}" for i in range(60)]
    Path("t.csv").write_text("\n".join(["x;n;label", *rows]) + "\n")
    assert cli.main(["fit", "t.csv", "--out", "run"]) == 0
    assert capsys.readouterr().out.count("--export spreadsheet") == 1
    assert cli.main(["predict", "run", "t.csv"]) == 0
    assert capsys.readouterr().out.count("--export spreadsheet") == 1
    assert cli.main(["predict", "run", "t.csv", "--export", "spreadsheet"]) == 0
    said = capsys.readouterr().out
    assert "t.predictions.spreadsheet.csv: 60 rows" in said
    assert "--export" not in said
    found = pl.read_csv("t.predictions.spreadsheet.csv", separator=";", decimal_comma=True)
    plain = pl.read_csv("t.predictions.csv")
    assert found["probability_a"].to_list() == plain["probability_a"].to_list()
    Path("t.predictions.spreadsheet.csv").write_text("mine")
    assert cli.main(["predict", "run", "t.csv", "--export", "spreadsheet"]) == 2
    assert "t.predictions.spreadsheet.csv exists but does not hold predictions" in capsys.readouterr().err
    Path("d.spreadsheet.csv").write_text(text := "row;label;x;n;probability_a\n1;a;0,5;1;1\n")
    assert cli.main(["predict", "run", "d.spreadsheet.csv", "--out", "d.csv", "--export", "spreadsheet"]) == 2
    assert "d.spreadsheet.csv would be written, but is DATA itself" in capsys.readouterr().err
    assert Path("d.spreadsheet.csv").read_text() == text


def test_an_error_shows_no_codes_that_a_terminal_obeys(capsys):
    cli._say("There is no class 'a\x1b[31m'.\nSee \x07", debug=False)
    assert capsys.readouterr().err == "sobgnn: There is no class 'a\ufffd[31m'. See \ufffd\n"
    assert cli.main(["fit", "nothing.csv", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err
