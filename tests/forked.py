"""Processes that are forked from one in which all is imported already, by multiprocessing."""

import tempfile
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess


def forking(preload: str) -> ForkServerContext:
    """What makes them, once this module is imported there."""
    context = get_context("forkserver")
    context.set_forkserver_preload([preload])
    return context


def start(process: BaseProcess) -> None:
    """Start it.

    The address of a socket has 107 bytes at most, and multiprocessing has its own in the folder for temporary files,
    which may have a longer name.
    """
    before, tempfile.tempdir = tempfile.tempdir, "/tmp"
    try:
        process.start()
    finally:
        tempfile.tempdir = before
