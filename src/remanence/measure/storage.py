"""What a method stores and sends, in bytes of tensors: the same on every machine."""

from remanence.core.federation import Federation
from remanence.core.state import size


def state_bytes(federation: Federation) -> dict[str, int]:
    """Server; device between rounds; device in training, without activations; one message down and one up.

    In training: parameters, gradients, moments of the optimiser, frozen networks, what is kept of the message, the
    device's state, and what it sets up for the round.
    """
    method, context = federation.method, federation.plan.task.context
    train, uses_public = context.train, method.public_data or federation.plan.merge.public_data
    model = federation.w.nbytes
    moments = 2 if train.optimiser == "adam" else int(bool(train.momentum))
    copies = 2 + moments + method.teachers
    public = context.public.stored if context.public is not None and uses_public else None
    return {
        "server": size([federation.w, federation.srv, federation.optimiser, public]),
        "device_kept": federation.states.largest,
        "device_transient": copies * model + federation.sent["held"],
        "down": federation.sent["down"],
        "up": federation.sent["up"],
    }
