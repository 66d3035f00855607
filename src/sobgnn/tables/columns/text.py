"""Columns of text: TF-IDF of n-grams, reduced by a truncated SVD; or a model's vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import scipy.sparse as sp

from sobgnn.tables.columns.base import NOT_SAVED, Column, distinct_cells, evenly_spaced, text_values
from sobgnn.tables.meaning import TextModel
from sobgnn.tables.model_folder import ModelRecord, check_same

# Vocabulary and SVD are learned on this many texts, evenly spaced; more of them change neither.
_SAMPLE = 20_000
_OVERSAMPLING, _POWER_ITERATIONS = 10, 2
_FEWEST = 16  # coordinates
# Share of meaning in the variance of texts that have words and meaning, see MeaningColumn.
_MEANING = 0.7
# Number of characters whose grams are counted at once, and numbers of characters that are a gram.
_CHUNK_CHARACTERS, _LENGTHS = 4 * 2**20, (3, 4)

Analyzer = Literal["words", "characters"]


class _Form(NamedTuple):
    """How texts of one kind are counted and weighted."""

    most_grams: int
    idf: int  # powers of idf and of the singular values
    singular: int
    per_root: float  # N texts have per_root √N coordinates,
    most: int  # at most so many


_FORMS: dict[Analyzer, _Form] = {
    "words": _Form(50_000, 2, 2, 3.6, 192),
    "characters": _Form(40_000, 1, 0, 1.2, 128),
}


@dataclass(frozen=True)
class TextColumn(Column):
    r"""Text as coordinates of a truncated SVD of its TF-IDF, each row divided by its length.

    .. math:: t_{ij} = (1 + \ln n_{ij}) \, (\ln \tfrac{N + 1}{N_j})^p, \qquad z_i = u(u(t_i) V S^q)

    with n_ij the count of gram j in text i, N_j the number of the N texts that contain it, u the division by the
    length, V the first right singular vectors and S their singular values divided by the largest. ``"words"`` counts
    words of two or more letters or digits, with p = q = 2 and 3.6 √N coordinates, at most 192: S lets the first
    coordinates decide which texts are neighbors, and models of single features can use them all. ``"characters"``
    counts three and four characters, with a space before and after the text, p = 1, q = 0 and 1.2 √N coordinates, at
    most 128. There are at least 16. These choices were measured on newsgroup posts, their subjects, docstrings and
    descriptions of packages; pairs of words were left out, since neighbors of posts agree less with them. A blank text
    becomes the direction opposite to the mean: at 0 it would be close to every other text.
    """

    kind: ClassVar[str] = "text"
    analyzer: Analyzer
    vocabulary: tuple[str, ...]  # the known words or sequences of characters, in lower case
    idf: npt.NDArray[np.float32]  # [grams]
    basis: npt.NDArray[np.float32]  # V S^q, [grams, components]
    center: npt.NDArray[np.float32]  # mean of z, [components]

    def __post_init__(self) -> None:
        """Raise ValueError unless the arrays fit the vocabulary."""
        super().__post_init__()
        size = (len(self.vocabulary),)
        if self.idf.shape != size or self.basis.shape[:1] != size or self.center.shape != self.basis.shape[1:]:
            raise ValueError("shapes of the arrays")

    @classmethod
    def fit(
        cls, series: pl.Series, analyzer: Analyzer, components: int | None = None, seed: int = 0
    ) -> TextColumn | None:
        """The fitted column with at most ``components`` coordinates, or ``None`` if there are no grams."""
        known = evenly_spaced(text_values(series).drop_nulls(), _SAMPLE)
        least, most = (1 if known.len() < 50 else 2 if known.len() < 2000 else 3), 0.5 if known.len() >= 20 else 1.0
        vocabulary = find_vocabulary(known, analyzer, least, most)
        if not vocabulary:
            analyzer, vocabulary = "characters", find_vocabulary(known, "characters", 1, 1.0)
        if not vocabulary:
            return None
        form, parts = _FORMS[analyzer], [count_grams(chunk, analyzer, vocabulary) for chunk in _chunks(known)]
        counts = sp.vstack(parts, format="csr")
        held = np.maximum(np.bincount(counts.indices, minlength=counts.shape[1]), 1)
        idf = (np.log((1 + counts.shape[0]) / held) ** form.idf).astype(np.float32)
        weights = _tfidf(counts, idf)
        usual = int(np.clip(round(form.per_root * np.sqrt(known.len())), _FEWEST, form.most))
        vectors, values = right_singular_vectors(weights, min(components or usual, *counts.shape), seed)
        basis = vectors * (values / values[0]) ** form.singular
        z = _unit(weights @ basis)
        return cls(series.name, analyzer, vocabulary, idf, basis, z.mean(axis=0).astype(np.float32))

    def encode(self, series: pl.Series) -> npt.NDArray[np.float32]:
        """Features float32 [rows, components], centered."""
        texts, rows = distinct_cells(series)  # equal texts are counted once: short strings repeat
        out, start = np.empty((texts.len(), self.basis.shape[1]), np.float32), 0
        for chunk in _chunks(texts):
            counts = count_grams(chunk, self.analyzer, self.vocabulary)
            z = _blank_rows_away(_unit(_tfidf(counts, self.idf) @ self.basis), self.center)
            out[start : start + len(z)] = z - self.center
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
    """

    kind: ClassVar[str] = "text model"
    model: ModelRecord  # what the model is recognized by
    center: npt.NDArray[np.float32]  # mean of its vectors, [width]
    factors: npt.NDArray[np.float64]  # what words and vectors are multiplied by, [2]
    words: TextColumn | None  # the part by words; None if the texts have none
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

    def checked_model(self) -> TextModel:
        """The model; raises ValueError if it is another than the recorded one or none."""
        return check_same(self.model, self.opened, "--text-model FOLDER (in Python, text_model=FOLDER)")

    def encode(self, series: pl.Series) -> npt.NDArray[np.float32]:
        """Features float32 [rows, words + width], centered."""
        texts = series.to_list()
        z = np.zeros((len(texts), len(self.center)), np.float32)
        held = [i for i, text in enumerate(texts) if text is not None]
        if held:
            z[held] = _model_vectors(self.checked_model(), [texts[i] for i in held])
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


def find_vocabulary(texts: pl.Series, analyzer: Analyzer, least: int, most: float) -> tuple[str, ...]:
    """Grams in at least ``least`` texts and in at most the share ``most`` of them, the most frequent ones."""
    counts = pl.DataFrame(schema={"gram": pl.String, "count": pl.UInt32})
    for chunk in _chunks(texts):
        found = _grams(chunk, analyzer).unique().group_by("gram").len("count")
        counts = pl.concat([counts, found]).group_by("gram").agg(pl.col("count").sum())
    counts = counts.filter(pl.col("count").is_between(least, max(most * texts.len(), least)))
    counts = counts.sort(["count", "gram"], descending=[True, False]).head(_FORMS[analyzer].most_grams)
    kept = counts["gram"].to_list()
    return tuple(kept if analyzer == "words" else sorted(kept, key=lambda gram: (len(gram), gram[::-1])))


def count_grams(texts: pl.Series, analyzer: Analyzer, vocabulary: tuple[str, ...]) -> Any:
    """CSR float32 [texts, grams] of how often each occurs."""
    known = pl.DataFrame({"gram": pl.Series(vocabulary, dtype=pl.String), "id": range(len(vocabulary))})
    found = _grams(texts, analyzer).join(known, on="gram", maintain_order="left")
    place = found["row"].to_numpy().astype(np.int32), found["id"].to_numpy().astype(np.int32)
    return sp.csr_array((np.ones(found.height, np.float32), place), shape=(texts.len(), len(vocabulary)))


def _grams(texts: pl.Series, analyzer: Analyzer) -> pl.DataFrame:
    """Row and gram of every occurrence."""
    text = texts.fill_null("").str.to_lowercase()
    if analyzer == "words":
        lists = text.str.extract_all(r"[\p{L}\p{N}_][\p{L}\p{N}_]+")
        return pl.DataFrame({"row": np.arange(text.len()), "gram": lists}).explode("gram").drop_nulls()
    lists = (" " + text.str.replace_all(r"\s+", " ") + " ").str.split("")
    signs = pl.DataFrame({"row": np.arange(text.len()), "gram": lists}).explode("gram")
    row, sign = pl.col("row"), pl.col("gram")
    return pl.concat(
        signs.select(row, pl.concat_str(sign.shift(-place) for place in range(length))).filter(
            signs["row"] == signs["row"].shift(1 - length)
        )
        for length in _LENGTHS
    )


def _chunks(texts: pl.Series) -> Iterator[pl.Series]:
    """Consecutive parts of about the same number of characters, which bound the memory that counting needs."""
    part = (texts.str.len_chars().fill_null(0).cast(pl.Int64) + 8).cum_sum() // _CHUNK_CHARACTERS
    start = 0
    for count in part.rle().struct.field("len").to_list():
        yield texts.slice(start, count)
        start += count


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
