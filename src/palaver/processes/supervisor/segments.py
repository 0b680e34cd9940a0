"""Output in segments of equal size: the first one is kept, and of the others the last ones."""

import errno
import fcntl
import os
import sys
import termios

SEGMENT_NAME = "out.%06d"
CHUNK_BYTES = 1 << 16
PIPE_BYTES = 1 << 20


class SegmentWriter:
    """Moves output into files in the current directory."""

    def __init__(self, segment_bytes: int, segments: int) -> None:
        self.size = 0
        """All output so far, including what is no longer kept."""
        self._segment_bytes, self._segments = segment_bytes, segments
        self._file = -1
        self._can_splice = hasattr(os, "splice")

    def take(self, source: int) -> int:
        """Move what can be read, and return how much it was: 0 at the end, -1 if there is nothing now."""
        room = self._open()
        try:
            moved = self._splice(source, room) if self._can_splice else self._copy(source, room)
        except BlockingIOError:
            return -1
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return 0  # nobody has the terminal open any more
        self.size += moved
        return moved

    def _open(self) -> int:
        """Open the segment in which the output goes on; return how much fits into it."""
        place = self.size % self._segment_bytes
        if place == 0 or self._file < 0:
            number = self.size // self._segment_bytes
            if self._file >= 0:
                os.close(self._file)
            try:
                self._file = os.open(SEGMENT_NAME % number, os.O_WRONLY | os.O_CREAT, 0o600)
            except OSError:
                # The directory is gone. The command must not hang, so its output is missing.
                self._file = os.open(os.devnull, os.O_WRONLY)
            self._remove(number - self._segments + 1)
        return self._segment_bytes - place

    def _remove(self, number: int) -> None:
        if number > 0:
            try:
                os.unlink(SEGMENT_NAME % number)
            except OSError:
                pass  # somebody else removed it

    def _splice(self, source: int, room: int) -> int:
        """Move pages instead of copying them. Splicing from an empty pipe would block."""
        waiting = int.from_bytes(fcntl.ioctl(source, termios.FIONREAD, bytes(4)), sys.byteorder)
        if waiting == 0:
            return self._copy(source, room)
        try:
            return os.splice(source, self._file, min(room, waiting))
        except OSError:
            # A terminal, a full disk, or a file system that cannot do it.
            self._can_splice = False
            return self._copy(source, room)

    def _copy(self, source: int, room: int) -> int:
        data = os.read(source, min(room, CHUNK_BYTES))
        try:
            written = os.write(self._file, data)
        except OSError:
            written = 0
        if written < len(data):
            # The disk is full. The command must not hang, so this part of its output is missing.
            os.lseek(self._file, len(data) - written, os.SEEK_CUR)
        return len(data)


def widen_pipe(pipe: int, size: int) -> None:
    if sys.platform == "linux":
        try:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, size)
        except OSError:
            pass  # it stays as small as the system allows
