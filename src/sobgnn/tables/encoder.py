"""A scikit-learn transformer from mixed tables to features."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin

from sobgnn.runtime.arrays import load_arrays, save_arrays
from sobgnn.runtime.files import read_json, write_text
from sobgnn.tables.blocks import block_arrays, blocks_from_json, blocks_to_json, fit_blocks, is_heavy, judged_on
from sobgnn.tables.columns import Arrays, distinct_names, is_text, listed, text_values
from sobgnn.tables.conversion import as_frame
from sobgnn.tables.kinds import Rules, choose_column
from sobgnn.tables.notes import column_notes
from sobgnn.tables.numbers import find_format
from sobgnn.tables.pictures import PictureColumn

if TYPE_CHECKING:
    import polars as pl

FORMAT = 2
_ROWS_AT_ONCE = 32_768
# Number of features from which the result is sparse, if most of them are one-hot.
_WIDE = 1000


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""Encodes mixed tables as features: numbers, dates, categories, sets, text, vectors and pictures, by their cells.

    Every column becomes a block of features, multiplied by one factor so that the block's total variance is its weight:
    1 for numbers, dates, categories, sets and short strings; 10 for text of several words, vectors and pictures. So a
    text column has the weight of ten numbers, however many coordinates it has.

    The weights were measured by how many of a row's 10 nearest neighbors share its class
    (`benchmarks/tables_scaling.py`, results/tables.md). On 15 mixed tables, whose classes depend on text, numbers or
    both, weights of 8 to 16 lose 4 to 6 points against each table's own best weight, 1 loses 18 and 32 loses 6.

    Distances between rows are therefore balanced, and an estimator that scales columns by itself undoes this for text.
    `SobolevClassifier` chooses between scalings by out-of-fold labels; ``scale="unit"``, which :attr:`suggested_scale`
    returns if there is text, keeps the blocks' weights.

    Args:
        text: Columns that are text, whatever they look like.
        drop: Columns to leave out.
        text_model: Folder of a sentence-transformers or model2vec model on this disk, used for text columns instead of
            TF-IDF; needs one of these packages (extra ``text``). Nothing is ever downloaded.
        image_folder: Folder that names of pictures are relative to; a column that names pictures in it is encoded by
            their content. With ``None``, such names are text.
        image_model: File of a TorchScript or exported model for pictures, instead of pixels and oriented gradients.
        n_components: Maximum number of coordinates of a text column; ``None`` for 16 to 192, by the number of rows.
        sparse: ``True`` for scipy CSR, ``False`` for a dense array, ``"auto"`` for CSR if there are at least 1,000
            features and at most a quarter of them come from dense columns.
        random_state: Seed of the truncated SVD.

    Attributes:
        blocks_: One :class:`Block` per column used, in the order of the features.
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

    def __init__(
        self,
        text: Sequence[str] = (),
        drop: Sequence[str] = (),
        text_model: str | Path | None = None,
        image_folder: str | Path | None = None,
        image_model: str | Path | None = None,
        n_components: int | None = None,
        sparse: bool | str = "auto",
        random_state: int = 0,
    ) -> None:
        self.text = text
        self.drop = drop
        self.text_model = text_model
        self.image_folder = image_folder
        self.image_model = image_model
        self.n_components = n_components
        self.sparse = sparse
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Learn from a table how its columns become features; ``y`` is not used."""
        self._fit(as_frame(X))
        return self

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Learn, and encode the same table."""
        frame = as_frame(X)
        self._fit(frame)
        return self.encode(frame)

    def transform(self, X: Any) -> Any:
        """Features float32 [rows, features] of a table with the same columns; others are ignored, in any order.

        Cells that do not fit their column's kind count as blank.
        """
        self._check_fitted()
        if isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] == self.n_features_in_:
            X = dict(zip(self.feature_names_in_.tolist(), X.T, strict=True))
        return self.encode(as_frame(X))

    def encode(self, frame: pl.DataFrame) -> Any:
        """:meth:`transform` of a polars frame whose names are clean."""
        there = set(frame.columns)
        missing = [block.name for block in self.blocks_ if block.name not in there]
        if missing:
            frame, missing = _with_blank_fields(frame, missing)
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            columns, them = ("column", "it") if len(missing) == 1 else ("columns", "them")
            raise ValueError(
                f"Missing {columns} {', '.join(map(repr, missing[:3]))}{more}: the model was fitted with {them}. "
                f"The file has {listed(frame.columns)}."
            )
        if self._sparse_output():
            parts = [sp.csr_array(block.column.encode(frame[block.name]) * block.factor) for block in self.blocks_]
            return sp.hstack(parts, format="csr", dtype=np.float32)
        out = np.empty((frame.height, self.n_features_out_), np.float32)
        for first in range(0, frame.height, _ROWS_AT_ONCE):
            part = frame.slice(first, _ROWS_AT_ONCE)
            for block in self.blocks_:
                held = block.column.encode(part[block.name])
                held = held.toarray() if sp.issparse(held) else held
                out[first : first + part.height, block.start : block.stop] = held * np.float32(block.factor)
        return out

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[Any]:
        """One distinct name per feature; each begins with its column's name."""
        self._check_fitted()
        return np.array(distinct_names([n for b in self.blocks_ for n in b.column.feature_names()]), dtype=object)

    @property
    def n_features_out_(self) -> int:
        """Number of features."""
        return self.blocks_[-1].stop if self.blocks_ else 0

    @property
    def has_text(self) -> bool:
        """Whether some block's directions matter more than its columns: text, vectors and pictures."""
        return any(is_heavy(block) for block in self.blocks_)

    @property
    def suggested_scale(self) -> str:
        """The estimator's ``scale``: with text ``"unit"``, which keeps the blocks' weights; otherwise ``"auto"``."""
        return "unit" if self.has_text else "auto"

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a JSON file; :meth:`arrays` holds the rest."""
        self._check_fitted()
        return {
            "format": FORMAT,
            "settings": {
                name: str(value) if isinstance(value, Path) else list(value) if name in ("text", "drop") else value
                for name, value in self.get_params().items()
            },
            "columns": self.feature_names_in_.tolist(),
            "outcomes": self.outcomes_,
            "notes": self.notes_,
            "sparse": self._sparse_output(),
            "blocks": blocks_to_json(self.blocks_),
        }

    def arrays(self) -> Arrays:
        """Arrays of all columns, by ``<number of the block>.<name>``."""
        return block_arrays(self.blocks_)

    @classmethod
    def from_parts(cls, content: Any, arrays: Arrays) -> TableEncoder:
        """Rebuild an encoder from :meth:`to_json` and :meth:`arrays`; raises ValueError if something is wrong."""
        import polars as pl

        try:
            if content["format"] != FORMAT:
                which = "a newer" if content["format"] > FORMAT else "an older"
                raise ValueError(f"format {content['format']}, which {which} version wrote")
            names = [str(name) for name in content["columns"]]
            # Encoders saved by earlier versions have only one of the settings.
            made = cls(**content.get("settings", {"sparse": bool(content["sparse"])}))
            made.feature_names_in_, made.n_features_in_ = np.array(names, dtype=object), len(names)
            made.outcomes_ = {str(k): str(v) for k, v in content["outcomes"].items()}
            made.notes_ = [str(note) for note in content["notes"]]
            made.blocks_ = blocks_from_json(content["blocks"], arrays)
            if not all(np.isfinite(part).all() for part in arrays.values() if part.dtype.kind == "f"):
                raise ValueError("a value is not finite")
            # Encoding a blank row uses every column, and so everything that a damaged file could break.
            blank = pl.DataFrame({b.name: pl.Series([None, "x1"], dtype=pl.String) for b in made.blocks_})
            on_disk = any(b.column.kind == "text model" or getattr(b.column, "model", None) for b in made.blocks_)
            held = None if on_disk else made.encode(blank)
            if held is not None and not np.isfinite(held.data if sp.issparse(held) else held).all():
                raise ValueError("a value is not finite")
        except (
            KeyError,
            TypeError,
            AttributeError,
            IndexError,
            OverflowError,
            ValueError,
            pl.exceptions.PolarsError,
        ) as error:
            reason = " ".join(str(error).split())[:120] or type(error).__name__
            raise ValueError(f"The table's encoding is damaged: {reason}. Fit the run again.") from None
        return made

    def save(self, folder: str | Path) -> None:
        """Write ``encoder.json`` and ``encoder.npz`` into a folder, which is created if it does not exist."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        save_arrays(folder / "encoder.npz", self.arrays())
        write_text(folder / "encoder.json", json.dumps(self.to_json()))

    @classmethod
    def load(cls, folder: str | Path) -> TableEncoder:
        """Read an encoder that :meth:`save` wrote. Nothing is unpickled."""
        folder = Path(folder)
        try:
            content = read_json(folder / "encoder.json")
        except FileNotFoundError:
            raise ValueError(f"There is no encoder in {str(folder)!r}: encoder.json is missing.") from None
        return cls.from_parts(content, load_arrays(folder / "encoder.npz", ()))

    def with_picture_folder(self, folder: Path) -> TableEncoder:
        """The same encoder for pictures whose names are relative to another folder."""
        made: TableEncoder = copy(self)
        made.blocks_ = [
            replace(b, column=replace(b.column, root=str(folder))) if isinstance(b.column, PictureColumn) else b
            for b in self.blocks_
        ]
        return made

    def judged_on(self, frame: pl.DataFrame) -> TableEncoder:
        """The same encoder, with ``complete`` blocks for the columns without a blank cell in these rows."""
        made: TableEncoder = copy(self)
        made.blocks_ = judged_on(self.blocks_, frame)
        return made

    def _fit(self, frame: pl.DataFrame) -> None:
        if self.sparse not in (True, False, "auto"):
            raise ValueError(f"`sparse` must be True, False or 'auto', but got {self.sparse!r}.")
        if self.n_components is not None:
            _check_whole("n_components", self.n_components, 1, "None or ")
        _check_whole("random_state", self.random_state, 0)
        if isinstance(self.text, str) or isinstance(self.drop, str):
            raise TypeError("`text` and `drop` must be lists of column names, but got a single text.")
        if not frame.height:
            raise ValueError("The table has no rows.")
        for option, names in (("text", self.text), ("drop", self.drop)):
            wrong = [name for name in names if name not in frame.columns]
            if wrong:
                raise ValueError(f"`{option}` names {wrong[0]!r}, but the columns are {listed(frame.columns)}.")
        rules = Rules(
            tuple(self.text), self.text_model, self.image_folder, self.image_model, _decimal_sign(frame),
            self.n_components, int(self.random_state),
        )  # fmt: skip
        used = [name for name in frame.columns if name not in self.drop]
        choices = {name: choose_column(frame[name], rules) for name in used}
        if not any(choice.column for choice in choices.values()):  # an id is better than nothing
            choices = {name: choose_column(frame[name], replace(rules, keep_ids=True)) for name in used}
        self.feature_names_in_ = np.array(frame.columns, dtype=object)
        self.n_features_in_ = frame.width
        self.outcomes_ = {name: choice.outcome for name, choice in choices.items()}
        self.notes_ = column_notes(choices)
        self.blocks_ = fit_blocks(frame, choices)

    def _sparse_output(self) -> bool:
        if self.sparse != "auto":
            return bool(self.sparse)
        thin = sum(b.stop - b.start for b in self.blocks_ if b.column.kind in ("categories", "set"))
        return self.n_features_out_ >= _WIDE and thin >= 0.75 * self.n_features_out_

    def _check_fitted(self) -> None:
        if not hasattr(self, "blocks_"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError("This TableEncoder is not fitted yet. Call fit with a table first.")


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


def _with_blank_fields(frame: pl.DataFrame, missing: list[str]) -> tuple[pl.DataFrame, list[str]]:
    """The table with a blank column ``a.b`` for every missing field b of a column a that exists."""
    import polars as pl

    tops = {name.split(".")[0] for name in frame.columns}
    fields = [name for name in missing if "." in name and name.split(".")[0] in tops]
    blank = [pl.Series(name, [None] * frame.height, dtype=pl.String) for name in fields]
    return frame.with_columns(blank), [name for name in missing if name not in fields]
