"""Counts of word and character n-grams, vectorized: texts to rows of a sparse matrix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

if TYPE_CHECKING:
    import polars as pl

Codes = npt.NDArray[np.int64]

_WORD = r"[\p{L}\p{N}_][\p{L}\p{N}_]+"
_MOST_WORDS, _MOST_GRAMS = 50_000, 40_000
# Characters of an alphabet are numbered from 1 in 12 bits, so that four of them fit into one integer.
_BITS, _MOST_CHARACTERS = 12, 4095
_CHUNK_CHARACTERS = 8 * 2**20


@dataclass(frozen=True)
class WordGrams:
    """Words of two or more letters or digits, in lower case.

    Pairs of words were measured and left out: with them, neighbors of newsgroup posts agree less (see TextColumn).

    Args:
        words: The vocabulary.
    """

    words: tuple[str, ...]

    @classmethod
    def fit(cls, texts: pl.Series, least: int, most: float) -> WordGrams:
        """Words in at least ``least`` texts and in at most the share ``most`` of them, frequent ones first."""
        import polars as pl

        limit = max(most * texts.len(), least)
        counts: pl.DataFrame | None = None
        for chunk in chunks(texts):
            rows, tokens = _tokens(chunk)
            found = pl.DataFrame({"row": rows, "word": tokens}).unique().group_by("word").len("count")
            counts = found if counts is None else pl.concat([counts, found]).group_by("word").agg(pl.col("count").sum())
        if counts is None:
            return cls(())
        counts = counts.filter((pl.col("count") >= least) & (pl.col("count") <= limit))
        words = counts.sort(["count", "word"], descending=[True, False]).head(_MOST_WORDS)["word"].to_list()
        return cls(tuple(words))

    @property
    def size(self) -> int:
        """Number of words."""
        return len(self.words)

    def counts(self, texts: pl.Series) -> Any:
        """CSR [texts, size] of how often each word occurs."""
        import polars as pl

        rows, tokens = _tokens(texts)
        table = pl.DataFrame({"word": pl.Series(self.words, dtype=pl.String), "id": np.arange(len(self.words))})
        found = pl.DataFrame({"word": tokens}).join(table, on="word", how="left", maintain_order="left")
        ids = found["id"].fill_null(-1).to_numpy().astype(np.int64)
        return _count_matrix(rows[ids >= 0], ids[ids >= 0], (texts.len(), self.size))


@dataclass(frozen=True)
class CharacterGrams:
    """Sequences of three and four characters, in lower case, with a space before and after the text.

    Args:
        alphabet: The known characters, sorted; grams with any other are left out.
        grams: Sorted codes of the grams.
    """

    alphabet: str
    grams: Codes

    @classmethod
    def fit(cls, texts: pl.Series, least: int, most: float) -> CharacterGrams:
        """Grams in at least ``least`` texts and in at most the share ``most`` of them, frequent ones first."""
        limit = max(most * texts.len(), least)
        seen: dict[int, int] = {}
        for chunk in chunks(texts):
            point, number = np.unique(_points(chunk)[1], return_counts=True)
            for p, c in zip(point.tolist(), number.tolist(), strict=True):
                seen[p] = seen.get(p, 0) + c
        frequent = sorted(seen, key=lambda p: (-seen[p], p))[:_MOST_CHARACTERS]
        bare = cls("".join(chr(p) for p in sorted(frequent)), np.zeros(0, np.int64))
        parts = [_document_counts(*bare._codes(chunk)) for chunk in chunks(texts)]
        return cls(bare.alphabet, _frequent(parts, least, limit, _MOST_GRAMS))

    @property
    def size(self) -> int:
        """Number of grams."""
        return len(self.grams)

    def counts(self, texts: pl.Series) -> Any:
        """CSR [texts, size] of how often each gram occurs."""
        rows, codes = self._codes(texts)
        at, known = _place(self.grams, codes)
        return _count_matrix(rows[known], at[known], (texts.len(), self.size))

    def _codes(self, texts: pl.Series) -> tuple[Codes, Codes]:
        rows, points = _points(texts)
        alphabet = np.array([ord(c) for c in self.alphabet], dtype=np.int64)
        at, known = _place(alphabet, points)
        ids = np.where(known, at + 1, 0)
        found_rows, found = [], []
        for length in (3, 4):
            count = max(0, len(ids) - length + 1)
            code = np.zeros(count, np.int64)
            inside = rows[:count] == rows[length - 1 : length - 1 + count]
            for place in range(length):
                part = ids[place : place + count]
                code |= part << (_BITS * place)
                inside &= part > 0
            found_rows.append(rows[:count][inside])
            found.append(code[inside])
        return np.concatenate(found_rows), np.concatenate(found)


def chunks(texts: pl.Series) -> Iterator[pl.Series]:
    """Consecutive parts of about the same number of characters, which bound the memory that counting needs."""
    if not texts.len():
        return
    ends = np.cumsum(texts.str.len_chars().fill_null(0).to_numpy().astype(np.int64) + 8)
    start = 0
    while start < texts.len():
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _CHUNK_CHARACTERS, side="right")))
        yield texts.slice(start, stop - start)
        start = stop


def _tokens(texts: pl.Series) -> tuple[Codes, pl.Series]:
    lists = texts.fill_null("").str.to_lowercase().str.extract_all(_WORD)
    length = lists.list.len().to_numpy().astype(np.int64)
    tokens = lists.filter(lists.list.len() > 0).explode()
    return np.repeat(np.arange(texts.len()), length), tokens.rename("word")


def _points(texts: pl.Series) -> tuple[Codes, Codes]:
    """Row and code point of every character."""
    padded = [f" {text} " for text in texts.fill_null("").str.to_lowercase().str.replace_all(r"\s+", " ").to_list()]
    rows = np.repeat(np.arange(len(padded)), [len(text) for text in padded])
    return rows, np.frombuffer("".join(padded).encode("utf-32-le"), np.uint32).astype(np.int64)


def _document_counts(rows: Codes, codes: Codes) -> tuple[Codes, Codes]:
    """Codes, sorted, and the number of rows each occurs in."""
    unique, inverse = np.unique(codes, return_inverse=True)
    both = np.unique(rows * max(1, len(unique)) + inverse)
    return unique, np.bincount(both % max(1, len(unique)), minlength=len(unique)).astype(np.int64)


def _frequent(parts: list[tuple[Codes, Codes]], least: int, limit: float, most: int) -> Codes:
    codes, inverse = np.unique(np.concatenate([codes for codes, _ in parts]), return_inverse=True)
    number = np.bincount(inverse, weights=np.concatenate([count for _, count in parts]), minlength=len(codes))
    kept = (number >= least) & (number <= limit)
    codes, number = codes[kept], number[kept]
    order = np.lexsort((codes, -number))[:most]
    return np.sort(codes[order])


def _place(known: Codes, codes: Codes) -> tuple[Codes, npt.NDArray[np.bool_]]:
    """The position of each code in the sorted ``known``, and whether it is there."""
    if not len(known):
        return np.zeros(len(codes), np.int64), np.zeros(len(codes), np.bool_)
    at = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    return at, known[at] == codes


def _count_matrix(rows: Codes, columns: Codes, shape: tuple[int, int]) -> Any:
    data = np.ones(len(rows), np.float32)
    return sp.csr_array(sp.coo_array((data, (rows.astype(np.int32), columns.astype(np.int32))), shape=shape))
