"""Cloud, edges, devices: every site trains with its own devices, several exchanges a round, before the cloud averages.

The two-level synchronisation of FedGS (Li, He, Yu, Kang, Li, Xu, Niyato, IEEE IoT Journal 2022, Eq. 3-5), for any
method: each edge is the server of its devices, with a server state of its own; the cloud averages the sites' models,
and a server optimiser acts at the cloud alone. `[devices]` says how many sites there are; `per_round` devices take part
in every exchange of a site.
"""

from typing import Literal

from pydantic import Field

from remanence.core.parts import Topology
from remanence.registry import options, parts


@parts["topology"].register("sites")
@options
class Sites(Topology):
    """Devices talk to the edge of their site, edges to the cloud."""

    iterations: int = Field(1, ge=1, le=10**6, description="exchanges between an edge and its devices in a round: T")
    weights: Literal["equal", "by_samples"] = Field(
        "equal", description="what a site counts for at the cloud; by_samples: those behind its uploads of the round"
    )
    pooled: bool = Field(True, description="one step then average trains as one batch where that is equal")
    sites = True
