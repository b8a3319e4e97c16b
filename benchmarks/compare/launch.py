"""Runs ``main`` of a module that keeps its own name, by which tasks are known to some libraries' workers."""

import importlib
import sys

if __name__ == "__main__":
    importlib.import_module(sys.argv[1]).main(*sys.argv[2:])
