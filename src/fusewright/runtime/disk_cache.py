"""The on-disk cache of cubins, shared by processes.

The cache is content-addressed: an entry's name is the hash of everything that the cubin depends on, so an
entry is never stale. An entry is one file, written to a temporary name and renamed, so readers see a complete
file or none::

    magic, length of metadata, length of image, sha256 of metadata and image | metadata (JSON) | image

A cubin is code that runs with the user's rights. So the directory must belong to the user, and nobody else
may have write access; otherwise the directory is not used at all. Nothing in an entry is executed or
unpickled. If the disk fails in any way, the caller still gets a compiled cubin.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import stat
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

from fusewright import __version__
from fusewright.core.errors import warn_user
from fusewright.core.forks import renew_in_child
from fusewright.core.options import Options
from fusewright.cuda.nvrtc import Cubin, NvrtcOptions, Resources, compile_cubin, nvrtc_version

# A cubin of a fused kernel takes 5 to 50 KB: room for some 20,000 of them.
DEFAULT_MAX_BYTES = 512 * 1024 * 1024
# Eviction makes this much room at once, so that a full cache is not scanned at every store.
EVICT_TO = 0.9
# Other processes store too: the directory is measured again after this many stores of ours.
STORES_PER_SCAN = 64
# A temporary file this old belongs to a process that died while writing it.
ABANDONED_SECONDS = 3600

_MAGIC = b"FWCUBIN1"
_HEADER = struct.Struct("<8sIQ32s")
_SUFFIX = ".cubin"
_TEMPORARY = "tmp-"


@dataclass(frozen=True)
class CacheStats:
    """What this process did with the cache, and what the directory holds now."""

    directory: str | None
    disabled: str | None
    hits: int
    misses: int
    stores: int
    corrupt: int
    evicted: int
    entries: int
    bytes: int


def default_directory() -> Path | None:
    """The platform's per-user cache directory: $XDG_CACHE_HOME/fusewright or ~/.cache/fusewright.

    None: neither is known, as for a user without an entry or HOME in a container.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "fusewright"
    try:
        return Path.home() / ".cache" / "fusewright"
    except RuntimeError:
        return None


def open_cache(options: Options) -> DiskCache:
    """The cache that the options request; one that stores nothing if `nvrtc_caching` is disabled."""
    if options.disabled("nvrtc_caching"):
        return DiskCache(None)
    return DiskCache(Path(options.cache_dir) if options.cache_dir else default_directory())


def cubin_key(source: str, options: NvrtcOptions, names: tuple[str, ...] = ()) -> str:
    """Hash of all that the cubin depends on: text, options with the architecture, names, versions of
    NVRTC and Fusewright.

    The name in a generated text stands for the segment, its params and the sources of the generator.
    """
    parts = [source, astuple(options), names, nvrtc_version(), __version__]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class DiskCache:
    """Cubins by key, in one directory. Several threads and processes may use it.

    Args:
        directory: created private if it does not exist; None: store nothing.
        max_bytes: above this size, the least recently used entries are evicted.
    """

    def __init__(self, directory: Path | None, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        renew_in_child(self)
        self._counts = dict.fromkeys(("hits", "misses", "stores", "corrupt", "evicted"), 0)
        self._size_estimate = 0
        self._stores_until_scan = 0
        self._writable = True
        self.directory = directory
        self.disabled = "no directory" if directory is None else _prepare(directory)
        if self.disabled is not None:
            self.directory = None

    def renew(self) -> None:
        """Makes the lock anew, in a child of `fork`."""
        self._lock = threading.Lock()

    def compile(self, source: str, options: NvrtcOptions, names: tuple[str, ...] = ()) -> Cubin:
        """The cubin of this text, from the cache or from NVRTC. Arguments and errors: `compile_cubin`."""
        if self.directory is None:
            return compile_cubin(source, options, names)
        key = cubin_key(source, options, names)
        cubin = self.load(key)
        if cubin is None:
            cubin = compile_cubin(source, options, names)
            self.store(key, cubin)
        return cubin

    def load(self, key: str) -> Cubin | None:
        """The verified entry, or None. An entry that fails verification is deleted."""
        if self.directory is None:
            return None
        name = key + _SUFFIX
        try:
            with _opened(self.directory) as directory:
                content = _read_entry(name, directory)
                cubin = None if content is None else _decode(content, key)
                if cubin is None:
                    self._count("corrupt")
                    self._count("misses")
                    with contextlib.suppress(OSError):  # gone already, or a read-only directory
                        os.unlink(name, dir_fd=directory)
                    return None
                with contextlib.suppress(OSError):  # a read-only directory evicts nothing either
                    os.utime(name, dir_fd=directory, follow_symlinks=False)  # of last use, for eviction
        except OSError:
            self._count("misses")
            return None
        self._count("hits")
        return cubin

    def store(self, key: str, cubin: Cubin) -> None:
        """Write the entry. A disk that refuses (read-only, full) ends storing for this process, silently."""
        if self.directory is None or not self._writable:
            return
        content = _encode(key, cubin)
        try:
            with _opened(self.directory) as directory:
                _write_entry(key + _SUFFIX, content, directory)
        except OSError:
            self._writable = False
            return
        self._count("stores")
        self._limit_size(len(content))

    def stats(self) -> CacheStats:
        sizes = [size for _, size, _ in self._entries()]
        return CacheStats(
            directory=str(self.directory) if self.directory is not None else None,
            disabled=self.disabled,
            entries=len(sizes),
            bytes=sum(sizes),
            **self._counts,
        )

    def clear(self) -> None:
        """Delete all entries."""
        for _, _, path in self._entries():
            _remove(path)
        with self._lock:
            self._size_estimate = 0

    def _count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """(time of last use, bytes, path) of each entry; other processes may delete one meanwhile."""
        if self.directory is None:
            return
        try:
            found = list(os.scandir(self.directory))
        except OSError:
            return
        for item in found:
            try:
                facts = item.stat(follow_symlinks=False)
            except OSError:
                continue
            if item.name.endswith(_SUFFIX):
                yield facts.st_mtime, facts.st_size, Path(item.path)
            elif item.name.startswith(_TEMPORARY) and time.time() - facts.st_mtime > ABANDONED_SECONDS:
                _remove(Path(item.path))

    def _limit_size(self, added: int) -> None:
        """Count a store, and delete the entries used longest ago if there is no more room."""
        with self._lock:
            self._size_estimate += added
            self._stores_until_scan -= 1
            if self._stores_until_scan > 0 and self._size_estimate <= self.max_bytes:
                return
            entries = sorted(self._entries())
            total = sum(size for _, size, _ in entries)
            if total > self.max_bytes:
                for _, size, path in entries:
                    if total <= self.max_bytes * EVICT_TO:
                        break
                    _remove(path)
                    total -= size
                    self._counts["evicted"] += 1
            self._size_estimate = total
            self._stores_until_scan = STORES_PER_SCAN


def _prepare(directory: Path) -> str | None:
    """Create the directory if need be; why it cannot be used, or None. An unsafe one is warned of."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = directory.stat()
    except OSError as error:
        return f"{directory} cannot be created: {error.strerror}"
    problem = "is no directory" if not stat.S_ISDIR(facts.st_mode) else _untrusted(facts)
    if problem is None:
        return None
    reason = f"{directory} {problem}"
    warn_user(f"kernels are not cached on disk: {reason}", RuntimeWarning)
    return reason


def _untrusted(facts: os.stat_result) -> str | None:
    """Why a file or directory may hold what another user wrote; None if it may not."""
    if facts.st_uid != os.getuid():
        return "belongs to another user"
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "can be written by other users (chmod go-w it, or set FUSEWRIGHT_CACHE_DIR)"
    return None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """The directory as a descriptor. What is opened relative to it is in the directory that was checked.

    Raises:
        OSError: it is not there, is no directory, or is one that others may have written into by now.
    """
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        problem = _untrusted(os.fstat(directory))
        if problem is not None:
            raise PermissionError(f"{path} {problem}")
        yield directory
    finally:
        os.close(directory)


def _read_entry(name: str, directory: int) -> bytes | None:
    """The content of an entry; None if it is no plain file that this user alone may write.

    Raises:
        OSError: there is none.
    """
    try:
        # Not blocking, for a named pipe would wait for its writer.
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.ELOOP:  # a symbolic link
            return None
        raise
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode) or _untrusted(facts) is not None:
            return None
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(handle)


def _write_entry(name: str, content: bytes, directory: int) -> None:
    """Writes a file of mode 0600 under another name, then gives it its own: readers see all of it or none.

    Raises:
        OSError: the disk refuses; no file is left.
    """
    temporary = f"{_TEMPORARY}{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(temporary, flags, 0o600, dir_fd=directory)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # gone already, or a read-only directory
        path.unlink()


def _encode(key: str, cubin: Cubin) -> bytes:
    metadata = {
        "key": key,
        "arch": cubin.arch,
        "log": cubin.log,
        "resources": {name: asdict(resources) for name, resources in cubin.resources.items()},
        "lowered_names": dict(cubin.lowered_names),
        "compile_seconds": cubin.compile_seconds,
    }
    text = json.dumps(metadata).encode()
    digest = hashlib.sha256(text + cubin.image).digest()
    return _HEADER.pack(_MAGIC, len(text), len(cubin.image), digest) + text + cubin.image


def _decode(content: bytes, key: str) -> Cubin | None:
    """The cubin of a file's content, or None if anything about it is wrong."""
    if len(content) < _HEADER.size:
        return None
    magic, text_length, image_length, digest = _HEADER.unpack_from(content)
    body = content[_HEADER.size :]
    if magic != _MAGIC or len(body) != text_length + image_length:
        return None
    if hashlib.sha256(body).digest() != digest:
        return None
    try:
        metadata = json.loads(body[:text_length])
        if metadata["key"] != key:
            return None
        return Cubin(
            image=body[text_length:],
            arch=metadata["arch"],
            log=metadata["log"],
            resources={name: Resources(**facts) for name, facts in metadata["resources"].items()},
            lowered_names=metadata["lowered_names"],
            compile_seconds=metadata["compile_seconds"],
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
