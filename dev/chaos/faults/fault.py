"""What every fault has: words for the page, and four steps that `run` takes in this order."""

from __future__ import annotations

from chaos.ground import Ground


class Fault:
    """Nothing goes wrong. Faults override the steps that they need."""

    name = ""
    does = ""
    """What happens, in a sentence."""
    remedy = ""
    """What a user sees of it and does about it."""
    seconds = 15.0
    """How long it stays."""
    fresh_figures = False
    """Also wait for figures of after the fault: where it is in doubt whether the operator still takes new ones."""

    def prepare(self, ground: Ground) -> None:
        """Put in place what is no fault yet: the judge sees it as having been there before."""

    def inject(self, ground: Ground) -> None:
        """Do it."""

    def heal(self, ground: Ground) -> None:
        """End it. Called whatever `inject` raised."""

    def clear(self, ground: Ground) -> None:
        """Take away what `prepare` put in place; after the judgement."""


class Nothing(Fault):
    """The run's own noise: the same load and the same judge without a fault."""

    name = "nothing"
    does = "Nothing: the load alone."
    remedy = "Nothing."


class PodDeleted(Fault):
    """Shows that the judge finds harm."""

    name = "control: a pod is deleted by hand"
    does = "`kubectl delete pod` of a serving pod."
    remedy = "Its ReplicaSet makes another pod. The row shows that the judge finds harm."
    seconds = 5.0

    def inject(self, ground: Ground) -> None:
        ground.objects.delete("pods", ground.pods("auto")[0], "models")
