"""What a server refused: counted by reason, and said once for each peer."""

import threading
from collections import Counter
from collections.abc import Callable
from typing import final

#: Strangers choose addresses and words; what is remembered of them must not grow with them.
MOST_PEERS = 1000
MOST_REASONS = 100


@final
class Refusals:
    """A record in bounded memory. `add` may be called by any thread."""

    def __init__(self, on_refusal: Callable[[str], None] | None) -> None:
        self.counts: Counter[str] = Counter()
        self._on_refusal = on_refusal
        self._lock = threading.Lock()
        self._peers: set[str] = set()
        self._untold: list[str] = []

    def add(self, peer: str, reason: str) -> None:
        """Count a refusal; the peer's first one will be told."""
        with self._lock:
            full = len(self.counts) >= MOST_REASONS and reason not in self.counts
            self.counts["another reason" if full else reason] += 1
            if peer not in self._peers and len(self._peers) < MOST_PEERS:
                self._peers.add(peer)
                self._untold.append(f"refused {peer}: {reason}")

    def tell(self) -> None:
        """Call `on_refusal`, in this thread, with what was not told yet."""
        if not self._untold:
            return
        with self._lock:
            untold, self._untold = self._untold, []
        if self._on_refusal is not None:
            for sentence in untold:
                self._on_refusal(sentence)
