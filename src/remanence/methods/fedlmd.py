"""FedLMD: the received model is distilled on the classes that are in the minority on this device.

Lu, Li, Bao, Wang, Qian, Ge 2023, ACM MM. Changes FedNTD's teacher: its majority classes are masked out. Masks exclude
instead of subtracting 1000 as the authors' code does, and a sample for which no class is left adds nothing: there the
code's term explodes. `teacher="none"` is their FedLMD-Tf, uniform over the minority classes, with 1/|A| where their
code divides by a count that contains the batch size.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from remanence.method import Batch, Context, Field, Message, Network, Samples, State, methods, options
from remanence.methods.fedntd import FedNTD, not_true


@methods.register("fedlmd")
@options
class FedLMD(FedNTD):
    """Distillation whose teacher speaks of this device's minority classes only."""

    teacher: Literal["received", "none"] = Field("received", description="none: uniform over the minority classes")

    def begin(self, net: Network, message: Message, data: Samples, dev: State, ctx: Context) -> None:
        net.load(message["w"])
        counts = data.counts
        ctx.scratch["majority"] = counts > counts.sum() / len(counts)  # M_k

    @property
    def teachers(self) -> int:  # type: ignore[override]
        return 1 if self.beta and self.teacher == "received" else 0

    def stacks(self) -> bool:
        return not self.beta

    def taught(self, z: Tensor, batch: Batch, ctx: Context) -> Tensor:
        return super().taught(z, batch, ctx) if self.teacher == "received" else torch.zeros_like(z)

    def term(self, z: Tensor, received: Tensor, y: Tensor, ctx: Context) -> Tensor:
        """KL( q_g || q ): q_g over A, all classes but M_k and y; q over all but y; 0 where A is empty."""
        others = not_true(y, z.shape[1])
        hidden = ctx.scratch["majority"][others]
        log_q = F.log_softmax(z.gather(1, others) / self.tau, 1)
        # A large finite number instead of infinity: a row with nothing left must not become NaN.
        q_g = F.softmax((received.gather(1, others) / self.tau).masked_fill(hidden, -1e30), 1) * ~hidden
        term: Tensor = (torch.xlogy(q_g, q_g) - q_g * log_q).sum(1)
        return term
