"""Small models as users of PyTorch write them: plain ones, torchvision's and
those of transformers, with the smallest sizes that keep their structure.

CASES: name -> a function that makes a Case. Every random number follows from the
seed that the caller sets before."""

import dataclasses
import math

import torch
import transformers
from torch import nn
from torch.nn import functional
from torchvision.models import (convnext, densenet, inception, mobilenetv2,
                                mobilenetv3, regnet, resnet, shufflenetv2,
                                swin_transformer, vgg, vision_transformer)
from torchvision.models import efficientnet as efficientnet_module
from torchvision.models import squeezenet as squeezenet_module
from torchvision.models.googlenet import BasicConv2d, Inception

STEPS = 5
BATCH = 4
CLASSES = 4


@dataclasses.dataclass
class Case:
    module: nn.Module
    inputs: dict  # name: [STEPS, batch, ...]
    labels: torch.Tensor
    loss: str = "softmax"
    rate: float = 0.05
    # Patterns of model.train that files of the older exporter need.
    train: tuple = ()


CASES = {}


def case(function):
    CASES[function.__name__.replace("_", "-")] = function
    return function


def classes(*shape):
    return torch.randint(CLASSES, (STEPS, BATCH, *shape))


def features(module, *shape, name="x", **options):
    """A classifier of vectors or images."""
    return Case(module, {name: torch.randn(STEPS, BATCH, *shape)}, classes(),
                **options)


def values(module, *shape, outputs, **options):
    """A regression."""
    return Case(module, {"x": torch.randn(STEPS, BATCH, *shape)},
                torch.randn(STEPS, BATCH, outputs), loss="mse", **options)


def tokens(module, length=8, vocabulary=50, name="input_ids", per_token=False,
           **options):
    ids = torch.randint(1, vocabulary, (STEPS, BATCH, length))
    labels = (torch.randint(vocabulary, (STEPS, BATCH, length)) if per_token
              else classes())
    return Case(module, {name: ids}, labels, **options)


# ---- Vectors ----------------------------------------------------------------


def mlp_of(activation, *more):
    return nn.Sequential(nn.Linear(8, 16), activation, *more,
                         nn.Linear(16, CLASSES))


@case
def mlp():
    return features(mlp_of(nn.ReLU()), 8)


@case
def logistic_regression():
    ids = torch.rand(STEPS, BATCH) > 0.5
    return Case(nn.Linear(8, 1), {"x": torch.randn(STEPS, BATCH, 8)},
                ids.float(), loss="sigmoid")


@case
def linear_regression():
    return values(nn.Linear(8, 1), 8, outputs=1)


@case
def gelu_mlp():
    return features(mlp_of(nn.GELU()), 8)


@case
def gelu_tanh_mlp():
    return features(mlp_of(nn.GELU(approximate="tanh")), 8)


@case
def silu_mlp():
    return features(mlp_of(nn.SiLU()), 8)


@case
def mish_mlp():
    return features(mlp_of(nn.Mish()), 8)


@case
def softplus_mlp():
    return features(mlp_of(nn.Softplus()), 8)


@case
def elu_mlp():
    return features(mlp_of(nn.ELU()), 8)


@case
def leaky_relu_mlp():
    return features(mlp_of(nn.LeakyReLU(0.2)), 8)


@case
def prelu_mlp():
    return features(mlp_of(nn.PReLU()), 8)


@case
def prelu_channels_cnn():
    return features(nn.Sequential(nn.Conv2d(1, 4, 3), nn.PReLU(4), nn.Flatten(),
                                  nn.Linear(144, CLASSES)), 1, 8, 8)


@case
def hardswish_mlp():
    return features(mlp_of(nn.Hardswish()), 8)


@case
def tanhshrink_mlp():
    return features(mlp_of(nn.Tanhshrink()), 8)


@case
def softshrink_mlp():
    return features(mlp_of(nn.Softshrink(0.1)), 8)


@case
def hardshrink_mlp():
    return features(mlp_of(nn.Hardshrink(0.1)), 8)


@case
def logsigmoid_mlp():
    return features(mlp_of(nn.LogSigmoid()), 8)


@case
def hardtanh_mlp():
    return features(mlp_of(nn.Hardtanh()), 8)


@case
def glu_mlp():
    return features(nn.Sequential(nn.Linear(8, 32), nn.GLU(),
                                  nn.Linear(16, CLASSES)), 8)


@case
def dropout_mlp():
    return features(mlp_of(nn.ReLU(), nn.Dropout(0.0)), 8)


@case
def batchnorm_mlp():
    return features(mlp_of(nn.ReLU(), nn.BatchNorm1d(16)), 8)


@case
def layernorm_mlp():
    return features(mlp_of(nn.ReLU(), nn.LayerNorm(16)), 8)


@case
def two_layernorms_mlp():
    return features(nn.Sequential(
        nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 8),
        nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, CLASSES)), 8)


@case
def rmsnorm_mlp():
    return features(mlp_of(nn.ReLU(), nn.RMSNorm(16)), 8)


@case
def weightnorm_mlp():
    return features(nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(8, 16)), nn.ReLU(),
        nn.Linear(16, CLASSES)), 8)


class Temperature(nn.Module):
    """Scores divided by a number that is learnt."""

    def __init__(self):
        super().__init__()
        self.body = mlp_of(nn.ReLU())
        self.temperature = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        return self.body(x) / self.temperature


@case
def temperature():
    return features(Temperature(), 8, train=("temperature",))


class Scales(nn.Module):
    """A parameter of one element, and a constant beside it."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 16), nn.Linear(16, CLASSES)
        self.scale = nn.Parameter(torch.ones(1))
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.outer(torch.relu(self.inner(x)) * self.scale * 0.5 +
                          self.shift)


@case
def one_element_scales():
    return features(Scales(), 8, train=("scale", "shift"))


class Standardised(nn.Module):
    """Buffers that are constants: the mean and deviation of the data."""

    def __init__(self):
        super().__init__()
        self.body = mlp_of(nn.ReLU())
        self.register_buffer("mean", torch.randn(8))
        self.register_buffer("std", 1 + torch.rand(8))

    def forward(self, x):
        return self.body((x - self.mean) / self.std)


@case
def standardised():
    return features(Standardised(), 8)


class Frozen(nn.Module):
    """The first layer has requires_grad off."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, CLASSES)
        self.first.requires_grad_(False)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


class Tied(nn.Module):
    """An autoencoder whose decoder is the encoder's transpose."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(0.3 * torch.randn(6, 8))
        self.down, self.up = (nn.Parameter(torch.zeros(n)) for n in (6, 8))

    def forward(self, x):
        hidden = torch.tanh(functional.linear(x, self.weight, self.down))
        return functional.linear(hidden, self.weight.t(), self.up)


@case
def tied_autoencoder():
    return values(Tied(), 8, outputs=8)


class SharedLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 8), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.outer(torch.relu(self.inner(torch.relu(self.inner(x)))))


@case
def shared_layer():
    return features(SharedLayer(), 8)


class InDouble(nn.Module):
    """The input is float64, as numpy makes it."""

    def __init__(self):
        super().__init__()
        self.body = mlp_of(nn.ReLU())

    def forward(self, x):
        return self.body(x.float())


@case
def double_input():
    return Case(InDouble(), {"x": torch.randn(STEPS, BATCH, 8).double()},
                classes())


# ---- Clicks -----------------------------------------------------------------


def clicks(module, fields=3, rows=20, dense=5, **options):
    inputs = {"dense": torch.randn(STEPS, BATCH, dense)} if dense else {}
    inputs["ids"] = torch.randint(rows, (STEPS, BATCH, fields))
    return Case(module, inputs, torch.randint(2, (STEPS, BATCH)).float(),
                loss="sigmoid", **options)


class Dlrm(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(20, 4) for _ in range(3))
        self.bottom = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4),
                                    nn.ReLU())
        self.top = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, dense, ids):
        bottom = self.bottom(dense)
        rows = [table(ids[:, i]) for i, table in enumerate(self.tables)]
        vectors = torch.stack([bottom, *rows], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        i, j = torch.tril_indices(4, 4, -1)
        return self.top(torch.cat([bottom, products[:, i, j]], dim=1))


@case
def dlrm():
    return clicks(Dlrm())


class WideAndDeep(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.deep = nn.Embedding(20, 1), nn.Embedding(20, 4)
        self.mlp = nn.Sequential(nn.Linear(17, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, dense, ids):
        deep = self.mlp(torch.cat([dense, self.deep(ids).flatten(1)], 1))
        return deep + self.wide(ids).sum(1)


@case
def wide_and_deep():
    return clicks(WideAndDeep())


class DeepFm(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.factors = nn.Embedding(20, 1), nn.Embedding(20, 4)
        self.mlp = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 1))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, ids):
        rows = self.factors(ids)
        pairs = 0.5 * (rows.sum(1) ** 2 - (rows ** 2).sum(1)).sum(1, True)
        return (self.linear(ids).sum(1) + pairs + self.mlp(rows.flatten(1)) +
                self.bias)


@case
def deepfm():
    return clicks(DeepFm(), dense=0)


class Dcn(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 4)
        self.crosses = nn.ModuleList(nn.Linear(17, 17) for _ in range(2))
        self.deep = nn.Sequential(nn.Linear(17, 8), nn.ReLU())
        self.head = nn.Linear(25, 1)

    def forward(self, dense, ids):
        x0 = x = torch.cat([dense, self.table(ids).flatten(1)], 1)
        for cross in self.crosses:
            x = x0 * cross(x) + x
        return self.head(torch.cat([x, self.deep(x0)], 1)).squeeze(1)


@case
def dcn():
    return clicks(Dcn())


class BagOfWords(nn.Module):
    """EmbeddingBag as Embedding and sum; 0 is padding."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 8, padding_idx=0)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, ids):
        return self.head(self.table(ids).sum(1))


@case
def bag_of_words():
    return tokens(BagOfWords())


class MaskedMean(nn.Module):
    """The mean over the words that are not padding."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(50, 8), nn.Linear(8, CLASSES)

    def forward(self, ids):
        mask = (ids != 0).unsqueeze(-1).float()
        mean = (self.table(ids) * mask).sum(1) / mask.sum(1).clamp(min=1)
        return self.head(mean)


@case
def masked_mean():
    return tokens(MaskedMean())


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.EmbeddingBag(50, 8, mode="sum")
        self.head = nn.Linear(8, CLASSES)

    def forward(self, ids):
        return self.head(self.table(ids))


@case
def embedding_bag():
    return tokens(Bag())


# ---- Images -----------------------------------------------------------------


def images(module, channels=3, size=16, **options):
    return features(module, channels, size, size, name="image", **options)


@case
def lenet():
    return images(nn.Sequential(
        nn.Conv2d(1, 4, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, CLASSES)), channels=1)


class SmallResNet(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8),
            nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        self.inplanes = 8
        self.layers = nn.Sequential(self.stage(block, 4, 1),
                                    self.stage(block, 8, 2))
        self.head = nn.Linear(8 * block.expansion, CLASSES)

    def stage(self, block, planes, stride):
        shortcut = nn.Sequential(
            nn.Conv2d(self.inplanes, planes * block.expansion, 1, stride,
                      bias=False), nn.BatchNorm2d(planes * block.expansion))
        first = block(self.inplanes, planes, stride, shortcut)
        self.inplanes = planes * block.expansion
        return nn.Sequential(first, block(self.inplanes, planes))

    def forward(self, image):
        x = self.layers(self.stem(image))
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


@case
def resnet18():
    return images(SmallResNet(resnet.BasicBlock), rate=0.005)


@case
def resnet50():
    return images(SmallResNet(resnet.Bottleneck), rate=0.005)


class Vgg(nn.Module):
    def __init__(self, batch_norm):
        super().__init__()
        self.features = vgg.make_layers([4, "M", 8, 8, "M"], batch_norm)
        self.avgpool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(nn.Linear(32, 16), nn.ReLU(True),
                                        nn.Dropout(0.0), nn.Linear(16, CLASSES))

    def forward(self, image):
        x = self.avgpool(self.features(image))
        return self.classifier(torch.flatten(x, 1))


@case
def vgg_plain():
    return images(Vgg(False))


@case
def vgg_bn():
    return images(Vgg(True), rate=0.01)


@case
def mobilenet_v2():
    return images(mobilenetv2.MobileNetV2(
        CLASSES, width_mult=0.25, dropout=0, inverted_residual_setting=[
            [1, 16, 1, 1], [6, 24, 2, 2]]), size=32, rate=0.005)


@case
def mobilenet_v3():
    setting = [
        mobilenetv3.InvertedResidualConfig(8, 3, 8, 8, True, "RE", 2, 1, 1),
        mobilenetv3.InvertedResidualConfig(8, 3, 16, 16, True, "HS", 2, 1, 1),
        mobilenetv3.InvertedResidualConfig(16, 5, 32, 16, True, "HS", 1, 1, 1)]
    return images(mobilenetv3.MobileNetV3(setting, 32, CLASSES, dropout=0),
                  size=32, rate=0.005)


@case
def shufflenet():
    return images(shufflenetv2.ShuffleNetV2([2, 2, 2], [8, 8, 16, 32, 32],
                                            CLASSES), size=32, rate=0.0005)


@case
def squeezenet():
    return images(nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.ReLU(True), nn.MaxPool2d(3, 2,
                                                           ceil_mode=True),
        squeezenet_module.Fire(8, 4, 8, 8), squeezenet_module.Fire(16, 4, 8, 8),
        nn.Dropout(0.0), nn.Conv2d(16, CLASSES, 1), nn.ReLU(True),
        nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten()), size=32)


@case
def densenet_small():
    return images(densenet.DenseNet(4, (2, 2), 8, bn_size=2,
                                    num_classes=CLASSES), size=32, rate=0.005)


@case
def efficientnet():
    setting = [
        efficientnet_module.MBConvConfig(1, 3, 1, 8, 8, 1),
        efficientnet_module.MBConvConfig(4, 3, 2, 8, 8, 2)]
    return images(efficientnet_module.EfficientNet(
        setting, 0.0, stochastic_depth_prob=0.0, num_classes=CLASSES,
        last_channel=32), size=32, rate=0.005)


@case
def efficientnet_v2():
    setting = [
        efficientnet_module.FusedMBConvConfig(2, 3, 2, 8, 8, 1),
        efficientnet_module.MBConvConfig(4, 3, 2, 8, 8, 1)]
    return images(efficientnet_module.EfficientNet(
        setting, 0.0, stochastic_depth_prob=0.0, num_classes=CLASSES,
        last_channel=32), size=32, rate=0.005)


@case
def regnet_y():
    parameters = regnet.BlockParams.from_init_params(
        depth=3, w_0=8, w_a=8.0, w_m=2.5, group_width=4, se_ratio=0.25)
    return images(regnet.RegNet(parameters, CLASSES, stem_width=8), size=32,
                  rate=0.005)


@case
def convnext_small():
    setting = [convnext.CNBlockConfig(8, 16, 1),
               convnext.CNBlockConfig(16, None, 1)]
    return images(convnext.ConvNeXt(setting, 0.0, 1.0, CLASSES), size=32)


@case
def swin():
    return images(swin_transformer.SwinTransformer(
        [2, 2], 8, [2, 2], [2, 2], [2, 2], stochastic_depth_prob=0.0,
        num_classes=CLASSES))


@case
def swin_v2():
    return images(swin_transformer.SwinTransformer(
        [2, 2], 8, [1, 1], [2, 2], [2, 2], stochastic_depth_prob=0.0,
        num_classes=CLASSES, block=swin_transformer.SwinTransformerBlockV2,
        downsample_layer=swin_transformer.PatchMergingV2))


@case
def vit():
    return images(vision_transformer.VisionTransformer(
        16, 8, 2, 2, 16, 32, num_classes=CLASSES))


class SmallGoogLeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = BasicConv2d(3, 8, kernel_size=3, stride=2)
        self.a = Inception(8, 4, 4, 8, 4, 4, 4)
        self.pool = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.b = Inception(20, 4, 4, 8, 4, 4, 4)
        self.head = nn.Linear(20, CLASSES)

    def forward(self, image):
        x = self.b(self.pool(self.a(self.conv(image))))
        x = functional.adaptive_avg_pool2d(x, (1, 1))
        return self.head(torch.flatten(x, 1))


@case
def googlenet_small():
    return images(SmallGoogLeNet(), rate=0.005)


class SmallInception(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = inception.BasicConv2d(3, 8, kernel_size=3, stride=2)
        self.a = inception.InceptionA(8, 8)
        self.b = inception.InceptionB(64 + 64 + 96 + 8)
        self.head = nn.Linear(384 + 96 + 232, CLASSES)

    def forward(self, image):
        x = self.b(self.a(self.stem(image)))
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


@case
def inception_v3():
    return images(SmallInception(), rate=0.002)


@case
def alexnet_lrn():
    return images(nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(True), nn.LocalResponseNorm(5),
        nn.MaxPool2d(3, 2), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(True),
        nn.LocalResponseNorm(5, alpha=1e-2, k=2), nn.MaxPool2d(3, 2),
        nn.Flatten(), nn.Linear(72, CLASSES)))


@case
def grouped_conv():
    return images(nn.Sequential(
        nn.Conv2d(4, 8, 3, groups=2), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8),
        nn.ReLU(), nn.Flatten(), nn.Linear(1152, CLASSES)), channels=4)


@case
def dilated_conv():
    return images(nn.Sequential(
        nn.Conv2d(3, 8, 3, padding="same", dilation=2), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect"), nn.ReLU(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(512, CLASSES)))


@case
def groupnorm_cnn():
    return images(nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 3),
        nn.GroupNorm(4, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, CLASSES)))


@case
def instancenorm_cnn():
    return images(nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8, affine=True), nn.ReLU(),
        nn.Conv2d(8, 8, 3), nn.InstanceNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(288, CLASSES)))


@case
def batchnorm_cnn():
    return images(nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3),
        nn.BatchNorm2d(8, momentum=0.3), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, CLASSES)), rate=0.01)


@case
def conv1d():
    return features(nn.Sequential(
        nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), nn.MaxPool1d(2),
        nn.Conv1d(8, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
        nn.Linear(8, CLASSES)), 3, 16)


@case
def conv3d():
    return features(nn.Sequential(
        nn.Conv3d(1, 4, 3), nn.ReLU(), nn.MaxPool3d(2), nn.Flatten(),
        nn.Linear(108, CLASSES)), 1, 8, 8, 8)


@case
def adaptive_pool_cnn():
    return images(nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(4),
        nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d((2, 2)),
        nn.Flatten(), nn.Linear(32, CLASSES)))


class UNet(nn.Module):
    """Its classes are of pixels, and last."""

    def __init__(self, upsample):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU())
        self.middle = nn.Sequential(nn.MaxPool2d(2),
                                    nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(),
                                    upsample)
        self.up = nn.Conv2d(12, CLASSES, 3, padding=1)

    def forward(self, image):
        x = self.down(image)
        x = torch.cat([x, self.middle(x)], dim=1)
        return self.up(x).permute(0, 2, 3, 1)


def pixels(module):
    return Case(module, {"image": torch.randn(STEPS, BATCH, 3, 8, 8)},
                classes(8, 8))


@case
def unet_nearest():
    return pixels(UNet(nn.Upsample(scale_factor=2, mode="nearest")))


@case
def unet_bilinear():
    return pixels(UNet(nn.Upsample(scale_factor=2, mode="bilinear")))


@case
def unet_bilinear_corners():
    return pixels(UNet(nn.Upsample(scale_factor=2, mode="bilinear",
                                   align_corners=True)))


@case
def unet_transposed():
    return pixels(UNet(nn.ConvTranspose2d(8, 8, 2, stride=2)))


class SizedUpsample(nn.Module):
    def forward(self, x):
        return functional.interpolate(x, size=(8, 8), mode="nearest")


@case
def unet_sized():
    return pixels(UNet(SizedUpsample()))


@case
def conv_autoencoder():
    return values(nn.Sequential(
        nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 8, 3, 2, 1),
        nn.ReLU(), nn.ConvTranspose2d(8, 4, 3, 2, 1, output_padding=1),
        nn.ReLU(), nn.ConvTranspose2d(4, 1, 3, 2, 1, output_padding=1),
        nn.Sigmoid(), nn.Flatten()), 1, 8, 8, outputs=64)


@case
def pixel_shuffle():
    return values(nn.Sequential(
        nn.Conv2d(1, 4, 3, 1, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, 1, 1),
        nn.PixelShuffle(2), nn.Flatten()), 1, 4, 4, outputs=64)


# ---- Sequences --------------------------------------------------------------


class Reader(nn.Module):
    """Embeds tokens, reads them, and classifies by the last state."""

    def __init__(self, network):
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.network = network
        width = 16 if network.bidirectional else 8
        self.head = nn.Linear(width, CLASSES)

    def forward(self, input_ids):
        states, _ = self.network(self.embedding(input_ids))
        return self.head(states[:, -1])


@case
def lstm():
    return tokens(Reader(nn.LSTM(8, 8, batch_first=True)))


@case
def lstm_2_bidirectional():
    return tokens(Reader(nn.LSTM(8, 8, 2, batch_first=True,
                                 bidirectional=True)))


@case
def gru():
    return tokens(Reader(nn.GRU(8, 8, batch_first=True)))


@case
def gru_2_bidirectional():
    return tokens(Reader(nn.GRU(8, 8, 2, batch_first=True,
                                bidirectional=True)))


@case
def rnn():
    return tokens(Reader(nn.RNN(8, 8, batch_first=True)))


@case
def rnn_2_relu():
    return tokens(Reader(nn.RNN(8, 8, 2, nonlinearity="relu",
                                batch_first=True)))


class LastHidden(nn.Module):
    """By the hidden state, which nn.LSTM gives beside the outputs."""

    def __init__(self):
        super().__init__()
        self.network = nn.LSTM(6, 8, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        _, (hidden, _) = self.network(x)
        return self.head(hidden[-1])


@case
def lstm_hidden():
    return features(LastHidden(), 10, 6)


class Encoder(nn.Module):
    """nn.TransformerEncoder with a padding mask from the ids."""

    def __init__(self, masked, norm_first=False):
        super().__init__()
        self.masked = masked
        self.embedding = nn.Embedding(50, 16)
        self.positions = nn.Parameter(0.02 * torch.randn(8, 16))
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True,
                                       norm_first=norm_first), 2,
            enable_nested_tensor=False)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, input_ids):
        x = self.embedding(input_ids) + self.positions
        mask = input_ids == 0 if self.masked else None
        return self.head(self.encoder(x, src_key_padding_mask=mask).mean(1))


def padded(this):
    """The last words of each sample are padding."""
    ids = this.inputs["input_ids"]
    ends = torch.randint(3, ids.shape[-1], (*ids.shape[:2], 1))
    ids[torch.arange(ids.shape[-1]) >= ends] = 0
    return this


@case
def transformer_encoder():
    return tokens(Encoder(masked=False))


@case
def transformer_encoder_prenorm():
    return tokens(Encoder(masked=False, norm_first=True))


@case
def transformer_encoder_padding():
    return padded(tokens(Encoder(masked=True)))


class SeqToSeq(nn.Module):
    """nn.Transformer: decoder with cross attention and a causal mask."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.network = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0,
                                      batch_first=True)
        self.head = nn.Linear(16, 50)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        states = self.network(self.embedding(source), self.embedding(target),
                              tgt_mask=mask, tgt_is_causal=True)
        return self.head(states)


@case
def seq_to_seq_transformer():
    source, target = torch.randint(50, (2, STEPS, BATCH, 6))
    return Case(SeqToSeq(), {"source": source, "target": target},
                torch.randint(50, (STEPS, BATCH, 6)))


class Gpt(nn.Module):
    """A decoder of its own; `attend` is how its attention is written."""

    def __init__(self, attend, tied=True):
        super().__init__()
        self.attend = attend
        self.tokens, self.places = nn.Embedding(50, 16), nn.Embedding(8, 16)
        self.blocks = nn.ModuleList(nn.ModuleDict({
            "norm1": nn.LayerNorm(16), "qkv": nn.Linear(16, 48),
            "out": nn.Linear(16, 16), "norm2": nn.LayerNorm(16),
            "mlp": nn.Sequential(nn.Linear(16, 32), nn.GELU(),
                                 nn.Linear(32, 16))}) for _ in range(2))
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 50, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, input_ids):
        batch, length = input_ids.shape
        places = torch.arange(length, device=input_ids.device)
        x = self.tokens(input_ids) + self.places(places)
        for block in self.blocks:
            qkv = block["qkv"](block["norm1"](x)).chunk(3, dim=-1)
            q, k, v = (part.view(batch, length, 2, 8).transpose(1, 2)
                       for part in qkv)
            y = self.attend(q, k, v).transpose(1, 2).reshape(batch, length, 16)
            x = x + block["out"](y)
            x = x + block["mlp"](block["norm2"](x))
        return self.head(self.norm(x))


def attend_triu(q, k, v):
    length = q.shape[-2]
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    after = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
    scores = scores.masked_fill(after, float("-inf"))
    return torch.softmax(scores, -1) @ v


def attend_sdpa(q, k, v):
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


@case
def gpt_triu():
    return tokens(Gpt(attend_triu), per_token=True)


@case
def gpt_sdpa():
    return tokens(Gpt(attend_sdpa), per_token=True)


@case
def gpt_untied():
    return tokens(Gpt(attend_sdpa, tied=False), per_token=True)


# ---- transformers -----------------------------------------------------------


class Logits(nn.Module):
    """What a model of transformers gives, without the rest."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids=input_ids).logits


class MaskedLogits(nn.Module):
    """With the attention mask from the ids."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        mask = (input_ids != 0).long()
        return self.model(input_ids=input_ids, attention_mask=mask).logits


BERT = dict(vocab_size=50, hidden_size=16, num_hidden_layers=2,
            num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=32, type_vocab_size=2,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            num_labels=CLASSES, pad_token_id=0)


def bert_of(attention):
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(**BERT, attn_implementation=attention))


@case
def hf_bert():
    return tokens(Logits(bert_of("sdpa")))


@case
def hf_bert_eager():
    return tokens(Logits(bert_of("eager")))


@case
def hf_bert_masked():
    return padded(tokens(MaskedLogits(bert_of("eager"))))


class TwoInputs(nn.Module):
    """With the attention mask as an input, as a tokenizer gives it."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids,
                          attention_mask=attention_mask).logits


@case
def hf_bert_two_inputs():
    this = padded(tokens(TwoInputs(bert_of("sdpa"))))
    this.inputs["attention_mask"] = (this.inputs["input_ids"] != 0).long()
    return this


@case
def hf_distilbert():
    return tokens(Logits(transformers.DistilBertForSequenceClassification(
        transformers.DistilBertConfig(
            vocab_size=50, dim=16, n_layers=2, n_heads=2, hidden_dim=32,
            max_position_embeddings=32, dropout=0.0, attention_dropout=0.0,
            seq_classif_dropout=0.0, num_labels=CLASSES))))


@case
def hf_roberta():
    options = dict(BERT, type_vocab_size=1, pad_token_id=0)
    return tokens(Logits(transformers.RobertaForSequenceClassification(
        transformers.RobertaConfig(**options))))


@case
def hf_albert():
    return tokens(Logits(transformers.AlbertForSequenceClassification(
        transformers.AlbertConfig(**BERT, embedding_size=8,
                                  classifier_dropout_prob=0.0))))


@case
def hf_electra():
    return tokens(Logits(transformers.ElectraForSequenceClassification(
        transformers.ElectraConfig(**BERT, embedding_size=8))))


@case
def hf_gpt2():
    return tokens(Logits(transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=50, n_positions=32, n_embd=16, n_layer=2, n_head=2,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
        bos_token_id=0, eos_token_id=0))), per_token=True)


@case
def hf_gpt_neox():
    return tokens(Logits(transformers.GPTNeoXForCausalLM(
        transformers.GPTNeoXConfig(
            vocab_size=50, hidden_size=16, num_hidden_layers=2,
            num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=32, use_cache=False, bos_token_id=0,
            eos_token_id=0))), per_token=True)


@case
def hf_llama():
    return tokens(Logits(transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, intermediate_size=32,
        max_position_embeddings=32, use_cache=False, pad_token_id=0,
        bos_token_id=1, eos_token_id=2))), per_token=True)


class T5Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = transformers.T5EncoderModel(transformers.T5Config(
            vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=2,
            num_heads=2, dropout_rate=0.0))
        self.head = nn.Linear(16, CLASSES)

    def forward(self, input_ids):
        return self.head(
            self.encoder(input_ids=input_ids).last_hidden_state.mean(1))


@case
def hf_t5_encoder():
    return tokens(T5Classifier())


class HfVit(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = transformers.ViTForImageClassification(
            transformers.ViTConfig(
                hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                intermediate_size=32, image_size=16, patch_size=8,
                hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                num_labels=CLASSES))

    def forward(self, image):
        return self.model(pixel_values=image).logits


@case
def hf_vit():
    return images(HfVit())
