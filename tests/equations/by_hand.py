"""The cards' equations in float64 NumPy, on softmax regression: nothing here comes from the package."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

Vector = np.ndarray
Edit = Callable[[Vector], Vector]  # w -> what is added to the gradient of the task
Task = Callable[[Vector, Vector, Vector, int], Vector]  # w, x, y, classes -> gradient of a batch


@dataclass(frozen=True)
class World:
    devices: Sequence[tuple[Vector, Vector]]
    start: Vector  # weights (classes x features) row by row, then biases
    classes: int
    batches: Callable[[int, int, int], Sequence[Vector]]  # device, round, epoch, the latter two from 1
    participation: Sequence[Sequence[int]]
    epochs: int = 1
    lr: float = 0.1
    lr_decay: float = 1.0
    momentum: float = 0.0
    weight_decay: float = 0.0
    uniform: bool = False  # weights 1/K instead of n_k / sum n

    def rate(self, round: int) -> float:
        return self.lr * self.lr_decay ** (round - 1)

    def shares(self, chosen: Sequence[int]) -> Vector:
        n = np.array([1 if self.uniform else len(self.devices[k][1]) for k in chosen], dtype=np.float64)
        return n / n.sum()

    def batch(self, device: int, ids: Vector) -> tuple[Vector, Vector]:
        x, y = self.devices[device]
        return x[ids], y[ids]


def chances(w: Vector, x: Vector, classes: int) -> Vector:
    """The softmax of the logits, a row per sample."""
    size = classes * x.shape[1]
    logits = x @ w[:size].reshape(classes, -1).T + w[size:]
    p = np.exp(logits - logits.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


def by_weights(slope: Vector, x: Vector) -> Vector:
    """The mean gradient by w, from each sample's gradient by its logits."""
    return np.concatenate([(slope.T @ x / len(x)).reshape(-1), slope.mean(0)])


def gradient(w: Vector, x: Vector, y: Vector, classes: int) -> Vector:
    """Of the mean cross-entropy."""
    return by_weights(chances(w, x, classes) - np.eye(classes)[y], x)


def train(world: World, device: int, round: int, w: Vector, edit: Edit, task: Task = gradient) -> tuple[Vector, int]:
    """w_k and the number of steps."""
    v, steps = np.zeros_like(w), 0
    for epoch in range(1, world.epochs + 1):
        for ids in world.batches(device, round, epoch):
            g = task(w, *world.batch(device, ids), world.classes) + edit(w) + world.weight_decay * w
            v = world.momentum * v + g
            w = w - world.rate(round) * v
            steps += 1
    return w, steps


def nothing(w: Vector) -> Vector:
    return np.zeros_like(w)


def fedavg(world: World) -> Vector:
    return fedprox(world, 0.0)


def fedprox(world: World, mu: float) -> Vector:
    w_g = world.start
    for round, chosen in enumerate(world.participation, start=1):
        anchor = w_g
        local = [train(world, k, round, w_g, lambda w, a=anchor: mu * (w - a))[0] for k in chosen]
        w_g = sum(p * w for p, w in zip(world.shares(chosen), local, strict=True))
    return w_g


def coefficient_sum(steps: int, momentum: float) -> float:
    """The card's recursion: c <- rho c + 1; a <- a + c."""
    a = c = 0.0
    for _ in range(steps):
        c = momentum * c + 1
        a += c
    return a


@dataclass
class Variates:
    w: Vector
    c: Vector
    own: list[Vector]


def scaffold(world: World, eta_g: float = 1.0, option: str = "II", divisor: str = "effective") -> Variates:
    zero = np.zeros_like(world.start)
    state = Variates(world.start, zero, [zero] * len(world.devices))
    for round, chosen in enumerate(world.participation, start=1):
        changes, local = [], []
        for k in chosen:
            correction = state.c - state.own[k]
            w_k, steps = train(world, k, round, state.w, lambda w, add=correction: add)
            a = coefficient_sum(steps, world.momentum) if divisor == "effective" else steps
            new = state.own[k] - state.c + (state.w - w_k) / (world.rate(round) * a)
            if option == "I":
                new = gradient(state.w, *world.devices[k], world.classes)
            changes.append(new - state.own[k])
            state.own[k] = new
            local.append(w_k - state.w)
        if chosen:
            state.w = state.w + eta_g * sum(p * d for p, d in zip(world.shares(chosen), local, strict=True))
            state.c = state.c + len(chosen) / len(world.devices) * np.mean(changes, axis=0)
    return state


def fednova(world: World, mu: float = 0.0) -> Vector:
    w_g = world.start
    for round, chosen in enumerate(world.participation, start=1):
        anchor, p = w_g, world.shares(chosen)
        answers = [train(world, k, round, w_g, lambda w, a=anchor: mu * (w - a)) for k in chosen]
        a_k = [_nova_count(steps, world.momentum, world.rate(round) * mu) for _, steps in answers]
        d_k = [(w_g - w) / a for (w, _), a in zip(answers, a_k, strict=True)]
        counts = [steps for _, steps in answers] if mu else a_k
        tau = sum(share * count for share, count in zip(p, counts, strict=True))
        w_g = w_g - tau * sum(share * d for share, d in zip(p, d_k, strict=True))
    return w_g


def _nova_count(steps: int, momentum: float, pull: float) -> float:
    if not pull:
        return coefficient_sum(steps, momentum)
    a = 0.0
    for _ in range(steps):
        a = a * (1 - pull) + 1
    return a


@dataclass
class Direction:
    w: Vector
    delta: Vector


def fedcm(world: World, alpha: float = 0.1, eta_g: float = 1.0) -> Direction:
    state, decay = Direction(world.start, np.zeros_like(world.start)), world.weight_decay
    for round, chosen in enumerate(world.participation, start=1):
        if not chosen:
            continue

        def mixed(w: Vector, x: Vector, y: Vector, classes: int, delta: Vector = state.delta) -> Vector:
            return alpha * (gradient(w, x, y, classes) + decay * w) + (1 - alpha) * delta

        undecayed = replace(world, weight_decay=0.0)  # it is inside g
        answers = [train(undecayed, k, round, state.w, nothing, mixed) for k in chosen]
        p, rate = world.shares(chosen), world.rate(round)
        state.delta = sum(q * (state.w - w) / (rate * tau) for q, (w, tau) in zip(p, answers, strict=True))
        state.w = state.w - eta_g * sum(q * (state.w - w) for q, (w, _) in zip(p, answers, strict=True))
    return state


@dataclass
class Curved:
    w: Vector
    fisher: dict[int, Vector] = field(default_factory=dict)  # F_k, w_k of every device that has ever trained
    local: dict[int, Vector] = field(default_factory=dict)


def fedcurv(world: World, strength: float = 1.0, fisher: str = "per_sample") -> Curved:
    """The quadratic form itself, not its compact form; each device's latest model is kept."""
    state = Curved(world.start)
    for round, chosen in enumerate(world.participation, start=1):
        if not chosen:
            continue
        answers = {k: train(world, k, round, state.w, partial(_pull, state, k, strength))[0] for k in chosen}
        for k, w in answers.items():
            state.local[k], state.fisher[k] = w, _fisher(w, *world.devices[k], world.classes, fisher)
        state.w = sum(p * w for p, w in zip(world.shares(chosen), answers.values(), strict=True))
    return state


def _pull(state: Curved, device: int, strength: float, w: Vector) -> Vector:
    """The gradient of strength * sum over the others of (w - w_j) diag(F_j) (w - w_j)."""
    others = [j for j in state.fisher if j != device]
    return strength * sum((2 * state.fisher[j] * (w - state.local[j]) for j in others), np.zeros_like(w))


def _fisher(w: Vector, x: Vector, y: Vector, classes: int, kind: str) -> Vector:
    """`batch`: all samples of the device are one batch."""
    if kind == "batch":
        return gradient(w, x, y, classes) ** 2
    return np.mean([gradient(w, x[i : i + 1], y[i : i + 1], classes) ** 2 for i in range(len(y))], axis=0)


def fedga(world: World, variant: str = "code") -> Vector:
    w_g, task = world.start, partial(_calibrated, variant=variant)
    for round, chosen in enumerate(world.participation, start=1):
        local = [train(world, k, round, w_g, nothing, task)[0] for k in chosen]
        w_g = sum(p * w for p, w in zip(world.shares(chosen), local, strict=True))
    return w_g


def _calibrated(w: Vector, x: Vector, y: Vector, classes: int, variant: str) -> Vector:
    return by_weights(calibrated_slope(chances(w, x, classes), y, variant), x)


def calibrated_slope(p: Vector, y: Vector, variant: str) -> Vector:
    """The gradient by the logits, as the card works it out; a row per sample."""
    n, one_hot = np.bincount(y, minlength=p.shape[1]), np.eye(p.shape[1])[y]
    ratio = n / n[y][:, np.newaxis]
    if variant == "code":
        return p * (1 - (p * ratio).sum(1, keepdims=True) + ratio) - one_hot
    return np.where(one_hot == 1, p - 1, p * ratio)


def server_step(
    rule: str, x: Vector, delta: Vector, m: Vector, v: Vector, *, eta: float, beta1: float, beta2: float, tau: float
) -> tuple[Vector, Vector, Vector]:
    """x, m, v after a round."""
    if rule == "fedavgm":
        m = beta1 * m + delta
        return x + eta * m, m, v
    m = beta1 * m + (1 - beta1) * delta
    if rule == "fedadagrad":
        v = v + delta**2
    elif rule == "fedadam":
        v = beta2 * v + (1 - beta2) * delta**2
    else:
        v = v - (1 - beta2) * delta**2 * np.sign(v - delta**2)
    return x + eta * m / (np.sqrt(v) + tau), m, v
