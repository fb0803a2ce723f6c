"""FedAWAC: a proximal term on the devices, consistency weights and a window of past models at the server.

Zhang, Mao, Xu, Chen, Muazu, He, Wu, "Overcoming Forgetting Using Adaptive Federated Learning for IIoT Devices with
Non-IID Data". Three pieces, each usable with other methods: Eq. 6 is FedProx (`mu` is the paper's delta), Eq. 8-9 are
`parts/merge/consistency.py`, Eq. 13 is `parts/optimise/window.py`. The deviations from the paper's text are told there.
"""

from remanence.registry import methods

methods.combine(
    "fedawac",
    "FedProx with consistency weights and a window of past models at the server",
    method="fedprox",
    merge="consistency",
    optimise="window",
)
