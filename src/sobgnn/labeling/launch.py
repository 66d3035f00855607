"""From DATA to a page that can be opened: folder, server and shutdown."""

from __future__ import annotations

import contextlib
import io
import json
import secrets
import shutil
import socket
import tempfile
import threading
import time
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import uvicorn

from sobgnn.labeling.connection import Connection
from sobgnn.labeling.folder import (
    COPY,
    OPEN,
    REDIRECTING,
    SETTINGS,
    absolute,
    as_before,
    check_own,
    default_folder,
    remembered,
    remove_left_over,
    remove_unfinished,
    same_models,
)
from sobgnn.labeling.guard import Guard
from sobgnn.labeling.learner import Learner
from sobgnn.labeling.routes import routes
from sobgnn.labeling.server import Labeling
from sobgnn.labeling.session import JOURNAL, Session
from sobgnn.labeling.source import check_new_label, open_source
from sobgnn.runtime.files import atomic_file, write_text
from sobgnn.tables import file_stem, is_file_name
from sobgnn.tables.conversion import as_frame

# The pages that :func:`label` has opened, by folder, with their arguments.
_shown: dict[Path, tuple[Page, tuple[str, str | None]]] = {}
_REDIRECT = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>Label</title>
<a href="{url}">Label</a>
"""


class Page:
    """A page being served; made by :func:`open_page`.

    Attributes:
        url: Address of the page, with its token: anyone who has it can label.
        folder: The run folder.
    """

    def __init__(self, labeling: Labeling, listening: socket.socket, framed: bool) -> None:
        port = listening.getsockname()[1]
        token = secrets.token_urlsafe(24)
        self.labeling = labeling
        self.folder = labeling.session.folder
        self.url = f"http://127.0.0.1:{port}/{token}/"
        self._listening = listening
        config = uvicorn.Config(
            Guard(routes(labeling), token, port, framed),
            log_level="warning",
            access_log=False,  # it would log the token
            server_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="off",
            http=Connection,
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None
        self._closed = False

    def serve(self) -> None:
        """Serve until Ctrl-C."""
        with contextlib.suppress(KeyboardInterrupt):
            self._server.run(sockets=[self._listening])

    def start(self) -> Page:
        """Serve in the background."""
        self._thread = threading.Thread(target=self._server.run, args=([self._listening],), name="page", daemon=True)
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.01)
        return self

    def labels(self) -> list[str | None]:
        """The label of each row; ``None``: unlabeled."""
        _, classes, labels, _ = self.labeling.session.snapshot()
        names: list[str | None] = [None] * self.labeling.source.rows
        for row, label in labels.items():
            names[row] = classes[label.code]
        return names

    def finish(self, seconds: float = 3600) -> Path | None:
        """Fit with all labels and write the run into the folder; ``None`` if that failed (see ``problem``)."""
        self.labeling.learner.finish()
        return self.folder if self.labeling.learner.wait_finished(seconds) else None

    @contextlib.contextmanager
    def in_browser(self) -> Iterator[None]:
        """Open the browser, for as long as the block lasts.

        The browser gets a file that redirects to the page and that only this account can read: other accounts can see
        the browser's command line, and the address contains the token. The file is in the run folder, since some
        browsers cannot read the system's folder of temporary files.
        """
        with contextlib.ExitStack() as stack:
            remove_left_over(self.folder)
            with contextlib.suppress(OSError):  # a full disk: the address is printed too
                folder = Path(tempfile.mkdtemp(prefix=OPEN, dir=self.folder.absolute()))  # for this account alone
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
                file = folder / REDIRECTING
                file.touch(mode=0o600)
                file.write_text(_REDIRECT.format(url=self.url), encoding="utf-8")
                webbrowser.open(file.as_uri())
            yield

    @property
    def unwritten(self) -> bool:
        """Whether there are labels of at least two classes that are not in a written run."""
        session = self.labeling.session
        written = (self.labeling.learner.finished or {}).get("knows")
        return len(session.used()) >= 2 and written != session.saved

    @property
    def problem(self) -> str:
        """The last error of the model's process."""
        return self.labeling.learner.problem

    def close(self) -> None:
        """Stop serving, end the model's process, write labels.csv. Labels are safe even without this call."""
        if self._closed:
            return
        self._closed = True
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(10)
        self._listening.close()
        self.labeling.close()

    def _repr_html_(self) -> str:
        """A frame with the page, for notebooks on this machine."""
        return (
            f'<iframe src="{self.url}" title="Label" width="100%" height="900" style="border:1px solid #ccc"></iframe>'
        )


def open_page(
    data: str,
    label: str | None = None,
    identity: str | None = None,
    drop: Sequence[str] = (),
    *,
    reading: Mapping[str, Any] | None = None,
    new: bool = False,
    folder: Path | None = None,
    port: int = 0,
    settings: dict[str, Any] | None = None,
    framed: bool = False,
    command: list[str] | None = None,
) -> Page:
    """Read DATA, or resume an earlier labeling run, and listen at 127.0.0.1.

    Args:
        data: A file, a data set's name, or the folder of a labeling run.
        label: Column with labels, or the name of the new labels.
        identity: Column with row ids.
        drop: Columns to leave out.
        reading: ``text``, ``text_model`` and ``image_model`` of ``tables.read_table``.
        new: Whether ``label`` names a new column, even if one has a similar name.
        folder: The run folder; default ``runs/<name>-labeled``, which is resumed if it exists.
        port: 0 for any free port.
        settings: Parameters of the final fit.
        framed: Whether a notebook on this machine may show the page.
        command: What to start instead of the model's process, for tests.
    """
    given = Path(data)
    # Absolute paths, for the model's process and for resuming from another folder.
    reading = {name: absolute(value) for name, value in (reading or {}).items()}
    given_models = {
        name: reading.pop(name, default) for name, default in (("text_model", "auto"), ("image_model", None))
    }
    anew = False
    if (given / SETTINGS).is_file():
        folder = folder or given
        data = remembered(given / SETTINGS)[0]
        label, identity, drop, reading, anew = as_before(given, label, identity, list(drop), reading)
    elif given.is_dir() and (given / "table.json").is_file():
        raise ValueError(
            f"{data} is a run of `sobgnn fit`, which does not hold its data. Label the data: sobgnn label DATA."
        )
    if folder is not None and folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file. Name a folder for the run.")
    folder = folder or default_folder(file_stem(given) if is_file_name(data) else data)
    if folder != given:
        label, identity, drop, reading, anew = as_before(folder, label, identity, list(drop), reading)
    known = {name: reading.pop(name, None) for name in given_models}
    models = same_models(folder, known, given_models) if (folder / SETTINGS).is_file() and not anew else given_models
    source = open_source(data, label, identity, drop, **reading, **models)
    used = source.table.encoding.models()
    reading |= {name: model and model.record.to_json() for name, model in used.items()}
    check_own(folder)
    if label is not None and not new and (anew or not (folder / SETTINGS).exists()):
        check_new_label(source, label)
    asked: dict[str, Any] = {"label": label, "identity": identity, "drop": list(drop), "reading": reading}
    asked["data"] = str(Path(data).absolute()) if is_file_name(data) else data
    opening = {**asked, "fingerprint": source.fingerprint, "settings": settings or {}}
    opening["reading"] = {**reading, **{name: model and str(model.folder.absolute()) for name, model in used.items()}}
    with contextlib.ExitStack() as stack:  # closes what was opened where the rest fails
        listening = _listen(port)
        stack.callback(listening.close)
        try:
            table = source.table
            session = Session(folder, source.rows, source.fingerprint, table.classes, table.codes.tolist(), anew)
            stack.callback(session.close)
            write_text(folder / SETTINGS, json.dumps(asked, indent=1))
            learner = Learner(session, opening, folder / "model.log", command)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ValueError(
                f"{folder} cannot be written to: {reason}. Mend that, or name another folder with --out."
            ) from None
        stack.pop_all()
    remove_unfinished(folder)
    learner.start()
    return Page(Labeling(source, session, learner), listening, framed)


def label(data: Any, column: str | None = None, *, folder: str | Path = "runs/labeled", port: int = 0) -> Page:
    """Show a page to label a DataFrame in, inside a notebook.

    The frame is copied to ``data.parquet`` in the folder and never changed; calling it again with the same frame
    resumes, or returns the page that is still open. ``page.labels()`` returns the labels, ``page.close()`` ends it.

    Args:
        data: A polars or pandas DataFrame, or anything that :func:`open_page` accepts.
        column: Column of labels; blank cells, or a missing column, are to be labeled.
        folder: The run folder.
        port: 0 for any free port.
    """
    if isinstance(data, str | Path):
        return _show(str(data), column, Path(folder), port)
    folder, held = Path(folder), io.BytesIO()
    as_frame(data).write_parquet(held)
    copy = folder / COPY
    same = copy.exists() and copy.read_bytes() == held.getvalue()
    if not same and ((folder / SETTINGS).exists() or copy.exists()):
        raise ValueError(f"{folder} holds another table or its labels. Name another folder: sobgnn.label(…, folder=…).")
    check_own(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(copy) as file:
        file.write(held.getvalue())
    try:
        return _show(str(copy), column, folder, port)
    except BaseException:
        if not same and not (folder / JOURNAL).exists():  # a frame that cannot be read keeps the folder from no other
            copy.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def _show(data: str, column: str | None, folder: Path, port: int) -> Page:
    """The page of a folder that is open in this process, or a new one."""
    place, asked = folder.resolve(), (data, column)
    if place in _shown:
        page, before = _shown[place]
        if before == asked and not page._closed:
            return page
        page.close()
    page = open_page(data, column, folder=folder, port=port, framed=True).start()
    _shown[place] = page, asked
    return page


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if port:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(64)  # a browser that connects before the server is ready waits
    except (OSError, OverflowError):
        listening.close()
        raise ValueError(f"Port {port} of 127.0.0.1 is in use. Name another with --port, or leave it out.") from None
    return listening
