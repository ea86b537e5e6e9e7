import inspect

import pytest
import torch
from torch import nn

from flambeau import models
from flambeau.errors import ConfigError
from flambeau.models.vision import VISION

SMALL = ("lenet", "resnet18", "resnet20", "resnet32", "vgg11", "vgg11_bn")

IMAGENET = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "vgg11": 132_863_336,
    "vgg11_bn": 132_868_840,
    "vgg13": 133_047_848,
    "vgg13_bn": 133_053_736,
    "vgg16": 138_357_544,
    "vgg16_bn": 138_365_992,
    "vgg19": 143_667_240,
    "vgg19_bn": 143_678_248,
}

CIFAR = {
    "resnet18": 11_173_962,
    "resnet20": 269_722,
    "resnet32": 464_154,
    "resnet44": 658_586,
    "resnet56": 853_018,
    "resnet110": 1_727_962,
}


def on_meta(name: str, **args: object) -> nn.Module:
    with torch.device("meta"):
        return models.build(name, **args)


def small_args(name: str) -> dict[str, int]:
    return {"inputs": 64} if name == "mlp" else {"in_channels": 1}


def parameter_count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def published_head(name: str) -> dict[str, str]:
    return {"head": "imagenet"} if name.startswith("vgg") else {"stem": "imagenet"}


@pytest.mark.parametrize("name", IMAGENET)
def test_imagenet_variants_have_the_published_parameter_counts(name: str) -> None:
    model = on_meta(name, classes=1000, **published_head(name))
    assert parameter_count(model) == IMAGENET[name]


@pytest.mark.parametrize("name", CIFAR)
def test_cifar_variants_have_the_published_parameter_counts(name: str) -> None:
    assert parameter_count(on_meta(name)) == CIFAR[name]


def test_lenet_has_the_published_parameter_count() -> None:
    assert parameter_count(on_meta("lenet")) == 61_706


def test_mlp_has_the_parameters_of_its_layers() -> None:
    assert parameter_count(on_meta("mlp", inputs=784)) == 784 * 256 + 256 * 256 + 2560 + 522


def test_mlp_without_hidden_layers_is_one_linear_layer() -> None:
    assert parameter_count(on_meta("mlp", inputs=4, hidden=(), classes=3)) == 4 * 3 + 3


@pytest.mark.parametrize("name", VISION)
def test_every_model_takes_an_image_and_gives_a_logit_per_class(name: str) -> None:
    args = {"inputs": 3 * 32 * 32} if name == "mlp" else {"in_channels": 3}
    model = on_meta(name, classes=7, **args)
    assert list(inspect.signature(model.forward).parameters) == ["image"]
    assert model(torch.empty(2, 3, 32, 32, device="meta")).shape == (2, 7)


@pytest.mark.parametrize("name", SMALL)
def test_small_image_models_take_other_sizes(name: str) -> None:
    model = on_meta(name, in_channels=1)
    for size in ((8, 8), (28, 28), (33, 47), (64, 64)):
        assert model(torch.empty(2, 1, *size, device="meta")).shape == (2, 10), size


@pytest.mark.parametrize("name", ["resnet18", "vgg11"])
def test_imagenet_variants_take_imagenet_images(name: str) -> None:
    model = on_meta(name, classes=1000, **published_head(name))
    assert model(torch.empty(1, 3, 224, 224, device="meta")).shape == (1, 1000)


def test_imagenet_stem_reduces_the_resolution_four_times() -> None:
    model = on_meta("resnet18", stem="imagenet")
    seen: list[torch.Size] = []
    model.layer1.register_forward_hook(lambda _module, args, _output: seen.append(args[0].shape))
    model(torch.empty(1, 3, 64, 64, device="meta"))
    assert seen == [(1, 64, 16, 16)]


def test_cifar_stem_keeps_the_resolution() -> None:
    model = on_meta("resnet18")
    seen: list[torch.Size] = []
    model.layer1.register_forward_hook(lambda _module, args, _output: seen.append(args[0].shape))
    model(torch.empty(1, 3, 32, 32, device="meta"))
    assert seen == [(1, 64, 32, 32)]


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("resnet50", {"conv1.weight", "layer2.0.downsample.1.bias", "layer4.2.bn3.running_var"}),
        ("vgg16", {"features.28.weight", "classifier.0.weight", "classifier.6.bias"}),
        ("vgg16_bn", {"features.40.weight", "features.41.running_mean", "classifier.3.bias"}),
    ],
)
def test_imagenet_variants_name_parameters_as_torchvision(name: str, keys: set[str]) -> None:
    model = on_meta(name, classes=1000, **published_head(name))
    assert keys <= model.state_dict().keys()


@pytest.mark.parametrize("name", ["lenet", "mlp", "resnet20", "resnet32", "vgg11_bn"])
def test_gradients_reach_every_parameter(name: str) -> None:
    torch.manual_seed(0)
    model = models.build(name, **small_args(name))
    image, label = torch.rand(8, 1, 8, 8), torch.arange(8)
    nn.functional.cross_entropy(model(image), label).backward()
    still = [key for key, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert still == []


@pytest.mark.parametrize("name", ["lenet", "mlp", "resnet20", "vgg11"])
def test_the_seed_decides_the_first_weights(name: str) -> None:
    def weights(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        model = models.build(name, **small_args(name))
        return nn.utils.parameters_to_vector(model.parameters())

    first = weights(1)
    assert torch.equal(first, weights(1))
    assert not torch.equal(first, weights(2))


def test_convolutions_start_with_kaiming_variance() -> None:
    torch.manual_seed(0)
    weight = models.build("resnet20").layer3[1].conv1.weight
    assert weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)


def test_biases_start_at_zero() -> None:
    model = models.build("lenet")
    biases = [p for key, p in model.named_parameters() if key.endswith("bias")]
    assert len(biases) == 5
    assert not any(bias.any() for bias in biases)


def test_lenet_sees_a_small_image_in_the_middle_of_zeros() -> None:
    model = models.build("lenet")
    image = torch.rand(2, 1, 28, 28)
    padded = nn.functional.pad(image, (2, 2, 2, 2))
    torch.testing.assert_close(model(image), model(padded), rtol=0, atol=0)


def test_cifar_shortcut_takes_every_other_pixel_and_adds_channels_of_zeros() -> None:
    block = models.build("resnet20").layer2[0]
    nn.init.zeros_(block.bn2.weight)
    x = torch.rand(2, 16, 4, 4)
    out = block(x)
    torch.testing.assert_close(out[:, 8:24], x[:, :, ::2, ::2], rtol=0, atol=0)
    assert not out[:, :8].any()
    assert not out[:, 24:].any()


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"model='resnt20'.*did you mean 'resnet20'"):
        models.build("resnt20")


def test_unknown_argument_names_the_model_and_what_it_takes() -> None:
    with pytest.raises(ConfigError, match=r"'resnet20'.*'chanels'; it takes in_channels, classes"):
        models.build("resnet20", chanels=1)


def test_missing_argument_is_named() -> None:
    with pytest.raises(ConfigError, match=r"'mlp'.*'inputs'"):
        models.build("mlp")


def test_unknown_stem_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"stem='imagnet'.*did you mean 'imagenet'"):
        models.build("resnet18", stem="imagnet")


def test_unknown_head_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"head='smal'.*did you mean 'small'"):
        on_meta("vgg11", head="smal")


def test_cifar_depth_must_fit_the_family() -> None:
    with pytest.raises(ConfigError, match=r"depth=21: must be 6n \+ 2"):
        models.CifarResNet(21)


def test_vgg_depth_must_be_known() -> None:
    with pytest.raises(ConfigError, match=r"depth=12: must be one of 11, 13, 16, 19"):
        models.VGG(12)


def test_wrong_channels_are_told_by_torch() -> None:
    with pytest.raises(RuntimeError, match="to have 3 channels, but got 1 channels"):
        models.build("resnet20")(torch.rand(2, 1, 8, 8))
