"""German exports, UTF-16 and formulas through `sobgnn fit` and `sobgnn predict`."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from sobgnn import SobolevClassifier, cli


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(
        "sobgnn.app.command.fit._estimator",
        lambda paper, settings: SobolevClassifier(k=5, n_members=1, epochs=5, random_state=0),
    )
    monkeypatch.setattr("sobgnn.app.runs.page.render.render", lambda *_: "")  # the page has its own tests


def export(rows, labelled):
    """A spreadsheet's export: semicolons, decimal commas, dates with dots, a text column and formulas as ids."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, rows)
    words = [["Rechnung", "Zahlung", "Mahnung", "Konto"], ["Server", "Anmeldung", "Netzwerk", "Kabel"]]
    lines = ["Nr;Betrag;Anteil;Datum;Nachricht;label"]
    for i, k in enumerate(kind):
        amount = f"{1234.5 * (k + 1) + rng.normal():,.2f}".translate(str.maketrans(",.", ".,"))
        text = " ".join(rng.choice(words[k], 6))
        label = ("07", "8")[k] if i < labelled else ""
        lines.append(f"=A{i};{amount} €;{rng.integers(0, 99)} %;{i % 28 + 1:02}.03.2024;{text};{label}")
    return "\r\n".join(lines), kind


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_a_german_export_is_read_right_in_any_encoding(tmp_path, capsys, encoding):
    text, kind = export(60, 30)
    (tmp_path / "export.csv").write_bytes(text.encode(encoding))
    run = tmp_path / "run"
    assert cli.main(["fit", str(tmp_path / "export.csv"), "--id", "Nr", "--out", str(run)]) == 0
    said = capsys.readouterr().out
    assert "Text, by its words: Nachricht" in said
    assert "Dates: Datum" in said
    assert "unit '€' removed; decimal commas" in said
    found = pl.read_csv(run / "predictions.csv", infer_schema=False)
    assert found["id"][0] == "'=A0"
    assert "formulas" in said
    assert np.mean((found["label"] == "07").to_numpy() == (kind == 0)) > 0.9
    assert cli.main(["predict", str(run), str(tmp_path / "export.csv")]) == 0
    assert "formulas were written with ' before them: 60" in " ".join(capsys.readouterr().out.split())
    again = pl.read_csv(tmp_path / "export.predictions.csv", infer_schema=False)
    assert again["row"].to_list() == found["row"].to_list()
    assert np.mean((again["label"] == "07").to_numpy() == (kind == 0)) > 0.9
