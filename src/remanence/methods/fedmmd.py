"""FedMMD: the local model's answers stay near those of the received one, by their maximum mean discrepancy.

Yao, Huang, Sun 2018, VCIP; Yao, Huang, Wu, Zhang, Sun 2019, arXiv 1908.05891. Changes `loss`; trains beside a frozen
copy of the received model, which answers in evaluation mode. Where the paper leaves it open, as in the authors' code:
logits are compared, the widths of the kernels are variances, and below `floor` the term has no gradient.
"""

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from remanence.method import Batch, Context, Field, FlatModel, Method, State, methods, options

VARIANCES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 5, 10, 15, 20, 25, 30, 35, 100, 1e3, 1e4, 1e5, 1e6)


@methods.register("fedmmd")
@options
class FedMMD(Method):
    """A penalty on the discrepancy between two streams: the trained model and the received one."""

    strength: float = Field(0.1, ge=0, description="lambda")
    floor: float = Field(1e-4, ge=0, description="a smaller discrepancy counts as this, without a gradient")
    compare: Literal["logits", "features"] = Field("logits", description="features: the penultimate activations")
    variances: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        VARIANCES, min_length=1, description="Sigma, one of each Gaussian kernel that is summed"
    )

    @property
    def teachers(self) -> int:  # type: ignore[override]
        return 1 if self.strength else 0

    def stacks(self) -> bool:
        return not self.strength

    def loss(self, net: FlatModel, batch: Batch, dev: State, ctx: Context) -> Tensor:  # type: ignore[override]
        if not self.strength:
            return super().loss(net, batch, dev, ctx)
        if self.compare == "logits":
            logits = local = net(batch.x)
        else:
            local = net.features(batch.x)
            logits = net.head(local)
        term = discrepancy(self._received(batch.x, ctx), local, self.variances).clamp(min=self.floor)
        cross_entropy = F.cross_entropy(logits, batch.y, reduction="none")
        # One number for the batch, so the same for each of its samples.
        return cross_entropy + self.strength * term  # CE + lambda max(floor, MMD2)

    @torch.no_grad()
    def _received(self, x: Tensor, ctx: Context) -> Tensor:
        """O_g, without a gradient."""
        (teacher,) = ctx.teachers
        return teacher(x) if self.compare == "logits" else teacher.features(x)


def discrepancy(u: Tensor, v: Tensor, variances: tuple[float, ...] = VARIANCES) -> Tensor:
    """MMD2(U, V) = mean k(u_a, u_b) + mean k(v_a, v_b) - 2 mean k(u_a, v_b), over all pairs, a = b among them."""
    widths = 2 * torch.tensor(variances, dtype=v.dtype).view(-1, 1, 1)
    pairs = _kernel(u, u, widths) + _kernel(v, v, widths) - 2 * _kernel(u, v, widths)
    return pairs.mean()  # mean k(u,u) + mean k(v,v) - 2 mean k(u,v)


def _kernel(u: Tensor, v: Tensor, widths: Tensor) -> Tensor:
    """k(u_a, v_b) = sum over s of exp( -||u_a - v_b||^2 / (2 s) ), for every pair."""
    # Of differences, not of norms and products: the narrow kernels would see their rounding as distance.
    squares = (u.unsqueeze(1) - v.unsqueeze(0)).square().sum(2)
    return (squares / -widths).exp().sum(0)  # sum_s exp(-||u-v||^2 / (2 s))
