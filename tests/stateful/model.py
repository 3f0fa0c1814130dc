"""What the ledger promises, as a page of plain Python: the reference that the real thing is held against.

One run of one step that may be executed `BUDGET` times. Nothing here knows of transactions, tasks or
SQL; it only says which states follow from what the outside did and what the operator said.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BUDGET = 3

HAPPENED_AND_TOLD = ("answered",)
NOTHING_HAPPENED = ("refused", "connect_refused")
REFUSED_FOR_GOOD = ("rejected",)
NOT_KNOWN = {"answer_lost": True, "dropped": False, "server_error": False}
"""Outcomes that say nothing, and whether the action was carried out."""
CRASHES = {"c1_after_t0": None, "c3_after_t1": False, "c5_answer_read": True}
"""Where the process may die: None if nothing was dispatched, else whether the action was carried out."""


@dataclass(slots=True)
class RunModel:
    """state: as of the instance. receipts: states of its attempts. n_applied: how often it happened."""

    state: str = "new"
    is_blocked: bool = False
    receipts: list[str] = field(default_factory=list)
    n_applied: int = 0
    n_used: int = 0
    truth: bool = False
    """Whether the unknown attempt was carried out."""

    def execute(self, words: list[str]) -> list[str]:
        """The run works until it stops, the outside doing one word per execution; returns the words used."""
        used: list[str] = []
        while self.state in ("scheduled", "crashed"):
            word = words[len(used)]
            used.append(word)
            if self.state == "scheduled" or self.receipts[-1] != "prepared":
                self.n_used += 1
            if not self.receipts or self.receipts[-1] != "prepared":
                self.receipts.append("prepared")
            self._outcome(word)
        return used

    def _outcome(self, word: str) -> None:
        if word in HAPPENED_AND_TOLD:
            self.receipts[-1], self.state, self.n_applied = "committed", "completed", self.n_applied + 1
        elif word in NOT_KNOWN:
            self._unknown(happened=NOT_KNOWN[word])
        elif word in REFUSED_FOR_GOOD:
            self.receipts[-1], self.state = "abandoned", "failed"
        else:
            assert word in NOTHING_HAPPENED
            self.receipts[-1] = "abandoned"
            self.state = "scheduled" if self.n_used < BUDGET else "failed"

    def crash(self, point: str) -> None:
        """The process dies while the step is executed, and the next start settles what it finds."""
        happened = CRASHES[point]
        if not self.receipts or self.receipts[-1] != "prepared":
            self.receipts.append("prepared")
        self.n_used += 1
        if happened is None:
            self.state = "crashed"
        else:
            self._unknown(happened=happened)

    def _unknown(self, *, happened: bool) -> None:
        self.receipts[-1], self.state, self.is_blocked, self.truth = "unknown", "failed", True, happened
        self.n_applied += happened

    def resolve(self, then: str) -> None:
        """The operator says what is true of the unknown attempt."""
        self.is_blocked = False
        if self.truth:
            self.receipts[-1] = "committed"
            self.state = "failed" if then == "stay" else "completed"
            return
        self.receipts[-1] = "abandoned"
        if then == "retry" or (then == "resume" and self.n_used < BUDGET):
            self.state = "scheduled"
        else:
            self.state = "failed"

    def retry(self) -> bool:
        """An operator's retry: a fresh budget; False if it is refused."""
        if self.state != "failed" or self.is_blocked:
            return False
        self.n_used = 0
        self.state = "completed" if "committed" in self.receipts else "scheduled"
        return True
