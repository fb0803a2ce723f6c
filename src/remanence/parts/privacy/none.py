"""No protection: uploads leave as they are."""

from remanence.core.context import Context
from remanence.core.message import Message
from remanence.core.parts import Privacy
from remanence.registry import options, parts


@parts["privacy"].register("none")
@options
class Open(Privacy):
    def protect(self, upload: Message, ctx: Context) -> Message:
        return upload
