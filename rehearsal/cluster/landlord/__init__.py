"""The landlord: the hands of the simulated clouds in the real cluster, which grant and take nodes.

No proof rests on what it decides: it stands in for the clouds' own controllers, part by part, each with its source.
"""

from rehearsal.cluster.landlord.landlord import Landlord, LandlordError
from rehearsal.cluster.landlord.scene import Delays

__all__ = ["Delays", "Landlord", "LandlordError"]
