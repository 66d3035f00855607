"""The format of a text file, detected from its content: character encoding, separator, quotes, header."""

from __future__ import annotations

import codecs
import csv
import gzip
import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from sobgnn.tables.columns.names import distinct_names, label_names, listed

BLOCK_BYTES = 4 * 2**20
_SAMPLE_CHARACTERS = 2**16
_SAMPLE_RECORDS = 200
_LONGEST_LINE = 64 * 2**20
_SEPARATORS = (",", ";", "\t", "|")
# How ZIP archives begin, .xlsx files among them, and older Excel files.
_PACKED = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
# ASCII bytes, runs of other bytes, and the least number of other bytes that identify an alphabet.
_ASCII, _HIGH_ROW, _FEWEST_HIGH = re.compile(rb"[\x00-\x7f]+"), re.compile(rb"[\x80-\xff]{3,}"), 20
# Bytes that are not UTF-8, as Python keeps them in text, and the characters that Windows-1252 has for them.
_INVALID = re.compile("[\udc80-\udcff]")
_MENDED = {0xDC00 + byte: bytes([byte]).decode("cp1252", "replace") for byte in range(0x80, 0x100)}
_EMPTY = "{} is empty. Its first line must name the columns."
_SPOKEN = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}


@dataclass(frozen=True)
class Layout:
    """How a file writes its table."""

    columns: tuple[str, ...]  # distinct names
    notes: list[str] = field(default_factory=list)  # what users may not expect
    has_header: bool = True  # whether the file names its columns
    repeats: dict[str, str] = field(default_factory=dict)  # the original names of columns that repeat one
    skip: int = 0  # records before the first row: the header, and titles above it
    separator: str = ","  # between cells
    quote: str = '"'  # around cells that contain separators
    escape: str | None = None  # before a quote inside a cell, if quotes are not doubled
    encoding: str = "utf-8"  # Python's name of the codec


def open_bytes(path: Path) -> IO[bytes]:
    """The file's bytes, decompressed if its name ends in .gz."""
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else open(path, "rb")  # type: ignore[return-value]


def find_encoding(path: Path, named: str | None = None) -> tuple[str, str | None]:
    """Python's name for the file's character encoding, and a sentence about it unless it is plain UTF-8.

    ``named`` is the encoding given by the user. Otherwise a byte order mark decides; without one, zero bytes at every
    second position mean UTF-16. A file with at least as many characters of several UTF-8 bytes as invalid bytes is
    UTF-8, and :func:`text_blocks` mends the others; Windows-1252 text hardly ever forms such characters, so a file with
    fewer is Windows-1252. Raises if it cannot be: it has bytes that Windows-1252 does not define, or most non-ASCII
    bytes are in runs of three or more, as in other alphabets.
    """
    if named is not None:
        return _named_encoding(path, named), f"Read as {named}, as --encoding says."
    with open_bytes(path) as file:
        start = file.read(4096)
        if start.startswith(_PACKED):
            raise ValueError(
                f"{path.name} is not text, but a spreadsheet or an archive. Name an Excel file .xlsx, or unpack it."
            )
        if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return "utf-16", "Read as UTF-16."
        even, odd = start[0::2].count(0), start[1::2].count(0)
        if len(start) >= 8 and max(even, odd) > 0.4 * len(start[0::2]) and min(even, odd) < 0.1 * len(start[0::2]):
            return ("utf-16-be" if even > odd else "utf-16-le"), "Read as UTF-16 without a byte order mark."
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        bad = multiple = undefined = high = joined = line = first = 0
        block, last = start + file.read(BLOCK_BYTES), False
        while not last:
            last = not block
            text = decoder.decode(block, final=last)
            wrong = 0 if text.isascii() else len(_INVALID.findall(text))
            if wrong and not bad:
                first = line + text.count("\n", 0, _INVALID.search(text).start()) + 1  # type: ignore[union-attr]
            bad += wrong
            if not block.isascii():
                multiple += len(text) - len(text.encode("ascii", "ignore")) - wrong
                undefined += sum(block.count(bytes([b])) for b in (0x81, 0x8D, 0x8F, 0x90, 0x9D))
                high += len(_ASCII.sub(b"", block))
                joined += sum(map(len, _HIGH_ROW.findall(block)))
            line += text.count("\n")
            block = file.read(BLOCK_BYTES)
    marked = start.startswith(codecs.BOM_UTF8)
    name = "utf-8-sig" if marked else "utf-8"
    if not bad:
        return name, "Read as UTF-8 with a byte order mark." if marked else None
    if marked or multiple >= bad:
        which = "1 byte that is not," if bad == 1 else f"{bad:,} bytes that are not,"
        return name, f"Read as UTF-8, but {which} as Latin-1 (Windows-1252): the first is in line {first:,}."
    if undefined or (high >= _FEWEST_HIGH and 2 * joined > high):
        raise ValueError(
            f"{path.name} is neither UTF-8 nor Latin-1 (Windows-1252). Name its encoding with --encoding, such as "
            "shift_jis, gbk, big5, euc_kr, cp1251 or cp850, or save it as UTF-8."
        )
    return "cp1252", "Read as Latin-1 (Windows-1252)."


def _named_encoding(path: Path, name: str) -> str:
    try:
        "".encode(name)
        codecs.getincrementaldecoder(name)()
    except (LookupError, TypeError, ValueError):
        raise ValueError(f"--encoding must be a codec of Python, such as shift_jis, but got {name!r}.") from None
    with open_bytes(path) as file:
        marked = file.read(3) == codecs.BOM_UTF8
    return "utf-8-sig" if marked and codecs.lookup(name).name == "utf-8" else name


def text_blocks(path: Path, encoding: str) -> Iterator[str]:
    r"""The file's text in whole lines, a few million characters at a time; line ends are \n.

    Bytes of a UTF-8 file that are not UTF-8 are read as Windows-1252, one by one.
    """
    unicode = codecs.lookup(encoding).name.startswith("utf-8")
    decoder = codecs.getincrementaldecoder(encoding)("surrogateescape" if unicode else "replace")
    rest, only_cr = "", None
    with open_bytes(path) as file:
        while True:
            block = file.read(BLOCK_BYTES)
            text = decoder.decode(block, final=not block)
            text = rest + (text.translate(_MENDED) if unicode and _INVALID.search(text) else text)
            held = "\r" if text.endswith("\r") and block else ""
            text = text[: len(text) - len(held)].replace("\r\n", "\n")
            if only_cr is None and ("\r" in text or "\n" in text):
                only_cr = "\n" not in text  # files from old Macs
            if only_cr:
                text = text.replace("\r", "\n")
            cut = text.rfind("\n") + 1 if block else len(text)
            rest = text[cut:] + held
            if len(rest) > _LONGEST_LINE:
                raise ValueError(f"{path.name} has a line of over {_LONGEST_LINE:,} characters. It is not a table.")
            if cut:
                yield text[:cut]
            if not block:
                return


def find_layout(
    path: Path, label: str | None = None, expected: Collection[str] = (), encoding: str | None = None
) -> Layout:
    """Detect the layout from the beginning of the file. The caller expects the columns ``label`` and ``expected``.

    ``encoding`` is the character encoding; ``None`` detects it.
    """
    encoding, note = find_encoding(path, encoding)
    sample = ""
    for block in text_blocks(path, encoding):
        sample += block
        if len(sample) >= _SAMPLE_CHARACTERS:
            sample = sample[: sample.find("\n", _SAMPLE_CHARACTERS) + 1] or sample
            break
    if not sample.strip():
        raise ValueError(_EMPTY.format(path.name))
    if "\0" in sample[: sample.find("\n")]:
        raise ValueError(f"{path.name} is not a CSV file: its first line holds zero bytes.")
    named = re.match(r"\s*sep=(.)\n", sample)
    quote, escape = _quotes(sample)
    separator = named.group(1) if named else _separator(sample, quote, escape)
    notes = [] if note is None else [note]
    if separator != "," and not path.name.lower().removesuffix(".gz").endswith(".tsv"):
        notes.append(f"Cells are separated by {_SPOKEN.get(separator, repr(separator))}.")
    records = _records(sample, separator, quote, escape)
    found = read_header(records, path.name, label, expected, first=1 if named else 0)
    notes += found.notes
    return replace(found, notes=notes, separator=separator, quote=quote, escape=escape, encoding=encoding)


def read_header(
    records: Sequence[Sequence[str]], file: str, label: str | None, expected: Collection[str], first: int = 0
) -> Layout:
    """The columns, by the first records of a table from the one with number ``first`` on.

    Titles and comments above the header are skipped; without a header, columns are numbered.
    """
    filled = [i for i in range(first, len(records)) if any(cell.strip() for cell in records[i])]
    if not filled:
        raise ValueError(_EMPTY.format(file))
    width = Counter(len(records[i]) for i in filled[1:]).most_common(1)[0][0] if len(filled) > 1 else 0
    head = filled[0]
    for i in filled[:10]:  # titles and comments above the header have fewer cells
        if records[i][0].lstrip().startswith("#") and len(records[i]) != width:
            continue
        if len(records[i]) >= max(width, 1) or sum(1 for cell in records[i] if cell.strip()) > 1:
            head = i
            break
    notes = []
    if head != filled[0]:
        notes.append(f"Lines above the header were skipped: {sum(1 for i in filled if i < head)}.")
    cells = [cell.strip() for cell in records[head]]
    names: Sequence[str | None] = cells
    rows = [records[i] for i in filled if i > head]
    header = (bool(expected) and set(expected) <= set(cells)) or _is_header(cells, rows, label)
    if not header:
        names = [None] * max(width, len(cells))
        notes.append(f"The first line holds data, so columns are called column_1 to column_{len(names)}.")
    elif len(cells) >= 2 and width == len(cells) + 1 and cells[-1]:
        if all(not row[-1].strip() for row in rows if len(row) == width):
            names = [*cells, None]  # rows end in a separator, the header does not
        else:
            names = ["row name", *cells]  # as R writes it
            notes.append("Rows have one more cell than the header: the first column is called 'row name'.")
    columns = distinct_names(names)
    repeats = {name: cell for name, cell in zip(columns, names, strict=True) if cell and name != cell}
    if repeats:
        notes.append(f"Repeated column names were numbered: {listed(list(repeats))}.")
    return Layout(tuple(columns), notes, header, repeats, head + header)


def is_number(text: str) -> bool:
    """Whether a cell is a number, with a decimal point or comma."""
    try:
        float(text.strip().replace(",", ".", 1))
    except ValueError:
        return False
    return True


def _quotes(sample: str) -> tuple[str, str | None]:
    if (
        '"' not in sample
        and len(re.findall(r"(?:^|[,;\t|])'[^'\n]*'(?=[,;\t|]|$)", sample, re.M)) > sample.count("\n") / 2
    ):
        return "'", None
    return '"', "\\" if re.search(r'[^\\]\\"[^,;\t|\n]', sample) else None


def _records(sample: str, separator: str, quote: str, escape: str | None) -> list[list[str]]:
    lines = sample.split("\n")
    if not lines[-1]:
        lines.pop()
    found: list[list[str]] = []
    reader = csv.reader((line + "\n" for line in lines), delimiter=separator, quotechar=quote, escapechar=escape)
    try:
        for record in reader:
            found.append(record)
            if len(found) >= _SAMPLE_RECORDS:
                break
    except csv.Error:
        pass
    if len(found) < min(3, len(lines)):  # an unclosed quote has swallowed the lines
        literal = [line.split(separator) for line in lines[:_SAMPLE_RECORDS]]
        return literal if len(found) < len(literal) and sample.count(quote) % 2 else found
    return found


def _separator(sample: str, quote: str, escape: str | None) -> str:
    best, score = None, (0.0, 0)
    for sign in _SEPARATORS:
        counts = [len(record) for record in _records(sample, sign, quote, escape) if any(c.strip() for c in record)]
        if not counts:
            continue
        common = Counter(counts).most_common()
        mode = max(count for count, number in common if number == common[0][1])
        if mode < 2:
            continue
        share = counts.count(mode) / len(counts) * (1.0 if counts[0] in (mode, mode - 1) and counts[0] > 1 else 0.5)
        if (round(share, 2), mode) > score:
            best, score = sign, (round(share, 2), mode)
    if best is not None and score[0] >= 0.5:
        return best
    line = next(line for line in sample.split("\n") if line.strip())
    return max(_SEPARATORS, key=line.count)


def _is_header(first: list[str], rows: Sequence[Sequence[str]], label: str | None) -> bool:
    """Whether the first record names columns: it does unless it is as numeric as the records below it."""
    if label_names(first) or (label is not None and label in first) or not rows:
        return True
    columns = [[row[i].strip() for row in rows if i < len(row) and row[i].strip()] for i in range(len(first))]
    numeric = [i for i, cells in enumerate(columns) if cells and all(is_number(cell) for cell in cells)]
    # Categories: a column's name is not among its own values, unless the header itself is repeated.
    stripped = ([cell.strip() for cell in row] for row in rows)
    others = [row for row in stripped if row != first]
    recurs = all(any(row[i : i + 1] == [cell] for row in others) for i, cell in enumerate(first))
    if not numeric:
        return len(first) < 2 or not recurs
    if not all(is_number(first[i]) for i in numeric):
        return True
    whole = [int(first[i]) for i in numeric if re.fullmatch(r"\d{1,9}", first[i])]
    if len(whole) < len(numeric) or len(whole) < 3:
        return False
    # Numbers that count columns, or years, are names too.
    counting = all(b - a == 1 for a, b in itertools.pairwise(whole))
    return counting and (whole[0] in (0, 1) or 1800 < whole[0] < 2100)
