"""The names under which FedAvg with a server optimiser is published; the optimisers are in `parts/optimise`."""

from remanence.registry import methods

methods.combine("fedavgm", "FedAvg with server momentum", method="fedavg", optimise="fedavgm")
methods.combine("fedadagrad", "FedAvg with Adagrad at the server", method="fedavg", optimise="fedadagrad")
methods.combine("fedadam", "FedAvg with Adam at the server", method="fedavg", optimise="fedadam")
methods.combine("fedyogi", "FedAvg with Yogi at the server", method="fedavg", optimise="fedyogi")
