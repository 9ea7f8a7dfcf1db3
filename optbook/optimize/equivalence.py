"""Same results? Three checks, for what is computed, for how it learns, and for how well it does in the end.

`same_outputs` compares values within a tolerance that suits their data types, `same_losses` the loss curves
of short training runs with the noise from seed to seed, `same_accuracy` shares of right answers with chance.
"""

from optbook.optimize.accuracy import SameAccuracy, same_accuracy
from optbook.optimize.agreement import ALPHA, Equivalence
from optbook.optimize.losses import SameLosses, same_losses
from optbook.optimize.outputs import TOLERANCES, SameOutputs, same_outputs

__all__ = [
    "ALPHA",
    "TOLERANCES",
    "Equivalence",
    "SameAccuracy",
    "SameLosses",
    "SameOutputs",
    "same_accuracy",
    "same_losses",
    "same_outputs",
]
