"""Counts of words, or of sequences of characters: texts to rows of a sparse matrix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

if TYPE_CHECKING:
    import polars as pl

Analyzer = Literal["words", "characters"]

_WORD = r"[\p{L}\p{N}_][\p{L}\p{N}_]+"
_LENGTHS = (3, 4)
_MOST = {"words": 50_000, "characters": 40_000}
_CHUNK_CHARACTERS = 4 * 2**20


@dataclass(frozen=True)
class Grams:
    """Words of two or more letters or digits, or sequences of three and four characters; all in lower case.

    Characters include a space before and after the text. Pairs of words were measured and left out: with them,
    neighbors of newsgroup posts agree less (see TextColumn).

    Args:
        analyzer: What is counted.
        vocabulary: The known words or sequences.
    """

    analyzer: Analyzer
    vocabulary: tuple[str, ...]

    @classmethod
    def fit(cls, texts: pl.Series, analyzer: Analyzer, least: int, most: float) -> Grams:
        """Those in at least ``least`` texts and in at most the share ``most`` of them, the most frequent ones."""
        import polars as pl

        counts = pl.DataFrame(schema={"gram": pl.String, "count": pl.UInt32})
        for chunk in chunks(texts):
            rows, grams = _grams(chunk, analyzer)
            found = pl.DataFrame({"row": rows, "gram": grams}).unique().group_by("gram").len("count")
            counts = pl.concat([counts, found]).group_by("gram").agg(pl.col("count").sum())
        counts = counts.filter(pl.col("count").is_between(least, max(most * texts.len(), least)))
        kept = counts.sort(["count", "gram"], descending=[True, False]).head(_MOST[analyzer])["gram"].to_list()
        return cls(
            analyzer, tuple(kept if analyzer == "words" else sorted(kept, key=lambda gram: (len(gram), gram[::-1])))
        )

    def counts(self, texts: pl.Series) -> Any:
        """CSR float32 [texts, grams] of how often each occurs."""
        import polars as pl

        size = len(self.vocabulary)
        rows, grams = _grams(texts, self.analyzer)
        known = pl.DataFrame({"gram": pl.Series(self.vocabulary, dtype=pl.String), "id": range(size)})
        ids = pl.DataFrame({"gram": grams}).join(known, on="gram", how="left", maintain_order="left")["id"]
        place = rows[ids.is_not_null().to_numpy()].astype(np.int32), ids.drop_nulls().to_numpy().astype(np.int32)
        return sp.csr_array(sp.coo_array((np.ones(len(place[0]), np.float32), place), shape=(texts.len(), size)))


def chunks(texts: pl.Series) -> Iterator[pl.Series]:
    """Consecutive parts of about the same number of characters, which bound the memory that counting needs."""
    ends = np.cumsum(texts.str.len_chars().fill_null(0).to_numpy().astype(np.int64) + 8)
    start = 0
    while start < texts.len():
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _CHUNK_CHARACTERS, side="right")))
        yield texts.slice(start, stop - start)
        start = stop


def _grams(texts: pl.Series, analyzer: Analyzer) -> tuple[npt.NDArray[np.int64], pl.Series]:
    """Row and text of every occurrence."""
    import polars as pl

    text = texts.fill_null("").str.to_lowercase()
    if analyzer == "words":
        lists = text.str.extract_all(_WORD)
        return _rows(lists), lists.filter(lists.list.len() > 0).explode()
    lists = (" " + text.str.replace_all(r"\s+", " ") + " ").str.split("")
    rows, signs = _rows(lists), lists.explode().to_frame("sign")
    found = []
    for length in _LENGTHS:
        joined = signs.select(pl.concat_str(pl.col("sign").shift(-place) for place in range(length))).to_series()
        inside = np.append(rows[length - 1 :] == rows[: 1 - length], np.zeros(length - 1, bool))
        found.append((rows[inside], joined.filter(inside)))
    return np.concatenate([rows for rows, _ in found]), pl.concat([grams for _, grams in found])


def _rows(lists: pl.Series) -> npt.NDArray[np.int64]:
    """The row of every entry."""
    return np.repeat(np.arange(lists.len()), lists.list.len().to_numpy())
