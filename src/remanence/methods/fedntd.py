"""FedNTD: the received model is distilled on the not-true classes only.

Lee, Jeong, Shin, Bae, Yun 2022, NeurIPS, arXiv 2106.03097. Changes `loss`; trains beside a frozen copy of the
received model, which answers in evaluation mode.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from remanence.method import Batch, Context, Field, Method, Network, State, methods, options


@methods.register("fedntd")
@options
class FedNTD(Method):
    """Distillation between the logits that are left when the true class is taken out."""

    beta: float = Field(1.0, ge=0, description="strength of the distillation")
    tau: float = Field(1.0, gt=0, description="temperature")

    @property
    def teachers(self) -> int:  # type: ignore[override]
        return 1 if self.beta else 0

    def loss(self, net: Network, batch: Batch, dev: State, ctx: Context) -> Tensor:
        if not self.beta:
            return super().loss(net, batch, dev, ctx)
        z = net(batch.x)
        cross_entropy = F.cross_entropy(z, batch.y, reduction="none")
        return cross_entropy + self.beta * self.tau**2 * self.term(z, self.taught(z, batch, ctx), batch.y, ctx)

    @torch.no_grad()
    def taught(self, z: Tensor, batch: Batch, ctx: Context) -> Tensor:
        """z_g, the logits of the received model."""
        return ctx.teachers[0](batch.x)

    def term(self, z: Tensor, received: Tensor, y: Tensor, ctx: Context) -> Tensor:
        """KL( q_g || q ) over the classes other than y."""
        others = not_true(y, z.shape[1])
        log_q = F.log_softmax(z.gather(1, others) / self.tau, 1)
        log_q_g = F.log_softmax(received.gather(1, others) / self.tau, 1)
        return F.kl_div(log_q, log_q_g, reduction="none", log_target=True).sum(1)


def not_true(y: Tensor, classes: int) -> Tensor:
    """For every sample the classes other than its own, in order."""
    others = torch.arange(classes - 1).expand(len(y), -1)
    return others + (others >= y.unsqueeze(1))
