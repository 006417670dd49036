"""Lockstep trains and serves language models with one forward pass: the model trained is bit for bit the model served.

    import lockstep
    with lockstep.serve() as server:      # a local server on a free port, with the training API
        server.tinker(), server.openai()  # clients of it

    lockstep.publish(tensors, "STORE", "chat")   # weights of any trainer, for servers that follow the channel (needs numpy)

The program itself is lockstep.program(); the command `lockstep` runs it.
"""
from ._program import program, shipped_model, version
from .server import LockstepError, Server, serve

__version__ = version()

__all__ = ["LockstepError", "Server", "program", "publish", "serve", "shipped_model"]


def publish(tensors, store, channel, **options):
    """Publishes weights as a snapshot and points the channel at it; returns the snapshot's id.

    tensors: {name: tensor of torch, numpy or ml_dtypes}. store: a folder. Options and errors: lockstep/_publish.py.
    """
    from ._publish import publish as published  # numpy is needed here alone

    return published(tensors, store, channel, **options)
