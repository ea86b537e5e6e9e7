"""The recommender models by name."""

from flambeau.models.late import Late

SEQUENCE_AND_RETRIEVAL: dict[str, Late] = {
    "din": Late("flambeau.models.ctr.din", "DIN"),
    "esmm": Late("flambeau.models.ctr.esmm", "ESMM"),
    "mmoe": Late("flambeau.models.ctr.mmoe", "MMoE"),
    "sasrec": Late("flambeau.models.ctr.sasrec", "SASRec"),
    "two_tower": Late("flambeau.models.ctr.two_tower", "TwoTower"),
}
