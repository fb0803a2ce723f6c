"""The flat round: the cloud talks to every device itself."""

import time

from remanence.core.choosing import Chooser, told_once, use_up
from remanence.core.context import Context
from remanence.core.plan import Event, Plan, Played
from remanence.core.server import Rules, Server, States
from remanence.core.state import State
from remanence.core.vector import FlatModel
from remanence.engine.choose import choose_engine
from remanence.engine.local import Engine
from remanence.engine.worker import Rehearsal


class Direct:
    def __init__(self, plan: Plan, net: FlatModel, states: States, ctx: Context) -> None:
        self.plan, self.task = plan, plan.task
        w, method = net.copy(), plan.task.method
        self.server = Server(
            method,
            plan.merge,
            plan.optimise,
            Rules(
                plan.sampling_seed,
                plan.engine.quorum,
                plan.engine.lost,
                plan.engine.deadline,
                plan.engine.largest_upload,
            ),
            net,
            states,
            w,
            method.open_server(net, ctx),
            plan.optimise.open(w[: net.size]),
        )
        self.rehearsal = Rehearsal(plan.task)
        self.used: dict[int, int] = {}
        self.everyone = range(len(plan.task.fleet.sizes))
        self.chooser = Chooser(plan.select, plan.task.fleet, self.everyone, plan.per_round, plan.sampling_seed)

    @property
    def srv(self) -> State:
        return self.server.srv

    def open_engine(self) -> tuple[Engine, str]:
        return choose_engine(self.task, self.plan.engine, self.plan.per_round)

    def choose(self, round: int) -> list[int]:
        if self.plan.schedule is not None:
            return sorted(self.plan.schedule(round))
        return self.chooser.choose(round, round, self.used)

    def play(self, ctx: Context, engine: Engine, own: bool) -> Played:
        started, server = time.perf_counter(), self.server
        told = self._told()
        chosen = self.choose(ctx.round)
        told += self.chooser.bytes
        selecting = time.perf_counter() - started
        newcomer = self.task.method.down(server.w, -1, server.srv, ctx)
        server.expected = self.rehearsal.upload(newcomer, ctx)
        looked_at = self.chooser.whole is not None or self.task.fleet.stream is not None
        joint = self.task.fleet.joint(chosen, ctx.tick, self.used) if looked_at else None
        exchange = server.exchange(ctx, engine, chosen, self.used, own)
        use_up(self.task.fleet, chosen, self.used)
        event: Event = {
            "selected": list(chosen),
            "counted": exchange.counted,
            "refused": {str(device): reason for device, reason in sorted(exchange.refused.items())},
            "loss": exchange.loss,
            "largest_weight": exchange.largest_weight,
            "bytes_down": exchange.bytes_down,
            "bytes_up": exchange.bytes_up + told,
            "samples": exchange.over_counted("samples"),
        }
        if joint is not None:
            event["divergence"] = self.plan.divergence([joint])
        event |= self.task.method.facts(server.srv)
        correct = {device: exchange.replies[device].correct for device in exchange.counted}
        return Played(event, correct, selecting)

    def _told(self) -> int:
        """Bytes of what every device tells once, for selectors that look at class counts."""
        if self.plan.schedule is not None or not self.plan.select.reports or self.chooser.whole is not None:
            return 0
        self.chooser.whole, sizes = told_once(self.plan.select, self.task.fleet, self.plan.sampling_seed)
        return sum(sizes.values()) if not self.chooser.told else 0

    def tree(self) -> State:
        return {"srv": self.server.srv, "used": dict(self.used), "told": dict(self.chooser.told)}

    def restore(self, tree: State) -> None:
        self.server.srv = tree["srv"]
        self.used, self.chooser.told = dict(tree["used"]), dict(tree["told"])
