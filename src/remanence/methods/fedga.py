"""FedGA: calibrated targets, so that classes which are rare or missing in a batch are not pushed down.

Xiao, Zuo, Wang, "FedGA: Federated Learning with Gradient Alignment for Error Asymmetry Mitigation", AAAI 2025,
arXiv 2412.16582. Changes `loss`. As the authors' published code defines it, whose targets do not sum to 1, so that
its gradient is not the one the calibration is meant to give; `variant="aligned"` gives that one. The clipping of
gradients in that code is `train.clip`; its uniform average is `merge = "uniform"`.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from remanence.method import Batch, Context, Field, Method, Network, State, methods, options


@methods.register("fedga")
@options
class FedGA(Method):
    """Cross entropy with targets that are scaled by the classes' counts in the batch."""

    variant: Literal["code", "aligned"] = Field("code", description="aligned: the gradient is p - t")

    def stacks(self) -> bool:
        return False

    def loss(self, net: Network, batch: Batch, dev: State, ctx: Context) -> Tensor:
        z = net(batch.x)
        log_p = F.log_softmax(z, 1)
        p = log_p.detach().exp()
        t = targets(p, batch.y)
        if self.variant == "code":
            return -(t * log_p).sum(1)
        return (z * (p - t)).sum(1)  # its gradient by z is p - t


def targets(p: Tensor, y: Tensor) -> Tensor:
    """t_j = 1[j = y] + p_j (1 - n_j / n_y), n being the counts of the batch."""
    counts = torch.bincount(y, minlength=p.shape[1]).to(p.dtype)
    t = p * (1 - counts / counts[y].unsqueeze(1))
    return t.scatter_(1, y.unsqueeze(1), 1.0)
