"""The round with sites: edges play with their devices, the cloud averages the sites."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from remanence.core.choosing import report, told_once
from remanence.core.collect import Collector
from remanence.core.context import Context
from remanence.core.message import Message
from remanence.core.plan import Event, Plan, Played
from remanence.core.server import Rules, Server, States
from remanence.core.site import SiteJob, SiteLog, SitePlan, SiteReply
from remanence.core.state import State
from remanence.core.vector import FlatModel
from remanence.engine.sites import SiteEngine, choose_site_engine
from remanence.engine.worker import Rehearsal
from remanence.methods.fedavg import FedAvg
from remanence.parts.merge.mean import Mean, Uniform
from remanence.parts.optimise.none import Plain


class Hierarchy:
    def __init__(self, plan: Plan, net: FlatModel, states: States, ctx: Context) -> None:
        self.plan, self.task, self.states = plan, plan.task, states
        w = net.copy()
        sites = Mean() if plan.topology.weights == "by_samples" else Uniform()
        cloud_rules = Rules(plan.sampling_seed, deadline=plan.engine.deadline, least=0)
        # What a site sends is like any model: the cloud is FedAvg over sites.
        self.server = Server(
            FedAvg(), sites, plan.optimise, cloud_rules, net, self.states, w, {}, plan.optimise.open(w[: net.size])
        )
        self.edges = [
            {"srv": plan.task.method.open_server(net, replace(ctx, devices=len(members))), "used": {}, "told": {}}
            for members in plan.sites
        ]
        self.rehearsal = Rehearsal(plan.task)
        self.whole: np.ndarray | None = None

    @property
    def srv(self) -> State:
        return {"sites": {site: edge["srv"] for site, edge in enumerate(self.edges)}}

    def site_plan(self) -> SitePlan:
        options = self.plan.engine
        rules = Rules(self.plan.sampling_seed, options.quorum, options.lost, 0.0, options.largest_upload)
        return SitePlan(self.plan.sites, self.plan.per_round, self.plan.topology, self.plan.select, rules, Plain())

    def open_engine(self) -> tuple[SiteEngine, str]:
        return choose_site_engine(self.task, self.site_plan(), self.plan.engine)

    def play(self, ctx: Context, engine: SiteEngine, own: bool) -> Played:
        server = self.server
        links = {"device-edge": {"up": 0, "down": 0}, "edge-cloud": {"up": 0, "down": 0}}
        self._tell(links)
        first = replace(ctx, devices=len(self.plan.sites[0]))
        newcomer = self.task.method.down(server.w, -1, self.edges[0]["srv"], first)
        expected = self.rehearsal.upload(newcomer, ctx)
        everyone = list(range(len(self.plan.sites)))
        collector = server.collector(everyone, ctx)
        jobs = [
            SiteJob(site, server.w, self.edges[site], self.whole, expected, self.states.get, own) for site in everyone
        ]
        replies = self._carry(engine, ctx, jobs, collector)
        down = len(jobs) * Message(w=server.w).size()
        server.finish(collector, ctx)
        for site in collector.counted:
            self._keep(replies[site], ctx)
        links["edge-cloud"]["up"] += collector.bytes
        links["edge-cloud"]["down"] += down
        logs = [replies[site].log for site in sorted(replies)]
        links["device-edge"]["up"] += sum(log.bytes_up + log.told for log in logs)
        links["device-edge"]["down"] += sum(log.bytes_down for log in logs)
        counted = [replies[site] for site in collector.counted]
        event = self._event(counted, logs) | {
            "bytes_down": sum(link["down"] for link in links.values()),
            "bytes_up": sum(link["up"] for link in links.values()),
            "links": links,
            "sites": collector.counted,
            "sites_refused": {str(site): why for site, why in sorted(collector.refused.items())},
        }
        correct = {device: right for reply in counted for device, right in reply.log.correct.items()}
        return Played(event, correct, sum(log.selecting for log in logs))

    def _carry(
        self, engine: SiteEngine, ctx: Context, jobs: Sequence[SiteJob], collector: Collector
    ) -> dict[int, SiteReply]:
        replies: dict[int, SiteReply] = {}
        started = time.monotonic()
        for reply in engine.play(ctx, jobs):
            if self.plan.engine.deadline and time.monotonic() - started > self.plan.engine.deadline:
                break
            collector.take(reply.site, Message(w=reply.w, n=reply.samples), "")
            self.server.sent.most({"held": reply.sent.held})
            replies[reply.site] = reply
        return replies

    def _keep(self, reply: SiteReply, ctx: Context) -> None:
        self.edges[reply.site] = reply.state
        for device, state in sorted(reply.devices.items()):
            self.states.put(device, state, ctx.round)
        self.server.sent.most(reply.sent.tree())

    def _tell(self, links: dict[str, dict[str, int]]) -> None:
        """What every device tells its edge once, and the edges the cloud, for selectors that look at class counts."""
        if not self.plan.select.reports or self.whole is not None:
            return
        self.whole, sizes = told_once(self.plan.select, self.task.fleet, self.plan.sampling_seed)
        if any(edge["told"] for edge in self.edges):  # a resumed run told it before
            return
        of_site = report(self.whole).size() * len(self.edges)
        links["device-edge"]["up"] += sum(sizes.values())
        links["edge-cloud"]["up"] += of_site
        links["edge-cloud"]["down"] += of_site

    def _event(self, counted: Sequence[SiteReply], logs: Sequence[SiteLog]) -> Event:
        """Of the sites that were counted, but for what was sent and refused."""
        own = [reply.log for reply in counted]
        selected: Counter[int] = sum((log.selected for log in own), Counter())
        turns: Counter[int] = sum((log.counted for log in own), Counter())
        steps = sum(log.steps for log in own)
        facts = {name: float(np.mean([log.method[name] for log in own])) for name in (own[0].method if own else ())}
        return {
            "selected": sorted(selected),
            "counted": sorted(turns),
            "turns": [turns[device] for device in sorted(turns)],
            "refused": {name: why for log in logs for name, why in log.refused.items()},
            "loss": sum(log.loss for log in own) / steps if steps else None,
            "largest_weight": max((log.largest_weight for log in own), default=None),
            "samples": sum(log.samples for log in own),
            "divergence": self.plan.divergence([mix for log in own for mix in log.mixes]),
            **facts,
        }

    def tree(self) -> State:
        return {"srv": {}, "sites": [dict(edge) for edge in self.edges]}

    def restore(self, tree: State) -> None:
        self.edges = [dict(edge) for edge in tree["sites"]]
