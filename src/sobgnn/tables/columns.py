"""What all kinds of columns share: blank cells, names, and the contract of an encoded column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import polars as pl

# Cells that hold nothing. A label cell with one of these is an unlabeled row.
BLANKS = ("", "NA", "N/A", "n/a", "NaN", "nan", "NaT", "null", "NULL", "<NA>", "#N/A", "?")
# Share of blank cells from which a flag column marks them.
COMMON_BLANKS = 0.05

Arrays = dict[str, npt.NDArray[Any]]


class Column(Protocol):
    """One fitted column: a polars series to features [rows, width], the same way every time.

    ``encode`` never fails because of a cell's content: cells that do not fit the kind count as blank. Blocks are dense
    float32 or, for one-hot columns, scipy CSR.
    """

    kind: ClassVar[str]

    @property
    def name(self) -> str:
        """As in the table."""
        ...

    def encode(self, series: pl.Series) -> Any:
        """Features float32 [rows, width]."""
        ...

    def feature_names(self) -> list[str]:
        """One name per feature; each begins with the column's name."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a JSON file."""
        ...

    def arrays(self) -> Arrays:
        """Arrays that belong to the column, by name."""
        ...


@dataclass(frozen=True)
class PlainColumn:
    """A fitted column of plain values, without arrays; a dataclass of its fields."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def arrays(self) -> Arrays:
        """None: all values are plain."""
        return {}


def is_text(series: pl.Series) -> bool:
    """Whether the series holds text of any polars kind."""
    import polars as pl

    return series.dtype in (pl.String, pl.Categorical, pl.Enum)


def text_values(series: pl.Series) -> pl.Series:
    """A String series without surrounding spaces, null for blank cells."""
    import polars as pl

    text = series.cast(pl.String, strict=False).str.strip_chars()
    blank = text.is_in(list(BLANKS)).fill_null(False)
    filled: pl.Series = text.zip_with(~blank, pl.Series([None], dtype=pl.String))
    return filled


def empty_rows(frame: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Which rows have only blank cells, [rows]."""
    import polars as pl

    if not frame.width:
        return np.ones(frame.height, dtype=bool)
    kinds = frame.schema.items()
    blank = [
        pl.col(name).is_null()
        if not (kind == pl.String or kind.is_float())
        else (pl.col(name).is_nan() if kind.is_float() else pl.col(name).str.strip_chars().is_in(BLANKS)).fill_null(
            True
        )
        for name, kind in kinds
    ]
    return np.asarray(frame.select(pl.all_horizontal(blank)).to_series().to_numpy())


def clean_names(frame: pl.DataFrame) -> pl.DataFrame:
    """The same table with spaces around column names removed, if names stay distinct."""
    names = [name.strip() for name in frame.columns]
    return frame.rename(dict(zip(frame.columns, names, strict=True))) if len(set(names)) == len(names) else frame


def distinct_names(names: Sequence[Any]) -> list[str]:
    """Column names as text, without surrounding spaces; empty ones are numbered, repeated ones suffixed (a, a_2)."""
    out: list[str] = []
    taken: set[str] = set()
    for number, name in enumerate(names, start=1):
        base = "" if name is None else str(name).strip()
        base = base or f"column_{number}"
        unique, count = base, 2
        while unique in taken:
            unique, count = f"{base}_{count}", count + 1
        taken.add(unique)
        out.append(unique)
    return out


def label_names(columns: Sequence[str]) -> list[str]:
    """Columns that are labels by their name: label, y, class or target, in this order of preference."""
    lower = {name.strip().lower(): name for name in reversed(columns)}
    return [lower[name] for name in ("label", "y", "class", "target") if name in lower]


def shortened(value: object, most: int = 40) -> str:
    """The value's repr, shortened to fit in a line."""
    if isinstance(value, str):
        value = value[: most + 1]
    text = repr(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def listed(names: Sequence[str], most: int = 6) -> str:
    """The first names of a list, and how many more there are."""
    shown = ", ".join(" ".join(shortened(name)[1:-1].split()) for name in names[:most])
    return shown + (f" and {len(names) - most:,} more" if len(names) > most else "")


def counted(count: int, what: str) -> str:
    """A number of things, such as 1 class or 2,000 classes."""
    return f"{count:,} {what}" + ("" if count == 1 else "es" if what.endswith("s") else "s")


def standardized(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Mean and standard deviation of finite values; a deviation of 0, or one due only to rounding, becomes 1."""
    if not values.size:
        return 0.0, 1.0
    mean = float(values.mean())
    deviation = float(values.std())
    return mean, deviation if deviation > 1e-12 * abs(mean) else 1.0


def check_finite(*values: float, scale: float) -> None:
    """Raise unless saved values are finite and the scale, by which features are divided, is positive."""
    if not np.isfinite([*values, scale]).all() or scale <= 0:
        raise ValueError("a value is not finite, or a scale is not positive")
