"""A scikit-learn transformer from mixed tables to features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from sobgnn._system.arrays import load_arrays, save_arrays
from sobgnn._system.files import read_signed, write_signed
from sobgnn.tables.columns.base import Arrays, Cells, Column, dense, from_plain, is_text, text_values, to_plain
from sobgnn.tables.columns.category import CategoryColumn, SetColumn
from sobgnn.tables.columns.date import DateColumn
from sobgnn.tables.columns.names import distinct_names, listed
from sobgnn.tables.columns.number import NumberColumn
from sobgnn.tables.columns.number_format import find_format
from sobgnn.tables.columns.picture import PictureColumn
from sobgnn.tables.columns.text import MeaningColumn, TextColumn
from sobgnn.tables.columns.vector import VectorColumn
from sobgnn.tables.conversion import as_frame
from sobgnn.tables.kinds import Rules, choose_column, column_notes
from sobgnn.tables.models import FINDERS, AskedModel, find_image_model, same_model

FORMAT = 6
_KINDS: dict[str, type[Column]] = {
    kind.kind: kind
    for kind in (
        NumberColumn, DateColumn, CategoryColumn, SetColumn, VectorColumn, TextColumn, MeaningColumn, PictureColumn,
    )
}  # fmt: skip
# Outcomes whose directions matter more than their single features.
_HEAVY = ("text", "text model", "vectors", "pictures")
_ROWS_AT_ONCE = 32_768
# Columns that a model or a folder must be given to again.
_OPENED = (MeaningColumn, PictureColumn)
# Settings that are never saved: what is read from a file opens no other.
_PATHS = ("text_model", "image_folder", "image_model")
_NO_PATH = (None, "none", "auto")
# Number of features from which the result is sparse, if most of them are one-hot.
_WIDE = 1000
# Number of rows on which the variance of a column's features is computed.
_SAMPLE = 10_000


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""Encodes mixed tables as features: numbers, dates, categories, sets, text, vectors and pictures, by their cells.

    The features of every column are multiplied by one factor, so that their total variance is its weight: 1 for
    numbers, dates, categories, sets and short strings; ``text_weight``, 10, for text of several words, vectors and
    pictures. So a text column has the weight of ten numbers, however many coordinates it has.

    The weights were measured by how many of a row's 10 nearest neighbors share its class
    (`benchmarks/tables.py`, results/tables.md). On 15 mixed tables, whose classes depend on text, numbers or
    both, weights of 8 to 16 lose 4 to 6 points against each table's own best weight, 1 loses 18 and 32 loses 6.

    Distances between rows are therefore balanced, and an estimator that scales columns by itself undoes this for text.
    `SobolevClassifier` chooses between scalings by out-of-fold labels; ``scale="unit"``, which :attr:`suggested_scale`
    returns if there is text, keeps the columns' weights.

    Args:
        text: Columns that are text, whatever they look like.
        drop: Columns to leave out.
        text_model: A model that compares texts by meaning, beside their words; needs the extra ``text``. ``"auto"``
            takes one from the hub's local cache or an installed package, if there is one; the folder of a
            sentence-transformers or model2vec model, or its name, which is fetched if it is not here; ``"none"`` or
            ``None`` for words alone.
        image_folder: Folder that names of pictures are relative to; a column that names pictures in it is encoded by
            their content. With ``None``, such names are text.
        image_model: Folder of a vision model as transformers writes it (config.json, model.safetensors), or its name on
            the hub: its vectors are used beside pixels and oriented gradients.
        n_components: Maximum number of coordinates of a text column; ``None`` for 16 to 192, by the number of rows.
        sparse: ``True`` for scipy CSR, ``False`` for a dense array, ``"auto"`` for CSR if there are at least 1,000
            features and at most a quarter of them come from dense columns.
        random_state: Seed of the truncated SVD.
        text_weight: Total variance of the features of a column of text, vectors or pictures.
        max_categories: Maximum number of distinct values of categories; columns with more are text.

    Attributes:
        columns_: The fitted columns that are used, in the order of the features.
        slices_: The features of each of these columns, by name.
        outcomes_: The detected kind of each column, by name; ``"id"``, ``"constant"``, ``"empty"``, … are left out.
        notes_: One sentence for each thing that users may not expect.
        feature_names_in_: Names of the columns, [n_features_in_].

    Examples:
        >>> from sobgnn import TableEncoder
        >>> encoder = TableEncoder()
        >>> X = encoder.fit_transform({"size": ["1,5 cm", "2,0 cm", "7,5 cm"], "color": ["red", "blue", "red"]})
        >>> X.shape, encoder.outcomes_
        ((3, 3), {'size': 'number', 'color': 'categories'})
    """

    # Takes a few words about how far a slow model of texts is.
    _progress: Callable[[str], None] | None = None

    def __init__(
        self,
        text: Sequence[str] = (),
        drop: Sequence[str] = (),
        text_model: str | Path | None = "auto",
        image_folder: str | Path | None = None,
        image_model: str | Path | None = None,
        n_components: int | None = None,
        sparse: bool | str = "auto",
        random_state: int = 0,
        text_weight: float = 10.0,
        max_categories: int = 40,
    ) -> None:
        self.text = text
        self.drop = drop
        self.text_model = text_model
        self.image_folder = image_folder
        self.image_model = image_model
        self.n_components = n_components
        self.sparse = sparse
        self.random_state = random_state
        self.text_weight = text_weight
        self.max_categories = max_categories

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Learn from a table how its columns become features; ``y`` is not used."""
        self._fit(as_frame(X))
        return self

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Learn, and encode the same table."""
        frame = as_frame(X)
        return self._joined(self._fit(frame, encode=True), frame.height)

    def transform(self, X: Any) -> Any:
        """Features float32 [rows, features] of a table with the same columns; others are ignored, in any order.

        Cells that do not fit their column's kind count as blank.
        """
        check_is_fitted(self, "columns_")
        if isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] == self.n_features_in_:
            X = dict(zip(self.feature_names_in_.tolist(), X.T, strict=True))
        frame = self.with_all_columns(as_frame(X))
        slices = [frame.slice(first, _ROWS_AT_ONCE) for first in range(0, max(frame.height, 1), _ROWS_AT_ONCE)]
        parts = [self.encode(self.parse(part), part.height) for part in slices]
        return parts[0] if len(parts) == 1 else sp.vstack(parts) if sp.issparse(parts[0]) else np.concatenate(parts)

    def with_all_columns(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The table, with a blank column ``a.b`` for every field b that a nested column a lacks.

        Raises if another column is missing.
        """
        missing = [column.name for column in self.columns_ if column.name not in frame.columns]
        tops = {name.split(".")[0] for name in frame.columns} if missing else set()
        absent = [name for name in missing if "." not in name or name.split(".")[0] not in tops]
        if absent:
            more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
            columns, them = ("column", "it") if len(absent) == 1 else ("columns", "them")
            raise ValueError(
                f"Missing {columns} {', '.join(map(repr, absent[:3]))}{more}: the model was fitted with {them}. "
                f"The file has {listed(frame.columns)}."
            )
        return frame.with_columns(pl.lit(None, pl.String).alias(name) for name in missing) if missing else frame

    def parse(self, frame: pl.DataFrame) -> dict[str, Cells]:
        """The cells of every column, by name, each parsed once."""
        return {column.name: column.parse(frame[column.name]) for column in self.columns_}

    def encode(self, cells: Mapping[str, Cells], rows: int) -> Any:
        """Features float32 [rows, features] of parsed cells."""
        parts = [column.encode(cells[column.name].values) * np.float32(column.factor) for column in self.columns_]
        return self._joined(parts, rows)

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[Any]:
        """One distinct name per feature; each begins with its column's name."""
        check_is_fitted(self, "columns_")
        return np.array(distinct_names([n for c in self.columns_ for n in c.feature_names()]), dtype=object)

    @property
    def n_features_out_(self) -> int:
        """Number of features."""
        return self.slices_[self.columns_[-1].name].stop if self.columns_ else 0

    @property
    def suggested_scale(self) -> str:
        """The estimator's ``scale``: with text ``"unit"``, which keeps the columns' weights; otherwise ``"auto"``."""
        return "unit" if any(self.outcomes_[column.name] in _HEAVY for column in self.columns_) else "auto"

    def to_parts(self) -> tuple[dict[str, Any], Arrays]:
        """Plain values, for a JSON file, and arrays by name."""
        check_is_fitted(self, "columns_")
        arrays: Arrays = {}
        settings = {
            name: list(value) if name in ("text", "drop") else value
            for name, value in self.get_params().items()
            if name not in _PATHS or value in _NO_PATH
        }
        columns = [{"kind": c.kind, **to_plain(c, arrays, str(i))} for i, c in enumerate(self.columns_)]
        names = self.feature_names_in_.tolist()
        plain = {"settings": settings, "names": names, "outcomes": self.outcomes_, "notes": self.notes_}
        return {"format": FORMAT, **plain, "columns": columns}, arrays

    @classmethod
    def from_parts(cls, content: Any, arrays: Arrays) -> TableEncoder:
        """Rebuild an encoder from :meth:`to_parts`; raises ValueError if something is wrong."""
        wrong = (KeyError, TypeError, AttributeError, IndexError, OverflowError, ValueError, pl.exceptions.PolarsError)
        try:
            if not all(np.isfinite(part).all() for part in arrays.values() if part.dtype.kind == "f"):
                raise ValueError("a value is not finite")
            settings = content["settings"].items()
            made = cls(**{name: value for name, value in settings if name not in _PATHS or value in _NO_PATH})
            made.outcomes_ = {str(k): str(v) for k, v in content["outcomes"].items()}
            made.notes_ = [str(note) for note in content["notes"]]
            names = [str(name) for name in content["names"]]
            made.feature_names_in_, made.n_features_in_ = np.array(names, dtype=object), len(names)
            made._keep([from_plain(_KINDS[c["kind"]], c, arrays, str(i)) for i, c in enumerate(content["columns"])])
            # Encoding blank cells uses every column, and so everything that a damaged file could break.
            for column in made.columns_:
                filled = None if isinstance(column, _OPENED) else "x1"
                cells = column.parse(pl.Series(column.name, [None, filled], dtype=pl.String))
                if not np.isfinite(dense(column.encode(cells.values)) * column.factor).all():
                    raise ValueError("a value is not finite")
        except wrong as error:
            reason = " ".join(str(error).split())[:120] or type(error).__name__
            raise ValueError(f"The table's encoding is damaged: {reason}. Fit the run again.") from None
        return made

    def save(self, folder: str | Path) -> None:
        """Write ``encoder.json`` and ``encoder.npz`` into a folder, which is created if it does not exist."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        content, arrays = self.to_parts()
        save_arrays(folder / "encoder.npz", arrays)
        write_signed(folder / "encoder.json", content, folder / "encoder.npz")

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        text_model: str | Path | None = None,
        image_folder: str | Path | None = None,
        image_model: str | Path | None = None,
    ) -> TableEncoder:
        """Read an encoder that :meth:`save` wrote, and give it the models and the folder of pictures that it needs.

        A saved encoder names no path: only encoder.json and encoder.npz are opened, and nothing is unpickled. A model
        that is not the one that it was fitted with is refused.
        """
        folder = Path(folder)
        try:
            content = read_signed(folder / "encoder.json", folder / "encoder.npz", FORMAT)
        except FileNotFoundError:
            raise ValueError(f"There is no encoder in {str(folder)!r}: encoder.json is missing.") from None
        made = cls.from_parts(content, load_arrays(folder / "encoder.npz", (), ours=True))
        made = made.with_models(text_model, image_model)
        return made if image_folder is None else made.with_picture_folder(Path(image_folder))

    def with_models(self, text_model: str | Path | None = None, image_model: str | Path | None = None) -> TableEncoder:
        """The same encoder with the models that it was fitted with; raises ValueError if one is missing or another.

        A model that is not given is looked for among those at hand, by its digest.
        """
        columns: list[Any] = list(self.columns_)
        for name, kind, asked in (("text", MeaningColumn, text_model), ("image", PictureColumn, image_model)):
            find = FINDERS[f"{name}_model"]
            given = find(None if asked == "auto" else asked)
            if given is not None and not any(isinstance(column, kind) for column in columns):
                raise ValueError(f"--{name}-model is given, but there is no such column. Leave it out.")
            for i, column in enumerate(columns):
                if isinstance(column, kind) and column.model is not None:
                    columns[i] = replace(columns[i], opened=given or same_model(column.model, find))
                    columns[i].checked_model()
        made = self._with(columns)
        made.text_model = made.text_model if text_model is None else text_model
        made.image_model = made.image_model if image_model is None else image_model
        return made

    def with_picture_folder(self, folder: Path) -> TableEncoder:
        """The same encoder for pictures whose names are relative to another folder."""
        return self._with([replace(c, root=str(folder)) if isinstance(c, PictureColumn) else c for c in self.columns_])

    def judged_on(self, frame: pl.DataFrame) -> TableEncoder:
        """The same encoder; the columns of these rows are ``complete`` if they have no cell that is blank."""
        there = set(frame.columns)
        return self._with([_judged(c, c.parse(frame[c.name])) if c.name in there else c for c in self.columns_])

    def _fit(self, frame: pl.DataFrame, encode: bool = False) -> list[Any]:
        """Fit all columns; returns the features of each if asked to."""
        self._check_settings(frame)
        asked = AskedModel(self.text_model, self._progress)
        rules = Rules(self, asked, find_image_model(self.image_model), _decimal_sign(frame))
        used = [name for name in frame.columns if name not in self.drop]
        choices = {name: choose_column(frame[name], rules) for name in used}
        if not any(choice.column for choice in choices.values()):  # an id is better than nothing
            choices = {name: choose_column(frame[name], replace(rules, keep_ids=True)) for name in used}
        columns, features = [], []
        sample = np.linspace(0, frame.height - 1, min(frame.height, _SAMPLE)).astype(np.int64)
        for name, choice in choices.items():
            if choice.column is not None:
                cells = choice.cells or choice.column.parse(frame[name])
                found = choice.column.encode(cells.values if encode else cells.values[sample])
                variance = float(dense(found[sample] if encode else found).astype(np.float64).var(axis=0).sum())
                weight = self.text_weight if choice.outcome in _HEAVY else 1.0
                factor = float(np.sqrt(weight / variance)) if variance > 1e-30 else 1.0
                columns.append(_judged(replace(choice.column, factor=factor), cells))
                features += [found * np.float32(factor)] if encode else []
                choice.cells = None  # frees memory
        self.feature_names_in_ = np.array(frame.columns, dtype=object)
        self.n_features_in_ = frame.width
        self.outcomes_ = {name: choice.outcome for name, choice in choices.items()}
        self.notes_ = column_notes(choices)
        self.advice_ = asked.advice
        asked.finish()
        self._keep(columns)
        return features

    def _keep(self, columns: Sequence[Column]) -> None:
        """Keep fitted columns, and which features are theirs."""
        self.columns_ = list(columns)
        ends = np.cumsum([0, *(len(column.feature_names()) for column in columns)]).tolist()
        self.slices_ = {c.name: slice(*ends) for c, ends in zip(columns, pairwise(ends), strict=True)}

    def _with(self, columns: list[Column]) -> TableEncoder:
        made: TableEncoder = copy(self)
        made.columns_ = columns
        return made

    def _joined(self, parts: list[Any], rows: int) -> Any:
        """The features of all columns side by side: sparse, or dense."""
        if self._sparse_output():
            return sp.hstack([sp.csr_array(part) for part in parts], format="csr", dtype=np.float32)
        out = np.empty((rows, self.n_features_out_), np.float32)
        for column, part in zip(self.columns_, parts, strict=True):
            out[:, self.slices_[column.name]] = dense(part)
        return out

    def _check_settings(self, frame: pl.DataFrame) -> None:
        if self.sparse not in (True, False, "auto"):
            raise ValueError(f"`sparse` must be True, False or 'auto', but got {self.sparse!r}.")
        if self.n_components is not None:
            _check_whole("n_components", self.n_components, 1, "None or ")
        _check_whole("random_state", self.random_state, 0)
        _check_whole("max_categories", self.max_categories, 2)
        if not isinstance(self.text_weight, int | float) or not 0 < self.text_weight < np.inf:
            raise ValueError(f"`text_weight` must be a positive number, but got {self.text_weight!r:.60}.")
        if isinstance(self.text, str) or isinstance(self.drop, str):
            raise TypeError("`text` and `drop` must be lists of column names, but got a single text.")
        if not frame.height:
            raise ValueError("The table has no rows.")
        for option, names in (("text", self.text), ("drop", self.drop)):
            wrong = [name for name in names if name not in frame.columns]
            if wrong:
                raise ValueError(f"`{option}` names {wrong[0]!r}, but the columns are {listed(frame.columns)}.")

    def _sparse_output(self) -> bool:
        if self.sparse != "auto":
            return bool(self.sparse)
        thin = sum(len(c.feature_names()) for c in self.columns_ if c.kind in ("categories", "set"))
        return self.n_features_out_ >= _WIDE and thin >= 0.75 * self.n_features_out_


def _judged(column: Column, cells: Cells) -> Column:
    """The column, ``complete`` if each of these cells says something; pictures that cannot be read count otherwise."""
    return replace(column, complete=not isinstance(column, PictureColumn) and bool(column.known(cells).all()))


def _check_whole(name: str, value: Any, least: int, otherwise: str = "") -> None:
    """Raise unless a value is an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"`{name}` must be {otherwise}an integer of at least {least}, but got {value!r:.60}.")


def _decimal_sign(frame: pl.DataFrame) -> str | None:
    """The decimal sign of most columns whose own sign is certain; ``None`` if there are none."""
    signs = []
    for name in frame.columns:
        if is_text(frame[name]):
            found = find_format(text_values(frame[name].head(2000)))
            if found is not None and found[1]:
                signs.append(found[0].decimal)
    return None if not signs else "," if 2 * signs.count(",") > len(signs) else "."
