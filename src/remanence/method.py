"""What a method's file needs, in one import."""

from pydantic import Field

from remanence.core.context import Context
from remanence.core.message import Message, Refused
from remanence.core.method import Merged, Method, Network
from remanence.core.state import State
from remanence.core.vector import FlatModel
from remanence.data.samples import Batch, Samples
from remanence.registry import methods, options

__all__ = [
    "Batch",
    "Context",
    "Field",
    "FlatModel",
    "Merged",
    "Message",
    "Method",
    "Network",
    "Refused",
    "Samples",
    "State",
    "methods",
    "options",
]
