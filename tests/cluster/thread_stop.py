"""Stops one thread of another process, as a bug or a bad driver would. The process stays the same otherwise."""

import ctypes
import os
import pathlib

PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207
WAIT_FOR_THREADS = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def thread_id(pid, name):
    """The id of the thread with this name."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            return int(task.name)
    raise LookupError(f"process {pid} has no thread {name}")


def stop_thread(pid, name):
    """Stops the thread until its process ends. Returns its id, for `reap`. The caller's thread must live on."""
    tid = thread_id(pid, name)
    for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
        if _libc.ptrace(request, tid, None, None) != 0:
            raise OSError(ctypes.get_errno(), f"ptrace {request:#x} of thread {tid}")
    os.waitpid(tid, WAIT_FOR_THREADS)
    return tid


def reap(tid):
    """Collects the thread if it has ended: until then, its process stays a zombie."""
    try:
        os.waitpid(tid, WAIT_FOR_THREADS | os.WNOHANG)
    except ChildProcessError:
        pass
