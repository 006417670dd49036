"""Lockstep trains and serves language models with one forward pass: the model trained is bit for bit the model served.

    import lockstep
    with lockstep.serve() as server:      # a local server on a free port, with the training API
        server.tinker(), server.openai()  # clients of it

The program itself is lockstep.program(); the command `lockstep` runs it.
"""
from ._program import program, shipped_model, version
from .server import LockstepError, Server, serve

__version__ = version()

__all__ = ["LockstepError", "Server", "program", "serve", "shipped_model"]
