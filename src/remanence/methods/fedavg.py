"""FedAvg: locally trained models, averaged by sample counts.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas 2017, AISTATS, arXiv 1602.05629. Every stage of `Method` as it is.
"""

from remanence.method import Method, methods, options


@methods.register("fedavg")
@options
class FedAvg(Method):
    """Weighted average of locally trained models."""
