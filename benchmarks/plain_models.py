"""The workloads' models as one writes them first, for the loop that remanence is measured against."""

import torch
from torch import Tensor, nn

from benchmarks.workloads import Workload


class PlainCNN(nn.Module):
    """Activation before pooling, the usual order; the same function as the registered SimpleCNN without padding."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 32, 5), nn.Conv2d(32, 64, 5)
        self.hidden, self.head = nn.Linear(64 * 5 * 5, 512), nn.Linear(512, classes)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(torch.relu(self.conv1(x)))
        x = self.pool(torch.relu(self.conv2(x)))
        return self.head(torch.relu(self.hidden(x.flatten(1))))  # type: ignore[no-any-return]


class PlainMLP(nn.Module):
    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(features, 64), nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.hidden(x)))  # type: ignore[no-any-return]


def plain_model(workload: Workload) -> nn.Module:
    if workload.model == "simple-cnn":
        return PlainCNN(workload.classes)
    if workload.model == "mlp":
        return PlainMLP(workload.shape[0], workload.classes)
    model: nn.Module = workload.build_model()  # a ResNet leaves no choice of order
    return model
