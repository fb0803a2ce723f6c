"""FedProx: a proximal term ties the local model to the received one.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020, MLSys, arXiv 1812.06127. Changes `grad`.
The squared norm of the original, not the unsquared one that some later papers print. Early stopping is left out.
"""

from remanence.method import Context, Field, Message, Method, Network, State, methods, options


@methods.register("fedprox")
@options
class FedProx(Method):
    """FedAvg with (mu/2) ||w - w_g||^2 added to the local loss."""

    mu: float = Field(0.01, ge=0, description="strength of the proximal term")

    @property
    def keeps(self) -> tuple[str, ...]:
        return ("w",) if self.mu else ()

    def grad(self, net: Network, message: Message, dev: State, ctx: Context) -> None:
        if self.mu:
            net.g.add_(net.w - message["w"], alpha=self.mu)  # gradient of (mu/2) ||w - w_g||^2
