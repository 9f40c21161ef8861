"""Arenas: aligned private memory that lives as long as anything uses it."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from reading_files import resident_pages

from lilliput._core import Arena

HUGE_PAGE = 2 << 20
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def permissions(address: int) -> str:
    """Of the mapping in /proc/self/maps that holds an address."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        extent, allowed = line.split()[:2]
        first, last = (int(end, 16) for end in extent.split("-"))
        if first <= address < last:
            return allowed
    raise AssertionError("not mapped")


@pytest.mark.parametrize("nbytes", [1, 4096, 100_001, HUGE_PAGE, 5_000_001])
def test_zeroed_writable_and_aligned_to_a_huge_page(nbytes: int) -> None:
    arena = Arena(nbytes)
    assert arena.address % HUGE_PAGE == 0
    view = arena.array()
    assert (arena.nbytes, view.shape, view.dtype) == (nbytes, (nbytes,), np.uint8)
    assert view.ctypes.data == arena.address
    assert not view.any()
    view[:] = 7
    assert arena.array().min() == 7


@linux
def test_private_so_that_huge_pages_are_possible() -> None:
    arena = Arena(4 * HUGE_PAGE)
    assert permissions(arena.address).endswith("p")


@linux
def test_first_touch_makes_every_page_resident_and_no_touch_none() -> None:
    nbytes = 6 * HUGE_PAGE + 12345
    untouched, touched = Arena(nbytes), Arena(nbytes, touch=3)
    assert resident_pages(untouched.address, nbytes) == 0
    assert resident_pages(touched.address, nbytes) == -(-nbytes // mmap.PAGESIZE)


@linux
def test_huge_pages_are_used_but_never_required() -> None:
    code = """
import ctypes, sys
if sys.argv[1] == "off":
    assert ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) == 0   # PR_SET_THP_DISABLE
from lilliput._core import Arena
arena = Arena(16 << 20, touch=1)
arena.array()[-1] = 1
inside = False
for line in open("/proc/self/smaps"):
    if "-" in line.split()[0]:
        first, last = (int(x, 16) for x in line.split()[0].split("-"))
        inside = first <= arena.address < last
    elif inside and line.startswith(("AnonHugePages", "THPeligible")):
        print(line.split()[1])
"""

    def huge(mode: str) -> list[int]:
        """Kilobytes on huge pages, and whether the kernel would give some: if it does depends on how scattered its free memory is."""
        done = subprocess.run([sys.executable, "-c", code, mode], check=True, capture_output=True, text=True)
        return [int(number) for number in done.stdout.split()]

    assert huge("off") == [0, 0]
    if "[never]" not in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text():
        assert huge("on")[1] == 1


def test_close_refuses_while_a_view_is_in_use() -> None:
    arena = Arena(1 << 20)
    part = arena.array()[10:20]
    with pytest.raises(BufferError, match="1 views or reads"):
        arena.close()
    part[:] = 3
    del part
    arena.close()
    arena.close()
    for use in (lambda: arena.address, lambda: arena.nbytes, arena.array):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_a_view_keeps_the_memory_after_the_arena_object_is_gone() -> None:
    arena = Arena(1 << 20)
    view = arena.array()[100:200]
    view[:] = 9
    del arena
    assert (view == 9).all()


@linux
def test_memory_goes_with_the_last_user() -> None:
    arena = Arena(1 << 20)
    address = arena.address
    view = arena.array()
    del arena
    assert resident_pages(address, 1 << 20) is not None
    del view
    assert resident_pages(address, 1 << 20) is None


def test_what_cannot_be_had_is_said() -> None:
    with pytest.raises(ValueError, match="nbytes: needed 1 or more"):
        Arena(0)
    with pytest.raises(MemoryError):
        Arena(1 << 62)
    with pytest.raises(MemoryError):
        Arena(2**64 - 1)


@linux
def test_a_forked_child_gets_zeros_not_a_share_of_memory_under_direct_reads() -> None:
    arena = Arena(4096)
    view = arena.array()
    view[:] = 5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what is tried here
        child = os.fork()
    if child == 0:
        os._exit(0 if not view.any() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (view == 5).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_while_other_threads_make_arenas() -> None:
    """The list of arenas must not be locked in the child by a thread that it does not have."""
    program = """if True:
        import os, threading
        from lilliput._core import Arena
        done = False

        def busy():
            while not done:
                Arena(4096)

        others = [threading.Thread(target=busy) for _ in range(3)]
        for other in others:
            other.start()
        codes = set()
        for _ in range(500):
            child = os.fork()
            if child == 0:
                Arena(4096)
                os._exit(0)
            codes.add(os.waitpid(child, 0)[1])
        done = True
        print(codes)
    """
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == "{0}\n"
