"""What a method stores and sends, in bytes of tensors: the same on every machine."""

from remanence.core.federation import Federation
from remanence.core.state import size


def state_bytes(federation: Federation) -> dict[str, int]:
    """Server; device between rounds; device in training, without activations; one message down and one up.

    In training: parameters, gradients, moments of the optimiser, what is kept of the message, the device's state,
    and a frozen teacher network.
    """
    method, train = federation.method, federation.plan.task.context.train
    model = federation.w.nbytes
    moments = 2 if train.optimiser == "adam" else int(bool(train.momentum))
    copies = 2 + moments + int(method.teacher)
    return {
        "server": size([federation.w, federation.srv, federation.optimiser]),
        "device_kept": federation.states.largest,
        "device_transient": copies * model + federation.sent["kept"] + federation.states.largest,
        "down": federation.sent["down"],
        "up": federation.sent["up"],
    }
