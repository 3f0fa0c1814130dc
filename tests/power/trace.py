"""From a system-call trace to the operations on a disk, in order.

Owns the reading of `strace -f -y -xx` and nothing else: which file, which bytes, which sync. Files
are told apart by inode, never by name: a log that was deleted and made again is another file. The
easy mistake: a call that was interrupted by another thread. Its effect may begin when it was entered,
its promise holds only when it returned, so a sync is two operations here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

CALLS = (
    "open,openat,creat,dup,dup2,dup3,close,lseek,write,pwrite64,writev,pwritev,ftruncate,truncate,fallocate,"
    "fsync,fdatasync,sync,syncfs,sync_file_range,rename,renameat,renameat2,unlink,unlinkat,link,linkat,"
    "sendto,sendmsg,mmap"
)
"""What is to be traced."""


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes handed to the kernel; on disk only after the file's next sync."""

    file: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    """A new length, pending like a write."""

    file: int
    size: int


@dataclass(frozen=True, slots=True)
class SyncBegun:
    """A sync was called: what is pending now will be covered by its end."""

    call: int
    file: int | None
    directory: str | None


@dataclass(frozen=True, slots=True)
class SyncEnded:
    """The sync returned: what was pending at its begin is on disk."""

    call: int


@dataclass(frozen=True, slots=True)
class Name:
    """A change of one directory: `name` now means `file`, or nothing if None; a rename drops `old`."""

    directory: str
    name: str
    file: int | None
    old: str | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """Bytes given to a socket: from here on the outside may have seen them.

    stream: one number per connection, also when a descriptor is used again.
    """

    stream: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Said:
    """Bytes on standard output: what the process acknowledged."""

    data: bytes


Operation = Write | Truncate | SyncBegun | SyncEnded | Name | Send | Said


class TraceError(Exception):
    """The trace holds something that this reader must not guess about."""


_LINE = re.compile(r"^(\d+) +(.*)$")
_RESUMED = re.compile(r"^<\.\.\. (\w+) resumed>(.*)$")
_UNFINISHED = " <unfinished ...>"
_CALL = re.compile(r"^(\w+)\((.*)\)\s+= (-?\d+|\?|0x[0-9a-f]+)(.*)$", re.DOTALL)
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
_FD = re.compile(r"(?:(\d+)|AT_FDCWD)(?:<((?:\\x[0-9a-f]{2})*)>)?")


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    arguments: str
    result: int
    begun: int
    ended: int

    def strings(self) -> list[bytes]:
        found = _STRING.findall(self.arguments)
        if any(cut for _, cut in found):
            raise TraceError(f"{self.name} was recorded with a shortened string")
        return [_bytes(text) for text, _ in found]

    def fd(self) -> tuple[int, str]:
        match = _FD.match(self.arguments)
        if match is None:
            raise TraceError(f"{self.name}({self.arguments[:80]}) names no descriptor")
        return int(match[1] or -100), _bytes(match[2] or "").decode()

    def numbers(self) -> list[int]:
        """The integer arguments after the last string or descriptor."""
        rest = re.split(r'["\]>]', self.arguments)[-1]
        return [int(part) for part in rest.split(",") if part.strip().lstrip("-").isdigit()]


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def read(lines: Iterable[str], root: Path) -> list[Operation]:
    """The operations below `root`, the sends and the standard output of one traced process."""
    calls = list(_calls(lines))
    steps = [(call.begun, 0, call) for call in calls] + [(call.ended, 1, call) for call in calls]
    reader = _Reader(str(root))
    operations: list[Operation] = []
    for position, is_end, call in sorted(steps, key=lambda step: step[:2]):
        if call.result >= 0:
            act = reader.end if is_end else reader.begin
            operations.extend(act(call, position))
    return operations


def _calls(lines: Iterable[str]) -> Iterator[_Call]:
    open_calls: dict[str, tuple[int, str]] = {}
    for position, line in enumerate(lines):
        match = _LINE.match(line.rstrip("\n"))
        if match is None:
            raise TraceError(f"not a line of a trace: {line[:80]!r}")
        thread, text = match[1], match[2]
        begun = position
        if text.endswith(_UNFINISHED):
            open_calls[thread] = (position, text.removesuffix(_UNFINISHED))
            continue
        resumed = _RESUMED.match(text)
        if resumed is not None:
            begun, head = open_calls.pop(thread)
            text = head + resumed[2]
        call = _CALL.match(text)
        if call is None:
            if text.startswith(("+++", "---")):
                continue
            raise TraceError(f"not a call: {text[:120]!r}")
        result = -1 if call[3] == "?" else int(call[3], 0)
        yield _Call(call[1], call[2], result, begun, position)


@dataclass(slots=True)
class _Descriptor:
    file: int
    position: int = 0
    is_append: bool = False


@dataclass(slots=True)
class _Reader:
    """The process's view: names to inodes, descriptors to inodes, lengths."""

    root: str
    names: dict[str, int] = field(default_factory=dict)
    descriptors: dict[int, _Descriptor] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    streams: dict[int, int] = field(default_factory=dict)
    n_files: int = 0

    def begin(self, call: _Call, position: int) -> Iterator[Operation]:
        """What a call does at once: data, names, sends."""
        match call.name:
            case "write" | "pwrite64" | "writev" | "pwritev":
                yield from self._write(call)
            case "sendto" | "sendmsg":
                number, _ = call.fd()
                stream = self.streams.setdefault(number, position)
                yield Send(stream, b"".join(call.strings()[:1])[: call.result])
            case "ftruncate":
                number, _ = call.fd()
                if number in self.descriptors:
                    yield self._resize(self.descriptors[number].file, call.numbers()[-1])
            case "fsync" | "fdatasync":
                yield from self._sync(call, position)
            case "rename" | "renameat" | "renameat2":
                yield from self._rename(call)
            case "unlink" | "unlinkat":
                yield from self._unlink(call)
            case "close":
                self.descriptors.pop(call.fd()[0], None)
                self.streams.pop(call.fd()[0], None)
            case "lseek":
                number, _ = call.fd()
                if number in self.descriptors:
                    self.descriptors[number].position = call.result
            case "truncate" | "fallocate" | "sync" | "syncfs" | "sync_file_range" | "link" | "linkat":
                self._refuse(call)
            case _:
                pass

    def end(self, call: _Call, position: int) -> Iterator[Operation]:
        """What is known only when a call returned: the new descriptor, the promise of a sync."""
        match call.name:
            case "open" | "openat" | "creat":
                yield from self._open(call)
            case "fsync" | "fdatasync":
                yield SyncEnded(call.begun)
            case "dup" | "dup2" | "dup3":
                number, _ = call.fd()
                if number in self.descriptors:
                    self.descriptors[call.result] = self.descriptors[number]
            case "mmap":
                self._map(call)
            case _:
                pass

    def _inside(self, path: str) -> str | None:
        full = path if path.startswith("/") else f"{self.root}/{path}"
        return full if full.startswith(self.root + "/") and not full.endswith("-shm") else None

    def _path(self, call: _Call, which: int = 0) -> str | None:
        return self._inside(call.strings()[which].decode())

    def _open(self, call: _Call) -> Iterator[Operation]:
        path = self._path(call)
        self.descriptors.pop(call.result, None)
        if path is None or "O_DIRECTORY" in call.arguments:
            return
        if path not in self.names:
            if "O_CREAT" not in call.arguments:
                return  # a directory, opened to sync it: known by its name from -y
            self.n_files += 1
            self.names[path] = self.n_files
            self.sizes[self.n_files] = 0
            yield Name(*_split(path), self.n_files)
        file = self.names[path]
        self.descriptors[call.result] = _Descriptor(file, is_append="O_APPEND" in call.arguments)
        if "O_TRUNC" in call.arguments and self.sizes[file]:
            yield self._resize(file, 0)

    def _write(self, call: _Call) -> Iterator[Operation]:
        number, _ = call.fd()
        data = b"".join(call.strings())[: call.result]
        descriptor = self.descriptors.get(number)
        if descriptor is None:
            if number == 1:
                yield Said(data)
            return
        if call.name.startswith("p"):
            offset = call.numbers()[-1]
        else:
            offset = self.sizes[descriptor.file] if descriptor.is_append else descriptor.position
            descriptor.position = offset + len(data)
        self.sizes[descriptor.file] = max(self.sizes[descriptor.file], offset + len(data))
        yield Write(descriptor.file, offset, data)

    def _resize(self, file: int, size: int) -> Truncate:
        self.sizes[file] = size
        return Truncate(file, size)

    def _sync(self, call: _Call, position: int) -> Iterator[Operation]:
        number, path = call.fd()
        if number in self.descriptors:
            yield SyncBegun(position, self.descriptors[number].file, None)
        elif path == self.root or self._inside(path) is not None:
            yield SyncBegun(position, None, path)

    def _rename(self, call: _Call) -> Iterator[Operation]:
        old, new = self._path(call, 0), self._path(call, 1)
        if old is None or new is None or old not in self.names:
            return
        if _split(old)[0] != _split(new)[0]:
            raise TraceError(f"{old} was renamed into another directory")
        self.names[new] = self.names.pop(old)
        yield Name(*_split(new), self.names[new], old=_split(old)[1])

    def _unlink(self, call: _Call) -> Iterator[Operation]:
        path = self._path(call)
        if path is not None and self.names.pop(path, None) is not None:
            yield Name(*_split(path), None)

    def _refuse(self, call: _Call) -> None:
        strings = [text.decode(errors="replace") for text in call.strings()]
        touched = call.fd()[0] in self.descriptors if call.arguments[:1].isdigit() else False
        if touched or any(self._inside(text) for text in strings):
            raise TraceError(f"{call.name} is not part of the model")

    def _map(self, call: _Call) -> None:
        match = re.search(r"MAP_SHARED, (\d+)", call.arguments)
        if match and "PROT_WRITE" in call.arguments and int(match[1]) in self.descriptors:
            raise TraceError("a file is written through memory, which a trace cannot see")


def _split(path: str) -> tuple[str, str]:
    directory, _, name = path.rpartition("/")
    return directory, name
