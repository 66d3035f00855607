"""From DATA to a page that can be opened: folder, server and shutdown."""

from __future__ import annotations

import contextlib
import io
import secrets
import socket
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import NoneType
from typing import Any

import uvicorn

from sobgnn._system.files import atomic_file
from sobgnn.app.labeling.app import Labeling, application
from sobgnn.app.labeling.model import Model
from sobgnn.app.labeling.rows import check_new_label, open_source
from sobgnn.app.labeling.security import Guard, Idle
from sobgnn.app.labeling.store import STORE, Store
from sobgnn.app.labeling.trainer import Trainer
from sobgnn.tables import file_stem, is_file_name
from sobgnn.tables.conversion import as_frame
from sobgnn.tables.model_folder import ModelRecord, check_same
from sobgnn.tables.models import FINDERS, same_model

# The copy of a frame that a notebook labels.
COPY = "data.parquet"
# The file that the browser opens.
OPEN = "open-in-browser.html"
# What a finished run holds.
RUN = ("table.json", "predictions.csv", "report.html", "model")
# The pages that :func:`label` has opened, by folder, with their arguments.
_shown: dict[Path, tuple[Page, tuple[str, str | None]]] = {}
_REDIRECT = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>Label</title>
<a href="{url}">Label</a>
"""
# What a store's ``meta`` says of DATA, as JSON.
META: dict[str, tuple[type, ...]] = {
    "label": (str, NoneType), "identity": (str, NoneType), "drop": (list,), "reading": (dict,), "models": (dict,),
}  # fmt: skip


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
        self.folder = labeling.store.folder
        self.url = f"http://127.0.0.1:{port}/{token}/"
        self._listening = listening
        idle = Idle()
        config = uvicorn.Config(
            Guard(application(labeling), token, port, framed),
            log_level="warning",
            access_log=False,  # it would log the token
            server_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="off",
            http="h11",
            callback_notify=idle,
            timeout_notify=0,  # that is, every second
            timeout_graceful_shutdown=2,
        )
        self._server = idle.server = uvicorn.Server(config)
        labeling.ending = lambda: self._server.should_exit
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
        store = self.labeling.store
        return [store.classes.get(code) for code in store.codes.tolist()]

    def finish(self, seconds: float = 3600) -> Path | None:
        """Fit with all labels and write the run into the folder; ``None`` if that failed (see ``problem``)."""
        self.labeling.model.finish()
        return self.folder if self.labeling.model.wait_finished(seconds) else None

    @contextlib.contextmanager
    def in_browser(self) -> Iterator[None]:
        """Open the browser, for as long as the block lasts.

        The browser gets a file that redirects to the page and that only this account can read: other accounts can see
        the browser's command line, and the address contains the token. The file is in the run folder, since some
        browsers cannot read the system's folder of temporary files.
        """
        file = self.folder.absolute() / OPEN
        try:
            with contextlib.suppress(OSError):  # a full disk: the address is printed too
                file.unlink(missing_ok=True)  # of a process that was killed
                file.touch(mode=0o600, exist_ok=False)
                file.write_text(_REDIRECT.format(url=self.url), encoding="utf-8")
                webbrowser.open(file.as_uri())
            yield
        finally:
            with contextlib.suppress(OSError):
                file.unlink()

    @property
    def unwritten(self) -> bool:
        """Whether there are labels of at least two classes that are not in a written run."""
        store = self.labeling.store
        return len(store.used()) >= 2 and self.labeling.model.finished != store.saved

    @property
    def problem(self) -> str:
        """The last error of the model's process."""
        return self.labeling.model.problem

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
    trainer: Callable[..., Any] = Trainer,
    progress: Callable[[str], None] | None = None,
) -> Page:
    """Read DATA, resume its labeling if there is one, and listen at 127.0.0.1.

    Args:
        data: A file, a folder of pictures, or a data set's name.
        label: Column with labels, or the name of the new labels.
        identity: Column with row ids.
        drop: Columns to leave out.
        reading: ``text``, ``text_model`` and ``image_model`` of ``tables.read_table``.
        new: Whether ``label`` names a new column, even if one has a similar name.
        folder: The run folder; default ``runs/<name>-labeled``, which is resumed if it exists and is of the same data.
            Nothing is read from a path that it names.
        port: 0 for any free port.
        settings: Parameters of the final fit.
        framed: Whether a notebook on this machine may show the page.
        trainer: What learns in the model's process; another one for tests.
        progress: Takes a few words about how far a slow model of texts is.
    """
    given = Path(data)
    if (given / STORE).is_file():
        whose = given / COPY if (given / COPY).is_file() else "DATA"
        raise ValueError(f"{data} is a labeling run. Name its data to resume it: sobgnn label {whose} --out {data}.")
    if given.is_dir() and (given / "table.json").is_file():
        raise ValueError(
            f"{data} is a run of `sobgnn fit`, which does not hold its data. Label the data: sobgnn label DATA."
        )
    if folder is not None and folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file. Name a folder for the run.")
    models: dict[str, Any] = {"text_model": "auto", "image_model": None, **(reading or {})}
    others = {name: models.pop(name) for name in list(models) if name not in FINDERS}
    asked: dict[str, Any] = {"label": label, "identity": identity, "drop": list(drop), "reading": others}
    with contextlib.ExitStack() as stack:  # closes what was opened where the rest fails
        folder = folder or default_folder(file_stem(given) if is_file_name(data) else data)
        store = None
        if (folder / STORE).exists():
            store = Store(folder)
            stack.callback(store.close)
            asked = _as_before(store, asked)
        anew = store is None or any(store.meta.get(name) != asked[name] for name in asked)
        if store is not None and not anew:
            models = _same_models(store, models)
        options = {**asked["reading"], **models}
        source = open_source(data, asked["label"], asked["identity"], asked["drop"], progress=progress, **options)
        if asked["label"] is not None and not new and anew:
            check_new_label(source, asked["label"])
        try:
            _check_own(folder)
            if store is None:
                store = Store(folder)
                stack.callback(store.close)
            listening = _listen(port)
            stack.callback(listening.close)
            used = source.table.encoding.models()
            records = {name: model and asdict(model.record) for name, model in used.items()}
            meta = {"models": records, **asked, "fingerprint": source.fingerprint}
            store.begin(meta, source.table.classes, source.table.codes, anew)
        except OSError as error:
            reason = error.strerror or error
            raise ValueError(
                f"{folder} cannot be written to: {reason}. Mend that, or name another folder with --out."
            ) from None
        stack.pop_all()
    model = Model(source, store, settings or {}, trainer)
    page = Page(Labeling(source, store, model), listening, framed)
    model.start()
    return page


def _as_before(store: Store, asked: dict[str, Any]) -> dict[str, Any]:
    """The options that a folder was labeled with; others would change the features, or turn labels into features.

    A folder without labels takes other options, and starts anew with them.
    """
    if not store.meta:  # killed before it began
        return asked
    whole = all(isinstance(store.meta.get(name, ...), kinds) for name, kinds in META.items())
    if not whole or not all(isinstance(name, str) for name in store.meta["drop"]):
        raise ValueError(f"{store.path} does not say how DATA was read. Name another folder with --out.")
    known = {name: store.meta[name] for name in asked}
    for name, value in {**asked, **asked["reading"]}.items():
        had = {**known, **known["reading"]}.get(name)
        if name == "reading" or not value or value == had:
            continue
        if not store.touched and not any((store.folder / part).exists() for part in RUN):
            return asked
        option = "--id" if name == "identity" else f"--{name.replace('_', '-')}"
        raise ValueError(
            f"{store.folder} was labeled with another {option}: {had or 'none'}. Leave {option} out to resume, or name "
            "another folder with --out."
        )
    return known


def _same_models(store: Store, given: Mapping[str, Any]) -> dict[str, Any]:
    """Where the models are that a folder was labeled with; raises ValueError if one is missing or another is given.

    A folder remembers what models are recognized by, and not their paths: nothing in it is opened by its name. What is
    not given is looked for among the models at hand.
    """
    found: dict[str, Any] = {}
    for name, find in FINDERS.items():
        option, model = f"--{name.replace('_', '-')}", find(None if given[name] == "auto" else given[name])
        if store.meta["models"].get(name) is None:
            if model is not None:
                raise ValueError(f"{store.folder} was begun without a model. Leave {option} out.")
            found[name] = None
            continue
        try:
            record = ModelRecord(**store.meta["models"][name])
            model = model or same_model(record, find)
            check_same(record, model, f"{option} FOLDER")
        except (KeyError, TypeError):
            raise ValueError(f"{store.path} is damaged: it holds no record of a model.") from None
        except ValueError as error:
            raise ValueError(f"{store.folder} cannot be resumed: {error}") from None
        found[name] = None if model is None else model.folder
    return found


def _check_own(folder: Path) -> None:
    """Raise if a folder holds anything but a labeling run that can be resumed, even one that has just begun."""
    held = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if held - {COPY} and not held & {STORE, "labels.csv"}:
        raise ValueError(f"{folder} already exists and holds other files. Name another folder with --out.")


def default_folder(name: str) -> Path:
    """runs/<name>-labeled, of letters that every system takes."""
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".") or "data"
    return Path("runs") / f"{safe}-labeled"


def label(data: Any, column: str | None = None, *, folder: str | Path = "runs/labeled", port: int = 0) -> Page:
    """Show a page to label a DataFrame in, inside a notebook.

    The frame is copied to ``data.parquet`` in the folder and never changed; calling it again with the same frame
    resumes, or returns the page that is still open. ``page.labels()`` returns the labels, ``page.close()`` ends it.

    Args:
        data: A polars or pandas DataFrame, or anything that :func:`open_page` accepts. The model's process is spawned:
            in a script, call this below ``if __name__ == "__main__":``.
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
    if not same and ((folder / STORE).exists() or copy.exists()):
        raise ValueError(f"{folder} holds another table or its labels. Name another folder: sobgnn.label(…, folder=…).")
    _check_own(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(copy) as file:
        file.write(held.getvalue())
    try:
        return _show(str(copy), column, folder, port)
    except BaseException:
        if not same and not (folder / STORE).exists():  # a frame that cannot be read keeps the folder from no other
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
