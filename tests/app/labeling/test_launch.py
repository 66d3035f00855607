from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pandas as pd
import polars as pl
import pytest

import sobgnn
from sobgnn.app.labeling import launch
from sobgnn.app.labeling.launch import Page, open_page
from sobgnn.app.labeling.store import Store
from sobgnn.cli import main
from tests.app.labeling.conftest import Client, ticket_file
from tests.app.labeling.fake_model import Fake
from tests.encoders import static_model

# As small as a fit can be: what is tested is that the run works, not how good it is.
SMALL = {"families": ["diffusion", "sobolev"], "n_members": 4, "epochs": 20, "random_state": 0}


def test_from_no_labels_to_a_run_that_predicts(tmp_path, capsys):
    tickets = ticket_file(tmp_path, rows=60)
    page = open_page(str(tickets), "team", folder=tmp_path / "run", settings=SMALL).start()
    try:
        client = Client(page.url)
        client.until(lambda state: state["model"]["version"])
        assert client.next()[0]["why"] == "suggested"
        for name in ("billing", "access", "shipping"):
            client.post("class", {"name": name})
        for row in range(24):
            assert client.post("label", {"rows": [row], "class": row % 3})[0] == 200
        client.until(lambda state: state["model"]["labels"] == 24)
        # A refit after a label more keeps what was decided, so the curve may end a few labels before.
        assert 16 <= client.progress()["curve"][-1]["labels"] <= 24
        points = [client.post("open", {"row": row})[1]["point"] for row in range(24, 60)]
        right = [point["guesses"][0]["code"] == point["row"] % 3 for point in points]
        assert np.mean(right) > 0.9
        assert page.finish() == page.folder, page.problem
        assert not page.unwritten
        assert page.labels()[:3] == ["billing", "access", "shipping"]
        assert page.labels()[59] is None
    finally:
        page.close()
    for name in ("labels.csv", "predictions.csv", "metrics.json", "report.html", "table.json", "labels.db"):
        assert (page.folder / name).is_file()
    assert json.loads((page.folder / "metrics.json").read_text())["labels_given"] == 24
    new = tmp_path / "new.csv"
    new.write_text("id,text,minutes,words\nA,invoice and refund,0,1\nB,parcel and delivery,21,11\n")
    assert main(["predict", str(page.folder), str(new)]) == 0
    assert pl.read_csv(tmp_path / "new.predictions.csv")["label"].to_list() == ["billing", "shipping"]

    resumed = open_page(str(tickets), folder=page.folder, trainer=Fake)  # with the options that it began with
    try:
        assert resumed.labeling.store.labels == 24
        assert resumed.labeling.source.name == "tickets"
    finally:
        resumed.close()


def test_a_frame_is_labeled_in_a_notebook(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "open_page", partial(open_page, trainer=Fake))
    frame = pl.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": [4.0, 1.0, 3.0, 2.0], "kind": ["x", None, None, "y"]})
    page = sobgnn.label(frame, "kind", folder=tmp_path / "run")
    try:
        assert f'<iframe src="{page.url}"' in page._repr_html_()
        client = Client(page.url)
        headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
        status, answered, _ = client.raw("GET", f"/{client.token}/", headers=headers)
        assert status == 200
        assert "frame-ancestors http://127.0.0.1:* http://localhost:*" in answered["content-security-policy"]
        client.post("label", {"rows": [1], "class": 1})
        assert page.labels() == ["x", "y", None, "y"]
    finally:
        page.close()
    again = sobgnn.label(pd.DataFrame(frame.to_dict(as_series=False)), "kind", folder=tmp_path / "again")
    assert again.labels() == ["x", None, None, "y"]
    again.close()


def test_a_second_call_in_a_notebook_gives_the_page_that_is_open(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "open_page", partial(open_page, trainer=Fake))
    frame = pl.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": [4.0, 1.0, 3.0, 2.0], "kind": ["x", None, None, "y"]})
    first = sobgnn.label(frame, "kind", folder=tmp_path / "run")
    try:
        assert sobgnn.label(frame, "kind", folder=tmp_path / "run") is first
        Client(first.url).post("label", {"rows": [1], "class": 1})
        for other in (frame.head(3), frame.with_columns(a=pl.col("b"))):
            with pytest.raises(ValueError, match="holds another table or its labels"):
                sobgnn.label(other, "kind", folder=tmp_path / "run")
        assert Client(first.url).get("")[0] == 200
    finally:
        first.close()
    second = sobgnn.label(frame, "kind", folder=tmp_path / "run")
    try:
        assert second is not first
        assert second.labels() == ["x", "y", None, "y"]
        with pytest.raises(ValueError, match="labeled with another --label"):
            sobgnn.label(frame, "b", folder=tmp_path / "run")
    finally:
        second.close()


def test_sigterm_to_all_processes_of_the_page_ends_it_quietly_and_keeps_its_labels(tickets, tmp_path):
    command = [sys.executable, "-m", "sobgnn", "label", str(tickets), "--no-open", "--out", str(tmp_path / "run")]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        url = next(line for line in process.stdout if line.startswith("Labeling page: ")).split()[-1]
        client = Client(url)
        client.until(lambda state: state["model"]["version"])
        client.post("class", {"name": "one"})
        assert client.post("label", {"rows": [3], "class": 0})[0] == 200
        os.killpg(process.pid, signal.SIGTERM)
        assert process.communicate()[1] == ""
        assert process.returncode == 143
    finally:
        process.kill()
        process.communicate()
    assert (tmp_path / "run" / "labels.csv").read_text().splitlines()[1].startswith("T3,one,")


def test_a_new_label_column_does_not_start_with_the_labels_of_another(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Page, "serve", lambda page: None)
    file = tmp_path / "rows.csv"
    file.write_text("a,b,label\n" + "".join(f"{i},{i % 7},{'xy'[i % 2]}\n" for i in range(40)))
    page = open_page(str(file), "nope", folder=tmp_path / "run", trainer=Fake)
    try:
        assert page.labels() == 40 * [None]
        assert page.labeling.source.table.classes == []
    finally:
        page.close()
    assert main(["label", str(file), "--label", "nope", "--no-open", "--out", str(tmp_path / "run")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "There is no column 'nope'; starting without labels. 'label' is a feature like the other columns" in said


@pytest.mark.parametrize("name", ["Team", "taem", "teams"])
def test_a_misspelled_label_column_is_refused_with_the_column_that_may_be_meant(
    tickets, tmp_path, monkeypatch, capsys, name
):
    monkeypatch.setattr(Page, "serve", lambda page: None)
    words = ["label", str(tickets), "--no-open", "--out", str(tmp_path / "run"), "--label"]
    assert main([*words, name]) == 2
    error = capsys.readouterr().err
    assert f"There is no column {name!r}. Did you mean 'team'? To start a new column of labels, add --new." in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()
    assert main([*words, name, "--new"]) == 0
    assert f"There is no column {name!r}; starting without labels." in capsys.readouterr().out


def test_a_run_names_no_data(tickets, tmp_path, capsys):
    open_page(str(tickets), "team", folder=tmp_path / "run", trainer=Fake).close()
    assert str(tickets.parent).encode() not in (tmp_path / "run" / "labels.db").read_bytes()
    assert main(["label", str(tmp_path / "run"), "--no-open"]) == 2
    assert "Name its data to resume it: sobgnn label DATA --out " in capsys.readouterr().err
    sobgnn_page = launch.label(pl.read_csv(tickets), folder=tmp_path / "frame")
    sobgnn_page.close()
    assert main(["label", str(tmp_path / "frame"), "--no-open"]) == 2
    assert f"sobgnn label {tmp_path / 'frame' / 'data.parquet'} --out" in capsys.readouterr().err


@pytest.mark.parametrize("asked", [["--label", "other"], ["--drop", "words"], ["--id", "minutes"], ["--text", "words"]])
def test_other_options_for_a_run_are_refused_and_none_is_ignored(tickets, tmp_path, capsys, asked):
    page = open_page(str(tickets), "team", folder=tmp_path / "run", trainer=Fake)
    page.labeling.store.label([0], page.labeling.store.add_class("a"))
    page.close()
    assert main(["label", str(tickets), "--no-open", "--out", str(page.folder), *asked]) == 2
    error = capsys.readouterr().err
    assert f"was labeled with another {asked[0]}: " in error
    assert error.count("\n") == 1
    open_page(str(tickets), "team", folder=page.folder, trainer=Fake).close()  # the same option again is none


def test_a_resumed_run_is_not_asked_which_column_was_meant(tickets, tmp_path):
    for new in (True, False):
        open_page(str(tickets), "taem", new=new, folder=tmp_path / "run", trainer=Fake).close()
    open_page(str(tickets), folder=tmp_path / "run", trainer=Fake).close()


def test_a_folder_without_labels_starts_anew_with_other_options(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("a,b,status\n" + "".join(f"{i},{i % 7},{'xy'[i % 2]}\n" for i in range(40)))
    page = open_page(str(file), "topic", folder=tmp_path / "run", trainer=Fake)
    page.labeling.store.label([0], page.labeling.store.add_class("z"))
    page.labeling.store.undo()
    page.labeling.store.skip([1])
    page.close()
    page = open_page(str(file), "status", folder=tmp_path / "run", trainer=Fake)
    try:
        assert page.labels() == [*"xy"] * 20
        assert (page.labeling.store.saved, page.labeling.store.skipped) == (0, set())
        assert "status" not in page.labeling.source.table.encoding.encoder.feature_names_in_
        page.labeling.store.label([0], 1)
    finally:
        page.close()
    with pytest.raises(ValueError, match="labeled with another --label: status"):  # it has labels now
        open_page(str(file), "topic", folder=tmp_path / "run", trainer=Fake)


def test_a_folder_with_a_run_does_not_start_anew(tickets, tmp_path):
    open_page(str(tickets), folder=tmp_path / "run", trainer=Fake).close()
    (tmp_path / "run" / "report.html").touch()
    with pytest.raises(ValueError, match="labeled with another --label: none"):
        open_page(str(tickets), "team", folder=tmp_path / "run", trainer=Fake)
    open_page(str(tickets), folder=tmp_path / "run", trainer=Fake).close()  # the refusal let go of the store


@pytest.mark.parametrize("label", [["--label", "queue"], []])
@pytest.mark.parametrize("count", [1, 3])
def test_resuming_is_one_line_with_the_number_of_labels(tickets, tmp_path, monkeypatch, capsys, label, count):
    def serve(page):
        if not page.labeling.store.saved:
            page.labeling.store.label(list(range(count)), page.labeling.store.add_class("one"))

    monkeypatch.setattr(Page, "serve", serve)
    run = tmp_path / "run"
    assert main(["label", str(tickets), *label, "--no-open", "--out", str(run)]) == 0
    first = capsys.readouterr().out
    assert ("There is no column 'queue'; starting without labels." in first) == bool(label)
    assert "Resuming" not in first
    for again in (label, []):
        assert main(["label", str(tickets), *again, "--no-open", "--out", str(run)]) == 0
        again = " ".join(capsys.readouterr().out.split())
        assert f"Resuming {run}: {count} label{'s' * (count > 1)}." in again
        assert "tarting without labels" not in again


def test_a_taken_port_a_file_and_a_run_of_unknown_data_are_one_line(tickets, tmp_path, capsys):
    page = open_page(str(tickets), folder=tmp_path / "run", trainer=Fake).start()
    port = page.url.split(":")[2].split("/")[0]
    assert main(["label", str(tickets), "--port", port, "--no-open", "--out", str(tmp_path / "b")]) == 2
    assert "is in use" in capsys.readouterr().err
    assert main(["label", str(tickets), "--no-open", "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert "another window" in error
    assert error.count("\n") == 1
    page.close()
    (tmp_path / "fit").mkdir()
    (tmp_path / "fit" / "table.json").write_text("{}")
    assert main(["label", str(tmp_path / "fit"), "--no-open"]) == 2
    assert "does not hold its data" in capsys.readouterr().err
    # Neither a run nor any other folder is written into.
    before = sorted(path.name for path in (tmp_path / "fit").iterdir())
    assert main(["label", str(tickets), "--no-open", "--out", str(tmp_path / "fit")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert sorted(path.name for path in (tmp_path / "fit").iterdir()) == before
    assert main(["label", str(tickets), "--no-open", "--out", str(tickets)]) == 2
    assert capsys.readouterr().err.endswith("is a file. Name a folder for the run.\n")


def test_options_of_reading_reach_both_processes_and_are_remembered(tmp_path, capsys):
    tickets = ticket_file(tmp_path)
    page = open_page(str(tickets), "team", reading={"text": ["minutes"]}, folder=tmp_path / "run", trainer=Fake).start()
    try:
        Client(page.url).until(lambda state: state["model"]["version"])
        assert page.labeling.source.table.encoding.encoder.outcomes_["minutes"].endswith("text")
    finally:
        page.close()
    resumed = open_page(str(tickets), folder=tmp_path / "run", trainer=Fake)
    try:
        assert resumed.labeling.source.table.encoding.encoder.outcomes_["minutes"].endswith("text")
    finally:
        resumed.close()
    wrong = ["label", str(tickets), "--no-open", "--out", str(tmp_path / "other")]
    assert main([*wrong, "--text", "subject"]) == 2
    assert "--text names 'subject'" in capsys.readouterr().err
    assert main([*wrong, "--text-model", str(tmp_path / "missing")]) == 2
    assert "missing" in capsys.readouterr().err


def test_the_browser_is_given_a_private_file_and_not_the_token(tickets, tmp_path, monkeypatch):
    opened = []

    def note(address):
        file = Path(unquote(urlsplit(address).path))
        opened.append((address, file, file.stat().st_mode & 0o777, file.read_text()))
        return True

    monkeypatch.setattr("webbrowser.open", note)
    monkeypatch.setattr(Page, "serve", lambda page: opened.append(page.url))
    (tmp_path / "run").mkdir()
    for killed in (False, True):
        assert main(["label", str(tickets), "--out", str(tmp_path / "run")]) == 0
        (address, file, mode, content), url = opened[2 * killed :]
        assert address.startswith("file://")
        assert url.rstrip("/").rsplit("/", 1)[1] not in address
        assert mode == 0o600
        assert f"url={url}" in content
        assert not file.exists()
        file.write_text("of a process that was killed")


def test_the_page_listens_to_this_machine_alone(page):
    assert page._listening.getsockname()[0] == "127.0.0.1"
    assert len(page.url.rstrip("/").rsplit("/", 1)[1]) >= 32
    first = page.url
    assert first.startswith("http://127.0.0.1:")


def test_the_page_itself_loads_no_torch():
    script = "import sys, sobgnn.app.labeling.launch; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_nothing_of_the_server_is_imported_before_a_page_is_opened_and_a_missing_extra_is_one_line(missing):
    script = f"""
import sys, sobgnn.app.labeling
from sobgnn.cli import main
assert not {{'starlette', 'uvicorn'}} & set(sys.modules)
sys.modules[{missing!r}] = None
from sobgnn import *
try: label('tickets.csv')
except ValueError as error: print(error)
sys.exit(main(['label', 'digits']))
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == 2
    for told in (ended.stdout, ended.stderr):
        assert "pip install 'sobgnn[label]'" in told
        assert told.count("\n") == 1


@pytest.mark.parametrize(
    "statement",
    [
        "delete from meta where name = 'reading'",
        "update meta set value = '3' where name = 'drop'",
        "update meta set value = '[3]' where name = 'drop'",
    ],
)
def test_a_store_that_does_not_say_how_data_was_read_is_one_line(tickets, tmp_path, statement):
    open_page(str(tickets), "team", folder=tmp_path / "run", trainer=Fake).close()
    with closing(sqlite3.connect(tmp_path / "run" / "labels.db")) as db:
        db.execute(statement)
        db.commit()
    with pytest.raises(ValueError, match=r"labels\.db does not say how DATA was read"):
        open_page(str(tickets), folder=tmp_path / "run", trainer=Fake)


def test_a_start_that_was_killed_before_it_began_is_resumed(tickets, tmp_path):
    Store(tmp_path / "run").close()
    open_page(str(tickets), "team", folder=tmp_path / "run", trainer=Fake).close()
    open_page(str(tickets), folder=tmp_path / "run", trainer=Fake).close()


def test_a_folder_with_a_table_of_ones_own_is_left_alone(tmp_path):
    pl.DataFrame({"precious": [1]}).write_parquet(tmp_path / "data.parquet")
    before = (tmp_path / "data.parquet").read_bytes()
    with pytest.raises(ValueError, match="holds another table"):
        sobgnn.label(pl.DataFrame({"a": [1.0, 2.0]}), folder=tmp_path)
    assert (tmp_path / "data.parquet").read_bytes() == before


def test_a_run_whose_store_is_gone_is_refused_and_keeps_what_it_has(tickets, tmp_path, capsys):
    page = open_page(str(tickets), folder=tmp_path / "run", trainer=Fake)
    code = page.labeling.store.add_class("a")
    page.labeling.store.label([0, 1], code)
    page.close()
    (page.folder / "labels.db").unlink()
    (page.folder / "report.html").write_text("a finished run")
    before = {path.name: path.read_bytes() for path in page.folder.iterdir()}
    assert main(["label", str(tickets), "--no-open", "--out", str(page.folder)]) == 2
    error = capsys.readouterr().err
    assert "labels.db is missing, but labels were given before: labels.csv, report.html" in error
    assert error.count("\n") == 1
    assert {path.name: path.read_bytes() for path in page.folder.iterdir()} == before


@pytest.mark.parametrize(("blank", "said"), [("NA", "'NA' (10 rows)"), ("-1", "label -1 count as unlabeled: 10")])
def test_labels_of_the_data_that_count_as_none_are_said(tmp_path, monkeypatch, capsys, blank, said):
    monkeypatch.setattr(Page, "serve", lambda page: None)
    monkeypatch.setattr(Page, "finish", lambda page: None)
    file = tmp_path / "rows.csv"
    file.write_text("a,b,y\n" + "".join(f"{i},{i % 7},{(blank, '0', '1')[i % 3]}\n" for i in range(30)))
    assert main(["label", str(file), "--label", "y", "--no-open", "--out", str(tmp_path / "run")]) == 0
    assert said in capsys.readouterr().out


def test_a_frame_that_cannot_be_read_leaves_no_folder_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "open_page", partial(open_page, trainer=Fake))
    with pytest.raises(ValueError, match="No column is left"):
        sobgnn.label(pl.DataFrame({"a": [1.0, 1.0, 1.0]}), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    page = sobgnn.label(pl.DataFrame({"a": [1.0, 2.0, 3.0]}), folder=tmp_path / "run")
    page.close()
    before = (tmp_path / "run" / "data.parquet").read_bytes()
    with pytest.raises(ValueError, match="is in use"):
        sobgnn.label(pl.DataFrame({"a": [1.0, 2.0, 3.0]}), folder=tmp_path / "run", port=1 << 20)
    assert (tmp_path / "run" / "data.parquet").read_bytes() == before


def test_a_disk_that_refuses_at_opening_names_the_folder_and_lets_go_of_it(tickets, tmp_path, monkeypatch, capsys):
    def full(*given):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "begin", full)
        assert main(["label", str(tickets), "--no-open", "--out", str(tmp_path / "run")]) == 2
    assert f"{tmp_path / 'run'} cannot be written to: No space left on device. " in capsys.readouterr().err
    open_page(str(tickets), folder=tmp_path / "run", trainer=Fake).close()


def test_cells_of_labels_csv_that_get_a_mark_are_said(tickets, tmp_path, monkeypatch, capsys):
    def serve(page):
        page.labeling.store.label([0], page.labeling.store.add_class("@home"))

    monkeypatch.setattr(Page, "serve", serve)
    assert main(["label", str(tickets), "--no-open", "--out", str(tmp_path / "run")]) == 0
    assert "formulas were written with ' before them: 1." in capsys.readouterr().out


def test_a_labeling_by_meaning_is_resumed_with_its_model_and_names_no_path(tickets, tmp_path):
    pytest.importorskip("tokenizers")
    model = static_model(tmp_path / "models" / "tiny")
    reading = {"text": ["minutes"], "text_model": str(model)}
    page = open_page(str(tickets), reading=reading, folder=tmp_path / "run", trainer=Fake).start()
    try:
        Client(page.url).until(lambda state: state["model"]["version"])  # the process has got the model too
        kind = page.labeling.source.table.encoding.encoder.outcomes_["minutes"]
        page.close()
        assert str(model.parent).encode() not in (tmp_path / "run" / "labels.db").read_bytes()
        resumed = open_page(str(tickets), folder=tmp_path / "run", reading={"text_model": str(model)}, trainer=Fake)
        resumed.close()
        assert resumed.labeling.source.table.encoding.encoder.outcomes_["minutes"] == kind == "text model"
        for given, said in [
            ("auto", r"cannot be resumed: .* fitted with the model 'tiny'"),
            (str(static_model(tmp_path / "other", seed=1)), "gives 'other'"),
        ]:
            with pytest.raises(ValueError, match=said):
                open_page(str(tickets), folder=tmp_path / "run", reading={"text_model": given}, trainer=Fake)
    finally:
        page.close()
