"""One connection to the page's server; silent connections are closed."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

# Seconds for a request's head to arrive.
HEAD_SECONDS = 20.0
# Maximum number of connections, below the limit of open files per process; for one more, the oldest idle one is closed.
MOST = 200


class Connection(H11Protocol):
    """Uvicorn's connection, with a time limit for idle ones.

    Browsers open connections in advance and leave them idle, and a page of another site can make them do so. So idle
    connections must neither count against those in use nor stay open.
    """

    _late: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Open, and close idle connections if there are too many."""
        super().connection_made(transport)
        self._began = self.loop.time()
        self._watch()
        others = [one for one in self.connections if isinstance(one, Connection) and one.idle and one is not self]
        # Not only the oldest: many may come before it is gone. Abort, since closing would wait for clients that do not
        # read.
        for one in sorted(others, key=Connection._worth)[: max(0, len(self.connections) - MOST)]:
            one.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read data; a head that arrives byte by byte gets no more time than one that arrives at once."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        self._unwatch()

    def _worth(self) -> tuple[bool, float]:
        """Sort key, larger is kept longer: connections with an unsent answer, then those opened later."""
        return self.transport.get_write_buffer_size() > 0, self._began

    def _watch(self) -> None:
        if not self.idle:
            self._unwatch()
        elif self._late is None and not self.transport.is_closing():
            self._late = self.loop.call_later(HEAD_SECONDS, self._end)

    def _unwatch(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _end(self) -> None:
        self._late = None
        if self.idle:
            self.transport.close()
