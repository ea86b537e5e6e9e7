"""Names of the models in `flambeau.models`, available without loading them."""

SEQUENCE_NAMES = ("din", "esmm", "mmoe", "sasrec", "two_tower")

#: Recommender models over fields of ids, and numbers.
FIELD_NAMES = (
    "lr",
    "fm",
    "ffm",
    "wide_and_deep",
    "deepfm",
    "dcn",
    "dcnv2",
    "xdeepfm",
    "pnn",
    "afm",
    "autoint",
    "dlrm",
    "final_mlp",
    "field_attention",
)

MODEL_NAMES = (
    *SEQUENCE_NAMES,
    "lenet",
    "mlp",
    "resnet18",
    "resnet20",
    "resnet32",
    "resnet34",
    "resnet44",
    "resnet50",
    "resnet56",
    "resnet101",
    "resnet110",
    "resnet152",
    "vgg11",
    "vgg11_bn",
    "vgg13",
    "vgg13_bn",
    "vgg16",
    "vgg16_bn",
    "vgg19",
    "vgg19_bn",
    *FIELD_NAMES,
)
