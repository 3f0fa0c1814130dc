"""A disk that loses power: what is durable, what is pending, and which states a cut may leave.

Owns the model of reliability 4c. Per file: the bytes of its last sync and everything after it. Per
directory: the names of its last sync and everything after it. A cut keeps any 512-byte sectors of
the pending writes, in order, and any prefix of the pending changes of a directory. The easy mistake:
letting a file's sync make its name durable; that takes a sync of the directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from tests.power.trace import Name, Operation, SyncBegun, SyncEnded, Truncate, Write

SECTOR_BYTES = 512

Survives = Callable[[Write | Truncate], bool]
"""Says of one sector, or of one new length, whether it reached the disk."""


@dataclass(slots=True)
class _File:
    durable: bytes = b""
    pending: list[Write | Truncate] = field(default_factory=list)
    n_durable: int = 0


@dataclass(slots=True)
class _Directory:
    durable: dict[str, int] = field(default_factory=dict)
    pending: list[Name] = field(default_factory=list)
    n_durable: int = 0


@dataclass(slots=True)
class Disk:
    """Feed it operations; ask it for the states that a cut right now may leave."""

    files: dict[int, _File] = field(default_factory=dict)
    directories: dict[str, _Directory] = field(default_factory=dict)
    _syncs: dict[int, tuple[SyncBegun, int]] = field(default_factory=dict)

    def apply(self, operation: Operation) -> None:
        """One step of the recorded process."""
        match operation:
            case Write() | Truncate():
                self.files[operation.file].pending.append(operation)
            case Name():
                self.directories.setdefault(operation.directory, _Directory()).pending.append(operation)
                if operation.file is not None:
                    self.files.setdefault(operation.file, _File())
            case SyncBegun():
                target = self._target(operation)
                self._syncs[operation.call] = (operation, target.n_durable + len(target.pending))
            case SyncEnded() if operation.call in self._syncs:
                self._make_durable(*self._syncs.pop(operation.call))
            case _:
                pass

    def _target(self, sync: SyncBegun) -> _File | _Directory:
        if sync.file is not None:
            return self.files[sync.file]
        return self.directories.setdefault(sync.directory or "", _Directory())

    def _make_durable(self, sync: SyncBegun, n_covered: int) -> None:
        target = self._target(sync)
        n_new = max(0, n_covered - target.n_durable)
        if isinstance(target, _File):
            target.durable = _written(target.durable, target.pending[:n_new], _everything)
        else:
            target.durable = _named(target.durable, target.pending[:n_new])
        del target.pending[:n_new]
        target.n_durable += n_new

    def nothing_survives(self) -> dict[str, bytes]:
        """Every pending change is lost."""
        return {
            f"{path}/{name}": self.files[file].durable
            for path, directory in self.directories.items()
            for name, file in directory.durable.items()
        }

    def everything_survives(self) -> dict[str, bytes]:
        """Every pending change had reached the disk."""
        return self._state(_everything, None)

    def random_state(self, rng: Random) -> dict[str, bytes]:
        """Some sectors, some prefix of each directory's changes; how many is drawn first."""
        share = rng.choice((0.1, 0.5, 0.9))

        def survives(_: Write | Truncate) -> bool:
            return rng.random() < share

        return self._state(survives, rng)

    def _state(self, survives: Survives, rng: Random | None) -> dict[str, bytes]:
        state: dict[str, bytes] = {}
        for path, directory in self.directories.items():
            n_kept = len(directory.pending) if rng is None else rng.randint(0, len(directory.pending))
            for name, file in _named(directory.durable, directory.pending[:n_kept]).items():
                content = self.files[file]
                state[f"{path}/{name}"] = _written(content.durable, content.pending, survives)
        return state


def _everything(_: Write | Truncate) -> bool:
    return True


def _written(durable: bytes, pending: list[Write | Truncate], survives: Survives) -> bytes:
    content = bytearray(durable)
    for change in pending:
        if isinstance(change, Truncate):
            if survives(change):
                del content[change.size :]
                content.extend(bytes(change.size - len(content)))
        elif survives is _everything:
            _put(content, change.offset, change.data)
        else:
            for start, end in _sectors(change):
                if survives(change):
                    _put(content, start, change.data[start - change.offset : end - change.offset])
    return bytes(content)


def _sectors(write: Write) -> Iterator[tuple[int, int]]:
    """The write cut at the sector boundaries of the file, as (start, end) offsets."""
    end = write.offset + len(write.data)
    start = write.offset
    while start < end:
        stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        yield start, stop
        start = stop


def _put(content: bytearray, offset: int, data: bytes) -> None:
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _named(durable: dict[str, int], pending: list[Name]) -> dict[str, int]:
    names = dict(durable)
    for change in pending:
        if change.old is not None:
            names.pop(change.old, None)
        if change.file is None:
            names.pop(change.name, None)
        else:
            names[change.name] = change.file
    return names
