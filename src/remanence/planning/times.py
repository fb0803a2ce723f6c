"""How long a round takes over radio: with edges between cloud and devices (FedGS), and without (FedAvg).

The time model of Li, He, Yu, Kang, Li, Xu, Niyato, "Data Heterogeneity-Robust Federated Learning via Group Client
Selection in Industrial IoT", IEEE IoT Journal 2022, Eq. 19-25, and its Proposition 4. A link of B hertz at a
signal-to-noise ratio gamma carries B log2(1 + gamma) bit/s; those who share it are served one after another. The
proposition takes selection for nothing; here it has its time.
"""

import math
from dataclasses import dataclass

EQUAL = 1e-12  # relative difference up to which two values are the same


@dataclass(frozen=True)
class Band:
    """Hertz, towards the cloud and away from it."""

    up: float
    down: float


@dataclass(frozen=True)
class Links:
    """Bands, and the linear signal-to-noise ratios at those who receive."""

    external: Band  # B_ext: between the cloud and sites
    internal: Band  # B_int: within a site
    cloud: float  # gamma of the top server
    station: float  # of the base station of a site
    device: float

    @property
    def equal(self) -> bool:
        """Both ways and for everyone: what Proposition 4 presumes."""
        both_ways = self.external.up == self.external.down and self.internal.up == self.internal.down
        return both_ways and self.cloud == self.station == self.device

    @property
    def ratio(self) -> float:
        """rho = B_int / B_ext, of equal links."""
        return self.internal.up / self.external.up


@dataclass(frozen=True)
class Scenario:
    """A fleet whose sites are alike; all times in seconds."""

    links: Links
    bits: float  # S, of a model
    sites: int  # M
    devices: int  # L, of each site, in every exchange
    iterations: int  # T: exchanges within a site, or steps of a device, in a round
    select_seconds: float = 0.0  # T_sel, before every exchange
    compute_seconds: float = 0.0  # T_comp, of a step

    @property
    def to_sites(self) -> float:
        """T_ext: the models of all sites, between cloud and edges."""
        links = self.links
        up, down = _rate(links.external.up, links.cloud), _rate(links.external.down, links.station)
        return self.bits * self.sites * (1 / up + 1 / down)

    @property
    def within_site(self) -> float:
        """T_int: the models of a site's devices, once; sites work side by side."""
        links = self.links
        up, down = _rate(links.internal.up, links.station), _rate(links.internal.down, links.device)
        return self.bits * self.devices * (1 / up + 1 / down)

    @property
    def to_devices(self) -> float:
        """The models of all devices, between the cloud and themselves."""
        links = self.links
        up, down = _rate(links.external.up, links.cloud), _rate(links.external.down, links.device)
        return self.bits * self.sites * self.devices * (1 / up + 1 / down)

    @property
    def hierarchy(self) -> float:
        """T_FedGS = T_ext + T (T_sel + T_int + T_comp)"""
        return self.to_sites + self.iterations * (self.select_seconds + self.within_site + self.compute_seconds)

    @property
    def flat(self) -> float:
        """T_FedAvg = S M L (...) + T T_comp"""
        return self.to_devices + self.iterations * self.compute_seconds

    @property
    def bound(self) -> float:
        """What T must stay below, so that the hierarchy's round is the shorter one; computing cancels."""
        return (self.to_devices - self.to_sites) / (self.select_seconds + self.within_site)

    @property
    def pays(self) -> bool:
        """Whether the hierarchy's round is the shorter one; equality does not count."""
        return below(self.iterations, self.bound)

    @property
    def most_iterations(self) -> int:
        """The largest T for which it is; 0: there is none."""
        return max(0, math.ceil(self.bound * (1 - EQUAL)) - 1)

    @property
    def least_ratio(self) -> float:
        """What B_int / B_ext must exceed; infinite where no ratio is enough.  Proposition 4 with T_sel"""
        S, M, L, T = self.bits, self.sites, self.devices, self.iterations
        saved, spent = S * M * (L - 1) / T, self.select_seconds * _rate(self.links.external.up, self.links.cloud) / 2
        return S * L / (saved - spent) if below(spent, saved) else math.inf

    @property
    def proposition(self) -> float:
        """T L / (M (L - 1)) < B_int / B_ext: the left side, for selection in no time.  Proposition 4"""
        spared = self.sites * (self.devices - 1)
        return self.iterations * self.devices / spared if spared else math.inf


def _rate(hertz: float, gamma: float) -> float:
    """Bit/s: B log2(1 + gamma)."""
    return hertz * math.log1p(gamma) / math.log(2)


def below(one: float, other: float) -> bool:
    return one < other and not math.isclose(one, other, rel_tol=EQUAL)
