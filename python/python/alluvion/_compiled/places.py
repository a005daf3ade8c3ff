"""Where a compiled module may lie: in folders in which nobody but the user and root can exchange it."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Whoever may write to a file or folder besides its owner.
OTHERS = stat.S_IWGRP | stat.S_IWOTH


def cache(name: str) -> Path:
    """The folder of a door in the user's caches, which may not be there yet."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.cache")
        if not os.path.isabs(base):
            raise FileNotFoundError("this user has no home to keep it in: name a place with XDG_CACHE_HOME")
    return Path(base, "alluvion", name)


def own(folder: Path) -> Path:
    """The real path of a folder in which nobody else can exchange anything, nor the folder itself. What is missing of it is made.

    `PermissionError` names the first folder or link on the way that is neither this user's nor root's, or that others may write to.
    In a folder as `/tmp`, which is root's and where nobody can remove what is another's, the next one has to be the user's.
    """
    user = os.geteuid()
    steps, here, shared, links = [*reversed(folder.parts)], Path("/"), False, 0
    while steps:
        step = here / steps.pop()
        try:
            found = os.lstat(step)
        except FileNotFoundError:
            with suppress(FileExistsError):
                os.mkdir(step, 0o700)
            found = os.lstat(step)
        if found.st_uid not in ((user,) if shared and step.parent == here else (0, user)):
            raise _refused(step)
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > 40:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(folder))
            steps += reversed(Path(os.readlink(step)).parts)
            continue
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(step))
        shared = bool(found.st_mode & OTHERS)
        if shared and not (found.st_mode & stat.S_ISVTX and found.st_uid == 0):
            raise _refused(step)
        here = here.parent if step.name == ".." else step
    if shared:
        raise _refused(here)
    return here


def _refused(step: Path) -> PermissionError:
    return PermissionError(f"{step} belongs to another user, or others may write there: name another place with XDG_CACHE_HOME")


def identity(path: Path) -> tuple[int, int] | None:
    """Which file it is: another build makes another one."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """One build at a time: workers of a cluster start together."""
    import fcntl

    # For the user alone: whoever can open it can lock it for good.
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            # A child that was forked meanwhile has the file too, and a lock ends by itself only when all have closed it.
            fcntl.flock(file, fcntl.LOCK_UN)
    finally:
        os.close(file)


def remove_leftovers(folder: Path) -> None:
    """Removes what builds that were killed have left. No build takes an hour."""
    for each in folder.glob(".building-*"):
        with suppress(OSError):
            if each.lstat().st_mtime < time.time() - 3600:
                shutil.rmtree(each)


__all__ = ["OTHERS", "cache", "identity", "lock", "own", "remove_leftovers"]
