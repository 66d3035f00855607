"""Columns of text: TF-IDF of n-grams, reduced by a truncated SVD; or a model's vectors."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sobgnn.tables.columns.base import NOT_SAVED, Column, distinct_cells, evenly_spaced, text_values
from sobgnn.tables.columns.grams import Analyzer, Grams, chunks
from sobgnn.tables.meaning import ModelRecord, TextModel, check_same

if TYPE_CHECKING:
    import polars as pl

# Vocabulary and SVD are learned on this many texts, evenly spaced; more of them change neither.
_SAMPLE = 20_000
_OVERSAMPLING, _POWER_ITERATIONS = 10, 2
_FEWEST = 16  # coordinates
# Share of meaning in the variance of texts that have words and meaning, see MeaningColumn.
_MEANING = 0.7
_OPTION = "--text-model FOLDER (in Python, text_model=FOLDER)"


class _Form(NamedTuple):
    """How texts of one kind are weighted: powers of idf and of the singular values, and the number of coordinates.

    N texts have ``per_root`` √N coordinates, at most ``most``.
    """

    idf: int
    singular: int
    per_root: float
    most: int


_FORMS = {"words": _Form(2, 2, 3.6, 192), "characters": _Form(1, 0, 1.2, 128)}


@dataclass(frozen=True)
class TextColumn(Column):
    r"""Text as coordinates of a truncated SVD of its TF-IDF, each row divided by its length.

    .. math:: t_{ij} = (1 + \ln n_{ij}) \, (\ln \tfrac{N + 1}{N_j})^p, \qquad z_i = u(u(t_i) V S^q)

    with n_ij the count of gram j in text i, N_j the number of the N texts that contain it, u the division by the
    length, V the first right singular vectors and S their singular values divided by the largest. ``"words"`` counts
    words, with p = q = 2 and 3.6 √N coordinates, at most 192: S lets the first coordinates decide which texts are
    neighbors, and models of single features can use them all. ``"characters"`` counts three and four characters, with
    p = 1, q = 0 and 1.2 √N coordinates, at most 128. There are at least 16. These choices were measured on newsgroup
    posts, their subjects, docstrings and descriptions of packages. A blank text becomes the direction opposite to the
    mean: at 0 it would be close to every other text.

    Args:
        name: As in the table.
        grams: The vocabulary.
        idf: float32 [grams].
        basis: V S^q, float32 [grams, components].
        center: Mean of z, [components].
    """

    kind: ClassVar[str] = "text"
    name: str
    grams: Grams
    idf: npt.NDArray[np.float32]
    basis: npt.NDArray[np.float32]
    center: npt.NDArray[np.float32]

    def __post_init__(self) -> None:
        """Raise ValueError unless the arrays fit the vocabulary."""
        super().__post_init__()
        size = (len(self.grams.vocabulary),)
        if self.idf.shape != size or self.basis.shape[:1] != size or self.center.shape != self.basis.shape[1:]:
            raise ValueError("shapes of the arrays")

    @classmethod
    def fit(
        cls, series: pl.Series, analyzer: Analyzer, components: int | None = None, seed: int = 0
    ) -> TextColumn | None:
        """The fitted column with at most ``components`` coordinates, or ``None`` if there are no grams."""
        known = evenly_spaced(text_values(series).drop_nulls(), _SAMPLE)
        least, most = (1 if known.len() < 50 else 2 if known.len() < 2000 else 3), 0.5 if known.len() >= 20 else 1.0
        grams = Grams.fit(known, analyzer, least, most)
        if not grams.vocabulary:
            grams = Grams.fit(known, "characters", 1, 1.0)
        if not grams.vocabulary:
            return None
        counts = sp.vstack([grams.counts(chunk) for chunk in chunks(known)], format="csr")
        held = np.maximum(np.bincount(counts.indices, minlength=counts.shape[1]), 1)
        form = _FORMS[grams.analyzer]
        idf = (np.log((1 + counts.shape[0]) / held) ** form.idf).astype(np.float32)
        weights = _tfidf(counts, idf)
        usual = int(np.clip(round(form.per_root * np.sqrt(known.len())), _FEWEST, form.most))
        vectors, values = right_singular_vectors(weights, min(components or usual, *counts.shape), seed)
        basis = vectors * (values / values[0]) ** form.singular
        z = _unit(weights @ basis)
        return cls(series.name, grams, idf, basis, z.mean(axis=0).astype(np.float32))

    def encode(self, series: pl.Series) -> npt.NDArray[np.float32]:
        """Features float32 [rows, components], centered."""
        texts, rows = distinct_cells(text_values(series))  # equal texts are counted once: short strings repeat
        out = np.empty((texts.len(), self.basis.shape[1]), np.float32)
        start = 0
        for chunk in chunks(texts):
            z = _unit(_tfidf(self.grams.counts(chunk), self.idf) @ self.basis)
            out[start : start + len(z)] = _blank_rows_away(z, self.center) - self.center
            start += len(z)
        return out if len(rows) == len(out) else out[rows]

    def feature_names(self) -> list[str]:
        """The column's name with the component's number."""
        return [f"{self.name} [{i}]" for i in range(self.basis.shape[1])]


@dataclass(frozen=True)
class MeaningColumn(Column):
    r"""Text as its words and as the vectors of a model, side by side.

    .. math:: \left[ \sqrt{1 - s} \; \frac{w}{\sigma_w} , \; \sqrt{s} \; \frac{m - \bar m}{\sigma_m} \right]

    with w the features of :class:`TextColumn`, m the model's vector divided by its length, σ² the total variance of
    each part, and s = 0.7. So both parts together have variance 1, and distances are 70 % meaning. The share was
    measured (`benchmarks/tables_text.py`).

    Args:
        name: As in the table.
        model: What the model is recognized by.
        center: Mean of its vectors, [width].
        factors: What words and vectors are multiplied by, [2].
        words: The part by words; ``None`` if the texts have none.
    """

    kind: ClassVar[str] = "text model"
    name: str
    model: ModelRecord
    center: npt.NDArray[np.float32]
    factors: npt.NDArray[np.float64]
    words: TextColumn | None
    opened: TextModel | None = field(default=None, compare=False, repr=False, kw_only=True, metadata=NOT_SAVED)

    def __post_init__(self) -> None:
        """Raise ValueError unless the arrays fit together."""
        super().__post_init__()
        if self.center.ndim != 1 or not self.center.size or self.factors.shape != (2,):
            raise ValueError("shapes of the arrays")

    @classmethod
    def fit(cls, series: pl.Series, model: TextModel, words: TextColumn | None) -> MeaningColumn:
        """Fit the column: vectors are centered on the mean of these texts."""
        known = evenly_spaced(text_values(series).drop_nulls(), _SAMPLE)
        z = _model_vectors(model, known.to_list())
        share = _MEANING if words is not None else 1.0
        by_words = 0.0 if words is None else _factor(words.encode(known), 1 - share)
        factors = np.array([by_words, _factor(z, share)])
        return cls(series.name, model.record, z.mean(axis=0), factors, words, opened=model)

    def with_model(self, model: TextModel | None) -> MeaningColumn:
        """The same column with its model; raises ValueError if it is another one or none."""
        return replace(self, opened=check_same(self.model, model, _OPTION))

    def encode(self, series: pl.Series) -> npt.NDArray[np.float32]:
        """Features float32 [rows, words + width], centered."""
        texts = text_values(series).to_list()
        z = np.zeros((len(texts), len(self.center)), np.float32)
        held = [i for i, text in enumerate(texts) if text is not None]
        if held:
            z[held] = _model_vectors(check_same(self.model, self.opened, _OPTION), [texts[i] for i in held])
        meaning = (_blank_rows_away(z, self.center) - self.center) * np.float32(self.factors[1])
        if self.words is None:
            return np.asarray(meaning, dtype=np.float32)
        return np.hstack([self.words.encode(series) * np.float32(self.factors[0]), meaning], dtype=np.float32)

    def feature_names(self) -> list[str]:
        """The column's name with the number of the word's coordinate, then of the vector's."""
        words = [] if self.words is None else self.words.feature_names()
        return words + [f"{self.name} [meaning {i}]" for i in range(len(self.center))]


def _factor(features: npt.NDArray[np.float32], share: float) -> float:
    """The factor that scales the total variance of features to a share."""
    variance = float(features.astype(np.float64).var(axis=0).sum())
    return float(np.sqrt(share / variance)) if variance > 1e-30 else 1.0


def _model_vectors(model: TextModel, texts: list[str]) -> npt.NDArray[np.float32]:
    return _unit(np.nan_to_num(model.encode(texts)))


def choose_analyzer(text: pl.Series) -> Analyzer:
    """``"words"`` for text of several words each, ``"characters"`` for short strings and unspaced scripts."""
    sample = text.drop_nulls().head(2000)
    if not sample.len():
        return "characters"
    words = float(sample.str.count_matches(r"\S+").mean() or 0)  # type: ignore[arg-type]
    letters = float(sample.str.len_chars().mean() or 0)  # type: ignore[arg-type]
    return "words" if words >= 4 and letters < 20 * words else "characters"


def right_singular_vectors(
    matrix: Any, rank: int, seed: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """The first right singular vectors [columns, rank] of a sparse matrix, and its singular values [rank].

    Each vector has a positive largest entry.

    Halko, Martinsson and Tropp's random projection with two power iterations. Only the row side, the shorter one, is
    orthogonalized; vectors of singular value 0 are left out.
    """
    width = min(rank + _OVERSAMPLING, *matrix.shape)
    if width < min(matrix.shape):
        start = np.random.default_rng(seed).standard_normal((matrix.shape[1], width), dtype=np.float32)
        side = matrix @ start
        for _ in range(_POWER_ITERATIONS):
            side = matrix @ (matrix.T @ np.linalg.qr(side)[0])
        base = np.linalg.qr(side)[0]
        small = (matrix.T @ base).T  # [width, columns]
    else:
        small = matrix.toarray() if matrix.shape[0] <= matrix.shape[1] else np.linalg.qr(matrix.toarray())[1]
    squares, rotation = np.linalg.eigh((small @ small.T).astype(np.float64))
    squares, rotation = squares[::-1][:rank], rotation[:, ::-1][:, :rank]
    live = squares > 1e-6 * max(float(squares[0]), 1e-30)
    values = np.sqrt(squares[live])
    basis = small.T @ (rotation[:, live] / values).astype(np.float32)
    largest = basis[np.abs(basis).argmax(axis=0), np.arange(basis.shape[1])]
    vectors = np.ascontiguousarray(basis * np.where(largest < 0, -1, 1), dtype=np.float32)
    return vectors, values.astype(np.float32)


def _tfidf(counts: Any, idf: npt.NDArray[np.float32]) -> Any:
    counts = counts.astype(np.float32)
    counts.data = (1 + np.log(counts.data)) * idf[counts.indices]
    square = np.bincount(
        np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr)), np.square(counts.data), counts.shape[0]
    )
    counts.data /= np.repeat(np.sqrt(np.maximum(square, 1e-30)), np.diff(counts.indptr)).astype(np.float32)
    return counts


def _unit(z: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    length = np.sqrt(np.square(z).sum(axis=1, keepdims=True))
    unit = np.where(length > 1e-12, z / np.where(length > 1e-12, length, 1.0), 0.0)
    return np.asarray(unit, dtype=np.float32)


def _blank_rows_away(z: npt.NDArray[np.float32], center: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    size = float(np.sqrt(np.square(center).sum()))
    if size > 0:
        z[~z.any(axis=1)] = -center / size
    return z
