"""Refusals of a server, counted by reason and reported once for each peer."""

import threading
from collections import Counter
from collections.abc import Callable
from typing import final

#: Unauthenticated peers choose addresses and texts, so the memory for these must be bounded.
MOST_PEERS = 1000
MOST_REASONS = 100


@final
class Refusals:
    """Record of refusals in bounded memory. `add` is thread-safe."""

    def __init__(self, on_refusal: Callable[[str], None] | None) -> None:
        self.counts: Counter[str] = Counter()
        self._on_refusal = on_refusal
        self._lock = threading.Lock()
        self._peers: set[str] = set()
        self._untold: list[str] = []

    def add(self, peer: str, reason: str) -> None:
        """Count a refusal; the first one of each peer is reported later."""
        with self._lock:
            full = len(self.counts) >= MOST_REASONS and reason not in self.counts
            self.counts["another reason" if full else reason] += 1
            if peer not in self._peers and len(self._peers) < MOST_PEERS:
                self._peers.add(peer)
                self._untold.append(f"refused {peer}: {reason}")

    def tell(self) -> None:
        """Call `on_refusal`, in this thread, with refusals that were not reported yet."""
        if not self._untold:
            return
        with self._lock:
            untold, self._untold = self._untold, []
        if self._on_refusal is not None:
            for sentence in untold:
                self._on_refusal(sentence)
