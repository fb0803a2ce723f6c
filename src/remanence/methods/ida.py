"""IDA: FedAvg with inverse-distance weights at the server (Yeganeh, Farshad, Navab, Albarqouni 2020, arXiv 2008.07665).

The weights and what is not certain about them are in `parts/merge/inverse_distance.py`; `times` makes IDA+INTRAC
(`"intrac"`) and IDA+FedAvg (`"samples"`) of it.
"""

from remanence.registry import methods

methods.combine(
    "ida", "FedAvg whose models count for their inverse distance to the mean", method="fedavg", merge="inverse-distance"
)
